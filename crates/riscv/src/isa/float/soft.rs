//! Arithmetic in integers: every rounding mode, every flag, on every host (IEEE 754-2019 §5.4;
//! RISC-V Unprivileged ISA, "F" and "D").
//!
//! Each operation computes an exact or sticky result and leaves the rest to [`pack`]. The reference
//! for [`super::host`], and what runs when the host cannot do an operation in one instruction.

use super::{
    format::{Finite, Format, Value, shift_right_sticky},
    round::{Flags, Rounding, pack},
};

/// The canonical NaN, raising NV if an operand signals or the operation is invalid.
fn nan<F: Format>(operands: &[u64], invalid: bool, flags: &mut Flags) -> u64 {
    if invalid || operands.iter().any(|bits| F::is_signalling(*bits)) {
        flags.raise(Flags::INVALID);
    }
    F::NAN
}

fn infinity<F: Format>(negative: bool) -> u64 {
    zero::<F>(negative) | F::INFINITY
}

fn zero<F: Format>(negative: bool) -> u64 {
    if negative { F::SIGN } else { 0 }
}

/// The sign of an exact sum of zero (IEEE 754-2019 §6.3).
fn sum_zero<F: Format>(a: bool, b: bool, rounding: Rounding) -> u64 {
    zero::<F>(if a == b { a } else { rounding == Rounding::Down })
}

/// Adds two values `wide / 2¹²⁵ × 2^exponent`, the top bit 125. `None` if they cancel out.
///
/// What is shifted out is sticky; that is exact enough, since values whose exponents differ by
/// two or more cancel at most one bit, and others lose nothing by the shift.
fn add_wide(a: (bool, i32, u128), b: (bool, i32, u128)) -> Option<Finite> {
    let (large, small) = if (a.1, a.2) >= (b.1, b.2) { (a, b) } else { (b, a) };
    let shift = (large.1 - small.1) as u32;
    let aligned = shift_right_sticky(small.2, shift);
    let sum = if large.0 == small.0 { large.2 + aligned } else { large.2 - aligned };
    (sum != 0).then(|| Finite::from_wide(large.0, large.1 + 2, sum))
}

/// `a + b`
pub(super) fn add<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    match (F::unpack(a), F::unpack(b)) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => nan::<F>(&[a, b], false, flags),
        (Value::Infinity { negative: x }, Value::Infinity { negative: y }) if x != y => {
            nan::<F>(&[], true, flags)
        }
        (Value::Infinity { .. }, _) => a,
        (_, Value::Infinity { .. }) => b,
        (Value::Zero { negative: x }, Value::Zero { negative: y }) => sum_zero::<F>(x, y, rounding),
        (_, Value::Zero { .. }) => a,
        (Value::Zero { .. }, _) => b,
        (Value::Finite(x), Value::Finite(y)) => {
            let wide = |v: Finite| (v.negative, v.exponent, u128::from(v.significand) << 62);
            match add_wide(wide(x), wide(y)) {
                Some(sum) => pack::<F>(sum, rounding, flags),
                None => sum_zero::<F>(x.negative, y.negative, rounding),
            }
        }
    }
}

/// `a − b`
pub(super) fn sub<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    add::<F>(a, b ^ F::SIGN, rounding, flags)
}

/// `a × b`
pub(super) fn mul<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let (x, y) = (F::unpack(a), F::unpack(b));
    let negative = x.is_negative() != y.is_negative();
    match (x, y) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => nan::<F>(&[a, b], false, flags),
        (Value::Infinity { .. }, Value::Zero { .. })
        | (Value::Zero { .. }, Value::Infinity { .. }) => nan::<F>(&[], true, flags),
        (Value::Infinity { .. }, _) | (_, Value::Infinity { .. }) => infinity::<F>(negative),
        (Value::Zero { .. }, _) | (_, Value::Zero { .. }) => zero::<F>(negative),
        (Value::Finite(x), Value::Finite(y)) => {
            let product = u128::from(x.significand) * u128::from(y.significand);
            let exponent = x.exponent + y.exponent + 1;
            pack::<F>(Finite::from_wide(negative, exponent, product), rounding, flags)
        }
    }
}

