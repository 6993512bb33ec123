//! The host's arithmetic against the portable one, bit by bit and flag by flag.

use proptest::prelude::*;

use super::{
    format::{Double, Format, Single},
    host::{self, HostFormat},
    round::{Flags, Rounding},
    soft,
};

/// Bits around the edges where results change.
fn bits<F: Format>() -> impl Strategy<Value = u64> {
    let bias = F::BIAS as u64;
    let exponent = prop_oneof![
        Just(0),
        0..3u64,
        Just(F::EXPONENT_MAX),
        2 * bias - 2..=2 * bias,
        bias / 2..bias / 2 + 3,
        bias - 8..bias + 8,
        bias - 60..bias + 60,
        0..=F::EXPONENT_MAX,
    ];
    let fraction = prop_oneof![
        Just(0),
        Just(F::FRACTION),
        0..=F::FRACTION,
        (0..F::PRECISION - 1).prop_map(|bit| 1 << bit),
        (0..F::PRECISION - 1).prop_map(|bit| F::FRACTION << bit & F::FRACTION),
    ];
    (any::<bool>(), exponent, fraction).prop_map(|(negative, exponent, fraction)| {
        (u64::from(negative) * F::SIGN) | (exponent << (F::PRECISION - 1)) | fraction
    })
}

/// What the host gives, and what it raises. If it leaves the operation to `soft`, what it has
/// raised must be among what `soft` raises.
fn agree(
    name: &str,
    on_host: impl FnOnce() -> Option<u64>,
    in_software: impl FnOnce(&mut Flags) -> u64,
) -> Result<(), TestCaseError> {
    let saved = host::start();
    let result = on_host();
    let raised = host::stop(saved);
    let mut flags = Flags::default();
    let expected = in_software(&mut flags);
    match result {
        Some(bits) => {
            prop_assert_eq!(bits, expected, "{}: {:#x}, {:#x}", name, bits, expected);
            prop_assert_eq!(raised, flags.0, "{}: flags", name);
        }
        None => prop_assert_eq!(raised & !flags.0, 0, "{}: flags left behind", name),
    }
    Ok(())
}

fn check<F: HostFormat, Other: Format>(
    (a, b, c): (u64, u64, u64),
    other: u64,
    integer: i64,
) -> Result<(), TestCaseError> {
    let mode = Rounding::NearestEven;
    let zero = Rounding::TowardZero;
    agree("add", || F::add(a, b), |flags| soft::add::<F>(a, b, mode, flags))?;
    agree("sub", || F::sub(a, b), |flags| soft::sub::<F>(a, b, mode, flags))?;
    agree("mul", || F::mul(a, b), |flags| soft::mul::<F>(a, b, mode, flags))?;
    agree("div", || F::div(a, b), |flags| soft::div::<F>(a, b, mode, flags))?;
    agree("sqrt", || F::sqrt(a), |flags| soft::sqrt::<F>(a, mode, flags))?;
    agree("fma", || F::mul_add(a, b, c), |flags| soft::mul_add::<F>(a, b, c, mode, flags))?;
    agree(
        "from i64",
        || F::from_i64(integer),
        |flags| {
            let magnitude = integer.unsigned_abs();
            super::convert::from_integer::<F>(integer < 0, magnitude, mode, flags)
        },
    )?;
    agree(
        "to i32",
        || F::to_i32(a),
        |flags| super::convert::to_integer::<F>(a, super::Range::I32, zero, flags),
    )?;
    agree(
        "to i64",
        || F::to_i64(a),
        |flags| super::convert::to_integer::<F>(a, super::Range::I64, zero, flags),
    )?;
    agree(
        "from other",
        || F::from_other(other),
        |flags| super::convert::between::<Other, F>(other, mode, flags),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn single_precision_agrees(
        operands in (bits::<Single>(), bits::<Single>(), bits::<Single>()),
        other in bits::<Double>(),
        integer: i64,
        shift in 0..64u32,
    ) {
        check::<Single, Double>(operands, other, integer >> shift)?;
    }

    #[test]
    fn double_precision_agrees(
        operands in (bits::<Double>(), bits::<Double>(), bits::<Double>()),
        other in bits::<Single>(),
        integer: i64,
        shift in 0..64u32,
    ) {
        check::<Double, Single>(operands, other, integer >> shift)?;
    }

    /// A third operand that all but cancels the product.
    #[test]
    fn fused_cancellation_agrees(
        a in bits::<Double>(), b in bits::<Double>(), off in -2..=2i64,
    ) {
        let mut flags = Flags::default();
        let product = soft::mul::<Double>(a, b, Rounding::NearestEven, &mut flags);
        let c = (product ^ Double::SIGN).wrapping_add_signed(off);
        check::<Double, Single>((a, b, c), 0, 0)?;
    }
}

/// Tininess is detected after rounding: the product rounds up to the smallest normal number, but
/// would not if the exponent had no lower bound by less than half a place (IEEE 754-2019 §7.5).
#[test]
fn underflow_is_detected_after_rounding() {
    let mut flags = Flags::default();
    let (just_below_one, smallest_normal) = (0x3f7f_ffff, 0x0080_0000);
    let mode = Rounding::NearestEven;
    let product = soft::mul::<Single>(just_below_one, smallest_normal, mode, &mut flags);
    assert_eq!((product, flags.0), (smallest_normal, Flags::INEXACT | Flags::UNDERFLOW));
    let mut flags = Flags::default();
    // (1 + 2⁻²³) × (2 − 2⁻²³) × 2⁻¹²⁷ is just above the midpoint below 2⁻¹²⁶ in 24 bits.
    let product = soft::mul::<Single>(0x3f80_0001, 0x007f_ffff, mode, &mut flags);
    assert_eq!((product, flags.0), (0x0080_0000, Flags::INEXACT));
}
