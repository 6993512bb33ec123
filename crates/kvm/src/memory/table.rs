//! What the host knows of each page: a byte a page, zero at first.
//!
//! The bytes are in a mapping of their own, so that those of pages that are never used cost nothing:
//! clearing all of them would take longer than everything else that makes a sandbox.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use sandtide_memory::Reservation;

/// A byte for each page.
pub(super) struct Table {
    bytes: Reservation,
    pages: usize,
}

impl Table {
    pub(super) fn new(pages: u64) -> io::Result<Self> {
        let pages = pages as usize;
        Ok(Self { bytes: Reservation::new(pages.next_multiple_of(4096))?, pages })
    }
}

impl Deref for Table {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the reservation has at least so many bytes, readable as long as `self` lives, and
        // nobody else knows of it.
        unsafe { std::slice::from_raw_parts(self.bytes.base(), self.pages) }
    }
}

impl DerefMut for Table {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.base(), self.pages) }
    }
}
