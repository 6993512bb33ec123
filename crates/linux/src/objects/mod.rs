//! What descriptions refer to that is neither a file nor a device.

mod counter;
mod epoll;
mod pipe;

pub(crate) use counter::Counter;
pub(crate) use epoll::{Epoll, Watch, interest};
pub(crate) use pipe::{PIPE_CAPACITY, Pipe};

use crate::arena::Arena;

/// The objects of a process. Each is there as long as a description refers to it, so the limit
/// for descriptors bounds them all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objects {
    pub(crate) pipes: Arena<Pipe>,
    pub(crate) counters: Arena<Counter>,
    pub(crate) epolls: Arena<Epoll>,
}

impl Objects {
    pub(crate) fn has_changed(&self) -> bool {
        self.pipes.has_changed() || self.counters.has_changed() || self.epolls.has_changed()
    }

    /// Restores what has changed.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) {
        let Self { pipes, counters, epolls } = snapshot;
        self.pipes.reset_from(pipes);
        self.counters.reset_from(counters);
        self.epolls.reset_from(epolls);
    }
}
