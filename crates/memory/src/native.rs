//! What translated code needs to know about an address space: where things lie around its base.
//!
//! ```text
//!  base − TABLE_BELOW   one byte a page: bit READY for stores
//!  base − FRAME_BELOW   FRAME_SIZE bytes for the translator's own use, 4096-aligned
//!  base                 4 GiB of guest memory, then inaccessible memory
//! ```
//!
//! All of it belongs to one [`Space`] and stays where it is as long as that lives. A load of up to
//! 8 bytes, at most 2 KiB below or above an address of 32 bits, needs no check while
//! [`Space::is_mirrored`]: it faults in the host if the guest may not read there. A store is
//! allowed if the bytes lie inside the 4 GiB and the table has `READY` for their pages; otherwise
//! [`Space::view_mut`] decides.

use std::{ops::Range, ptr::NonNull};

pub use crate::caught::{Caught, instead_of};
use crate::{
    PAGES, SPACE, Space,
    reservation::{GUARD, Reservation},
    table::{self, PageTable},
};

/// The bytes below guest memory that translated code may use as it likes.
pub const FRAME_SIZE: usize = 4096;

/// The table, then the frame.
pub(crate) const FIRST_LENGTH: usize = PageTable::SIZE + FRAME_SIZE;

/// How far below the base the page table lies.
pub const TABLE_BELOW: usize = Reservation::distance(FIRST_LENGTH);

/// How far below the base the frame lies.
pub const FRAME_BELOW: usize = TABLE_BELOW - PAGES;

/// The bit of a table's byte that allows stores: the sign bit.
pub const READY: u8 = table::READY;

/// Where loads can fault, from the base on: in guest memory and in what is inaccessible around it.
pub const GUEST_RANGE: Range<i64> = -(GUARD as i64)..(SPACE + GUARD) as i64;

impl Space {
    /// The host address of guest address 0. What lies around it is written down in this module.
    pub fn base(&mut self) -> NonNull<u8> {
        // A mapping never lies at address 0.
        NonNull::new(self.memory.base()).unwrap_or(NonNull::dangling())
    }
}
