//! Guest memory, as the Linux layer sees it.

use sandtide_linux::{GuestMemory, MemoryError, Protection};

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

    fn available(&self) -> u64 {
        Memory::available(self)
    }
}
