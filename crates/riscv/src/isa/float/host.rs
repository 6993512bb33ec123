//! Arithmetic on the floating-point unit of an x86-64 host, rounding to nearest even.
//!
//! For finite results SSE2 and FMA agree with RISC-V bit by bit: the same rounding, tininess
//! detected after rounding, the same five exceptions (Intel SDM Vol. 1 §4.9, §11.5). They differ
//! about NaNs, so an operation that gives one is left to [`super::soft`]: what the host has raised
//! by then, RISC-V raises too.
//!
//! Exceptions accrue in MXCSR from [`start`] to [`stop`]. In between the interpreter uses integers
//! only, and the guest's operations are these assembly blocks, which the compiler keeps in order
//! and can neither fold nor repeat; so nothing else raises an exception.
#![allow(
    unsafe_code,
    reason = "arithmetic with exact exceptions needs the instructions themselves"
)]

use std::arch::asm;

use super::{
    format::{Double, Format, Single},
    round::Flags,
};

/// MXCSR with all exceptions masked and clear, rounding to nearest, no flushing to zero: what
/// Rust assumes outside of this module too.
const CLEAR: u32 = 0x1f80;

/// The state of the floating-point unit before [`start`].
pub(super) struct Saved(u32);

/// Clears the accrued exceptions.
pub(super) fn start() -> Saved {
    let mut saved = 0u32;
    // SAFETY: both operands point to four bytes that live here; the control bits that are loaded
    // are those that Rust requires.
    unsafe {
        asm!(
            "stmxcsr [{saved}]",
            "ldmxcsr [{clear}]",
            saved = in(reg) &mut saved,
            clear = in(reg) &CLEAR,
            options(nostack),
        );
    }
    Saved(saved)
}

/// A state without accrued exceptions.
pub(super) fn cleared() -> Saved {
    Saved(CLEAR)
}

