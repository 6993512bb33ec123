//! The page table: one byte for each page of the address space.

use std::io;

use crate::{PAGES, reservation::Reservation};

/// What a guest may do with a page. As on Linux for RISC-V, no page can be written or executed
/// without being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Loads.
    pub const READ: Self = Self(READ);
    /// Stores.
    pub const WRITE: Self = Self(READ | WRITE);
    /// Instruction fetch.
    pub const EXECUTE: Self = Self(READ | EXECUTE);

    /// Both of two accesses.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn is_readable(self) -> bool {
        self.0 & READ != 0
    }
}

/// The guest may load from the page, and so can the host ([`crate::mirror`]).
pub(crate) const READ: u8 = 1;
/// The guest may store to the page.
pub(crate) const WRITE: u8 = 2;
/// The guest may execute the page.
pub(crate) const EXECUTE: u8 = 4;
/// The page was written since the last reset: it is in the list of written pages.
pub(crate) const WRITTEN: u8 = 8;
/// The snapshot has bytes for the page; without it, the page is zero in the snapshot.
pub(crate) const IMAGE: u8 = 16;
/// This space holds host memory of its own for the page: it is in the list of private pages.
pub(crate) const PRIVATE: u8 = 32;
/// The page was written since the last shrink.
pub(crate) const RECENT: u8 = 64;
/// The guest may store to the page, and it was written: a store needs nothing else. Follows from
/// `WRITE` and `WRITTEN`; a bit of its own makes it one test for translated code.
pub(crate) const READY: u8 = 128;

/// What the guest may do.
pub(crate) const ACCESS: u8 = READ | WRITE | EXECUTE;

/// The table of one address space. Zero (no access) where nothing was set.
pub(crate) struct PageTable {
    memory: Reservation,
}

impl PageTable {
    /// The size of a table, in bytes.
    pub(crate) const SIZE: usize = PAGES;

    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self::over(Reservation::new(Self::SIZE)?))
    }

    /// A table at the start of a reservation of at least [`Self::SIZE`] bytes.
    pub(crate) fn over(memory: Reservation) -> Self {
        Self { memory }
    }

    pub(crate) fn memory(&self) -> &Reservation {
        &self.memory
    }

    /// All entries, in order.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has so many bytes, readable as long as `self` lives; `&self` keeps
        // writers away.
        unsafe { std::slice::from_raw_parts(self.memory.base(), Self::SIZE) }
    }

    /// The entry of a page.
    #[inline(always)]
    pub(crate) fn get(&self, page: PageNumber) -> u8 {
        // SAFETY: a `PageNumber` is below `PAGES`, the size of the mapping.
        unsafe { *self.memory.base().add(page.index()) }
    }

    /// Sets the entry of a page. `READY` is set or cleared as the other bits say.
    #[inline(always)]
    pub(crate) fn set(&mut self, page: PageNumber, entry: u8) {
        let is_ready = entry & (WRITE | WRITTEN) == WRITE | WRITTEN;
        let entry = (entry & !READY) | (u8::from(is_ready) * READY);
        // SAFETY: as in `get`; `&mut self` makes the access exclusive.
        unsafe { *self.memory.base().add(page.index()) = entry }
    }
}

/// The number of a page: a guest address without its last 12 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageNumber(u32);

impl PageNumber {
    /// The page that an address lies in.
    #[inline(always)]
    pub(crate) fn of(address: u32) -> Self {
        Self(address >> 12)
    }

    /// A page by number.
    ///
    /// # Panics
    /// If the address space has no such page.
    pub(crate) fn new(index: usize) -> Self {
        assert!(index < PAGES, "no page {index}");
        Self(index as u32)
    }

    /// The number, below [`PAGES`].
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }

    /// The offset of its first byte in the address space.
    #[inline(always)]
    pub(crate) fn offset(self) -> usize {
        self.index() * crate::PAGE
    }
}
