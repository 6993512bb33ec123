//! Putting memory back to its snapshot.

use std::io;

use crate::memory::{ACCESS, GUEST, HOST, IMAGE, LASTING, LINKED, Memory, Snapshot};
use crate::paging::PAGE;

/// After how many resets the pages that the guest has written are given back, so that those that
/// it has stopped writing are not copied for ever.
const SHRINK_PERIOD: u32 = 1024;

/// After how many resets it is looked at which of these pages have changed at all.
const LOOK_PERIOD: u32 = 64;

/// Sets of fewer pages than this stay as they are: copying them costs little.
const SMALL_SET: usize = 64;

/// What the caller of a reset has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum AfterReset {
    /// Nothing.
    Ready,
    /// [`crate::vm::Vm::reset_ring`]: KVM is to notice the guest's next write to each page.
    Watch,
}

impl Memory {
    /// Puts bytes and access of every page back to the snapshot. Costs a copy for each page that
    /// the host has written in this exchange, and for each that the guest has written since KVM
    /// watches it.
    ///
    /// # Errors
    /// If the kernel refuses to take memory back; the memory must not be used again.
    ///
    /// # Panics
    /// If the memory was not made from a snapshot.
    pub(crate) fn reset(&mut self) -> io::Result<AfterReset> {
        let Some(snapshot) = self.snapshot.take() else { panic!("reset without a snapshot") };
        self.resets = self.resets.wrapping_add(1);
        let guest_written = std::mem::take(&mut self.guest_written);
        let too_much = self.fresh > self.room / 4;
        let shrink = too_much
            || self.resets.is_multiple_of(SHRINK_PERIOD)
            || self.resets.is_multiple_of(LOOK_PERIOD)
                && self.has_idle_pages(&guest_written, &snapshot);
        let result = if shrink && !guest_written.is_empty() {
            self.give_back(&guest_written)?;
            AfterReset::Watch
        } else {
            for &page in &guest_written {
                if self.table[page as usize] & GUEST != 0 {
                    self.bytes_mut(page * PAGE, PAGE).copy_from_slice(snapshot.page_bytes(page));
                }
            }
            self.guest_written = guest_written;
            AfterReset::Ready
        };
        let mut host_written = std::mem::take(&mut self.host_written);
        for page in host_written.drain(..) {
            let entry = self.table[page as usize];
            if entry & HOST != 0 {
                self.bytes_mut(page * PAGE, PAGE).copy_from_slice(snapshot.page_bytes(page));
                self.fresh -= u64::from(entry & (GUEST | IMAGE) == 0);
                self.table[page as usize] = entry & !HOST;
            }
        }
        self.host_written = host_written;
        for range in self.changed.take() {
            let mut loses = false;
            for (pages, before) in snapshot.entries_in(range.clone()) {
                for entry in &mut self.table[pages.start as usize..pages.end as usize] {
                    loses |= *entry & ACCESS & !before != 0;
                    *entry = *entry & !LASTING | before;
                }
            }
            if loses {
                self.revoked.add(range);
            }
        }
        for table in self.linked.drain(..) {
            self.table[table as usize] &= !LINKED;
        }
        self.ceiling = self.room + self.fresh;
        self.snapshot = Some(snapshot);
        Ok(result)
    }

    /// Whether this exchange has left more than half of these pages as they were, twice in a row of
    /// looks: then it pays to find out anew which are written.
    fn has_idle_pages(&mut self, pages: &[u64], snapshot: &Snapshot) -> bool {
        if pages.len() < SMALL_SET {
            return false;
        }
        let changed = |page: &&u64| self.page_bytes(**page) != snapshot.page_bytes(**page);
        let was_idle = self.was_idle;
        self.was_idle = pages.iter().filter(changed).count() < pages.len() / 2;
        was_idle && self.was_idle
    }

    /// Gives back the private copies of pages: they are again what the snapshot has.
    fn give_back(&mut self, pages: &[u64]) -> io::Result<()> {
        let mut pages: Vec<u64> =
            pages.iter().copied().filter(|page| self.table[*page as usize] & GUEST != 0).collect();
        pages.sort_unstable();
        pages.dedup();
        for run in pages.chunk_by(|before, after| before + 1 == *after) {
            self.discard(run[0]..run[0] + run.len() as u64)?;
        }
        Ok(())
    }
}
