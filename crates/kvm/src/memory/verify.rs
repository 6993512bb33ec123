//! Whether memory is what its snapshot is: the check behind "a reset restores everything".
//!
//! A reset believes the table and what KVM says was written. This looks past both: at which pages the
//! kernel says that this process has copies of, stubs and page tables included, and at what those hold.

use std::{io, ops::Range};

use sandtide_memory::{Difference, first_difference};

use crate::{
    memory::{HOST, LASTING, Memory},
    paging::{END, PAGE},
};

/// How many entries of the table are compared at a time.
const BLOCK: u64 = 1 << 16;

/// How many pages a sample looks at, and how many copies it compares.
const WINDOW: u64 = 4096;
const COPIES: usize = 64;

impl Memory {
    /// How memory is not as its snapshot has it, if at all. To be asked after a
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    /// If the kernel does not say what it has.
    ///
    /// # Panics
    /// If the memory was not made from a snapshot.
    pub(crate) fn verify(&self) -> io::Result<Option<Difference>> {
        for part in self.parts() {
            let found = self.verify_part(part, usize::MAX)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The same for a part: as often around pages that were written as anywhere else. `choice` is
    /// random.
    pub(crate) fn verify_sample(&self, choice: u64) -> io::Result<Option<Difference>> {
        let (kind, choice) = (choice % 2, choice / 2);
        let written = [&self.guest_written, &self.host_written];
        let mut written = written.into_iter().filter(|list| !list.is_empty());
        let list = written.clone().nth((choice % 2) as usize).or_else(|| written.next());
        let around = match list {
            Some(list) if kind == 0 => list[(choice / 2) as usize % list.len()],
            _ => {
                let parts = self.parts();
                let pages: u64 = parts.iter().map(|part| part.end - part.start).sum();
                let mut index = choice % pages;
                let part = parts.iter().find(|part| {
                    let length = part.end - part.start;
                    let is_inside = index < length;
                    index -= if is_inside { 0 } else { length };
                    is_inside
                });
                part.map_or(0, |part| part.start + index)
            }
        };
        let start = around.saturating_sub(choice % WINDOW).min(END / PAGE - WINDOW);
        self.verify_part(start..start + WINDOW, COPIES)
    }

    fn verify_part(&self, pages: Range<u64>, copies: usize) -> io::Result<Option<Difference>> {
        let Some(snapshot) = &self.snapshot else { panic!("no snapshot to compare with") };
        let mut expected = Vec::new();
        for start in pages.clone().step_by(BLOCK as usize) {
            let block = start..pages.end.min(start + BLOCK);
            expected.clear();
            for (pages, entry) in snapshot.entries_in(block.clone()) {
                expected.resize(expected.len() + (pages.end - pages.start) as usize, entry);
            }
            let table = &self.table[block.start as usize..block.end as usize];
            if let Some(at) = first_difference(table, &expected, LASTING | HOST) {
                return Ok(Some(Difference::Access((start + at as u64) * PAGE)));
            }
        }
        let own = self.host.copies(pages.start as usize..pages.end as usize)?;
        let own = own.unwrap_or_else(|| {
            // Only what is known to be written, then.
            let written = self.guest_written.iter().chain(&self.host_written);
            written.filter(|page| pages.contains(page)).map(|page| *page as usize).collect()
        });
        let mut own = own.into_iter().map(|page| page as u64).take(copies);
        let found = own.find(|page| self.page_bytes(*page) != snapshot.page_bytes(*page));
        Ok(found.map(|page| Difference::Bytes(page * PAGE)))
    }

    /// For tests: writes without the table's knowing.
    #[cfg(test)]
    pub(crate) fn write_behind(&mut self, address: u64, byte: u8) {
        self.bytes_mut(address, 1)[0] = byte;
    }

    /// For tests: the same for everything.
    #[cfg(test)]
    pub(crate) fn differs_from_snapshot(&self) -> Option<Difference> {
        self.verify().unwrap()
    }
}
