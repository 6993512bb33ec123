//! What translated code needs to know about an address space: where things lie around its base.
//!
//! ```text
//!  base − TABLE_BELOW   one byte a page: bit READABLE for loads, bit READY for stores
//!  base − FRAME_BELOW   FRAME_SIZE bytes for the translator's own use, 4096-aligned
//!  base                 4 GiB of guest memory, then inaccessible memory
//! ```
//!
//! All of it belongs to one [`Space`] and stays where it is as long as that lives. A load of up to
//! 8 bytes is allowed if they lie inside the 4 GiB and the table has `READABLE` for their pages; a
//! store if it has `READY`. Otherwise [`Space::view`] and [`Space::view_mut`] decide.

use std::ptr::NonNull;

use crate::{
    PAGES, Space,
    reservation::Reservation,
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

/// The bit of a table's byte that allows loads.
pub const READABLE: u8 = table::READ;

/// The bit of a table's byte that allows stores: the sign bit.
pub const READY: u8 = table::READY;

impl Space {
    /// The host address of guest address 0. What lies around it is written down in this module.
    pub fn base(&mut self) -> NonNull<u8> {
        // A mapping never lies at address 0.
        NonNull::new(self.memory.base()).unwrap_or(NonNull::dangling())
    }
}
