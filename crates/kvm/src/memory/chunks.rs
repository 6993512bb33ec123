//! Which parts of a sandbox's memory are used at all: what KVM is told of.
//!
//! KVM keeps some ten bytes for each page that it is told of, used or not, in every virtual machine.
//! So it is told of little more than what is used.

use std::ops::Range;

use crate::paging::{END, PAGE};

/// The size of a part, in bytes.
const CHUNK: u64 = 8 << 20;

/// What KVM keeps for a part, in pages.
pub(super) const COST: u64 = (CHUNK / PAGE * 10).div_ceil(PAGE);

/// How many parts there are.
const COUNT: usize = END.div_ceil(CHUNK) as usize;

const _: () = assert!(END.is_multiple_of(PAGE) && COUNT < 16_384, "KVM has 32,764 slots");

/// A set of parts of guest memory, to which parts are added only.
#[derive(Debug, Clone)]
pub(crate) struct Chunks {
    bits: Box<[u64]>,
    /// How many there are in it.
    count: usize,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { bits: vec![0; COUNT.div_ceil(64)].into(), count: 0 }
    }

    /// Adds the parts in which these pages lie.
    pub(crate) fn add(&mut self, pages: &Range<u64>) {
        if pages.is_empty() {
            return;
        }
        for chunk in pages.start * PAGE / CHUNK..=(pages.end - 1) * PAGE / CHUNK {
            let (word, bit) = (&mut self.bits[chunk as usize / 64], 1 << (chunk % 64));
            self.count += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// The parts of both.
    pub(crate) fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        other.pages().iter().for_each(|pages| both.add(pages));
        both
    }

    /// The pages of a range that lie in parts of the set, part by part.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let chunks = match range.is_empty() {
            true => 0..0,
            false => range.start * PAGE / CHUNK..(range.end - 1) * PAGE / CHUNK + 1,
        };
        let has = |chunk: &u64| self.bits[*chunk as usize / 64] & 1 << (chunk % 64) != 0;
        let found: Vec<u64> = chunks.filter(has).collect();
        let range = range.clone();
        found.into_iter().map(move |chunk| {
            let (start, end) = (chunk * CHUNK / PAGE, (chunk + 1) * CHUNK / PAGE);
            start.max(range.start)..end.min(range.end)
        })
    }

    /// How many parts there are in it: a set that has grown has more.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The pages of the parts, neighbours joined, in order.
    pub(crate) fn pages(&self) -> Vec<Range<u64>> {
        self.pages_without(None)
    }

    /// The same of those parts that `other` does not have.
    pub(crate) fn pages_beyond(&self, other: &Self) -> Vec<Range<u64>> {
        self.pages_without(Some(other))
    }

    fn pages_without(&self, other: Option<&Self>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, word) in self.bits.iter().enumerate() {
            let mut word = word & !other.map_or(0, |other| other.bits[index]);
            while word != 0 {
                let chunk = index as u64 * 64 + u64::from(word.trailing_zeros());
                word &= word - 1;
                let start = chunk * CHUNK / PAGE;
                let end = (start + CHUNK / PAGE).min(END / PAGE);
                match runs.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => runs.push(start..end),
                }
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_and_told_apart() {
        const PAGES: u64 = CHUNK / PAGE;
        let mut chunks = Chunks::new();
        chunks.add(&(5..5));
        assert_eq!((chunks.count(), chunks.pages()), (0, vec![]));
        chunks.add(&(1..2));
        let before = chunks.clone();
        chunks.add(&(PAGES - 1..PAGES + 1));
        chunks.add(&(200 * PAGES..200 * PAGES + 1));
        chunks.add(&(END / PAGE - 1..END / PAGE));
        assert_eq!(chunks.count(), 4);
        let last = (END / PAGE - 1) / PAGES * PAGES..END / PAGE;
        let high = 200 * PAGES..201 * PAGES;
        assert_eq!(chunks.pages(), [0..2 * PAGES, high.clone(), last.clone()]);
        assert_eq!(chunks.pages_beyond(&before), [PAGES..2 * PAGES, high, last]);
        assert_eq!(chunks.pages_beyond(&chunks), []);
        let within: Vec<_> = chunks.within(&(5..200 * PAGES + 7)).collect();
        assert_eq!(within, [5..PAGES, PAGES..2 * PAGES, 200 * PAGES..200 * PAGES + 7]);
        assert_eq!(chunks.within(&(3..3)).count(), 0);
    }
}
