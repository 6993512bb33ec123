//! Guest memory, as the system calls see it. Each engine implements this over its own mapping.

use std::os::fd::BorrowedFd;

use serde::{Deserialize, Serialize};

/// Why guest memory could not be accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Not mapped, or not with this permission: `EFAULT` for a system call.
    #[error("no such guest memory")]
    Denied,
    /// The write would take the guest over its memory limit.
    #[error("over the memory limit")]
    Limit,
}

/// What a guest may do with pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Protection {
    /// Loads.
    pub read: bool,
    /// Stores.
    pub write: bool,
    /// Instruction fetch.
    pub execute: bool,
}

/// A guest's address space.
///
/// Addresses are the guest's own. Every method checks the whole range against the guest's
/// permissions before it touches a byte. Pages are 4 KiB ([`PAGE`]).
pub trait GuestMemory {
    /// The end of the address space: no page at or above it can be mapped.
    fn end(&self) -> u64;

    /// The bytes of a range that the guest may read.
    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError>;

    /// The bytes of a range that the guest may write. Counts as a write of all its pages.
    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError>;

    /// Makes the pages of a range present, zero, and accessible as `protection` says; what was
    /// there is gone. `start` and `length` are multiples of [`PAGE`] within [`Self::end`].
    fn map(&mut self, start: u64, length: u64, protection: Protection);

    /// Makes the pages of a range inaccessible, and gives their memory back.
    fn unmap(&mut self, start: u64, length: u64);

    /// Changes what the guest may do with the pages of a range, keeping what they hold.
    fn protect(&mut self, start: u64, length: u64, protection: Protection);

    /// A number for what a file holds, if mappings of it can show pages that are shared with others;
    /// `None` if a mapping has to be a copy.
    fn share(&mut self, _file: BorrowedFd<'_>) -> Option<SharedFile> {
        None
    }

    /// Makes pages of a range that was mapped show those of a shared file from `offset` on, a
    /// multiple of [`PAGE`], as far as the file has them. Who writes to one has a copy of it from then on.
    /// Whether it did so.
    fn place(&mut self, _file: SharedFile, _start: u64, _length: u64, _offset: u64) -> bool {
        false
    }

    /// How many bytes from a page on are known to be zero, at most `length`: what nobody has written
    /// to need not be looked at.
    fn untouched(&self, _address: u64, _length: u64) -> u64 {
        0
    }

    /// Bytes that the guest may still write to fresh pages before it is over its limit.
    fn available(&self) -> u64;
}

/// The content of a file, to a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedFile(pub usize);

/// The size of a page of guest memory, in bytes.
pub const PAGE: u64 = 4096;
