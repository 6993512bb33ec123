//! Guest memory of this engine, as the Linux layer sees it.

use sandtide_linux::{GuestMemory, MemoryError, Protection};
use sandtide_memory::{Access, Denied, END, Space};

/// A [`Space`], behind the trait of the Linux layer.
#[repr(transparent)]
pub(crate) struct Memory(pub(crate) Space);

/// A guest pointer as an offset into the space. Pointers in calls are not truncated, unlike those
/// of loads and stores: one beyond 4 GiB is a bad pointer.
fn narrow(address: u64, length: u64) -> Result<(u32, usize), MemoryError> {
    // An empty range may have any address, even one past the end.
    let address = if length == 0 { 0 } else { address };
    match (u32::try_from(address), usize::try_from(length)) {
        (Ok(address), Ok(length)) => Ok((address, length)),
        _ => Err(MemoryError::Denied),
    }
}

pub(crate) fn denied(denied: Denied) -> MemoryError {
    match denied {
        Denied::Protection => MemoryError::Denied,
        Denied::Limit => MemoryError::Limit,
    }
}

pub(crate) fn access(protection: Protection) -> Access {
    let Protection { read, write, execute } = protection;
    [(read, Access::READ), (write, Access::WRITE), (execute, Access::EXECUTE)]
        .into_iter()
        .filter(|(granted, _)| *granted)
        .fold(Access::NONE, |all, (_, access)| all.and(access))
}

impl GuestMemory for Memory {
    fn end(&self) -> u64 {
        END as u64
    }

    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        let (address, length) = narrow(address, length)?;
        self.0.view(address, length).map_err(denied)
    }

    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        let (address, length) = narrow(address, length)?;
        self.0.view_mut(address, length).map_err(denied)
    }

    fn map(&mut self, start: u64, length: u64, protection: Protection) {
        self.0.map(start, length, access(protection));
    }

    fn unmap(&mut self, start: u64, length: u64) {
        self.0.unmap(start, length);
    }

    fn protect(&mut self, start: u64, length: u64, protection: Protection) {
        self.0.protect(start, length, access(protection));
    }

    fn available(&self) -> u64 {
        self.0.available()
    }
}
