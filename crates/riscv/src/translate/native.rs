//! Host code in memory, and the way into it.
#![allow(unsafe_code, reason = "maps executable memory and calls what was put there")]

use std::{ffi::c_void, io, ptr};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use sandtide_memory::{Space, native::FRAME_BELOW};

use super::{fault, frame::Frame};

/// Host code. While it is written it cannot be executed, and after that not be written.
#[derive(Debug)]
pub(super) struct NativeCode {
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone, and is only read and executed.
unsafe impl Send for NativeCode {}
// SAFETY: as above.
unsafe impl Sync for NativeCode {}

impl NativeCode {
    /// Puts code into memory of its own. It must not depend on where it lies.
    pub(super) fn new(code: &[u8]) -> io::Result<Self> {
        let length = code.len().max(1).next_multiple_of(4096);
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let this = Self { base: base.cast(), length };
        // SAFETY: `length` is at least that of the code, and nobody else knows the mapping.
        unsafe { ptr::copy_nonoverlapping(code.as_ptr(), this.base, code.len()) };
        // SAFETY: the whole mapping, which is ours alone.
        unsafe {
            rustix::mm::mprotect(base, length, MprotectFlags::READ | MprotectFlags::EXEC)?;
        }
        Ok(this)
    }

    /// The host address of an offset.
    pub(super) fn address(&self, offset: usize) -> usize {
        debug_assert!(offset < self.length);
        self.base as usize + offset
    }

    /// Where the code is, and how long.
    pub(super) fn range(&self) -> (usize, usize) {
        (self.base as usize, self.length)
    }

    /// What was put there, and what fills the last page.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable as long as `self` lives, and not written.
        unsafe { std::slice::from_raw_parts(self.base, self.length) }
    }

    /// Runs translated code through the trampoline at the start of the code, until it comes back.
    /// The frame of the space must be filled in, with registers that belong to the entry. A load
    /// that faults leaves as other instructions do that the interpreter has to execute.
    ///
    /// # Safety
    /// This code starts with a trampoline as [`super::compile`] makes it; `function` is the
    /// address of one of its other functions, whose entry the frame names. Nobody else uses the
    /// space.
    pub(super) unsafe fn enter(&self, base: *mut u8, function: usize, left: i64) -> u64 {
        // SAFETY: the mapping starts with a function of this type, which was translated for this
        // convention, and stays as long as `self` lives.
        unsafe {
            let trampoline = std::mem::transmute::<*const c_void, fault::Trampoline>(
                self.base.cast_const().cast(),
            );
            fault::run(base, function, left, trampoline)
        }
    }
}

impl Drop for NativeCode {
    fn drop(&mut self) {
        // SAFETY: the whole mapping is ours; whoever could run it holds a reference to `self`.
        let result = unsafe { rustix::mm::munmap(self.base.cast(), self.length) };
        debug_assert!(result.is_ok(), "munmap of code: {result:?}");
    }
}

/// Whether translated code has left because of a load.
#[cfg(test)]
pub(super) fn has_faulted(space: &mut Space) -> bool {
    let (frame, _) = frame_of(space);
    // SAFETY: the frame is part of the space; at first it is all zero.
    unsafe { (*frame).site != super::frame::NO_SITE }
}

/// The registers that translated code has left with older values since this was asked last.
#[cfg(test)]
pub(super) fn take_stale(space: &mut Space) -> u64 {
    let (frame, _) = frame_of(space);
    // SAFETY: as above.
    unsafe { std::mem::take(&mut (*frame).stale) }
}

/// The frame of a space, and its base.
///
/// The pointer is good as long as the space lives and is not moved.
pub(super) fn frame_of(space: &mut Space) -> (*mut Frame, *mut u8) {
    let base = space.base().as_ptr();
    // SAFETY: the frame lies at this distance below the base, in the same mapping.
    (unsafe { base.sub(FRAME_BELOW).cast() }, base)
}
