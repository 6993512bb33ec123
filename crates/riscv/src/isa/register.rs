//! Numbers of registers.

use zerocopy::FromZeros;

/// An index into [`Cpu::x`](super::Cpu::x). Since it can have no other value, no use needs a check.
#[derive(Debug, Clone, Copy, Default, FromZeros)]
#[repr(u8)]
#[rustfmt::skip]
pub(super) enum Register {
    #[default]
    X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15, X16, X17, X18,
    X19, X20, X21, X22, X23, X24, X25, X26, X27, X28, X29, X30, X31, X32, X33, X34, X35,
    X36, X37, X38, X39, X40, X41, X42, X43, X44, X45, X46, X47, X48, X49, X50, X51, X52,
    X53, X54, X55, X56, X57, X58, X59, X60, X61, X62, X63,
}

impl Register {
    #[rustfmt::skip]
    const ALL: [Self; 64] = {
        use Register::*;
        [
            X0, X1, X2, X3, X4, X5, X6, X7, X8, X9, X10, X11, X12, X13, X14, X15, X16,
            X17, X18, X19, X20, X21, X22, X23, X24, X25, X26, X27, X28, X29, X30, X31,
            X32, X33, X34, X35, X36, X37, X38, X39, X40, X41, X42, X43, X44, X45, X46,
            X47, X48, X49, X50, X51, X52, X53, X54, X55, X56, X57, X58, X59, X60, X61,
            X62, X63,
        ]
    };

    /// From a number below 64.
    pub(super) const fn new(number: usize) -> Self {
        Self::ALL[number & 63]
    }
}