/// Brings the state before [`start`] back, and gives the exceptions since then as `fflags`.
pub(super) fn stop(saved: Saved) -> u8 {
    let mut now = 0u32;
    // SAFETY: both operands point to four bytes that live here; what is loaded was there before.
    unsafe {
        asm!(
            "stmxcsr [{now}]",
            "ldmxcsr [{saved}]",
            now = in(reg) &mut now,
            saved = in(reg) &saved.0,
            options(nostack),
        );
    }
    // Intel SDM Vol. 1 §10.2.3: IE 0, DE 1, ZE 2, OE 3, UE 4, PE 5.
    [
        (0, Flags::INVALID),
        (2, Flags::DIVIDE_BY_ZERO),
        (3, Flags::OVERFLOW),
        (4, Flags::UNDERFLOW),
        (5, Flags::INEXACT),
    ]
    .into_iter()
    .filter(|(bit, _)| now >> bit & 1 != 0)
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// A format that the host computes in. `None` leaves an operation to [`super::soft`].
pub(in crate::isa) trait HostFormat: Format {
    fn add(a: u64, b: u64) -> Option<u64>;
    fn sub(a: u64, b: u64) -> Option<u64>;
    fn mul(a: u64, b: u64) -> Option<u64>;
    fn div(a: u64, b: u64) -> Option<u64>;
    fn sqrt(a: u64) -> Option<u64>;
    fn mul_add(a: u64, b: u64, c: u64) -> Option<u64>;
    /// From a signed integer.
    fn from_i64(value: i64) -> Option<u64>;
    /// To a signed integer, rounding to zero.
    fn to_i32(a: u64) -> Option<u64>;
    /// To a signed integer, rounding to zero.
    fn to_i64(a: u64) -> Option<u64>;
    /// From the other format.
    fn from_other(a: u64) -> Option<u64>;
    /// 1 if the values are equal, else 0.
    fn equal(a: u64, b: u64) -> Option<u64>;
    /// 1 if the first value is less, else 0.
    fn less(a: u64, b: u64) -> Option<u64>;
    /// 1 if the first value is less or equal, else 0.
    fn less_or_equal(a: u64, b: u64) -> Option<u64>;
}

/// The bits of a result that is no NaN. An instruction's result is never a signalling NaN, so the
/// comparison raises nothing.
macro_rules! unless_nan {
    ($result:ident) => {
        (!$result.is_nan()).then_some(u64::from($result.to_bits()))
    };
}

/// One instruction with an operand of its own format or the other, and a result in its own.
macro_rules! unary {
    ($instruction:literal, $a:expr, $from:ty, $bits:ty => $to:ty) => {{
        let operand = <$from>::from_bits($a as $bits);
        let result: $to;
        // SAFETY: computes in registers. That exceptions accrue in MXCSR is the purpose.
        unsafe {
            asm!(
                concat!($instruction, " {result}, {operand}"),
                result = out(xmm_reg) result,
                operand = in(xmm_reg) operand,
                options(nomem, nostack),
            );
        }
        unless_nan!(result)
    }};
}

/// One instruction with two operands and a result of the same format.
macro_rules! binary {
    ($instruction:literal, $a:expr, $b:expr, $float:ty, $bits:ty) => {{
        let mut result = <$float>::from_bits($a as $bits);
        let operand = <$float>::from_bits($b as $bits);
        // SAFETY: as in `unary`.
        unsafe {
            asm!(
                concat!($instruction, " {result}, {operand}"),
                result = inout(xmm_reg) result,
                operand = in(xmm_reg) operand,
                options(nomem, nostack),
            );
        }
        unless_nan!(result)
    }};
}

/// Truncation to a signed integer. What is out of range, and a NaN, gives the lowest integer.
macro_rules! truncate {
    ($instruction:literal, $modifier:literal, $a:expr, $float:ty, $bits:ty, $integer:ty) => {{
        let operand = <$float>::from_bits($a as $bits);
        let result: $integer;
        // SAFETY: as in `unary`.
        unsafe {
            asm!(
                concat!($instruction, " {result", $modifier, "}, {operand}"),
                result = out(reg) result,
                operand = in(xmm_reg) operand,
                options(nomem, nostack),
            );
        }
        (result != <$integer>::MIN).then_some(result as u64)
    }};
}

/// Whether two operands compare as the condition says, which is false for NaNs: the ordered
/// comparison raises the invalid operation for every NaN, the unordered one for signalling NaNs
/// (Intel SDM Vol. 2 "COMISD", "UCOMISD"), as `flt` and `fle`, and `feq` do.
macro_rules! compare {
    ($instruction:literal, $set:literal, $a:expr, $b:expr, $float:ty, $bits:ty) => {{
        let (a, b) = (<$float>::from_bits($a as $bits), <$float>::from_bits($b as $bits));
        let result: u64;
        // SAFETY: as in `unary`.
        unsafe {
            asm!(
                "xor {result:e}, {result:e}",
                concat!($instruction, " {a}, {b}"),
                concat!($set, " {result:l}"),
                result = out(reg) result,
                a = in(xmm_reg) a,
                b = in(xmm_reg) b,
                options(nomem, nostack),
            );
        }
        Some(result)
    }};
}

macro_rules! host_format {
    (
        $format:ident, $float:ty, $bits:ty, $other:ty, $other_bits:ty;
        $add:literal $sub:literal $mul:literal $div:literal $sqrt:literal $fma:literal
        $from_i64:literal $truncate:literal $from_other:literal
        $ordered:literal $unordered:literal
    ) => {
        impl HostFormat for $format {
            #[inline(always)]
            fn add(a: u64, b: u64) -> Option<u64> {
                binary!($add, a, b, $float, $bits)
            }

            #[inline(always)]
            fn sub(a: u64, b: u64) -> Option<u64> {
                binary!($sub, a, b, $float, $bits)
            }

            #[inline(always)]
            fn mul(a: u64, b: u64) -> Option<u64> {
                binary!($mul, a, b, $float, $bits)
            }

            #[inline(always)]
            fn div(a: u64, b: u64) -> Option<u64> {
                binary!($div, a, b, $float, $bits)
            }

            #[inline(always)]
            fn sqrt(a: u64) -> Option<u64> {
                unary!($sqrt, a, $float, $bits => $float)
            }

            #[inline(always)]
            fn mul_add(a: u64, b: u64, c: u64) -> Option<u64> {
                if !is_x86_feature_detected!("fma") {
                    return None;
                }
                let mut result = <$float>::from_bits(a as $bits);
                let (b, c) = (<$float>::from_bits(b as $bits), <$float>::from_bits(c as $bits));
                // SAFETY: as in `unary`, and the host has the instruction.
                unsafe {
                    asm!(
                        concat!($fma, " {result}, {b}, {c}"),
                        result = inout(xmm_reg) result,
                        b = in(xmm_reg) b,
                        c = in(xmm_reg) c,
                        options(nomem, nostack),
                    );
                }
                unless_nan!(result)
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Option<u64> {
                let result: $float;
                // SAFETY: as in `unary`. Clearing the register first keeps the instruction from
                // waiting for whoever used it last.
                unsafe {
                    asm!(
                        "xorps {result}, {result}",
                        concat!($from_i64, " {result}, {value:r}"),
                        result = out(xmm_reg) result,
                        value = in(reg) value,
                        options(nomem, nostack),
                    );
                }
                Some(u64::from(result.to_bits()))
            }

            #[inline(always)]
            fn to_i32(a: u64) -> Option<u64> {
                truncate!($truncate, ":e", a, $float, $bits, i32)
            }

            #[inline(always)]
            fn to_i64(a: u64) -> Option<u64> {
                truncate!($truncate, ":r", a, $float, $bits, i64)
            }

            #[inline(always)]
            fn from_other(a: u64) -> Option<u64> {
                unary!($from_other, a, $other, $other_bits => $float)
            }

            #[inline(always)]
            fn equal(a: u64, b: u64) -> Option<u64> {
                let is_nan = compare!($unordered, "setp", a, b, $float, $bits)?;
                let equal = compare!($unordered, "sete", a, b, $float, $bits)?;
                Some(equal & !is_nan)
            }

            #[inline(always)]
            fn less(a: u64, b: u64) -> Option<u64> {
                // Only "above" is false for NaNs.
                compare!($ordered, "seta", b, a, $float, $bits)
            }

            #[inline(always)]
            fn less_or_equal(a: u64, b: u64) -> Option<u64> {
                compare!($ordered, "setae", b, a, $float, $bits)
            }
        }
    };
}

host_format! {
    Single, f32, u32, f64, u64;
    "addss" "subss" "mulss" "divss" "sqrtss" "vfmadd213ss"
    "cvtsi2ss" "cvttss2si" "cvtsd2ss"
    "comiss" "ucomiss"
}

host_format! {
    Double, f64, u64, f32, u32;
    "addsd" "subsd" "mulsd" "divsd" "sqrtsd" "vfmadd213sd"
    "cvtsi2sd" "cvttsd2si" "cvtss2sd"
    "comisd" "ucomisd"
}
