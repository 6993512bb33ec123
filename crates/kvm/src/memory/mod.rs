//! The memory of one sandbox: what KVM has as guest-physical memory, and what the host knows of it.
//!
//! The host keeps its own table of what the guest may do, a byte a page. The page tables that the
//! processor uses lie in guest memory and are written from it, never read.
#![allow(unsafe_code, reason = "makes views of memory that the guest writes while it runs")]

mod chunks;
mod disk;
mod freeze;
mod linux;
mod ranges;
mod reset;
mod shared;
mod table;
#[cfg(test)]
mod tests;
mod verify;

use std::{io, ops::Range, sync::Arc};

use sandtide_linux::{MemoryError, Protection};
use sandtide_memory::Reservation;

use crate::{
    paging::{self, END, PAGE, TABLE_PAGES, USER_END},
    stubs::{self, CallEntry},
};

pub(crate) use chunks::Chunks;
pub(crate) use disk::Layout;
pub(crate) use freeze::Snapshot;
use ranges::Ranges;
pub(crate) use reset::AfterReset;
use shared::{Known, Placed};
use table::Table;

const READ: u8 = 1;
const WRITE: u8 = 2;
const EXECUTE: u8 = 4;
/// What the guest may do.
const ACCESS: u8 = READ | WRITE | EXECUTE;
/// The guest may have written the page since KVM was told to watch it: every reset copies it.
const GUEST: u8 = 8;
/// The host has written the page since the last reset.
const HOST: u8 = 16;
/// The snapshot has bytes for the page; without it, the page is zero in the snapshot.
const IMAGE: u8 = 32;
/// A shared file has bytes for the page, which hold where it was not written.
const FILE: u8 = 64;
/// Of a page table: its directory has it.
const LINKED: u8 = 128;

/// What a snapshot has of an entry.
const LASTING: u8 = ACCESS | IMAGE | FILE | LINKED;

/// More pages than these are mapped without entries in page tables, which are made when the guest
/// comes there: a guest may map all of its addresses in one call.
const EAGER_PAGES: u64 = (128 << 20) / PAGE;

/// A sandbox for which KVM holds this many pages more than for a new one is made anew.
const MOST_SPRAWL: u64 = 320;

/// From this many pages on, memory is given back rather than cleared.
const DISCARD_PAGES: u64 = 16;

/// Guest memory.
pub(crate) struct Memory {
    host: Arc<Reservation>,
    /// An entry for each page.
    table: Table,
    snapshot: Option<Arc<Snapshot>>,
    /// Pages with `GUEST`. May name a page twice, or one that was given back: the bit decides.
    guest_written: Vec<u64>,
    /// Pages with `HOST`, with the same caveat.
    host_written: Vec<u64>,
    /// Pages whose access has changed since the snapshot.
    changed: Ranges,
    /// Page tables with `LINKED` that the snapshot does not have.
    linked: Vec<u64>,
    /// Pages that the processor must look up anew, as the guest may do less with them.
    revoked: Ranges,
    /// The limit that all of this counts towards, in pages.
    limit: u64,
    /// Pages that were written and that the snapshot has no bytes for.
    fresh: u64,
    /// How many of them there may be.
    ceiling: u64,
    /// The same, at the start of an exchange.
    room: u64,
    /// The parts of memory that are used: that have entries in page tables, or were written.
    chunks: Chunks,
    /// The parts of memory that the guest may use.
    mapped: Chunks,
    /// Files that are shared, by their numbers, and the pages that show them. Of a sandbox, the
    /// snapshot has them.
    files: Vec<Known>,
    placed: Vec<Placed>,
    resets: u32,
    /// When it was looked last, most pages that a reset copies had not been written.
    was_idle: bool,
}

fn bits(protection: Protection) -> u8 {
    let Protection { read, write, execute } = protection;
    // The processor has no pages that can be written or executed without being read.
    let read = read || write || execute;
    let bit = |has, bit| if has { bit } else { 0 };
    bit(read, READ) | bit(write, WRITE) | bit(execute, EXECUTE)
}

fn protection(bits: u8) -> Protection {
    let has = |bit| bits & bit != 0;
    Protection { read: has(READ), write: has(WRITE), execute: has(EXECUTE) }
}

/// The pages of a byte range; `None` if it leaves the program's addresses.
fn pages_of(address: u64, length: u64) -> Option<Range<u64>> {
    let end = address.checked_add(length).filter(|end| *end <= USER_END)?;
    Some(address / PAGE..if length == 0 { address / PAGE } else { end.div_ceil(PAGE) })
}

