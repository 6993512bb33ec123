//! A stretch of host address space that belongs to us.

use std::{ffi::c_void, io, os::fd::BorrowedFd, ptr};

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};

/// Inaccessible host memory on both sides of a reservation.
pub(crate) const GUARD: usize = 64 << 10;

/// Host address space with a guard on both sides; unmapped when dropped.
///
/// ```text
///   outer          base                 base + length
///   │ GUARD (none) │ private, zero …    │ GUARD (none) │
/// ```
///
/// Its bytes are not its own business: whoever owns one makes the views, and keeps them apart.
pub struct Reservation {
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Reservation {}
// SAFETY: a shared reference only hands out the address; access goes through callers' own checks.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `length` bytes (a multiple of the page size) of private zero memory. No memory is
    /// used until a page is written.
    pub fn new(length: usize) -> io::Result<Self> {
        let outer = inaccessible(length + 2 * GUARD)?;
        // SAFETY: the whole of a mapping just made, which nobody else knows.
        let this = unsafe { Self::inside(outer, length) };
        this.protect(0, length, true)?;
        Ok(this)
    }

    /// Two reservations side by side: the base of the second lies [`distance`](Self::distance)
    /// behind that of the first. All of the first can be accessed, and nothing of the second.
    pub(crate) fn pair(first: usize, second: usize) -> io::Result<(Self, Self)> {
        let outer = inaccessible(first + second + 4 * GUARD)?;
        // SAFETY: the first part of a mapping just made, which nobody else knows.
        let first_half = unsafe { Self::inside(outer, first) };
        // SAFETY: the rest of it; it has room for `second` and its guards.
        let second_half = unsafe { Self::inside(outer.add(first + 2 * GUARD), second) };
        first_half.protect(0, first, true)?;
        Ok((first_half, second_half))
    }

    /// How far apart the bases of a [`pair`](Self::pair) are, when the first has this length.
    pub(crate) const fn distance(first: usize) -> usize {
        first + 2 * GUARD
    }

    /// All but the guards of a range.
    ///
    /// # Safety
    /// `length + 2 * GUARD` bytes from `outer` on are mapped, and the caller's alone.
    unsafe fn inside(outer: *mut u8, length: usize) -> Self {
        // SAFETY: `GUARD` is less than the length of the range.
        let this = Self { base: unsafe { outer.add(GUARD) }, length };
        // A huge page would make one written byte cost 2 MiB. Kernels without huge pages refuse,
        // which is as good.
        let _ = this.advise(0, length, Advice::LinuxNoHugepage);
        this
    }

    /// The host address of the first byte. Valid for `length` bytes while `self` lives.
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Replaces a range by a private mapping of a file's content.
    ///
    /// # Panics
    /// If the range is not inside the reservation.
    pub fn map_file(
        &self,
        offset: usize,
        length: usize,
        file: BorrowedFd<'_>,
        file_offset: u64,
        protection: ProtFlags,
    ) -> io::Result<()> {
        self.check(offset, length);
        // SAFETY: `check` keeps the range inside our own mapping. Views of it are derived from
        // `&Space`/`&mut Space`, and the callers have the only reference while they build one.
        unsafe {
            rustix::mm::mmap(
                self.base.add(offset).cast::<c_void>(),
                length,
                protection,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                file,
                file_offset,
            )?;
        }
        Ok(())
    }

    /// Makes a range private zero memory, whatever it was.
    ///
    /// # Panics
    /// If the range is not inside the reservation.
    pub fn map_zero(&self, offset: usize, length: usize) -> io::Result<()> {
        self.check(offset, length);
        // SAFETY: as in `map_file`.
        unsafe {
            rustix::mm::mmap_anonymous(
                self.base.add(offset).cast::<c_void>(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )?;
        }
        let _ = self.advise(offset, length, Advice::LinuxNoHugepage);
        Ok(())
    }

    /// Lets the process read and write a range, or not touch it. What it holds stays.
    pub(crate) fn protect(&self, offset: usize, length: usize, open: bool) -> io::Result<()> {
        self.check(offset, length);
        let flags =
            if open { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::empty() };
        // SAFETY: `check` keeps the range inside our own mapping. No view of it is alive while its
        // access changes: views borrow the `Space` that changes it.
        unsafe { rustix::mm::mprotect(self.base.add(offset).cast::<c_void>(), length, flags)? };
        Ok(())
    }

    /// Drops our private copies of the pages of a range: they are again what the mapping
    /// underneath has, zero or the file's content.
    pub fn discard(&self, offset: usize, length: usize) -> io::Result<()> {
        self.advise(offset, length, Advice::LinuxDontNeed)
    }

    /// Makes whoever mirrors the pages of a range, as KVM does in its own page tables, look them up
    /// anew. What they hold stays. All of it must be readable and writable.
    pub fn revoke(&self, offset: usize, length: usize) -> io::Result<()> {
        self.check(offset, length);
        // SAFETY: `check` keeps the range inside our own mapping, which was readable and writable
        // and is so again; nobody looks at it in between, as callers have the only reference.
        unsafe {
            let start = self.base.add(offset).cast::<c_void>();
            rustix::mm::mprotect(start, length, MprotectFlags::READ)?;
            rustix::mm::mprotect(start, length, MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        Ok(())
    }

    fn advise(&self, offset: usize, length: usize, advice: Advice) -> io::Result<()> {
        self.check(offset, length);
        // SAFETY: `check` keeps the range inside our own mapping, and it stays mapped.
        unsafe {
            rustix::mm::madvise(self.base.add(offset).cast::<c_void>(), length, advice)?;
        }
        Ok(())
    }

    pub(crate) fn check(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.length),
            "range outside the reservation"
        );
    }
}

/// Maps inaccessible address space.
fn inaccessible(length: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping at an address that the kernel chooses touches nothing of ours.
    let outer = unsafe {
        rustix::mm::mmap_anonymous(
            ptr::null_mut(),
            length,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    Ok(outer.cast())
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the whole mapping, guards included, was made by `new` and is ours alone; no
        // view outlives the `Space` or `Snapshot` that owns `self`.
        let result = unsafe {
            rustix::mm::munmap(self.base.sub(GUARD).cast::<c_void>(), self.length + 2 * GUARD)
        };
        debug_assert!(result.is_ok(), "munmap of a reservation: {result:?}");
    }
}
