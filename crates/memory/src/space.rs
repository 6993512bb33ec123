//! The address space of one sandbox.

use std::{io, ops::Range, sync::Arc};

use crate::{
    PAGE, PAGES, SPACE, Snapshot,
    lasting::Lasting,
    mirror::Mirror,
    native,
    reservation::Reservation,
    table::{
        Access, EXECUTE, IMAGE, PRIVATE, PageNumber, PageTable, READ, READY, RECENT, WRITE, WRITTEN,
    },
};

/// Why an access was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The page is not there, or not for this kind of access.
    #[error("no such memory")]
    Protection,
    /// The write needs a fresh page, and the limit of pages is reached.
    #[error("over the memory limit")]
    Limit,
}

/// The 4 GiB of guest addresses of one sandbox, and what it has written.
pub struct Space {
    pub(crate) memory: Reservation,
    pub(crate) table: PageTable,
    pub(crate) snapshot: Option<Arc<Snapshot>>,
    /// Pages with `WRITTEN`, in the order of their first writes. May name a page twice, or one
    /// whose memory was given back: the bit in the table decides.
    pub(crate) written: Vec<PageNumber>,
    /// Pages with `PRIVATE`, with the same caveat.
    pub(crate) private: Vec<PageNumber>,
    /// Page ranges whose access changed since the snapshot.
    pub(crate) changed: Vec<Range<usize>>,
    /// Written pages that the snapshot has no bytes for: these count against the limit.
    fresh: usize,
    fresh_limit: usize,
    pub(crate) lasting: Lasting,
    pub(crate) resets: u32,
    pub(crate) mirror: Mirror,
}

/// More ranges than this are merged into one.
const MOST_CHANGED_RANGES: usize = 64;

/// From this many pages on, memory is given back to the host rather than cleared.
const DISCARD_PAGES: usize = 16;

impl Space {
    /// An empty address space in which at most `limit` bytes can be written.
    pub fn new(limit: u64) -> io::Result<Self> {
        let (table, memory) = Reservation::pair(native::FIRST_LENGTH, SPACE)?;
        Ok(Self {
            memory,
            table: PageTable::over(table),
            snapshot: None,
            written: Vec::new(),
            private: Vec::new(),
            changed: Vec::new(),
            fresh: 0,
            fresh_limit: pages_in(limit),
            lasting: Lasting::default(),
            resets: 0,
            mirror: Mirror::new(0),
        })
    }

    /// An address space that holds what the snapshot holds. `limit` bounds the bytes of the
    /// snapshot and of freshly written pages together.
    pub fn from_snapshot(snapshot: Arc<Snapshot>, limit: u64) -> io::Result<Self> {
        let mut this = Self::new(limit)?;
        snapshot.map_into(&this.memory, &this.table)?;
        this.fresh_limit = this.fresh_limit.saturating_sub(snapshot.image_pages());
        this.lasting = snapshot.lasting().clone();
        this.mirror = Mirror::new(snapshot.borders());
        this.mirror(&snapshot)?;
        this.snapshot = Some(snapshot);
        Ok(this)
    }

    /// Loads `N` bytes, at any alignment.
    #[inline(always)]
    pub fn load<const N: usize>(&self, address: u32) -> Result<[u8; N], Denied> {
        let is_readable = self.table.get(PageNumber::of(address)) & READ != 0;
        if !is_readable || !within_page::<N>(address) {
            return self.load_slowly(address);
        }
        // SAFETY: all `N` bytes lie in one page of the reservation, which the guest may read,
        // so it is open as long as `self` is borrowed.
        Ok(unsafe { self.memory.base().add(address as usize).cast::<[u8; N]>().read() })
    }

