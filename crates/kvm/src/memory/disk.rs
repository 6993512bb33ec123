//! Frozen memory on disk: its pages as they are, to be mapped, and what says where they belong.

use std::{io, ops::Range, os::fd::OwnedFd};

use sandtide_memory::Reservation;
use serde::{Deserialize, Serialize};

use crate::{
    memory::{Chunks, FILE, IMAGE, LASTING, Snapshot},
    paging::{END, PAGE},
};

/// Where the pages of a snapshot belong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Pages that the file has, one behind the other.
    runs: Vec<Range<u64>>,
    /// The entries of the table that are not zero.
    entries: Vec<(Range<u64>, u8)>,
    /// The parts of memory that are used.
    used: Vec<Range<u64>>,
}

/// Whether ranges are in order, apart, and within memory.
fn are_in_order<'a>(ranges: impl Iterator<Item = &'a Range<u64>>) -> bool {
    let mut end = 0;
    for range in ranges {
        if range.start < end || range.start >= range.end || range.end > END / PAGE {
            return false;
        }
        end = range.end;
    }
    true
}

impl Layout {
    /// Bytes of all pages.
    pub(crate) fn length(&self) -> u64 {
        self.runs.iter().map(|run| (run.end - run.start) * PAGE).sum()
    }

    /// Whether this can be memory: for what was read from a file. Whatever is true of it then is no
    /// more than a guest could have brought about in its own memory.
    pub(crate) fn is_consistent(&self) -> bool {
        let Self { runs, entries, used } = self;
        let has_bytes = |pages: &Range<u64>| {
            let after = runs.partition_point(|run| run.start <= pages.start);
            after > 0 && pages.end <= runs[after - 1].end
        };
        are_in_order(runs.iter())
            && are_in_order(entries.iter().map(|(pages, _)| pages))
            && are_in_order(used.iter())
            && entries.iter().all(|(pages, entry)| {
                entry & !LASTING == 0 && (entry & (IMAGE | FILE) == 0 || has_bytes(pages))
            })
    }
}

impl Snapshot {
    /// Where its pages belong.
    pub(crate) fn layout(&self) -> Layout {
        let used = self.chunks.pages();
        Layout { runs: self.stored(), entries: self.entries.clone(), used }
    }

    /// Its pages, in the order of the file.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[u8]> {
        self.stored().into_iter().map(|run| self.range_bytes(&run))
    }

    /// The pages that it has bytes for: on disk it stands alone, with what it shares here.
    fn stored(&self) -> Vec<Range<u64>> {
        let shared = self.shared.iter().map(|placed| placed.pages.clone());
        let mut runs: Vec<Range<u64>> = self.runs.iter().cloned().chain(shared).collect();
        runs.sort_unstable_by_key(|run| run.start);
        runs.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        runs
    }

    /// The snapshot whose pages a file has from `start` on. Nobody may change the file. The layout
    /// must be consistent, and not be longer than the file.
    pub(crate) fn of_file(file: OwnedFd, start: u64, layout: Layout) -> io::Result<Self> {
        let Layout { runs, entries, used } = layout;
        let mut chunks = Chunks::new();
        used.iter().for_each(|pages| chunks.add(pages));
        let view = Reservation::new(END as usize)?;
        let snapshot = Self { file, start, runs, shared: Vec::new(), entries, view, chunks };
        snapshot.map_into(&snapshot.view, false)?;
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_memory_is_refused() {
        let good = Layout {
            runs: vec![1..3, 5..9],
            entries: vec![(1..2, IMAGE), (2..4, 1), (5..9, IMAGE | 1)],
            used: vec![0..2048, 4096..6144],
        };
        assert!(good.is_consistent());
        assert_eq!(good.length(), 6 * PAGE);
        let last = END / PAGE;
        let wrong: [fn(&mut Layout, u64); 9] = [
            |layout, _| layout.runs[1] = 2..9,
            |layout, _| layout.runs[1].end = 3,
            |layout, _| layout.runs[0] = 1..1,
            |layout, last| layout.runs[1] = 5..last + 1,
            |layout, _| layout.runs[1] = 5..u64::MAX,
            |layout, _| layout.entries[2].0 = 3..9,
            |layout, _| layout.entries[2].0 = 5..10,
            |layout, _| layout.entries[1].1 = 8,
            |layout, last| layout.used[0] = 0..last + 1,
        ];
        for (index, change) in wrong.into_iter().enumerate() {
            let mut layout = good.clone();
            change(&mut layout, last);
            assert!(!layout.is_consistent(), "{index}");
        }
    }
}
