//! Which guest addresses are mapped, and how.
//!
//! ```text
//! 0 ─ image ─ guard ─ stack ─ window ─ heap (brk) ……… heap limit ─ mappings ……… end
//! ```
//!
//! Mappings are placed first fit from the window upwards, so that what a small program touches
//! lies in few of the host's page tables.

use serde::{Deserialize, Serialize};

use crate::{PAGE, Protection};

/// The most areas that a process may have.
const MAX_AREAS: usize = 8192;

/// A range of mapped addresses with equal properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Area {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: Kind,
}

/// The properties of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kind {
    pub(crate) protection: Protection,
    /// Whether guest memory has these pages: a reservation that was never accessible has none.
    pub(crate) present: bool,
    /// A copy of the process finds zeros there (`MADV_WIPEONFORK`).
    pub(crate) wiped: bool,
}

impl Kind {
    /// Of what was mapped just now.
    pub(crate) fn new(protection: Protection, present: bool) -> Self {
        Self { protection, present, wiped: false }
    }
}

/// The process has [`MAX_AREAS`] areas already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyAreas;

/// The address space of a process.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AddressSpace {
    /// In order of address; neighbours that touch differ in kind.
    areas: Vec<Area>,
    /// Where the search for free addresses starts.
    pub(crate) search_start: u64,
    /// No page at or above it can be mapped.
    pub(crate) end: u64,
    /// Where the heap starts.
    pub(crate) brk_start: u64,
    /// Where the heap ends.
    pub(crate) brk: u64,
    /// How far the heap may grow; no mapping is placed below without being asked to.
    pub(crate) brk_limit: u64,
}

/// A length rounded up to whole pages; `None` on overflow.
pub(crate) fn page_up(length: u64) -> Option<u64> {
    length.checked_next_multiple_of(PAGE)
}

impl Clone for AddressSpace {
    fn clone(&self) -> Self {
        Self {
            areas: self.areas.clone(),
            search_start: self.search_start,
            end: self.end,
            brk_start: self.brk_start,
            brk: self.brk,
            brk_limit: self.brk_limit,
        }
    }

    /// Into the allocations that are there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { areas, search_start, end, brk_start, brk, brk_limit } = source;
        self.areas.clone_from(areas);
        self.search_start = *search_start;
        self.end = *end;
        self.brk_start = *brk_start;
        self.brk = *brk;
        self.brk_limit = *brk_limit;
    }
}

impl AddressSpace {
    pub(crate) fn new(end: u64) -> Self {
        Self { end, ..Self::default() }
    }

