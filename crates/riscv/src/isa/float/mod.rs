//! Floating point (RISC-V Unprivileged ISA, "F Extension for Single-Precision Floating-Point",
//! "D Extension for Double-Precision Floating-Point").
//!
//! ```text
//!            ┌─ nearest even, finite ─▶ host: one instruction, flags accrue in MXCSR
//!  execute ──┤
//!            └─ everything else ──────▶ soft, convert, compare: integers, flags in Cpu
//! ```

mod compare;
mod convert;
mod format;
#[cfg_attr(not(target_arch = "x86_64"), path = "no_host.rs")]
mod host;
mod round;
mod soft;
#[cfg(test)]
mod tests;

use self::{
    convert::Range,
    round::{Flags, Rounding},
};
pub(super) use self::{
    format::{Double, Format, Single},
    host::HostFormat,
};
use super::{
    cpu::Cpu,
    insn::{FloatFields, FloatFunction, Insn},
    quick,
};

/// The instruction rounds dynamically, and `frm` holds a reserved mode.
pub(crate) struct ReservedRounding;

/// Floating point during one [`super::run`]. While it is open, the host's floating-point unit
/// accrues the guest's exceptions: no code but the guest's may compute in it.
pub(crate) struct Session {
    /// Set from the first floating-point instruction on.
    open: Option<host::Saved>,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self { open: None }
    }

    /// Adds what has accrued in the host to `cpu.fflags`, and closes the session.
    #[inline]
    pub(crate) fn harvest(&mut self, cpu: &mut Cpu) {
        if let Some(saved) = self.open.take() {
            cpu.fflags |= host::stop(saved);
        }
    }

    /// Opens the session, if it is not: from here on the host accrues exceptions.
    #[inline]
    pub(crate) fn open(&mut self) {
        if self.open.is_none() {
            self.open = Some(host::start());
        }
    }

    /// Executes a floating-point instruction of either format. The session is open afterwards.
    #[inline(never)]
    pub(super) fn execute(&mut self, cpu: &mut Cpu, insn: Insn) -> Result<(), ReservedRounding> {
        self.open();
        execute_in_session(cpu, insn)
    }
}

/// Adds what has accrued in the host to `cpu.fflags`, in a session that stays open.
pub(crate) fn harvest_in_session(cpu: &mut Cpu) {
    cpu.fflags |= host::stop(host::cleared());
}

/// Executes a floating-point instruction of either format in a session that is open.
pub(crate) fn execute_in_session(cpu: &mut Cpu, insn: Insn) -> Result<(), ReservedRounding> {
    if quick::is_single(insn) {
        execute::<Single, Double>(cpu, insn)
    } else {
        execute::<Double, Single>(cpu, insn)
    }
}

#[inline(always)]
fn execute<F: HostFormat, Other: Format>(
    cpu: &mut Cpu,
    insn: Insn,
) -> Result<(), ReservedRounding> {
    use FloatFunction::*;

    let fields = FloatFields::of(insn);
    let rounding = Rounding::select(fields.rm(), cpu.frm).ok_or(ReservedRounding)?;
    let nearest = rounding == Rounding::NearestEven;
    let (f1, f2) = (cpu.f[insn.fs1_index()], cpu.f[insn.fs2_index()]);
    let (a, b) = (F::unboxed(f1), F::unboxed(f2));
    let mut flags = Flags::default();

    /// The host's result, if it computes in this mode and can; else the portable one.
    macro_rules! compute {
        ($host:expr, $soft:expr) => {
            match if nearest { $host } else { None } {
                Some(bits) => bits,
                None => $soft,
            }
        };
    }
    macro_rules! fused {
        ($a:expr, $c:expr) => {{
            let (a, c) = ($a, $c);
            compute!(F::mul_add(a, b, c), soft::mul_add::<F>(a, b, c, rounding, &mut flags))
        }};
    }
    macro_rules! to_integer {
        ($range:ident) => {
            convert::to_integer::<F>(a, Range::$range, rounding, &mut flags)
        };
    }
    macro_rules! from_integer {
        ($value:expr) => {{
            let value: i64 = $value;
            let magnitude = value.unsigned_abs();
            compute!(
                F::from_i64(value),
                convert::from_integer::<F>(value < 0, magnitude, rounding, &mut flags)
            )
        }};
    }

    let third = || F::unboxed(cpu.f[fields.fs3_index()]);
    let integer = cpu.x[insn.s1()];
    let toward_zero = rounding == Rounding::TowardZero;
    let result = match fields.function() {
        Add => compute!(F::add(a, b), soft::add::<F>(a, b, rounding, &mut flags)),
        Sub => compute!(F::sub(a, b), soft::sub::<F>(a, b, rounding, &mut flags)),
        Mul => compute!(F::mul(a, b), soft::mul::<F>(a, b, rounding, &mut flags)),
        Div => compute!(F::div(a, b), soft::div::<F>(a, b, rounding, &mut flags)),
        Sqrt => compute!(F::sqrt(a), soft::sqrt::<F>(a, rounding, &mut flags)),
        MulAdd => fused!(a, third()),
        MulSub => fused!(a, third() ^ F::SIGN),
        NegMulAdd => fused!(a ^ F::SIGN, third()),
        NegMulSub => fused!(a ^ F::SIGN, third() ^ F::SIGN),
        SignCopy => a & !F::SIGN | b & F::SIGN,
        SignNegate => a & !F::SIGN | !b & F::SIGN,
        SignXor => a ^ b & F::SIGN,
        Min => compare::min::<F>(a, b, &mut flags),
        Max => compare::max::<F>(a, b, &mut flags),
        FromI32 => from_integer!(i64::from(integer as i32)),
        FromU32 => from_integer!(i64::from(integer as u32)),
        FromI64 => from_integer!(integer as i64),
        FromU64 => convert::from_integer::<F>(false, integer, rounding, &mut flags),
        FromOther => {
            let other = Other::unboxed(f1);
            compute!(
                F::from_other(other),
                convert::between::<Other, F>(other, rounding, &mut flags)
            )
        }
        // The bits alone: not unboxed, and the upper half of a register is not looked at.
        MoveFromInteger => integer & (F::SIGN | (F::SIGN - 1)),
        to_integer => {
            let value = match to_integer {
                Equal => u64::from(compare::equal::<F>(a, b, &mut flags)),
                Less => u64::from(compare::less::<F>(a, b, &mut flags)),
                LessOrEqual => u64::from(compare::less_or_equal::<F>(a, b, &mut flags)),
                Class => compare::class::<F>(a),
                ToI32 => match if toward_zero { F::to_i32(a) } else { None } {
                    Some(value) => value,
                    None => to_integer!(I32),
                },
                ToI64 => match if toward_zero { F::to_i64(a) } else { None } {
                    Some(value) => value,
                    None => to_integer!(I64),
                },
                ToU32 => to_integer!(U32) as i32 as u64,
                ToU64 => to_integer!(U64),
                // MoveToInteger: sign-extended, whatever the box.
                _ if F::WIDTH == 32 => f1 as i32 as u64,
                _ => f1,
            };
            cpu.fflags |= flags.0;
            cpu.x[insn.d()] = value;
            return Ok(());
        }
    };
    cpu.fflags |= flags.0;
    cpu.f[insn.fd_index()] = F::boxed(result);
    Ok(())
}
