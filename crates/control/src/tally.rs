//! What the control plane has done so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of its deeds, each of which has a line in the log.
#[derive(Debug, Default)]
pub struct Tally([AtomicU64; Deed::ALL.len()]);

/// What is counted of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// A version of a program was loaded and serves.
    Loaded,
    /// A version could not be made.
    NotLoaded,
    /// A program was let go of, since nobody used it.
    Retired,
    /// Faults brought the version before back.
    RolledBack,
    /// The configuration was read again and is served by.
    Configured,
    /// The configuration was read again and refused.
    NotConfigured,
}

impl Deed {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Loaded,
        Self::NotLoaded,
        Self::Retired,
        Self::RolledBack,
        Self::Configured,
        Self::NotConfigured,
    ];
}

impl Tally {
    pub(crate) fn add(&self, deed: Deed) {
        self.0[deed as usize].fetch_add(1, Relaxed);
    }

    /// How often it has happened.
    pub fn of(&self, deed: Deed) -> u64 {
        self.0[deed as usize].load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deeds_are_in_their_order() {
        for (index, deed) in Deed::ALL.into_iter().enumerate() {
            assert_eq!(deed as usize, index);
        }
    }
}
