//! Guest memory, as the Linux layer sees it.

use std::os::fd::BorrowedFd;

use sandtide_linux::{GuestMemory, MemoryError, Protection, SharedFile};

use crate::{memory::Memory, paging::USER_END};

impl GuestMemory for Memory {
    fn end(&self) -> u64 {
        USER_END
    }

    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        Memory::view(self, address, length)
    }

    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        Memory::view_mut(self, address, length)
    }

    fn map(&mut self, start: u64, length: u64, protection: Protection) {
        Memory::map(self, start, length, protection);
    }

    fn unmap(&mut self, start: u64, length: u64) {
        Memory::unmap(self, start, length);
    }

    fn protect(&mut self, start: u64, length: u64, protection: Protection) {
        Memory::protect(self, start, length, protection);
    }

    fn share(&mut self, file: BorrowedFd<'_>) -> Option<SharedFile> {
        Memory::share(self, file).map(SharedFile)
    }

    fn place(&mut self, file: SharedFile, start: u64, length: u64, offset: u64) -> bool {
        Memory::place(self, file.0, start, length, offset)
    }

    fn untouched(&self, address: u64, length: u64) -> u64 {
        Memory::untouched(self, address, length)
    }

    fn available(&self) -> u64 {
        Memory::available(self)
    }
}
