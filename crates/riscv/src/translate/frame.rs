//! What translated code and the dispatcher tell each other: a frame of memory below the guest's,
//! at a fixed distance from the base that translated code holds in its pinned register.

use std::mem::offset_of;

use sandtide_memory::{
    Space,
    native::{FRAME_BELOW, FRAME_SIZE},
};

use super::{
    helpers::{HELPERS, HOST_CODE},
    sites::{HostRegisters, Sites},
    table::Entry,
};
use crate::isa::Cpu;

/// The frame. Only one thread uses it at a time.
#[repr(C)]
pub(super) struct Frame {
    /// `x0` to `x31`, while translated code runs; it holds some of them in host registers.
    pub(super) x: [u64; 32],
    /// `f0` to `f31`.
    pub(super) f: [u64; 32],
    /// The budget, on the way in to an entry that is not a region's start, and on the way out.
    pub(super) left: i64,
    /// The number of the entry in its region, on the way in; otherwise 0.
    pub(super) resume: u64,
    /// Host functions that call others leave when the stack pointer is below it.
    pub(super) stack_limit: u64,
    /// The table of [`super::table::Entries`]: a number for each halfword of code.
    pub(super) numbers: *const u32,
    /// And an entry for each number.
    pub(super) entries: *const Entry,
    /// For helpers.
    pub(super) space: *mut Space,
    /// For helpers. Its registers are stale.
    pub(super) cpu: *mut Cpu,
    /// What helpers have raised.
    pub(super) fflags: *const u8,
    /// The functions of [`super::helpers`].
    pub(super) functions: [usize; HELPERS],
    /// Host functions that call them, and leave all registers as they are.
    pub(super) helpers: [usize; HOST_CODE],
    /// What the next helper gets.
    pub(super) question: [u64; 4],
    /// What the last helper returned.
    pub(super) answer: [u64; 2],
    /// MXCSR, when it was stored last, and what its accrued exceptions are in RISC-V.
    pub(super) mxcsr: u32,
    pub(super) flags_of_host: [u8; 64],
    /// The host's stack pointer when host code was entered.
    pub(super) stack_pointer: u64,
    /// Where the host code is, and its length in bytes.
    pub(super) code: usize,
    pub(super) code_length: usize,
    /// The loads that may fault.
    pub(super) sites: *const Sites,
    /// The number of the site that has, or [`NO_SITE`], and the host's registers there.
    pub(super) site: usize,
    pub(super) host: HostRegisters,
    /// The registers that have older values, since no instruction reads them any more where the code
    /// has left. Tests empty it.
    pub(super) stale: u64,
}

/// No load has faulted.
pub(super) const NO_SITE: usize = usize::MAX;

const _: () = assert!(size_of::<Frame>() <= FRAME_SIZE);

/// The offset of a field of the frame from the base.
const fn from_base(offset: usize) -> i32 {
    offset as i32 - FRAME_BELOW as i32
}

pub(super) const LEFT: i32 = from_base(offset_of!(Frame, left));
pub(super) const RESUME: i32 = from_base(offset_of!(Frame, resume));
pub(super) const STACK_LIMIT: i32 = from_base(offset_of!(Frame, stack_limit));
pub(super) const MXCSR: i32 = from_base(offset_of!(Frame, mxcsr));
pub(super) const FLAGS_OF_HOST: i32 = from_base(offset_of!(Frame, flags_of_host));
pub(super) const FFLAGS: i32 = from_base(offset_of!(Frame, fflags));
pub(super) const STALE: i32 = from_base(offset_of!(Frame, stale));
pub(super) const NUMBERS: i32 = from_base(offset_of!(Frame, numbers));
pub(super) const ENTRIES: i32 = from_base(offset_of!(Frame, entries));

/// The offset of a guest register, numbered as in [`super::registers::Registers`].
pub(super) const fn register(number: usize) -> i32 {
    // `f` follows `x`.
    from_base(offset_of!(Frame, x) + 8 * number)
}

const _: () = assert!(offset_of!(Frame, f) == offset_of!(Frame, x) + 256);

/// The offset of the address of a helper's own function.
pub(super) const fn function(number: usize) -> i32 {
    from_base(offset_of!(Frame, functions) + 8 * number)
}

/// The offset of the address of a helper.
pub(super) const fn helper(number: usize) -> i32 {
    from_base(offset_of!(Frame, helpers) + 8 * number)
}

/// The offset of one of the four values that a helper gets.
pub(super) const fn question(number: usize) -> i32 {
    from_base(offset_of!(Frame, question) + 8 * number)
}

/// The offset of one of the two results of a helper.
pub(super) const fn answer(number: usize) -> i32 {
    from_base(offset_of!(Frame, answer) + 8 * number)
}

/// What a host function returns: where the guest goes on, an even address; or, with bit 0, that it
/// left there and why.
pub(super) mod leave {
    /// It left; the interpreter executes what is there.
    pub(in super::super) const INTERPRET: u64 = 1;
    /// It left because the budget may not last.
    pub(in super::super) const BUDGET: u64 = 1 | 1 << 32;
    /// It left because the host's stack may not last.
    pub(in super::super) const STACK: u64 = 1 | 2 << 32;
    /// The bits that are not the guest's address.
    pub(in super::super) const MASK: u64 = BUDGET | STACK;
}
