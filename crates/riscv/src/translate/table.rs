//! Where translated code can be entered, by guest address.

use crate::isa;

/// An entry of translated code.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    /// The host function of the region.
    pub(super) function: usize,
    /// The number of the entry in its region; 0 is the function's own start.
    pub(super) resume: u64,
}

/// The entries of a program. Number 0 is none.
///
/// ```text
///  guest address ─ start, a halfword each ─▶ numbers ─▶ entries: host function, where in it
/// ```
///
/// A guest address outside of the table has no entry: whatever a guest jumps to, host code is only
/// entered where this table says.
#[derive(Debug, Default)]
pub(super) struct Entries {
    start: u64,
    pub(super) numbers: Box<[u32]>,
    pub(super) entries: Vec<Entry>,
}

impl Entries {
    /// A table for code from `start` on.
    pub(super) fn new(start: u64, bytes: u64) -> Self {
        let numbers = vec![0; (bytes / 2) as usize].into_boxed_slice();
        Self { start, numbers, entries: vec![Entry::default()] }
    }

    /// The first address, and how many bytes of code the table has numbers for.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.start, 2 * self.numbers.len() as u64)
    }

    /// Sets the entry at an address that has none.
    pub(super) fn set(&mut self, pc: u64, number: u32) {
        if let Some(slot) = self.numbers.get_mut((pc.wrapping_sub(self.start) / 2) as usize)
            && *slot == 0
        {
            *slot = number;
        }
    }

    /// The number of the entry at an address, or 0.
    #[inline(always)]
    pub(super) fn number(&self, pc: u64) -> u32 {
        let offset = pc.wrapping_sub(self.start);
        if offset & 1 != 0 {
            return 0;
        }
        self.numbers.get((offset / 2) as usize).copied().unwrap_or(0)
    }

    #[inline(always)]
    pub(super) fn at(&self, pc: u64) -> Option<Entry> {
        match self.number(pc) {
            0 => None,
            number => self.entries.get(number as usize).copied(),
        }
    }
}

impl isa::Entries for Entries {
    #[inline(always)]
    fn has(&self, pc: u64) -> bool {
        self.number(pc) != 0
    }
}
