//! Which registers an instruction reads and writes, and how it goes on.

use super::flags;
use crate::isa::insn::{FloatFields, FloatFunction, Insn, SINK, op};

/// A set of guest registers: bits 0 to 31 are `x0` to `x31`, bits 32 to 63 `f0` to `f31`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Registers(pub(super) u64);

impl Registers {
    pub(super) const NONE: Self = Self(0);

    pub(super) const ALL: Self = Self(!0);

    /// All integer registers.
    pub(super) const INTEGER: Self = Self(0xffff_ffff);

    /// An integer register. `x0` and the sink are none.
    pub(super) const fn x(index: usize) -> Self {
        if index == 0 || index >= SINK as usize { Self(0) } else { Self(1 << index) }
    }

    /// A floating-point register.
    pub(super) const fn f(index: usize) -> Self {
        Self(1 << (32 + index))
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The members of both.
    pub(super) const fn and_both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The members, as numbers from 0 to 63.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(next)
        })
    }
}

/// What an instruction does to registers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Effects {
    pub(super) reads: Registers,
    pub(super) writes: Registers,
    /// Whether host code may leave in front of it. (In front of loads it does so by a fault, which
    /// finds the registers where they happen to be.)
    pub(super) may_leave: bool,
}

/// How execution goes on after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// With the next one.
    Next,
    /// With the next one or at a fixed distance.
    Branch,
    /// At a fixed distance.
    Jump,
    /// Where a register says.
    JumpRegister,
    /// It is for the interpreter, and so is what follows it until the next entry.
    Leave,
    /// It never retires.
    Trap,
}

/// The flow of an instruction.
pub(super) fn flow(insn: Insn) -> Flow {
    match insn.op() {
        op::BEQ | op::C_BEQ | op::BNE | op::C_BNE => Flow::Branch,
        op::BLT | op::BGE | op::BLTU | op::BGEU => Flow::Branch,
        op::JAL | op::C_JAL => Flow::Jump,
        op::JALR | op::C_JALR => Flow::JumpRegister,
        op::CSR if flags::is_translated(insn) => Flow::Next,
        op::ECALL | op::CSR => Flow::Leave,
        op::EBREAK | op::C_EBREAK | op::ILLEGAL => Flow::Trap,
        _ => Flow::Next,
    }
}

/// The effects of an instruction that does not leave.
pub(super) fn effects(insn: Insn) -> Effects {
    let (d, s1, s2) = (Registers::x(insn.d()), Registers::x(insn.s1()), Registers::x(insn.s2()));
    let (fd, f2) = (Registers::f(insn.fd_index()), Registers::f(insn.fs2_index()));
    let plain = |reads, writes| Effects { reads, writes, may_leave: false };
    let memory = |reads, writes| Effects { reads, writes, may_leave: true };
    match insn.op() {
        op::LI | op::C_LI | op::AUIPC | op::JAL | op::C_JAL => plain(Registers::NONE, d),
        op::FENCE => Effects::default(),
        op::BEQ | op::C_BEQ | op::BNE | op::C_BNE | op::BLT | op::BGE | op::BLTU | op::BGEU => {
            plain(s1.and(s2), Registers::NONE)
        }
        op::LW | op::C_LW | op::LD | op::C_LD => plain(s1, d),
        op::LB | op::LH | op::LBU | op::LHU | op::LWU => plain(s1, d),
        op::SW | op::C_SW | op::SD | op::C_SD | op::SB | op::SH => {
            memory(s1.and(s2), Registers::NONE)
        }
        op::FLD | op::C_FLD | op::FLW => plain(s1, fd),
        op::FSD | op::C_FSD | op::FSW => memory(s1.and(f2), Registers::NONE),
        op::ATOMIC_W | op::ATOMIC_D => memory(s1.and(s2), d),
        op::FLOAT_S | op::FLOAT_D => float(insn),
        op::CSR if flags::is_translated(insn) => plain(s1, d),
        op::ECALL | op::CSR | op::EBREAK | op::C_EBREAK | op::ILLEGAL => Effects::default(),
        // All others compute in integers.
        _ => plain(s1.and(s2), d),
    }
}

fn float(insn: Insn) -> Effects {
    use FloatFunction::*;

    let fields = FloatFields::of(insn);
    let (f1, f2) = (Registers::f(insn.fs1_index()), Registers::f(insn.fs2_index()));
    let f3 = Registers::f(fields.fs3_index());
    let (fd, d) = (Registers::f(insn.fd_index()), Registers::x(insn.d()));
    let (reads, writes) = match fields.function() {
        Add | Sub | Mul | Div | SignCopy | SignNegate | SignXor | Min | Max => (f1.and(f2), fd),
        MulAdd | MulSub | NegMulAdd | NegMulSub => (f1.and(f2).and(f3), fd),
        Sqrt | FromOther => (f1, fd),
        Equal | Less | LessOrEqual => (f1.and(f2), d),
        Class | MoveToInteger | ToI32 | ToU32 | ToI64 | ToU64 => (f1, d),
        MoveFromInteger | FromI32 | FromU32 | FromI64 | FromU64 => (Registers::x(insn.s1()), fd),
    };
    Effects { reads, writes, may_leave: !always_goes_on(insn, fields) }
}

/// Whether a floating-point instruction is translated without a way out.
fn always_goes_on(insn: Insn, fields: FloatFields) -> bool {
    use FloatFunction::*;

    /// To nearest even, or as `frm` says, which says the same.
    const NEAREST: [u32; 2] = [0, 7];
    match fields.function() {
        Add | Sub | Mul | Div | Sqrt => insn.op() == op::FLOAT_D && NEAREST.contains(&fields.rm()),
        SignCopy | SignNegate | SignXor => insn.op() == op::FLOAT_D,
        MoveToInteger | MoveFromInteger => true,
        _ => false,
    }
}