    /// The areas that overlap a range, cut to it.
    pub(crate) fn areas_in(&self, start: u64, end: u64) -> impl Iterator<Item = Area> + '_ {
        let first = self.areas.partition_point(|area| area.end <= start);
        self.areas[first..].iter().take_while(move |area| area.start < end).map(move |area| Area {
            start: area.start.max(start),
            end: area.end.min(end),
            kind: area.kind,
        })
    }

    /// Whether nothing of a range is mapped.
    pub(crate) fn is_free(&self, start: u64, end: u64) -> bool {
        self.areas_in(start, end).next().is_none()
    }

    /// Whether every page of a range is mapped.
    pub(crate) fn is_mapped(&self, start: u64, end: u64) -> bool {
        self.areas_in(start, end).map(|area| area.end - area.start).sum::<u64>() == end - start
    }

    /// Maps a range, in place of what was there.
    pub(crate) fn insert(&mut self, start: u64, end: u64, kind: Kind) -> Result<(), TooManyAreas> {
        debug_assert!(start < end && end <= self.end);
        let at = self.carve(start, end)?;
        self.areas.insert(at, Area { start, end, kind });
        self.merge(at.saturating_sub(1), at + 2);
        Ok(())
    }

    /// Unmaps a range.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Result<(), TooManyAreas> {
        self.carve(start, end).map(drop)
    }

    /// Sets the kind of everything that is mapped in a range.
    pub(crate) fn change(
        &mut self,
        start: u64,
        end: u64,
        kind: impl Fn(Kind) -> Kind,
    ) -> Result<(), TooManyAreas> {
        self.room()?;
        self.split(start);
        self.split(end);
        let first = self.areas.partition_point(|area| area.end <= start);
        let last = self.areas.partition_point(|area| area.start < end);
        for area in &mut self.areas[first..last] {
            area.kind = kind(area.kind);
        }
        self.merge(first.saturating_sub(1), last + 1);
        Ok(())
    }

    /// The lowest free range of `length` bytes.
    pub(crate) fn find_free(&self, length: u64) -> Option<u64> {
        let mut candidate = self.search_start;
        let from = self.areas.partition_point(|area| area.end <= candidate);
        let mut areas = self.areas[from..].iter().peekable();
        loop {
            let end = candidate.checked_add(length).filter(|end| *end <= self.end)?;
            // The heap's room is taken, whether it is mapped or not.
            if candidate < self.brk_limit && self.brk_start < end {
                candidate = self.brk_limit;
                continue;
            }
            match areas.peek() {
                Some(area) if area.end <= candidate => {
                    areas.next();
                }
                Some(area) if area.start < end => candidate = area.end,
                _ => return Some(candidate),
            }
        }
    }

    /// Whether this can be an address space: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let bounds = [self.search_start, self.end, self.brk_start, self.brk_limit];
        let is_area = |area: &Area| {
            let [start, end] = [area.start, area.end].map(|at| at.is_multiple_of(PAGE));
            start && end && area.start < area.end && area.end <= self.end
        };
        bounds.into_iter().all(|bound| bound.is_multiple_of(PAGE) && bound <= self.end)
            && (self.brk_start..=self.brk_limit).contains(&self.brk)
            && self.end <= 1 << 47
            && self.areas.len() <= MAX_AREAS
            && self.areas.iter().all(is_area)
            && self.areas.windows(2).all(|pair| pair[0].end <= pair[1].start)
    }

    /// Every area.
    pub(crate) fn areas(&self) -> &[Area] {
        &self.areas
    }

    /// Any operation makes at most two areas more.
    fn room(&self) -> Result<(), TooManyAreas> {
        if self.areas.len() + 2 > MAX_AREAS { Err(TooManyAreas) } else { Ok(()) }
    }

    /// Takes a range out, and returns the index where it would be put in.
    fn carve(&mut self, start: u64, end: u64) -> Result<usize, TooManyAreas> {
        self.room()?;
        self.split(start);
        self.split(end);
        let first = self.areas.partition_point(|area| area.end <= start);
        let last = self.areas.partition_point(|area| area.start < end);
        self.areas.drain(first..last);
        Ok(first)
    }

    /// Cuts the area that has `at` inside it in two.
    fn split(&mut self, at: u64) {
        let index = self.areas.partition_point(|area| area.end <= at);
        if let Some(area) = self.areas.get_mut(index)
            && area.start < at
        {
            let tail = Area { start: at, ..*area };
            area.end = at;
            self.areas.insert(index + 1, tail);
        }
    }

    /// Joins neighbours of one kind among the areas `first..last`.
    fn merge(&mut self, first: usize, last: usize) {
        let last = last.min(self.areas.len());
        if first >= last {
            return;
        }
        let mut kept = first;
        for next in first + 1..last {
            let area = self.areas[next];
            let before = &mut self.areas[kept];
            if before.end == area.start && before.kind == area.kind {
                before.end = area.end;
            } else {
                kept += 1;
                self.areas[kept] = area;
            }
        }
        self.areas.drain(kept + 1..last);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGES: u64 = 32;

    fn kind(tag: u8) -> Kind {
        let protection = Protection { read: tag & 1 != 0, write: tag & 2 != 0, execute: false };
        Kind::new(protection, tag & 4 != 0)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64, u8),
        Remove(u64, u64),
        Change(u64, u64, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..PAGES, 1..PAGES).prop_map(|(start, length)| {
            let end = (start + length).min(PAGES);
            (start, end)
        });
        let step = (range, 0..3u8, 0..8u8).prop_map(|((start, end), what, tag)| match what {
            0 => Step::Insert(start, end, tag),
            1 => Step::Remove(start, end),
            _ => Step::Change(start, end, tag),
        });
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        /// Against one entry a page.
        #[test]
        fn areas_say_what_a_map_of_pages_says(steps in steps(), length in 1..PAGES) {
            let mut space = AddressSpace::new(PAGES * PAGE);
            let mut pages = [None; PAGES as usize];
            for step in steps {
                match step {
                    Step::Insert(start, end, tag) => {
                        space.insert(start * PAGE, end * PAGE, kind(tag)).unwrap();
                        pages[start as usize..end as usize].fill(Some(kind(tag)));
                    }
                    Step::Remove(start, end) => {
                        space.remove(start * PAGE, end * PAGE).unwrap();
                        pages[start as usize..end as usize].fill(None);
                    }
                    Step::Change(start, end, tag) => {
                        space.change(start * PAGE, end * PAGE, |_| kind(tag)).unwrap();
                        for page in pages[start as usize..end as usize].iter_mut().flatten() {
                            *page = kind(tag);
                        }
                    }
                }
                for (page, expected) in pages.iter().enumerate() {
                    let start = page as u64 * PAGE;
                    let found = space.areas_in(start, start + PAGE).next();
                    prop_assert_eq!(found.map(|area| area.kind), *expected);
                    prop_assert_eq!(space.is_mapped(start, start + PAGE), expected.is_some());
                }
                for pair in space.areas().windows(2) {
                    prop_assert!(pair[0].end <= pair[1].start);
                    prop_assert!(pair[0].end < pair[1].start || pair[0].kind != pair[1].kind);
                }
            }
            let first_fit = pages
                .windows(length as usize)
                .position(|window| window.iter().all(Option::is_none));
            prop_assert_eq!(
                space.find_free(length * PAGE),
                first_fit.map(|page| page as u64 * PAGE)
            );
        }
    }

    #[test]
    fn the_heap_keeps_its_room() {
        let mut space = AddressSpace::new(PAGES * PAGE);
        (space.brk_start, space.brk, space.brk_limit) = (2 * PAGE, 3 * PAGE, 10 * PAGE);
        assert_eq!(space.find_free(2 * PAGE), Some(0));
        assert_eq!(space.find_free(3 * PAGE), Some(10 * PAGE));
        assert_eq!(space.find_free(23 * PAGE), None);
        assert_eq!(space.find_free(u64::MAX), None);
    }

    #[test]
    fn areas_are_limited() {
        let mut space = AddressSpace::new(1 << 40);
        let mut page = 0;
        while space.insert(page * PAGE, (page + 1) * PAGE, kind(1)).is_ok() {
            page += 2;
        }
        assert_eq!(space.areas().len(), MAX_AREAS - 1);
        assert_eq!(space.remove(0, 1 << 30), Err(TooManyAreas));
    }
}