/// `a ÷ b`
pub(super) fn div<F: Format>(a: u64, b: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    let (x, y) = (F::unpack(a), F::unpack(b));
    let negative = x.is_negative() != y.is_negative();
    match (x, y) {
        (Value::Nan { .. }, _) | (_, Value::Nan { .. }) => nan::<F>(&[a, b], false, flags),
        (Value::Infinity { .. }, Value::Infinity { .. })
        | (Value::Zero { .. }, Value::Zero { .. }) => nan::<F>(&[], true, flags),
        (Value::Infinity { .. }, _) => infinity::<F>(negative),
        (_, Value::Infinity { .. }) | (Value::Zero { .. }, _) => zero::<F>(negative),
        (_, Value::Zero { .. }) => {
            flags.raise(Flags::DIVIDE_BY_ZERO);
            infinity::<F>(negative)
        }
        (Value::Finite(x), Value::Finite(y)) => {
            let dividend = u128::from(x.significand) << 63;
            let divisor = u128::from(y.significand);
            // 63 or 64 bits, and a sticky one.
            let quotient = (dividend / divisor) as u64 | u64::from(dividend % divisor != 0);
            let exponent = x.exponent - y.exponent;
            pack::<F>(Finite::normalised(negative, exponent, quotient), rounding, flags)
        }
    }
}

/// `√a`
pub(super) fn sqrt<F: Format>(a: u64, rounding: Rounding, flags: &mut Flags) -> u64 {
    match F::unpack(a) {
        Value::Nan { .. } => nan::<F>(&[a], false, flags),
        Value::Zero { .. } | Value::Infinity { negative: false } => a,
        Value::Infinity { negative: true } => nan::<F>(&[], true, flags),
        Value::Finite(x) if x.negative => nan::<F>(&[], true, flags),
        Value::Finite(x) => {
            // significand × 2^(exponent − 63), with an even exponent after the shift.
            let shift = 63 + (x.exponent & 1);
            let radicand = u128::from(x.significand) << shift;
            let root = radicand.isqrt();
            let sticky = u64::from(root * root != radicand);
            let exponent = 63 + (x.exponent - 63 - shift) / 2;
            let root = Finite::normalised(false, exponent, root as u64 | sticky);
            pack::<F>(root, rounding, flags)
        }
    }
}

/// `a × b + c`, rounded once.
///
/// `∞ × 0 + NaN` raises NV even if the NaN is quiet (RISC-V Unprivileged ISA, "Single-Precision
/// Floating-Point Computational Instructions").
pub(super) fn mul_add<F: Format>(
    a: u64,
    b: u64,
    c: u64,
    rounding: Rounding,
    flags: &mut Flags,
) -> u64 {
    let (x, y, z) = (F::unpack(a), F::unpack(b), F::unpack(c));
    let negative = x.is_negative() != y.is_negative();
    match (x, y, z) {
        (Value::Infinity { .. }, Value::Zero { .. }, _)
        | (Value::Zero { .. }, Value::Infinity { .. }, _) => nan::<F>(&[], true, flags),
        (Value::Nan { .. }, _, _) | (_, Value::Nan { .. }, _) | (_, _, Value::Nan { .. }) => {
            nan::<F>(&[a, b, c], false, flags)
        }
        (Value::Infinity { .. }, _, Value::Infinity { negative: n })
        | (_, Value::Infinity { .. }, Value::Infinity { negative: n })
            if n != negative =>
        {
            nan::<F>(&[], true, flags)
        }
        (Value::Infinity { .. }, _, _) | (_, Value::Infinity { .. }, _) => infinity::<F>(negative),
        (_, _, Value::Infinity { .. }) => c,
        (Value::Zero { .. }, _, z) | (_, Value::Zero { .. }, z) => match z {
            Value::Zero { negative: n } => sum_zero::<F>(negative, n, rounding),
            _ => c,
        },
        (Value::Finite(x), Value::Finite(y), z) => {
            let product = u128::from(x.significand) * u128::from(y.significand);
            let exponent = x.exponent + y.exponent + 1;
            let Value::Finite(z) = z else {
                let product = Finite::from_wide(negative, exponent, product);
                return pack::<F>(product, rounding, flags);
            };
            // At most 106 bits are significant: the shift right loses none.
            let up = product.leading_zeros();
            let product = (negative, exponent - up as i32, product << up >> 2);
            match add_wide(product, (z.negative, z.exponent, u128::from(z.significand) << 62)) {
                Some(sum) => pack::<F>(sum, rounding, flags),
                None => sum_zero::<F>(negative, z.negative, rounding),
            }
        }
    }
}
