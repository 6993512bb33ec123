//! Whether a space is what its snapshot is: the check behind "a reset restores everything".
//!
//! A reset believes the table and the lists. This looks past them: at which pages the kernel says
//! that this process has copies of, and at what those hold.

use std::{io, ops::Range};

use crate::{
    PAGE, PAGES, Space, mirror,
    table::{ACCESS, IMAGE, PRIVATE, PageNumber, READ, READY, WRITTEN},
};

/// What of a space to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// These pages.
    pub pages: Range<usize>,
    /// So many copies at most.
    pub copies: usize,
}

impl Look {
    /// At everything.
    pub const ALL: Self = Self { pages: 0..PAGES, copies: usize::MAX };
}

/// How memory is not as its snapshot has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The page at this guest address holds something else.
    Bytes(u64),
    /// It has another access, or the table says something else of it.
    Access(u64),
    /// The note whether lasting code has changed.
    LastingCode,
}

/// The first place at which two tables do not have the same bits of a mask.
///
/// # Panics
/// If one is longer than the other.
pub fn first_difference(table: &[u8], expected: &[u8], mask: u8) -> Option<usize> {
    assert_eq!(table.len(), expected.len(), "two tables");
    let masks = u64::from_ne_bytes([mask; 8]);
    let differ =
        |a: &[u8; 8], b: &[u8; 8]| (u64::from_ne_bytes(*a) ^ u64::from_ne_bytes(*b)) & masks != 0;
    let (words, expected_words) = (table.as_chunks::<8>().0, expected.as_chunks::<8>().0);
    let word = words.iter().zip(expected_words).position(|(a, b)| differ(a, b));
    let start = word.unwrap_or(words.len()) * 8;
    let rest = table[start..].iter().zip(&expected[start..]);
    rest.map(|(a, b)| a ^ b).position(|bits| bits & mask != 0).map(|at| start + at)
}

impl Space {
    /// How this space is not as its snapshot has it, as far as it is looked at. To be asked after a
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    /// If the kernel does not say what it has, or does not let us look.
    ///
    /// # Panics
    /// If the space was not made from a snapshot, or the pages are not its own.
    pub fn verify(&self, look: &Look) -> io::Result<Option<Difference>> {
        const MASK: u8 = ACCESS | IMAGE | WRITTEN | READY;
        let Some(snapshot) = &self.snapshot else { panic!("no snapshot to compare with") };
        if self.code_is_pristine() != snapshot.lasting().is_pristine() {
            return Ok(Some(Difference::LastingCode));
        }
        let Look { pages, copies } = look.clone();
        let at = |page: usize| (page * PAGE) as u64;
        let (table, expected) = (self.table.bytes(), snapshot.table().bytes());
        let found = first_difference(&table[pages.clone()], &expected[pages.clone()], MASK);
        if let Some(index) = found {
            return Ok(Some(Difference::Access(at(pages.start + index))));
        }
        let private = self.memory.copies(pages.clone())?.unwrap_or_else(|| {
            // Only what is known to be written, then.
            let own = self.private.iter().filter(|page| self.table.get(**page) & PRIVATE != 0);
            own.map(|page| page.index()).filter(|page| pages.contains(page)).collect()
        });
        for page in private.into_iter().take(copies).map(PageNumber::new) {
            let is_closed = self.is_mirrored() && self.table.get(page) & READ == 0;
            if is_closed {
                mirror::protect(&self.memory, page.index()..page.index() + 1, true)?;
            }
            let is_same = self.page_bytes(page) == snapshot.page_bytes(page);
            if is_closed {
                mirror::protect(&self.memory, page.index()..page.index() + 1, false)?;
            }
            if !is_same {
                return Ok(Some(Difference::Bytes(at(page.index()))));
            }
        }
        Ok(None)
    }

    /// A page that requests have written, if there is one: `choice` says which of them.
    pub fn written_before(&self, choice: usize) -> Option<usize> {
        let index = choice.checked_rem(self.private.len())?;
        self.private.get(index).map(|page| page.index())
    }
}
