//! Snapshots of programs on disk: the file, and whether it can be used here and now.
//!
//! ```text
//!   Program::to_keep ─▶ write ─▶ FILE ─▶ SnapshotFile::open ─▶ check ─▶ Kept ─▶ Engine::restore
//! ```
//!
//! A snapshot is code and data of one tenant: whoever can write the file owns what that tenant's
//! sandboxes do, as with the program itself. So a file that others may write is refused. Its checksums find
//! damage, not forgery; what engines read of it they check as if a guest had said it.
//!
//! The pages are mapped where the file lies. So a file never changes: it is written beside its place,
//! made read-only, and renamed.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod about;
mod file;
mod origin;
mod unusable;
mod write;

pub use about::About;
pub use file::{SnapshotFile, belongs_to_us, is_snapshot, with_checksum};
pub use origin::Origin;
pub use unusable::Unusable;
pub use write::{WriteError, write};

/// What the names of snapshots end with.
pub const EXTENSION: &str = "snapshot";

/// The size of a page.
const PAGE: u64 = 4096;

/// The pages that have a checksum of their own together, in bytes.
const PIECE: u64 = 256 << 10;

#[cfg(test)]
mod tests;
