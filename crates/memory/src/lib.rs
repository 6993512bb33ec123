//! Snapshot memory: a guest address space that goes back to its snapshot at the cost of what was
//! written.
//!
//! ```text
//!  Snapshot                     sealed memfd: page table, then the pages that are not zero
//!     │ private mapping
//!     ▼
//!  Space   guard │ 4 GiB of guest addresses │ guard      one for each sandbox
//!          table: one byte a page = permissions, written?, in the snapshot?, private?
//! ```
//!
//! * What the guest may not read, this process cannot touch either (`mirror`): the host's
//!   protection follows the table.
//! * A page that a sandbox never wrote is shared with every other sandbox of the program.
//! * The first write to a page after a reset finds the page's `WRITTEN` bit clear; the page is
//!   noted, and later writes see the bit set and cost nothing more. No signal, no system call.
//! * [`Space::reset`] copies the snapshot's bytes back over the noted pages, and only those. The
//!   host memory of a page stays with the sandbox for the next request, so that a warm sandbox
//!   takes no page fault either.
//! * Host memory that requests have stopped writing is given back every [`SHRINK_PERIOD`] resets.
//!
//! Guest addresses are `u32`: nothing a guest computes can lie outside its own reservation. Host
//! pointers never leave this crate, except as slices of ranges that were checked, and for
//! translated code, which makes the same checks itself ([`native`]).
#![allow(unsafe_code, reason = "maps memory and hands out checked views of it")]

mod caught;
mod copies;
mod freeze;
mod heap;
mod lasting;
mod mirror;
pub mod native;
mod reservation;
mod reset;
mod space;
mod table;
mod verify;

pub use freeze::Snapshot;
pub use heap::trim_heap;
pub use reservation::Reservation;
pub use reset::SHRINK_PERIOD;
pub use space::{Denied, Space};
pub use table::Access;
pub use verify::{Difference, Look, first_difference};

/// The size of a page, in bytes.
pub const PAGE: usize = 4096;

/// The size of a guest's address space, in bytes: every `u32` is an address in it.
pub const SPACE: usize = 1 << 32;

/// The end of the addresses that a guest can have. Neither the last page nor the first can be
/// mapped.
pub const END: usize = SPACE - PAGE;

/// How many pages an address space has.
pub const PAGES: usize = SPACE / PAGE;

#[cfg(test)]
mod tests;
