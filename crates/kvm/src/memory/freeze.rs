//! The frozen memory of a program.

use std::{
    fs::File,
    io::{self, Write as _},
    ops::Range,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::{MemfdFlags, SealFlags},
    mm::ProtFlags,
};
use sandtide_memory::Reservation;

use crate::{
    memory::{Chunks, FILE, GUEST, HOST, IMAGE, LASTING, Memory, Placed},
    paging::{END, PAGE, USER_END},
};

/// Zero pages between two runs that are stored, to have fewer mappings.
const LARGEST_GAP: u64 = 4;

/// The memory of a program at the point where it waits for a request: pages of the program, its page
/// tables and the stubs. Immutable and shared by all of the program's sandboxes.
pub(crate) struct Snapshot {
    pub(super) file: OwnedFd,
    /// Where the pages begin in the file.
    pub(super) start: u64,
    /// Pages that the file has, one behind the other.
    pub(super) runs: Vec<Range<u64>>,
    /// Pages that are as in a file which others have too.
    pub(super) shared: Vec<Placed>,
    /// The entries of the table that are not zero, in order.
    pub(super) entries: Vec<(Range<u64>, u8)>,
    /// The same memory, mapped for reading: what a reset copies from.
    pub(super) view: Reservation,
    pub(super) chunks: Chunks,
}

impl Memory {
    /// Freezes what there is.
    ///
    /// # Panics
    /// If the memory was itself made from a snapshot.
    pub(crate) fn freeze(&mut self) -> io::Result<Snapshot> {
        assert!(self.snapshot.is_none(), "a snapshot of a snapshot");
        let lists = self.guest_written.iter().chain(&self.host_written);
        let mut pages: Vec<u64> = lists
            .copied()
            .filter(|page| self.table[*page as usize] & (GUEST | HOST) != 0)
            .collect();
        pages.sort_unstable();
        pages.dedup();
        for page in &pages {
            self.table[*page as usize] &= !FILE;
        }
        pages.retain(|page| self.page_bytes(*page).iter().any(|byte| *byte != 0));
        for page in &pages {
            self.table[*page as usize] |= IMAGE;
        }
        let runs = runs_of(&pages);
        let mut file = File::from(rustix::fs::memfd_create(
            "sandtide-snapshot",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?);
        for run in &runs {
            file.write_all(self.bytes(run.start * PAGE, (run.end - run.start) * PAGE))?;
        }
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        let snapshot = Snapshot {
            file: file.into(),
            start: 0,
            runs,
            shared: self.shown(),
            entries: entries_of(&self.table, &self.parts()),
            view: Reservation::new(END as usize)?,
            chunks: self.chunks.clone(),
        };
        snapshot.map_into(&snapshot.view, false)?;
        Ok(snapshot)
    }

    /// The pages that show files, where nothing was written.
    fn shown(&self) -> Vec<Placed> {
        let mut shown = Vec::new();
        for placed in &self.placed {
            let entries = &self.table[placed.pages.start as usize..placed.pages.end as usize];
            let mut start = placed.pages.start;
            for run in entries.chunk_by(|one, next| (one ^ next) & FILE == 0) {
                let pages = start..start + run.len() as u64;
                start = pages.end;
                if run[0] & FILE != 0 {
                    shown.push(placed.part(pages));
                }
            }
        }
        shown
    }

    /// Memory that holds what the snapshot holds. `limit` bounds the bytes of the snapshot, without
    /// shared files, and of freshly written pages together.
    pub(crate) fn from_snapshot(snapshot: Arc<Snapshot>, limit: u64) -> io::Result<Self> {
        let mut this = Self::empty(limit)?;
        snapshot.map_into(&this.host, true)?;
        let mut image = 0;
        for (pages, entry) in &snapshot.entries {
            this.table[pages.start as usize..pages.end as usize].fill(*entry);
            this.mapped.add(pages);
            let is_programs = entry & IMAGE != 0 && pages.start < USER_END / PAGE;
            image += if is_programs { pages.end - pages.start } else { 0 };
        }
        this.chunks.clone_from(&snapshot.chunks);
        this.room = this.room.saturating_sub(image);
        this.ceiling = this.room;
        this.snapshot = Some(snapshot);
        Ok(this)
    }
}

impl Snapshot {
    pub(super) fn map_into(&self, memory: &Reservation, writable: bool) -> io::Result<()> {
        let access = access(writable);
        let mut offset = self.start;
        for run in &self.runs {
            let length = (run.end - run.start) * PAGE;
            let start = (run.start * PAGE) as usize;
            memory.map_file(start, length as usize, self.file.as_fd(), offset, access)?;
            offset += length;
        }
        // Behind the runs, which go across small gaps.
        self.shared.iter().try_for_each(|placed| placed.map_into(memory, writable))
    }

    /// The bytes of a run.
    pub(super) fn range_bytes(&self, pages: &Range<u64>) -> &[u8] {
        assert!(pages.start <= pages.end && pages.end <= END / PAGE, "no pages {pages:?}");
        // SAFETY: as in `page_bytes`, for several pages.
        unsafe {
            let start = self.view.base().add((pages.start * PAGE) as usize);
            std::slice::from_raw_parts(start, ((pages.end - pages.start) * PAGE) as usize)
        }
    }

    /// The bytes that a page had; zero for one that the snapshot has no bytes for.
    pub(super) fn page_bytes(&self, page: u64) -> &[u8] {
        assert!(page < END / PAGE, "no page {page}");
        // SAFETY: a whole page inside the view, which is mapped while `self` lives and which
        // nothing writes: the file is sealed, or one that nobody changes (`Kept::file`), and the
        // rest stays zero.
        unsafe {
            let start = self.view.base().add((page * PAGE) as usize);
            std::slice::from_raw_parts(start, PAGE as usize)
        }
    }

    /// The entries that pages had, as far as they are `LASTING`.
    pub(super) fn entries_in(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u8)> {
        let mut at = range.start;
        let mut index = self.entries.partition_point(|(pages, _)| pages.end <= at);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let start = at;
            let entry = match self.entries.get(index) {
                Some((pages, entry)) if pages.start <= start => {
                    (at, index) = (pages.end.min(range.end), index + 1);
                    *entry
                }
                Some((pages, _)) => {
                    at = pages.start.min(range.end);
                    0
                }
                None => {
                    at = range.end;
                    0
                }
            };
            Some((start..at, entry))
        })
    }

    /// How many parts of memory it uses.
    pub(super) fn parts(&self) -> usize {
        self.chunks.count()
    }
}

/// How the process itself maps what a snapshot has.
pub(super) fn access(writable: bool) -> ProtFlags {
    ProtFlags::READ | if writable { ProtFlags::WRITE } else { ProtFlags::empty() }
}

/// Joins sorted pages to runs, across small gaps.
fn runs_of(pages: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &page in pages {
        match runs.last_mut() {
            Some(run) if page - run.end <= LARGEST_GAP => run.end = page + 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}

/// What a table has for these parts of memory, without what is part of no snapshot.
fn entries_of(table: &[u8], parts: &[Range<u64>]) -> Vec<(Range<u64>, u8)> {
    let mut entries: Vec<(Range<u64>, u8)> = Vec::new();
    for pages in parts.iter().cloned() {
        let part = &table[pages.start as usize..pages.end as usize];
        for (page, entry) in pages.zip(part.iter().map(|entry| entry & LASTING)) {
            match entries.last_mut() {
                _ if entry == 0 => {}
                Some((pages, last)) if pages.end == page && *last == entry => pages.end = page + 1,
                _ => entries.push((page..page + 1, entry)),
            }
        }
    }
    entries
}
