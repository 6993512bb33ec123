//! The two binary formats, and values taken apart.

/// A binary interchange format (IEEE 754-2019 §3.4). Bit patterns travel in the low bits of a
/// `u64`.
pub(in crate::isa) trait Format {
    /// The other format.
    type Other: Format;

    /// Bits of the significand, the hidden one included.
    const PRECISION: u32;
    /// Bits of the whole format.
    const WIDTH: u32;

    /// The exponent of a significand of 1.0 with a stored exponent of 0.
    const BIAS: i32 = (1 << (Self::WIDTH - Self::PRECISION - 1)) - 1;
    /// The stored exponent of infinities and NaNs.
    const EXPONENT_MAX: u64 = (1 << (Self::WIDTH - Self::PRECISION)) - 1;
    /// The stored part of the significand.
    const FRACTION: u64 = (1 << (Self::PRECISION - 1)) - 1;
    /// The sign bit.
    const SIGN: u64 = 1 << (Self::WIDTH - 1);
    /// Positive infinity.
    const INFINITY: u64 = Self::EXPONENT_MAX << (Self::PRECISION - 1);
    /// The canonical NaN (RISC-V Unprivileged ISA, "NaN Generation and Propagation").
    const NAN: u64 = Self::INFINITY | 1 << (Self::PRECISION - 2);

    /// The value in a register; of a value that is not NaN-boxed, the canonical NaN (RISC-V
    /// Unprivileged ISA, "NaN Boxing of Narrower Values").
    fn unboxed(register: u64) -> u64;
    /// A value as a register holds it.
    fn boxed(bits: u64) -> u64;
    /// The bits of the format in a register, boxed or not, as an integer register holds them.
    fn sign_extended(register: u64) -> u64;

    /// Whether a value is a NaN.
    fn is_nan(bits: u64) -> bool {
        bits & !Self::SIGN > Self::INFINITY
    }

    /// Whether a value is a signalling NaN.
    fn is_signalling(bits: u64) -> bool {
        Self::is_nan(bits) && bits & 1 << (Self::PRECISION - 2) == 0
    }

    /// Takes a value apart.
    fn unpack(bits: u64) -> Value {
        let negative = bits & Self::SIGN != 0;
        let stored = bits >> (Self::PRECISION - 1) & Self::EXPONENT_MAX;
        let fraction = bits & Self::FRACTION;
        if stored == Self::EXPONENT_MAX {
            return match fraction {
                0 => Value::Infinity { negative },
                _ => Value::Nan { signalling: Self::is_signalling(bits) },
            };
        }
        if stored == 0 && fraction == 0 {
            return Value::Zero { negative };
        }
        // A subnormal has the exponent of the smallest normal number, and no hidden bit.
        let hidden = if stored == 0 { 0 } else { 1 << (Self::PRECISION - 1) };
        let significand = (fraction | hidden) << (64 - Self::PRECISION);
        let exponent = (stored.max(1) as i32) - Self::BIAS;
        Value::Finite(Finite::normalised(negative, exponent, significand))
    }
}

/// Single precision: binary32.
pub(in crate::isa) struct Single;

impl Format for Single {
    type Other = Double;

    const PRECISION: u32 = 24;
    const WIDTH: u32 = 32;

    #[inline(always)]
    fn unboxed(register: u64) -> u64 {
        if register >> 32 == 0xffff_ffff { register & 0xffff_ffff } else { Self::NAN }
    }

    #[inline(always)]
    fn boxed(bits: u64) -> u64 {
        bits | 0xffff_ffff << 32
    }

    #[inline(always)]
    fn sign_extended(register: u64) -> u64 {
        register as i32 as u64
    }
}

/// Double precision: binary64.
pub(in crate::isa) struct Double;

impl Format for Double {
    type Other = Single;

    const PRECISION: u32 = 53;
    const WIDTH: u32 = 64;

    #[inline(always)]
    fn unboxed(register: u64) -> u64 {
        register
    }

    #[inline(always)]
    fn boxed(bits: u64) -> u64 {
        bits
    }

    #[inline(always)]
    fn sign_extended(register: u64) -> u64 {
        register
    }
}

/// A floating-point value, taken apart.
#[derive(Debug, Clone, Copy)]
pub(in crate::isa) enum Value {
    Nan { signalling: bool },
    Infinity { negative: bool },
    Zero { negative: bool },
    Finite(Finite),
}

impl Value {
    /// The sign; a NaN has none.
    pub(super) fn is_negative(self) -> bool {
        match self {
            Self::Nan { .. } => false,
            Self::Infinity { negative } | Self::Zero { negative } => negative,
            Self::Finite(finite) => finite.negative,
        }
    }
}

/// A finite value that is not zero: `significand / 2⁶³ × 2^exponent`, the top bit of the
/// significand set.
#[derive(Debug, Clone, Copy)]
pub(in crate::isa) struct Finite {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u64,
}

impl Finite {
    /// From a significand that is not zero, of any magnitude.
    pub(super) fn normalised(negative: bool, exponent: i32, significand: u64) -> Self {
        let shift = significand.leading_zeros();
        Self { negative, exponent: exponent - shift as i32, significand: significand << shift }
    }

    /// From a significand of 128 bits that is not zero: `wide / 2¹²⁷ × 2^exponent`. Bits that do
    /// not fit are or-ed into the lowest bit, which is below every format's precision.
    pub(super) fn from_wide(negative: bool, exponent: i32, wide: u128) -> Self {
        let shift = wide.leading_zeros();
        let wide = wide << shift;
        let significand = (wide >> 64) as u64 | u64::from(wide as u64 != 0);
        Self { negative, exponent: exponent - shift as i32, significand }
    }
}

/// Shifts right, or-ing the bits that fall off into the lowest one.
pub(super) fn shift_right_sticky(value: u128, shift: u32) -> u128 {
    match shift {
        0 => value,
        1..128 => value >> shift | u128::from(value << (128 - shift) != 0),
        _ => u128::from(value != 0),
    }
}
