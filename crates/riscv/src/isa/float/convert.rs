//! Conversions (RISC-V Unprivileged ISA, "Single-Precision Floating-Point Conversion and Move
//! Instructions", "Double-Precision …").

use super::{
    format::{Finite, Format, Value},
    round::{Flags, Rounding, pack, shift_and_round},
};

/// A range of integers that a conversion saturates to.
#[derive(Clone, Copy)]
pub(super) struct Range {
    /// The magnitude of the least.
    lowest: u64,
    /// The greatest.
    highest: u64,
}

impl Range {
    pub(super) const I32: Self = Self { lowest: 1 << 31, highest: i32::MAX as u64 };
    pub(super) const U32: Self = Self { lowest: 0, highest: u32::MAX as u64 };
    pub(super) const I64: Self = Self { lowest: 1 << 63, highest: i64::MAX as u64 };
    pub(super) const U64: Self = Self { lowest: 0, highest: u64::MAX };
}

/// To an integer. What is out of range, and a NaN, raises NV (and not NX) and saturates.
pub(super) fn to_integer<F: Format>(
    bits: u64,
    range: Range,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let (negative, magnitude, inexact) = match F::unpack(bits) {
        Value::Zero { .. } => return 0,
        Value::Nan { .. } => (false, None, false),
        Value::Infinity { negative } => (negative, None, false),
        Value::Finite(value) => match u32::try_from(63 - value.exponent) {
            Ok(shift) => {
                let (magnitude, inexact) =
                    shift_and_round(value.significand, shift, value.negative, rounding);
                (value.negative, Some(magnitude), inexact)
            }
            Err(_) => (value.negative, None, false),
        },
    };
    let limit = if negative { range.lowest } else { range.highest };
    let magnitude = match magnitude {
        Some(magnitude) if magnitude <= limit => {
            if inexact {
                flags.raise(Flags::INEXACT);
            }
            magnitude
        }
        _ => {
            flags.raise(Flags::INVALID);
            limit
        }
    };
    if negative { magnitude.wrapping_neg() } else { magnitude }
}

/// From an integer, given as sign and magnitude.
pub(super) fn from_integer<F: Format>(
    negative: bool,
    magnitude: u64,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    if magnitude == 0 {
        return 0;
    }
    pack::<F>(Finite::normalised(negative, 63, magnitude), rounding, flags)
}

/// From one format to another. The payload of a NaN is not kept.
pub(super) fn between<From: Format, To: Format>(
    bits: u64,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let sign = |negative| if negative { To::SIGN } else { 0 };
    match From::unpack(bits) {
        Value::Nan { signalling } => {
            if signalling {
                flags.raise(Flags::INVALID);
            }
            To::NAN
        }
        Value::Infinity { negative } => sign(negative) | To::INFINITY,
        Value::Zero { negative } => sign(negative),
        Value::Finite(value) => pack::<To>(value, rounding, flags),
    }
}
