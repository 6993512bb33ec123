//! A translation as it can be kept: code that runs wherever it lies, and tables without addresses
//! of the host.

use serde::{Deserialize, Serialize};

use super::{bounds::Reached, helpers::HOST_CODE, sites::Sites};

/// Everything that a translation consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Artifact {
    /// Host code, the trampoline first.
    #[serde(with = "serde_bytes")]
    pub(super) code: Vec<u8>,
    /// The guest addresses that the table of entries is for: the first, and how many bytes.
    pub(super) table: (u64, u64),
    /// The entries, in the order of their numbers, from 1.
    pub(super) entries: Vec<EntryAt>,
    /// Where in the code the functions are that call helpers.
    pub(super) helpers: [u32; HOST_CODE],
    /// The loads that may fault.
    pub(super) sites: Sites,
    /// What has been translated.
    pub(crate) summary: Summary,
}

/// An entry of host code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EntryAt {
    /// The guest address, which may lie outside of the table: nobody looks for it there. If several
    /// entries have it, the first is the one that is found.
    pub(super) pc: u64,
    /// Where in the code its host function is; `None` if that could not be compiled.
    pub(super) function: Option<u32>,
    /// Its number in the region; 0 is the function's own start.
    pub(super) resume: u32,
}

/// What a translation has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Regions translated.
    pub(crate) regions: u32,
    /// Regions that could not be: the places of the guest's registers are not known at each of their
    /// loads.
    pub(crate) left: u32,
    /// Guest instructions in them; one may be in several.
    pub(crate) instructions: u32,
    /// The bound that was reached, so that the rest is interpreted.
    pub(crate) reached: Option<Reached>,
}

/// The most guest addresses that a table may be for.
pub(super) const LARGEST_TABLE: u64 = 64 << 20;

impl Artifact {
    /// Whether its tables fit together. Who can write what is read here can run code as this
    /// process all the same: see [`crate::translator::cache`].
    pub(crate) fn is_consistent(&self) -> bool {
        let (start, bytes) = self.table;
        let inside = |offset: u32| (offset as usize) < self.code.len();
        bytes <= LARGEST_TABLE
            && start.checked_add(bytes).is_some_and(|end| end <= 1 << 32)
            && self.helpers.into_iter().all(inside)
            && self.sites.are_consistent()
            && self
                .entries
                .iter()
                .all(|entry| entry.pc & 1 == 0 && entry.function.is_none_or(inside))
    }

    /// The memory that it takes when it runs, in bytes: of the table, only what entries touch.
    pub(crate) fn bytes(&self) -> u64 {
        const PAGE: u64 = 4096;
        let (entries, table) = (self.entries.len() as u64, 2 * self.table.1);
        self.code.len() as u64 + 16 * entries + table.min(PAGE * entries) + self.sites.bytes()
    }
}
