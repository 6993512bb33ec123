//! Guest memory that checks how it is used.

use std::ops::Range;

use sandtide_linux::{GuestMemory, MemoryError, PAGE, Protection};

/// What a guest's data usually is.
pub(crate) const READ_WRITE: Protection = Protection { read: true, write: true, execute: false };

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Page {
    protection: Protection,
    written: bool,
}

/// A small address space in one piece, with a limit on fresh pages like the real one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FakeMemory {
    bytes: Vec<u8>,
    pages: Vec<Page>,
    /// Pages that may still be written for the first time.
    fresh: usize,
    /// What [`GuestMemory::view_mut`] was asked for since [`FakeMemory::take_writes`].
    writes: Vec<Range<u64>>,
    was_over_limit: bool,
}

impl FakeMemory {
    /// Addresses from 0 to `pages` pages, none of them mapped, of which `fresh` may be written.
    pub(crate) fn new(pages: usize, fresh: usize) -> Self {
        Self {
            bytes: vec![0; pages * PAGE as usize],
            pages: vec![Page::default(); pages],
            fresh,
            writes: Vec::new(),
            was_over_limit: false,
        }
    }

    /// Writes what the guest could not write itself.
    pub(crate) fn put(&mut self, address: u64, bytes: &[u8]) {
        let range = self.range(address, bytes.len() as u64).expect("inside the fake memory");
        self.bytes[range].copy_from_slice(bytes);
    }

    /// All bytes, whatever the guest may do with them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The ranges that were handed out for writing since the last time.
    pub(crate) fn take_writes(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.writes)
    }

    /// Whether a write was refused for the limit since the last time.
    pub(crate) fn take_over_limit(&mut self) -> bool {
        std::mem::take(&mut self.was_over_limit)
    }

    fn range(&self, address: u64, length: u64) -> Option<Range<usize>> {
        let end = address.checked_add(length)?;
        (end <= self.bytes.len() as u64).then_some(address as usize..end as usize)
    }

    fn pages_of(range: &Range<usize>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / PAGE as usize..range.end.div_ceil(PAGE as usize)
    }

    /// The pages of a range that a system call was to check first.
    fn whole_pages(&self, start: u64, length: u64) -> Range<usize> {
        assert!(
            start.is_multiple_of(PAGE) && length.is_multiple_of(PAGE),
            "{start:#x} + {length:#x} is not made of pages"
        );
        let range = self.range(start, length);
        let range = range.unwrap_or_else(|| panic!("{start:#x} + {length:#x} is not memory"));
        Self::pages_of(&range)
    }

    fn clear(&mut self, pages: Range<usize>) {
        self.bytes[pages.start * PAGE as usize..pages.end * PAGE as usize].fill(0);
        for page in &mut self.pages[pages] {
            self.fresh += usize::from(page.written);
            page.written = false;
        }
    }
}

impl GuestMemory for FakeMemory {
    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        if length == 0 {
            return Ok(&[]);
        }
        let range = self.range(address, length).ok_or(MemoryError::Denied)?;
        let pages = &self.pages[Self::pages_of(&range)];
        if pages.iter().all(|page| page.protection.read) {
            Ok(&self.bytes[range])
        } else {
            Err(MemoryError::Denied)
        }
    }

    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        if length == 0 {
            return Ok(&mut []);
        }
        let range = self.range(address, length).ok_or(MemoryError::Denied)?;
        let pages = &mut self.pages[Self::pages_of(&range)];
        if !pages.iter().all(|page| page.protection.write) {
            return Err(MemoryError::Denied);
        }
        for page in pages.iter_mut().filter(|page| !page.written) {
            if self.fresh == 0 {
                self.was_over_limit = true;
                return Err(MemoryError::Limit);
            }
            self.fresh -= 1;
            page.written = true;
        }
        self.writes.push(address..address + length);
        Ok(&mut self.bytes[range])
    }

    fn map(&mut self, start: u64, length: u64, protection: Protection) {
        let pages = self.whole_pages(start, length);
        self.clear(pages.clone());
        self.pages[pages].iter_mut().for_each(|page| page.protection = protection);
    }

    fn unmap(&mut self, start: u64, length: u64) {
        self.map(start, length, Protection::default());
    }

    fn protect(&mut self, start: u64, length: u64, protection: Protection) {
        let pages = self.whole_pages(start, length);
        self.pages[pages].iter_mut().for_each(|page| page.protection = protection);
    }

    fn available(&self) -> u64 {
        self.fresh as u64 * PAGE
    }
}