/// The pages of a range that a system call has checked.
fn page_range(start: u64, length: u64) -> Range<u64> {
    assert!(
        start.is_multiple_of(PAGE)
            && length.is_multiple_of(PAGE)
            && start <= USER_END
            && length <= USER_END - start,
        "page range {start:#x} + {length:#x}"
    );
    start / PAGE..(start + length) / PAGE
}

impl Memory {
    /// Memory with page tables and stubs, and no page of the program, of which at most `limit`
    /// bytes can be written.
    pub(crate) fn new(limit: u64, entry: CallEntry) -> io::Result<Self> {
        let mut this = Self::empty(limit)?;
        paging::fixed_entries(stubs::pages(entry), |address, entry| {
            this.write_own(address, &entry.to_le_bytes());
        });
        stubs::contents(entry, |address, bytes| this.write_own(address, bytes));
        this.ceiling += this.fresh;
        this.room = this.ceiling;
        Ok(this)
    }

    fn empty(limit: u64) -> io::Result<Self> {
        let room = limit / PAGE;
        Ok(Self {
            host: Arc::new(Reservation::new(END as usize)?),
            table: Table::new(END / PAGE)?,
            snapshot: None,
            guest_written: Vec::new(),
            host_written: Vec::new(),
            changed: Ranges::default(),
            linked: Vec::new(),
            revoked: Ranges::default(),
            limit: room,
            fresh: 0,
            ceiling: room,
            room,
            chunks: Chunks::new(),
            mapped: Chunks::new(),
            files: Vec::new(),
            placed: Vec::new(),
            resets: 0,
            was_idle: false,
        })
    }

    /// Where it lies in the host.
    pub(crate) fn host(&self) -> &Arc<Reservation> {
        &self.host
    }

    /// The parts of memory that KVM must know.
    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// The parts of memory that are used in any way.
    fn parts(&self) -> Vec<Range<u64>> {
        self.chunks.with(&self.mapped).pages()
    }

    fn bytes(&self, start: u64, length: u64) -> &[u8] {
        assert!(start <= END && length <= END - start, "range {start:#x} + {length:#x}");
        // SAFETY: inside the reservation, as just checked, which is readable as long as `self`
        // lives. The guest writes it only while `Vcpu::run` has `&mut Memory`.
        unsafe { std::slice::from_raw_parts(self.host.base().add(start as usize), length as usize) }
    }

    fn bytes_mut(&mut self, start: u64, length: u64) -> &mut [u8] {
        assert!(start <= END && length <= END - start, "range {start:#x} + {length:#x}");
        // SAFETY: as in `bytes`; the reservation is writable, and `&mut self` makes the access
        // exclusive.
        unsafe {
            std::slice::from_raw_parts_mut(self.host.base().add(start as usize), length as usize)
        }
    }

    fn page_bytes(&self, page: u64) -> &[u8] {
        self.bytes(page * PAGE, PAGE)
    }

