//! When files that change are whole.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

/// For so long nothing may happen to the files before they are taken to be whole.
const QUIET: Duration = Duration::from_millis(100);
/// But no longer than this after the first thing that happened.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has happened to files, until it is quiet.
#[derive(Default)]
pub(crate) struct Unrest {
    pub(crate) paths: HashSet<PathBuf>,
    /// Something has happened, and nobody knows to what.
    pub(crate) is_unknown: bool,
    since: Option<Instant>,
    last: Option<Instant>,
}

impl Unrest {
    pub(crate) fn note(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let now = Instant::now();
        self.paths.extend(paths);
        self.since.get_or_insert(now);
        self.last = Some(now);
    }

    /// When it is over.
    pub(crate) fn until(&self) -> Option<Instant> {
        Some((self.last? + QUIET).min(self.since? + PATIENCE))
    }
}
