//! What becomes of the translation of a version's code: counted, and told in the log.

use std::sync::Arc;

use sandtide_engine::CacheUse;
use sandtide_runtime::Version;

use crate::{
    entry::Entry,
    report,
    tally::{Deed, Tally},
};

/// Counts and tells it, at once or when it is settled.
pub(crate) fn follow(entry: &Entry, version: &Version, tally: &Arc<Tally>) {
    let (tenant, number, tally) = (entry.name.clone(), version.number(), tally.clone());
    version.program().when_translated(Box::new(move |translation| {
        match &translation.cache {
            CacheUse::None | CacheUse::Shared => {}
            CacheUse::Hit => tally.add(Deed::CacheHit),
            CacheUse::Miss => tally.add(Deed::CacheMiss),
            CacheUse::Damaged { .. } => tally.add(Deed::CacheDamaged),
        }
        match &translation.shortfall {
            None => tally.add(Deed::Translated),
            Some(shortfall) => {
                tally.add(Deed::FellShort);
                tally.add_shortfall(shortfall.reason);
            }
        }
        report::translated(&tenant, number, translation);
    }));
}
