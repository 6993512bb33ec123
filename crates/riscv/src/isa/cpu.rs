//! The registers of one guest thread.

/// The registers of a guest thread (RISC-V Unprivileged ISA, "Programmers' Model for Base Integer
/// ISA", "F Register State").
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cpu {
    /// `x0` to `x31`, then the sink (see [`super::insn::SINK`]) and padding, so that no masked
    /// index needs a check. `x[0]` is always 0.
    pub(crate) x: [u64; 64],
    /// `f0` to `f31`. A single-precision value is NaN-boxed.
    pub(crate) f: [u64; 32],
    /// The address of the next instruction.
    pub(crate) pc: u64,
    /// The rounding mode `frm`, 0 to 7 (5 to 7 are reserved but can be written).
    pub(crate) frm: u8,
    /// The accrued exceptions `fflags`.
    pub(crate) fflags: u8,
    /// What the last load-reserved has read, until a store-conditional. Clear it when another
    /// thread of the sandbox has run.
    pub(crate) reservation: Option<Reservation>,
    /// Instructions retired before the current or last [`super::run`].
    pub(crate) instret: u64,
    /// Instructions retired in translated code, until somebody who counts them takes them away.
    pub(crate) translated: u64,
}

/// The reservation of a load-reserved instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The guest address, truncated.
    pub(crate) address: u32,
    /// The length of the access in bytes.
    pub(crate) length: u32,
}

impl Cpu {
    /// Registers that are all zero, at an address.
    pub(crate) fn new(pc: u64) -> Self {
        Self {
            x: [0; 64],
            f: [0; 32],
            pc,
            frm: 0,
            fflags: 0,
            reservation: None,
            instret: 0,
            translated: 0,
        }
    }

    /// The control and status register `fcsr` (RISC-V Unprivileged ISA, "Floating-Point Control
    /// and Status Register").
    pub(crate) fn fcsr(&self) -> u32 {
        u32::from(self.frm) << 5 | u32::from(self.fflags)
    }

    /// Sets `fcsr`. Bits that it does not have are ignored.
    pub(crate) fn set_fcsr(&mut self, value: u32) {
        self.frm = (value >> 5 & 7) as u8;
        self.fflags = (value & 31) as u8;
    }
}
