//! The host's protection of guest memory, which mirrors what the guest may read.
//!
//! ```text
//!   guest   no access │ read │ read, write │ read, execute │ no access
//!   host    closed    │ open                               │ closed
//! ```
//!
//! An open page can be read and written by this process, a closed one cannot be touched. So
//! translated code loads without a look at the table: what the guest may not read faults in the
//! host. Stores look at the table, so one kind of open pages is enough, and most changes of access
//! need no system call.
//!
//! Each border between open and closed pages is one more mapping for the kernel, which has a limit
//! on them for the whole process. A space has [`FREE_BORDERS`] of its own and takes more from what
//! all share; a guest that wants still more, or one whose mappings the kernel refuses, gets all its
//! pages opened until the reset: [`Space::is_mirrored`] is false then, and its loads must be
//! checked, as the interpreter's always are.

use std::{
    io,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::{
    PAGE, PAGES, SPACE, Snapshot, Space,
    reservation::Reservation,
    table::{
        ACCESS, Access, EXECUTE, IMAGE, PRIVATE, PageNumber, PageTable, READ, RECENT, WRITTEN,
    },
};

/// Borders that each space may have besides those of its snapshot.
const FREE_BORDERS: usize = 32;

/// Borders of a snapshot that are free in each space made from it.
const FREE_SNAPSHOT_BORDERS: usize = 64;

/// Borders that all spaces together may have besides [`FREE_BORDERS`] each: an eighth of what
/// Linux allows by default (`vm.max_map_count`).
const SHARED_BORDERS: usize = 8192;

/// How many of [`SHARED_BORDERS`] are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Pages that a guest can have: not the first, and not the last. So a load whose address was cut
/// to 32 bits before a small offset was added faults wherever the sum would have wrapped around.
const USABLE: Range<usize> = 1..PAGES - 1;

/// How far the host's protection follows the table.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// All of guest memory is open.
    is_off: bool,
    /// Borders between open and closed pages.
    borders: usize,
    /// How many are not counted.
    free: usize,
    /// How many are taken from [`SHARED_BORDERS`].
    taken: usize,
}

impl Mirror {
    /// For a space that will have so many borders at its snapshot. It has none yet.
    pub(crate) fn new(borders: usize) -> Self {
        Self { free: borders.min(FREE_SNAPSHOT_BORDERS) + FREE_BORDERS, ..Self::default() }
    }

    /// Takes note of how many borders there are, if there may be so many.
    fn have(&mut self, borders: usize) -> bool {
        let wanted = borders.saturating_sub(self.free);
        if wanted > self.taken {
            let more = wanted - self.taken;
            if TAKEN.fetch_add(more, Relaxed) + more > SHARED_BORDERS {
                TAKEN.fetch_sub(more, Relaxed);
                return false;
            }
        } else {
            TAKEN.fetch_sub(self.taken - wanted, Relaxed);
        }
        (self.borders, self.taken) = (borders, wanted);
        true
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.taken, Relaxed);
    }
}

/// The stretches of a range whose pages have something in common.
pub(crate) fn runs(
    range: Range<usize>,
    mut is_in: impl FnMut(PageNumber) -> bool,
) -> impl Iterator<Item = Range<usize>> {
    let mut index = range.start;
    std::iter::from_fn(move || {
        while index < range.end && !is_in(PageNumber::new(index)) {
            index += 1;
        }
        let start = index;
        while index < range.end && is_in(PageNumber::new(index)) {
            index += 1;
        }
        (start < index).then_some(start..index)
    })
}

/// The stretches of readable pages of a table.
pub(crate) fn readable(table: &PageTable) -> Vec<Range<usize>> {
    runs(0..PAGES, |page| table.get(page) & READ != 0).collect()
}

/// Opens or closes pages.
pub(crate) fn protect(memory: &Reservation, pages: Range<usize>, open: bool) -> io::Result<()> {
    memory.protect(pages.start * PAGE, pages.len() * PAGE, open)
}

impl Space {
    /// Whether the host faults on every load that the guest may not make.
    #[inline(always)]
    pub fn is_mirrored(&self) -> bool {
        !self.mirror.is_off
    }