    #[cold]
    #[inline(never)]
    fn load_slowly<const N: usize>(&self, address: u32) -> Result<[u8; N], Denied> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.view(address, N)?);
        Ok(bytes)
    }

    /// Stores `N` bytes, at any alignment.
    #[inline(always)]
    pub fn store<const N: usize>(&mut self, address: u32, bytes: [u8; N]) -> Result<(), Denied> {
        match self.store_at_once(address, bytes) {
            Some(()) => Ok(()),
            None => self.store_slowly(address, bytes),
        }
    }

    /// Stores `N` bytes if that needs no call: `None` says nothing, [`Space::store`] knows.
    #[inline(always)]
    pub fn store_at_once<const N: usize>(&mut self, address: u32, bytes: [u8; N]) -> Option<()> {
        let is_ready = self.table.get(PageNumber::of(address)) & READY != 0;
        (is_ready && within_page::<N>(address)).then(|| {
            // SAFETY: all `N` bytes lie in one page of the reservation, which the guest may write
            // and so read, so it is open; `&mut self` makes the access exclusive.
            unsafe { self.memory.base().add(address as usize).cast::<[u8; N]>().write(bytes) }
        })
    }

    #[cold]
    #[inline(never)]
    fn store_slowly<const N: usize>(&mut self, address: u32, bytes: [u8; N]) -> Result<(), Denied> {
        self.view_mut(address, N)?.copy_from_slice(&bytes);
        Ok(())
    }

    /// The halfword at an even address that the guest may execute.
    #[inline]
    pub fn fetch(&self, address: u32) -> Result<u16, Denied> {
        if address & 1 != 0 || self.table.get(PageNumber::of(address)) & EXECUTE == 0 {
            return Err(Denied::Protection);
        }
        // SAFETY: an even address leaves two bytes in its page, which the guest may execute and so
        // read, so it is open.
        let bytes = unsafe { self.memory.base().add(address as usize).cast::<[u8; 2]>().read() };
        Ok(u16::from_le_bytes(bytes))
    }

    /// The bytes of a range that the guest may read.
    pub fn view(&self, address: u32, length: usize) -> Result<&[u8], Denied> {
        for page in pages_of(address, length)? {
            if self.table.get(page) & READ == 0 {
                return Err(Denied::Protection);
            }
        }
        // SAFETY: `pages_of` keeps the range inside the reservation, and the guest may read it, so
        // it is open; while the slice lives, `&self` keeps writers and changes of access away.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.base().add(address as usize), length) })
    }

    /// The bytes of pages that were written and that the guest may read but not execute, a page at
    /// a time: for a look at a program's data.
    pub fn data_pages(&self) -> impl Iterator<Item = &[u8]> {
        self.written
            .iter()
            .filter(|page| self.table.get(**page) & (READ | EXECUTE) == READ)
            .map(|page| &self.page_bytes(*page)[..])
    }

    /// The bytes of a range that the guest may write. All its pages count as written.
    pub fn view_mut(&mut self, address: u32, length: usize) -> Result<&mut [u8], Denied> {
        for page in pages_of(address, length)? {
            if self.table.get(page) & WRITE == 0 {
                return Err(Denied::Protection);
            }
        }
        for page in pages_of(address, length)? {
            self.note_write(page)?;
        }
        // SAFETY: as in `view`, and `&mut self` makes the access exclusive.
        Ok(unsafe {
            std::slice::from_raw_parts_mut(self.memory.base().add(address as usize), length)
        })
    }

    /// Whether every page of a range was written already, so that stores to it need nothing else.
    pub fn is_ready(&self, address: u32, length: usize) -> bool {
        pages_of(address, length)
            .is_ok_and(|mut pages| pages.all(|page| self.table.get(page) & READY != 0))
    }

    /// Notes that a page is about to be written, whatever the guest may do with it.
    #[inline]
    fn note_write(&mut self, page: PageNumber) -> Result<(), Denied> {
        let entry = self.table.get(page);
        if entry & WRITTEN != 0 {
            return Ok(());
        }
        if entry & IMAGE == 0 {
            if self.fresh >= self.fresh_limit {
                return Err(Denied::Limit);
            }
            self.fresh += 1;
        }
        if entry & EXECUTE != 0 {
            self.lasting.changes(page);
        }
        if entry & PRIVATE == 0 {
            self.private.push(page);
        }
        self.written.push(page);
        self.table.set(page, entry | WRITTEN | PRIVATE | RECENT);
        Ok(())
    }

    /// Bytes that can still be written to fresh pages.
    pub fn available(&self) -> u64 {
        ((self.fresh_limit - self.fresh) * PAGE) as u64
    }

    /// Pages written since the last reset.
    pub fn written_pages(&self) -> usize {
        self.written.len()
    }

    /// Host memory that this space alone holds for guest pages, in bytes.
    pub fn private_bytes(&self) -> u64 {
        (self.private.len() * PAGE) as u64
    }

    /// Makes a range of pages present, zero, and accessible as told. The first and the last page
    /// of the address space stay as they are, here and everywhere.
    ///
    /// # Panics
    /// If the range is not made of whole pages inside the address space (so in `unmap` and
    /// `protect`: system calls check their arguments before they come here), or if the host has
    /// no mappings left.
    pub fn map(&mut self, start: u64, length: u64, access: Access) {
        let range = page_range(start, length);
        self.discard_fresh(range.clone());
        let hidden = self.open_hidden(range.clone());
        assert!(hidden.is_ok(), "cannot open guest memory: {hidden:?}");
        self.clear(range.clone());
        let closed = self.close_again(hidden.unwrap_or(0..0));
        assert!(closed.is_ok(), "cannot close guest memory: {closed:?}");
        self.set_access(range, access);
    }

    /// Makes a range of pages inaccessible, and gives its memory back where that pays.
    pub fn unmap(&mut self, start: u64, length: u64) {
        let range = page_range(start, length);
        self.discard_fresh(range.clone());
        self.set_access(range, Access::NONE);
    }

    /// Changes the access to a range of pages. Their bytes stay.
    pub fn protect(&mut self, start: u64, length: u64, access: Access) {
        self.set_access(page_range(start, length), access);
    }

    /// Writes into pages that the guest may perhaps not write: for loading a program.
    pub fn initialise(&mut self, address: u32, bytes: &[u8]) -> Result<(), Denied> {
        for page in pages_of(address, bytes.len())? {
            self.note_write(page)?;
        }
        let end = (address as usize + bytes.len()).div_ceil(PAGE);
        let hidden = self.open_hidden(address as usize / PAGE..end).map_err(|_| Denied::Limit)?;
        // SAFETY: `pages_of` keeps the range inside the reservation, and it is open: either the
        // guest may read it, or it was just opened. `&mut self` makes the access exclusive, and
        // `bytes` cannot overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.memory.base().add(address as usize),
                bytes.len(),
            );
        }
        self.close_again(hidden).map_err(|_| Denied::Limit)
    }

    pub(crate) fn note_change(&mut self, range: Range<usize>) {
        if let Some(last) = self.changed.last_mut()
            && range.start <= last.end
            && last.start <= range.end
        {
            *last = last.start.min(range.start)..last.end.max(range.end);
            return;
        }
        self.changed.push(range);
        if self.changed.len() > MOST_CHANGED_RANGES {
            let start = self.changed.iter().map(|range| range.start).min().unwrap_or(0);
            let end = self.changed.iter().map(|range| range.end).max().unwrap_or(PAGES);
            self.changed.clear();
            self.changed.push(start..end);
        }
    }

    /// Makes every page of a range zero. Those that hold something are open.
    fn clear(&mut self, range: Range<usize>) {
        for index in range {
            let page = PageNumber::new(index);
            let entry = self.table.get(page);
            if entry & (WRITTEN | IMAGE) == 0 {
                continue;
            }
            if entry & EXECUTE != 0 {
                self.lasting.changes(page);
            }
            // A page that the snapshot has bytes for is never fresh, so this is within the limit.
            let noted = self.note_write(page);
            debug_assert!(noted.is_ok());
            // SAFETY: a whole page inside the reservation, which is open; `&mut self` makes the
            // access exclusive.
            unsafe { self.memory.base().add(page.offset()).write_bytes(0, PAGE) };
        }
    }

    /// Gives back the memory of written pages that the snapshot has no bytes for: they are zero
    /// afterwards. Short runs are left as they are.
    fn discard_fresh(&mut self, range: Range<usize>) {
        let is_fresh = |table: &PageTable, index| {
            table.get(PageNumber::new(index)) & (WRITTEN | IMAGE) == WRITTEN
        };
        let mut index = range.start;
        while index < range.end {
            let start = index;
            while index < range.end && is_fresh(&self.table, index) {
                index += 1;
            }
            if index - start >= DISCARD_PAGES
                && self.memory.discard(start * PAGE, (index - start) * PAGE).is_ok()
            {
                self.fresh -= index - start;
                for freed in start..index {
                    let page = PageNumber::new(freed);
                    self.table.set(page, self.table.get(page) & !(WRITTEN | PRIVATE | RECENT));
                }
                self.forget_stale();
            }
            index += usize::from(index == start);
        }
    }

    /// Keeps the lists from growing when a guest maps, writes and unmaps in a loop.
    fn forget_stale(&mut self) {
        for (list, bit) in [(&mut self.written, WRITTEN), (&mut self.private, PRIVATE)] {
            if list.len() > 1024 && list.len() > list.capacity() / 2 {
                list.sort_unstable();
                list.dedup();
                list.retain(|page| self.table.get(*page) & bit != 0);
                list.reserve(list.len() + 1024);
            }
        }
    }

    /// Nothing is written any more.
    pub(crate) fn forget_written(&mut self) {
        self.written.clear();
        self.fresh = 0;
    }
}

/// Whether `N` bytes at an address lie in one page.
#[inline(always)]
fn within_page<const N: usize>(address: u32) -> bool {
    address as usize % PAGE <= PAGE - N
}

/// The pages of a byte range.
#[inline]
fn pages_of(
    address: u32,
    length: usize,
) -> Result<impl Iterator<Item = PageNumber> + use<>, Denied> {
    let end = (address as usize).checked_add(length).filter(|end| *end <= SPACE);
    let end = end.ok_or(Denied::Protection)?;
    let first = address as usize / PAGE;
    let after = if length == 0 { first } else { end.div_ceil(PAGE) };
    Ok((first..after).map(PageNumber::new))
}

/// The pages of a range that a system call has checked.
fn page_range(start: u64, length: u64) -> Range<usize> {
    let (page, space) = (PAGE as u64, SPACE as u64);
    assert!(
        start.is_multiple_of(page)
            && length.is_multiple_of(page)
            && start <= space
            && length <= space - start,
        "page range {start:#x} + {length:#x}"
    );
    (start / page) as usize..((start + length) / page) as usize
}

fn pages_in(bytes: u64) -> usize {
    (bytes / PAGE as u64).min(PAGES as u64) as usize
}
