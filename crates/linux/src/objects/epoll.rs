//! Epoll sets: which descriptions are watched, for what.

use serde::{Deserialize, Serialize};

use crate::{
    Errno,
    readiness::{Edges, Readiness, condition},
};

/// What `events` of a watch may hold beside conditions.
pub(crate) mod interest {
    pub(crate) const EXCLUSIVE: u32 = 1 << 28;
    pub(crate) const WAKE_UP: u32 = 1 << 29;
    pub(crate) const ONE_SHOT: u32 = 1 << 30;
    pub(crate) const EDGE: u32 = 1 << 31;
    /// All of these.
    pub(crate) const MODES: u32 = EXCLUSIVE | WAKE_UP | ONE_SHOT | EDGE;
}

/// A description that is watched, under the descriptor by which it was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    pub(crate) fd: u32,
    pub(crate) description: usize,
    /// Conditions and [`interest`].
    pub(crate) events: u32,
    /// What the guest gets back with an event.
    pub(crate) data: u64,
    /// With [`interest::EDGE`]: what was reported already.
    pub(crate) seen: Option<Edges>,
}

impl Watch {
    /// The conditions to report for what a description can do; 0 for nothing.
    pub(crate) fn events_of(&self, readiness: Readiness) -> u32 {
        let wanted = self.events & !interest::MODES;
        // A one-shot watch that has been reported is off.
        if wanted == 0 {
            return 0;
        }
        let found = readiness.conditions & (wanted | condition::ALWAYS);
        let is_new = match self.seen {
            Some(seen) if self.events & interest::EDGE != 0 => {
                let outputs = condition::OUTPUT;
                let (input, output) = (wanted & !outputs != 0, wanted & outputs != 0);
                input && seen.input != readiness.edges.input
                    || output && seen.output != readiness.edges.output
            }
            _ => true,
        };
        if is_new { found } else { 0 }
    }

    /// Whether a report changes what is reported next.
    pub(crate) fn changes_by_report(&self) -> bool {
        self.events & (interest::EDGE | interest::ONE_SHOT) != 0
    }

    /// Events were reported while the description had these edges.
    pub(crate) fn reported(&mut self, edges: Edges) {
        self.seen = Some(edges);
        if self.events & interest::ONE_SHOT != 0 {
            self.events &= interest::MODES;
        }
    }

    fn key(&self) -> (u32, usize) {
        (self.fd, self.description)
    }
}

/// An epoll set.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Epoll {
    /// In order of descriptor and description.
    watches: Vec<Watch>,
    /// Where the next look starts, so that a call that takes few events takes others each time.
    pub(crate) next: usize,
}

impl Clone for Epoll {
    fn clone(&self) -> Self {
        Self { watches: self.watches.clone(), next: self.next }
    }

    /// Into the allocation that is there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { watches, next } = source;
        self.watches.clone_from(watches);
        self.next = *next;
    }
}

impl Epoll {
    pub(crate) fn watches(&self) -> &[Watch] {
        &self.watches
    }

    pub(crate) fn watches_mut(&mut self) -> &mut [Watch] {
        &mut self.watches
    }

    /// Whether this can be a set: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        self.watches.windows(2).all(|pair| pair[0].key() < pair[1].key())
    }

    pub(crate) fn find(&self, fd: u32, description: usize) -> Result<usize, usize> {
        self.watches.binary_search_by_key(&(fd, description), Watch::key)
    }

    pub(crate) fn add(&mut self, watch: Watch) -> Result<(), Errno> {
        match self.find(watch.fd, watch.description) {
            Ok(_) => Err(Errno::EXIST),
            Err(at) => {
                self.watches.insert(at, watch);
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, fd: u32, description: usize) -> Result<(), Errno> {
        let at = self.find(fd, description).map_err(|_| Errno::NOENT)?;
        self.watches.remove(at);
        Ok(())
    }

    /// A description is gone.
    pub(crate) fn forget(&mut self, description: usize) {
        self.watches.retain(|watch| watch.description != description);
    }

    pub(crate) fn has_description(&self, description: usize) -> bool {
        self.watches.iter().any(|watch| watch.description == description)
    }
}
