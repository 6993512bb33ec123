//! Rounding, and the exceptions that come of it (IEEE 754-2019 §4.3, §7; RISC-V Unprivileged ISA,
//! "Floating-Point Control and Status Register").

use super::format::{Finite, Format};

/// A rounding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::isa) enum Rounding {
    /// RNE: to nearest, ties to even.
    NearestEven,
    /// RTZ: towards zero.
    TowardZero,
    /// RDN: towards −∞.
    Down,
    /// RUP: towards +∞.
    Up,
    /// RMM: to nearest, ties away from zero.
    NearestAway,
}

impl Rounding {
    /// From an instruction's `rm` field and the dynamic mode `frm`; `None` if reserved.
    #[inline(always)]
    pub(super) fn select(rm: u32, frm: u8) -> Option<Self> {
        match if rm == 7 { u32::from(frm) } else { rm } {
            0 => Some(Self::NearestEven),
            1 => Some(Self::TowardZero),
            2 => Some(Self::Down),
            3 => Some(Self::Up),
            4 => Some(Self::NearestAway),
            _ => None,
        }
    }

    /// Whether a magnitude goes up to the next one. `rest` is what is cut off, as a fraction of
    /// the last place: the top bit is a half, and any bit below it stands for more than none.
    fn rounds_up(self, negative: bool, is_odd: bool, rest: u64) -> bool {
        const HALF: u64 = 1 << 63;
        match self {
            Self::NearestEven => rest > HALF || rest == HALF && is_odd,
            Self::TowardZero => false,
            Self::Down => negative && rest != 0,
            Self::Up => !negative && rest != 0,
            Self::NearestAway => rest >= HALF,
        }
    }
}

/// Accrued exceptions, as `fflags` holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags(pub(super) u8);

impl Flags {
    /// NX
    pub(super) const INEXACT: u8 = 1;
    /// UF
    pub(super) const UNDERFLOW: u8 = 2;
    /// OF
    pub(super) const OVERFLOW: u8 = 4;
    /// DZ
    pub(super) const DIVIDE_BY_ZERO: u8 = 8;
    /// NV
    pub(super) const INVALID: u8 = 16;

    pub(super) fn raise(&mut self, flags: u8) {
        self.0 |= flags;
    }
}

/// Cuts the low `shift` bits off a significand and rounds. The second result is whether anything
/// was cut off.
pub(super) fn shift_and_round(
    significand: u64,
    shift: u32,
    negative: bool,
    rounding: Rounding,
) -> (u64, bool) {
    let (kept, rest) = match shift {
        0 => (significand, 0),
        1..64 => (significand >> shift, significand << (64 - shift)),
        64 => (0, significand),
        // Less than a half, whatever it is.
        _ => (0, u64::from(significand != 0)),
    };
    let up = rounding.rounds_up(negative, kept & 1 != 0, rest);
    (kept + u64::from(up), rest != 0)
}

/// Rounds to a format.
pub(super) fn pack<F: Format>(value: Finite, rounding: Rounding, flags: &mut Flags) -> u64 {
    let Finite { negative, exponent, significand } = value;
    let sign = if negative { F::SIGN } else { 0 };
    let cut = 64 - F::PRECISION;
    let stored = exponent + F::BIAS;
    if stored <= 0 {
        let below = (1 - stored).min(64) as u32;
        let (bits, inexact) = shift_and_round(significand, cut + below, negative, rounding);
        if inexact {
            // Tiny after rounding: unless it would round up to the smallest normal number even
            // if the exponent had no lower bound.
            let (unbounded, _) = shift_and_round(significand, cut, negative, rounding);
            let is_tiny = stored < 0 || unbounded >> F::PRECISION == 0;
            flags.raise(Flags::INEXACT | if is_tiny { Flags::UNDERFLOW } else { 0 });
        }
        // A carry out of the fraction makes the stored exponent 1, as it should.
        return sign | bits;
    }
    let (rounded, inexact) = shift_and_round(significand, cut, negative, rounding);
    // The hidden bit adds 1 to the stored exponent, and so does a carry.
    let bits = ((stored as u64 - 1) << (F::PRECISION - 1)) + rounded;
    if bits >= F::INFINITY {
        flags.raise(Flags::OVERFLOW | Flags::INEXACT);
        // Modes that never round away from zero here give the largest finite number.
        let away = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => true,
            Rounding::TowardZero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        return sign | (F::INFINITY - u64::from(!away));
    }
    if inexact {
        flags.raise(Flags::INEXACT);
    }
    sign | bits
}
