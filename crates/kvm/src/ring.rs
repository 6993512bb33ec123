//! The ring into which KVM puts each page that the guest writes for the first time since it was told
//! to watch it ("KVM_CAP_DIRTY_LOG_RING" in KVM's documentation).
//!
//! ```text
//!  … free │ taken note of │ new │ free …
//!         freed           next
//! ```
//!
//! When the ring is full the guest stops. An entry takes its place until it is freed, and the page
//! that it speaks of is watched anew from then on. So it is we who say how many pages can be written
//! until the guest stops the next time: as many as are freed.
#![allow(unsafe_code, reason = "reads the ring of written pages that KVM shares with us")]

use std::{
    io,
    os::fd::AsRawFd as _,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use kvm_bindings::{KVM_DIRTY_LOG_PAGE_OFFSET, kvm_dirty_gfn};
use kvm_ioctls::VcpuFd;

use crate::paging::PAGE;

/// Small rings stop a guest sooner that writes more than it may; large ones stop one that writes
/// the same pages again and again less often. KVM keeps room for those that a processor has noted, 576.
const SMALLEST: u64 = 1024;
const LARGEST: u64 = 4096;

/// How many entries there are for a guest that can write so many pages.
pub(crate) fn entries_for(pages: u64) -> usize {
    let below = 1 << pages.max(1).ilog2();
    u64::clamp(below, SMALLEST, LARGEST) as usize
}

/// The bytes of so many entries.
pub(crate) const fn size(entries: usize) -> usize {
    entries * size_of::<kvm_dirty_gfn>()
}

/// A processor's ring.
pub(crate) struct Ring {
    base: *mut kvm_dirty_gfn,
    entries: usize,
    /// The first entry that was not taken note of.
    next: usize,
    /// How many before it are not free.
    held: usize,
}

// SAFETY: the mapping belongs to this value and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    const DIRTY: u32 = 1;
    const RESET: u32 = 2;

    /// The ring of a processor of a machine whose rings have so many entries.
    pub(crate) fn map(fd: &VcpuFd, entries: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size(entries),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                libc::off_t::from(KVM_DIRTY_LOG_PAGE_OFFSET) * PAGE as libc::off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: start.cast(), entries, next: 0, held: 0 })
    }

    /// An entry, and its flags.
    fn entry(&self, index: usize) -> (*const kvm_dirty_gfn, &AtomicU32) {
        assert!(index < self.entries, "no entry {index}");
        // SAFETY: inside the mapping, which lives as long as `self`. The flags, a `u32` and aligned,
        // are all that is shared, and are accessed atomically.
        unsafe {
            let entry = self.base.add(index);
            (entry, AtomicU32::from_ptr(&raw mut (*entry).flags))
        }
    }

    /// Hands on what is new.
    pub(crate) fn take(&mut self, mut note: impl FnMut(&kvm_dirty_gfn)) {
        while self.held < self.entries {
            let (entry, flags) = self.entry(self.next);
            if flags.load(Ordering::Acquire) & (Self::DIRTY | Self::RESET) != Self::DIRTY {
                return;
            }
            // SAFETY: inside the mapping, as `entry` says. KVM writes an entry before it sets its flag,
            // and then not until it was freed.
            note(unsafe { &*entry });
            self.next = (self.next + 1) % self.entries;
            self.held += 1;
        }
    }

    /// Marks at most so many entries, the oldest ones, as ready to be freed.
    pub(crate) fn free(&mut self, most: usize) {
        for _ in 0..most.min(self.held) {
            let oldest = (self.next + self.entries - self.held) % self.entries;
            self.entry(oldest).1.store(Self::RESET, Ordering::Release);
            self.held -= 1;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` and is ours alone.
        unsafe { libc::munmap(self.base.cast(), size(self.entries)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_as_large_as_the_limit_wants() {
        assert_eq!([0, 16, 1500, 2048, 4095].map(entries_for), [1024, 1024, 1024, 2048, 2048]);
        assert_eq!([4096, 16384, u64::MAX].map(entries_for), [4096; 3]);
    }
}
