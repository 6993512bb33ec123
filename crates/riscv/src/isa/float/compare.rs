//! Comparison, selection, signs and classification (RISC-V Unprivileged ISA, "Single-Precision
//! Floating-Point Compare Instructions", "… Classify Instruction").

use super::{
    format::{Format, Value},
    round::Flags,
};

/// A key that orders values as numbers do, with −0 just below +0. Not for NaNs.
fn order<F: Format>(bits: u64) -> i64 {
    let magnitude = (bits & !F::SIGN) as i64;
    if bits & F::SIGN == 0 { magnitude } else { -1 - magnitude }
}

fn is_zero<F: Format>(bits: u64) -> bool {
    bits & !F::SIGN == 0
}

/// Which number is smaller. −0 counts as less than +0 (IEEE 754-2019 §9.6, `minimumNumber`); a
/// NaN loses against a number.
fn select<F: Format>(a: u64, b: u64, wants_less: bool, flags: &mut Flags) -> u64 {
    if F::is_signalling(a) || F::is_signalling(b) {
        flags.raise(Flags::INVALID);
    }
    match (F::is_nan(a), F::is_nan(b)) {
        (true, true) => F::NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) if (order::<F>(a) < order::<F>(b)) == wants_less => a,
        (false, false) => b,
    }
}

/// `fmin`
pub(super) fn min<F: Format>(a: u64, b: u64, flags: &mut Flags) -> u64 {
    select::<F>(a, b, true, flags)
}

/// `fmax`
pub(super) fn max<F: Format>(a: u64, b: u64, flags: &mut Flags) -> u64 {
    select::<F>(a, b, false, flags)
}

/// `feq`: quiet, NV only for signalling NaNs.
pub(super) fn equal<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    if F::is_nan(a) || F::is_nan(b) {
        if F::is_signalling(a) || F::is_signalling(b) {
            flags.raise(Flags::INVALID);
        }
        return false;
    }
    a == b || is_zero::<F>(a) && is_zero::<F>(b)
}

/// `flt`: NV for every NaN.
pub(super) fn less<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    if F::is_nan(a) || F::is_nan(b) {
        flags.raise(Flags::INVALID);
        return false;
    }
    order::<F>(a) < order::<F>(b) && !(is_zero::<F>(a) && is_zero::<F>(b))
}

/// `fle`: NV for every NaN.
pub(super) fn less_or_equal<F: Format>(a: u64, b: u64, flags: &mut Flags) -> bool {
    if F::is_nan(a) || F::is_nan(b) {
        flags.raise(Flags::INVALID);
        return false;
    }
    order::<F>(a) <= order::<F>(b) || is_zero::<F>(a) && is_zero::<F>(b)
}

/// `fclass`
pub(super) fn class<F: Format>(bits: u64) -> u64 {
    let is_subnormal = bits & F::INFINITY == 0;
    1 << match F::unpack(bits) {
        Value::Infinity { negative: true } => 0,
        Value::Finite(value) if value.negative && !is_subnormal => 1,
        Value::Finite(value) if value.negative => 2,
        Value::Zero { negative: true } => 3,
        Value::Zero { negative: false } => 4,
        Value::Finite(_) if is_subnormal => 5,
        Value::Finite(_) => 6,
        Value::Infinity { negative: false } => 7,
        Value::Nan { signalling: true } => 8,
        Value::Nan { signalling: false } => 9,
    }
}
