//! What the control plane has done so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sandtide_engine::ShortfallReason;

/// Counts of its deeds, each of which has a line in the log.
#[derive(Debug, Default)]
pub struct Tally {
    deeds: [AtomicU64; Deed::ALL.len()],
    shortfalls: [AtomicU64; ShortfallReason::ALL.len()],
}

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
    /// The code of a version is translated.
    Translated,
    /// It is translated in part, or not at all, although it could have been.
    FellShort,
    /// The cache had its translation.
    CacheHit,
    /// The cache had nothing of it.
    CacheMiss,
    /// The cache had something that is not what was written there.
    CacheDamaged,
}

impl Deed {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Loaded,
        Self::NotLoaded,
        Self::Retired,
        Self::RolledBack,
        Self::Configured,
        Self::NotConfigured,
        Self::Translated,
        Self::FellShort,
        Self::CacheHit,
        Self::CacheMiss,
        Self::CacheDamaged,
    ];
}

impl Tally {
    pub(crate) fn add(&self, deed: Deed) {
        self.deeds[deed as usize].fetch_add(1, Relaxed);
    }

    /// How often it has happened.
    pub fn of(&self, deed: Deed) -> u64 {
        self.deeds[deed as usize].load(Relaxed)
    }

    pub(crate) fn add_shortfall(&self, reason: ShortfallReason) {
        self.shortfalls[reason as usize].fetch_add(1, Relaxed);
    }

    /// How often a version was not translated wholly, for each reason.
    pub fn shortfalls(&self) -> impl Iterator<Item = (ShortfallReason, u64)> {
        ShortfallReason::ALL
            .into_iter()
            .zip(&self.shortfalls)
            .map(|(reason, n)| (reason, n.load(Relaxed)))
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
        for (index, reason) in ShortfallReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