    /// `N` bytes of system pages.
    pub(crate) fn system<const N: usize>(&self, address: u64) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.bytes(address, N as u64));
        bytes
    }

    /// Writes system pages and page tables.
    pub(crate) fn write_own(&mut self, address: u64, bytes: &[u8]) {
        let pages = address / PAGE..(address + bytes.len() as u64).div_ceil(PAGE);
        self.use_parts(&pages);
        pages.for_each(|page| self.note_host_write(page));
        self.bytes_mut(address, bytes.len() as u64).copy_from_slice(bytes);
    }

    /// The bytes of a range that the guest may read.
    pub(crate) fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        let pages = self.allowed(address, length, READ)?;
        Ok(if pages.is_empty() { &[] } else { self.bytes(address, length) })
    }

    /// The bytes of a range that the guest may write. All its pages count as written.
    pub(crate) fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        let pages = self.allowed(address, length, WRITE)?;
        self.check_room(pages.clone())?;
        self.use_parts(&pages);
        pages.clone().for_each(|page| self.note_host_write(page));
        Ok(if pages.is_empty() { &mut [] } else { self.bytes_mut(address, length) })
    }

    /// Writes into pages that the guest may perhaps not write: for loading a program.
    pub(crate) fn initialise(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let pages = pages_of(address, bytes.len() as u64).ok_or(MemoryError::Denied)?;
        self.check_room(pages)?;
        self.write_own(address, bytes);
        Ok(())
    }

    fn allowed(&self, address: u64, length: u64, access: u8) -> Result<Range<u64>, MemoryError> {
        let pages = pages_of(address, length).ok_or(MemoryError::Denied)?;
        let entries = &self.table[pages.start as usize..pages.end as usize];
        match entries.iter().all(|entry| entry & access != 0) {
            true => Ok(pages),
            false => Err(MemoryError::Denied),
        }
    }

    fn check_room(&self, pages: Range<u64>) -> Result<(), MemoryError> {
        let entries = &self.table[pages.start as usize..pages.end as usize];
        let new = entries.iter().filter(|entry| **entry & (GUEST | HOST | IMAGE) == 0).count();
        match self.fresh + new as u64 <= self.ceiling {
            true => Ok(()),
            false => Err(MemoryError::Limit),
        }
    }

    fn note_host_write(&mut self, page: u64) {
        let entry = self.table[page as usize];
        if entry & (GUEST | HOST) == 0 {
            self.fresh += u64::from(entry & IMAGE == 0);
            self.table[page as usize] = entry | HOST;
            self.host_written.push(page);
        }
    }

    /// Takes note of a page that the guest has written, as KVM says.
    pub(crate) fn note_guest_write(&mut self, page: u64) {
        let entry = self.table[page as usize];
        if entry & GUEST == 0 {
            self.fresh += u64::from(entry & (HOST | IMAGE) == 0);
            self.table[page as usize] = entry | GUEST;
            self.guest_written.push(page);
        }
    }

    /// Whether the guest has written a page, as far as KVM was told to watch it.
    pub(crate) fn is_written_by_guest(&self, page: u64) -> bool {
        self.table[page as usize] & GUEST != 0
    }

    /// Forgets what the guest has written. Before the ring is reset.
    pub(crate) fn forget_guest_writes(&mut self) {
        for page in self.guest_written.drain(..) {
            let entry = self.table[page as usize];
            self.fresh -= u64::from(entry & (GUEST | HOST | IMAGE) == GUEST);
            self.table[page as usize] = entry & !GUEST;
        }
    }

    /// How many pages the program can have, those of its snapshot included.
    pub(crate) fn limit_pages(&self) -> u64 {
        self.limit
    }

    /// Whether the guest has written more than it may.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.fresh > self.ceiling
    }

    /// Bytes that can still be written to fresh pages.
    pub(crate) fn available(&self) -> u64 {
        self.ceiling.saturating_sub(self.fresh) * PAGE
    }

    /// Pages that the next reset copies.
    pub(crate) fn written_pages(&self) -> usize {
        self.guest_written.len() + self.host_written.len()
    }

    /// Host memory that this sandbox alone holds for guest pages, in bytes.
    pub(crate) fn private_bytes(&self) -> u64 {
        self.written_pages() as u64 * PAGE
    }

    /// Makes a range of pages present, zero, and accessible as told.
    pub(crate) fn map(&mut self, start: u64, length: u64, protection: Protection) {
        let range = page_range(start, length);
        self.clear(range.clone());
        self.set_access(range, bits(protection));
    }

    /// Makes a range of pages inaccessible, and gives its memory back where that pays.
    pub(crate) fn unmap(&mut self, start: u64, length: u64) {
        let range = page_range(start, length);
        self.discard_fresh(range.clone());
        self.set_access(range, 0);
    }

    /// Changes what the guest may do with a range of pages. Their bytes stay.
    pub(crate) fn protect(&mut self, start: u64, length: u64, protection: Protection) {
        self.set_access(page_range(start, length), bits(protection));
    }

    fn set_access(&mut self, range: Range<u64>, access: u8) {
        if range.is_empty() {
            return;
        }
        if access != 0 {
            self.mapped.add(&range);
        }
        let is_lazy = access == 0 || range.end - range.start > EAGER_PAGES;
        let mut loses = false;
        let mut start = range.start;
        while start < range.end {
            let table = paging::table_of(start);
            let end = (start / TABLE_PAGES + 1) * TABLE_PAGES;
            let pages = start..end.min(range.end);
            start = pages.end;
            let is_linked = self.table[table as usize] & LINKED != 0;
            let mut changes = false;
            for entry in &mut self.table[pages.start as usize..pages.end as usize] {
                loses |= *entry & ACCESS & !access != 0;
                changes |= *entry & ACCESS != access;
                *entry = *entry & !ACCESS | access;
            }
            match is_linked {
                true if changes => self.write_entries(pages),
                false if !is_lazy => self.link(table),
                _ => {}
            }
        }
        if loses {
            self.revoked.add(range.clone());
        }
        if self.snapshot.is_some() {
            self.changed.add(range);
        }
    }

    /// KVM is to know the parts in which these pages lie. What it keeps for them counts.
    fn use_parts(&mut self, pages: &Range<u64>) {
        let before = self.chunks.count();
        self.chunks.add(pages);
        self.fresh += (self.chunks.count() - before) as u64 * chunks::COST;
    }

    /// Whether KVM knows many more parts of memory than those of the snapshot. It forgets none.
    pub(crate) fn has_sprawled(&self) -> bool {
        let snapshots = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.parts());
        let more = self.chunks.count().saturating_sub(snapshots) as u64 * chunks::COST;
        more > MOST_SPRAWL.min(self.room / 8)
    }

    /// Makes a page table, and has the processor find it.
    fn link(&mut self, table: u64) {
        let pages = paging::pages_of(table);
        self.table[table as usize] |= LINKED;
        let (address, entry) = paging::directory_entry(table);
        self.write_own(address, &entry.to_le_bytes());
        if self.snapshot.is_some() {
            self.linked.push(table);
        }
        self.use_parts(&pages);
        self.write_entries(pages);
    }

    /// Writes the entries of pages of one page table.
    fn write_entries(&mut self, pages: Range<u64>) {
        let mut entries = [0; PAGE as usize];
        let bytes = entries.as_chunks_mut::<8>().0.iter_mut();
        for (page, bytes) in pages.clone().zip(bytes) {
            let access = protection(self.table[page as usize] & ACCESS);
            *bytes = paging::entry(page, access).to_le_bytes();
        }
        let length = (pages.end - pages.start) as usize * 8;
        self.write_own(paging::entry_address(pages.start), &entries[..length]);
    }

    /// Whether a page fault, with this error code, was none: the guest may do what it did. Then it
    /// can from here on.
    pub(crate) fn resolve(&mut self, address: u64, error: u64) -> bool {
        let page = address / PAGE;
        if page >= USER_END / PAGE {
            return false;
        }
        let needed = match error {
            _ if error & 16 != 0 => EXECUTE,
            _ if error & 2 != 0 => WRITE,
            _ => READ,
        };
        let may = self.table[page as usize] & needed != 0;
        let table = paging::table_of(page);
        if may && self.table[table as usize] & LINKED == 0 {
            self.link(table);
        }
        may
    }

    /// Makes the processor notice what the guest may not do any more. Before it runs.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        for range in self.revoked.take() {
            let length = (range.end - range.start) * PAGE;
            self.host.revoke((range.start * PAGE) as usize, length as usize)?;
        }
        Ok(())
    }

    /// Makes every page of a range zero.
    fn clear(&mut self, range: Range<u64>) {
        // What cannot be taken away is overwritten.
        let _ = self.remove_shared(range.clone());
        self.discard_fresh(range.clone());
        for page in self.chunks.within(&range).flatten() {
            if self.table[page as usize] & (GUEST | HOST | IMAGE | FILE) != 0 {
                self.note_host_write(page);
                self.bytes_mut(page * PAGE, PAGE).fill(0);
            }
        }
    }

    /// Gives back the memory of written pages that neither snapshot nor file have bytes for: they are
    /// zero afterwards. Short runs are left as they are.
    fn discard_fresh(&mut self, range: Range<u64>) {
        let is_fresh = |entry: u8| entry & (GUEST | HOST) != 0 && entry & (IMAGE | FILE) == 0;
        for range in self.chunks.within(&range) {
            let mut page = range.start;
            while page < range.end {
                let rest = &self.table[page as usize..range.end as usize];
                let run = rest.iter().take_while(|entry| is_fresh(**entry)).count() as u64;
                if run >= DISCARD_PAGES && self.discard(page..page + run).is_ok() {
                    self.forget_stale();
                }
                page += run.max(1);
            }
        }
    }

    /// How many bytes from an address on are zero, as nobody has written there; at most `length`.
    pub(crate) fn untouched(&self, address: u64, length: u64) -> u64 {
        let Some(pages) = pages_of(address, length) else { return 0 };
        let used = |page: &u64| self.table[*page as usize] & (GUEST | HOST | IMAGE | FILE) != 0;
        let used = self.chunks.within(&pages).flatten().find(used);
        used.map_or(length, |page| (page * PAGE).saturating_sub(address))
    }

    /// Gives back the memory of pages, whatever they hold.
    fn discard(&mut self, pages: Range<u64>) -> io::Result<()> {
        let length = (pages.end - pages.start) * PAGE;
        self.host.discard((pages.start * PAGE) as usize, length as usize)?;
        for entry in &mut self.table[pages.start as usize..pages.end as usize] {
            self.fresh -= u64::from(*entry & (GUEST | HOST) != 0 && *entry & IMAGE == 0);
            *entry &= !(GUEST | HOST);
        }
        Ok(())
    }

    /// Keeps the lists from growing when a guest maps, writes and unmaps in a loop.
    fn forget_stale(&mut self) {
        for (list, bit) in [(&mut self.guest_written, GUEST), (&mut self.host_written, HOST)] {
            if list.len() > 4096 && list.len() > list.capacity() / 2 {
                list.sort_unstable();
                list.dedup();
                list.retain(|page| self.table[*page as usize] & bit != 0);
                list.reserve(list.len() + 4096);
            }
        }
    }
}
