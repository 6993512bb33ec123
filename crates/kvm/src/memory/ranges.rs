//! Page ranges that something is to be done with later: a list that stays short.

use std::ops::Range;

/// The most ranges that are kept apart.
const MOST: usize = 64;

/// Page ranges. Some pages between them may come to be counted in, where there are many.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(super) fn add(&mut self, range: Range<u64>) {
        if let Some(last) = self.0.last_mut()
            && range.start <= last.end
            && last.start <= range.end
        {
            *last = last.start.min(range.start)..last.end.max(range.end);
            return;
        }
        self.0.push(range);
        if self.0.len() > MOST {
            self.join();
        }
    }

    /// Joins what overlaps, and else the two that are nearest to each other: a guest that maps here
    /// and there must not have us walk over all that lies between.
    fn join(&mut self) {
        self.0.sort_unstable_by_key(|range| range.start);
        let before = self.0.len();
        self.0.dedup_by(|next, last| {
            let overlaps = next.start <= last.end;
            if overlaps {
                last.end = last.end.max(next.end);
            }
            overlaps
        });
        let gaps = self.0.windows(2).map(|pair| pair[1].start - pair[0].end);
        if self.0.len() == before
            && let Some((at, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap)
        {
            self.0[at].end = self.0[at + 1].end;
            self.0.remove(at + 1);
        }
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Range<u64>> + use<'_> {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_are_joined_where_they_are_near() {
        let mut ranges = Ranges::default();
        for at in (0..1000).rev() {
            ranges.add(at * 1000..at * 1000 + 1);
            ranges.add(1 << 40..(1 << 40) + 1);
        }
        let taken: Vec<_> = ranges.take().collect();
        assert!(taken.len() <= MOST, "{taken:?}");
        let pages: u64 = taken.iter().map(|range| range.end - range.start).sum();
        assert!(pages <= 1_000_000, "{taken:?}");
        for at in (0..1000).map(|at| at * 1000).chain([1 << 40]) {
            assert!(taken.iter().any(|range| range.contains(&at)), "{at}");
        }
        assert_eq!(ranges.take().count(), 0);
    }
}