    /// Sets the access to pages. The first and the last page stay without any.
    ///
    /// # Panics
    /// If the host cannot open memory at all.
    pub(crate) fn set_access(&mut self, range: Range<usize>, access: Access) {
        let range = range.start.max(USABLE.start)..range.end.min(USABLE.end);
        if range.is_empty() {
            return;
        }
        let is_open = |table: &PageTable, index| table.get(PageNumber::new(index)) & READ != 0;
        let after = is_open(&self.table, range.end);
        let mut previous = is_open(&self.table, range.start - 1);
        // Borders at both ends, without and with this change.
        let mut gone = 0;
        let come = usize::from(previous != access.is_readable())
            + usize::from(access.is_readable() != after);
        let mut changed: Option<Range<usize>> = None;
        for index in range.clone() {
            let page = PageNumber::new(index);
            let entry = self.table.get(page);
            let open = entry & READ != 0;
            gone += usize::from(previous != open);
            previous = open;
            if open != access.is_readable() {
                changed = Some(changed.map_or(index, |run| run.start)..index + 1);
            }
            if entry & EXECUTE != 0 && entry & ACCESS != access.bits() {
                self.lasting.changes(page);
            }
            self.table.set(page, entry & !ACCESS | access.bits());
        }
        gone += usize::from(previous != after);
        // What lies between the first and the last is as it should be already.
        if let Some(pages) = changed
            && !self.mirror.is_off
        {
            let borders = self.mirror.borders + come - gone;
            let is_done = self.mirror.have(borders)
                && protect(&self.memory, pages, access.is_readable()).is_ok();
            if !is_done {
                self.stop_mirroring();
            }
        }
        if self.snapshot.is_some() {
            self.note_change(range);
        }
    }

    /// Opens and closes pages as a snapshot says, in memory that is all closed; or opens all.
    pub(crate) fn mirror(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if self.mirror.have(snapshot.borders()) {
            let mut open = snapshot.open().iter();
            open.try_for_each(|pages| protect(&self.memory, pages.clone(), true))
        } else {
            self.mirror.is_off = true;
            self.memory.protect(0, SPACE, true)
        }
    }

    /// Opens everything. Leaves less for the kernel to keep than there was, so it succeeds.
    fn stop_mirroring(&mut self) {
        let opened = self.memory.protect(0, SPACE, true);
        assert!(opened.is_ok(), "cannot open guest memory: {opened:?}");
        self.mirror.is_off = true;
        self.mirror.have(0);
    }

    /// Lets the host touch also those pages of a range that are closed and hold something, until
    /// [`Self::close_again`] is told the same.
    pub(crate) fn open_hidden(&self, range: Range<usize>) -> io::Result<Range<usize>> {
        let is_hidden = |index: &usize| {
            let entry = self.table.get(PageNumber::new(*index));
            entry & READ == 0 && entry & (WRITTEN | IMAGE | PRIVATE) != 0
        };
        let hidden = match range.clone().find(is_hidden) {
            Some(first) if !self.mirror.is_off => {
                first..range.rev().find(is_hidden).map_or(first, |last| last + 1)
            }
            _ => 0..0,
        };
        if !hidden.is_empty() {
            protect(&self.memory, hidden.clone(), true)?;
        }
        Ok(hidden)
    }

    pub(crate) fn close_again(&self, hidden: Range<usize>) -> io::Result<()> {
        runs(hidden, |page| self.table.get(page) & READ == 0)
            .try_for_each(|pages| protect(&self.memory, pages, false))
    }

    /// For a reset, before bytes are copied: opens the pages that the snapshot has open. Those
    /// that are closed now and in the snapshot get the snapshot's bytes back on the way.
    pub(crate) fn open_as_in(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        if self.mirror.is_off {
            return Ok(());
        }
        for range in &self.changed {
            let table = &self.table;
            let comes = |page| table.get(page) & READ == 0 && snapshot.entry(page) & READ != 0;
            for pages in runs(range.clone(), comes) {
                protect(&self.memory, pages, true)?;
            }
            let stays = |page| (table.get(page) | snapshot.entry(page)) & READ == 0;
            let closed: Vec<_> = runs(range.clone(), stays).collect();
            for pages in closed {
                let is_written = |index| self.table.get(PageNumber::new(index)) & WRITTEN != 0;
                if !pages.clone().any(is_written) {
                    continue;
                }
                self.memory.discard(pages.start * PAGE, pages.len() * PAGE)?;
                for index in pages {
                    let page = PageNumber::new(index);
                    self.table.set(page, self.table.get(page) & !(WRITTEN | PRIVATE | RECENT));
                }
            }
        }
        Ok(())
    }

    /// For a reset, after bytes were copied: gives the pages the access that the snapshot has, and
    /// closes those that it has closed.
    pub(crate) fn restore_access(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let was_off = std::mem::take(&mut self.mirror.is_off);
        if was_off {
            self.memory.protect(0, SPACE, false)?;
            self.mirror(snapshot)?;
        }
        for range in std::mem::take(&mut self.changed) {
            if !was_off {
                let table = &self.table;
                let goes = |page| table.get(page) & READ != 0 && snapshot.entry(page) & READ == 0;
                for pages in runs(range.clone(), goes) {
                    protect(&self.memory, pages, false)?;
                }
            }
            for index in range {
                let page = PageNumber::new(index);
                let kept = self.table.get(page) & !(ACCESS | IMAGE);
                self.table.set(page, kept | snapshot.entry(page));
            }
        }
        if !was_off && !self.mirror.have(snapshot.borders()) {
            // It had them before, so what others have taken since cannot matter.
            self.mirror.borders = snapshot.borders();
        }
        Ok(())
    }
}
