//! The code that lasts: what was decoded or translated once, for all spaces of a program.
//!
//! Its owner says which pages have it. As soon as one of them changes, its bytes or what the guest
//! may do with it, the code is no longer pristine, until the next reset. Code anywhere else may
//! come and go.

use std::{ops::Range, sync::Arc};

use crate::{PAGE, Space, table::PageNumber};

/// The pages with lasting code, and whether they are as they were.
#[derive(Debug, Clone)]
pub(crate) struct Lasting {
    pages: Arc<[Range<usize>]>,
    is_pristine: bool,
}

impl Default for Lasting {
    fn default() -> Self {
        Self { pages: Arc::default(), is_pristine: true }
    }
}

impl Lasting {
    /// A page that can be executed changes.
    #[cold]
    pub(crate) fn changes(&mut self, page: PageNumber) {
        self.is_pristine &= !self.pages.iter().any(|pages| pages.contains(&page.index()));
    }

    #[inline(always)]
    pub(crate) fn is_pristine(&self) -> bool {
        self.is_pristine
    }

    /// As at the snapshot again.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) {
        self.is_pristine = snapshot.is_pristine;
    }
}

impl Space {
    /// Says where the lasting code is, in guest addresses. To be called when the program's
    /// file is in memory, and before the guest runs.
    pub fn set_lasting_code(&mut self, ranges: impl Iterator<Item = Range<u64>>) {
        let pages = ranges
            .filter(|range| !range.is_empty())
            .map(|range| range.start as usize / PAGE..(range.end as usize).div_ceil(PAGE))
            .collect();
        self.lasting = Lasting { pages, is_pristine: true };
    }

    /// Whether the lasting code is still the same.
    #[inline(always)]
    pub fn code_is_pristine(&self) -> bool {
        self.lasting.is_pristine()
    }
}
