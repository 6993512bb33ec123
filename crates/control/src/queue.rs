//! Whose program is to be loaded.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::entry::Entry;

/// The line before the loader threads. A tenant is in it once, and is not worked on twice at a
/// time.
#[derive(Default)]
pub(crate) struct Queue {
    line: Mutex<Line>,
    filled: Condvar,
}

#[derive(Default)]
struct Line {
    entries: VecDeque<Arc<Entry>>,
    is_closed: bool,
}

impl Queue {
    /// Has a tenant's program looked at, once more if that is being done.
    pub(crate) fn push(&self, entry: &Arc<Entry>) {
        if entry.ask() {
            self.line().entries.push_back(entry.clone());
            self.filled.notify_one();
        }
    }

    /// The next one; `None` when there will be none.
    pub(crate) fn pop(&self) -> Option<Arc<Entry>> {
        let mut line = self.line();
        loop {
            if line.is_closed {
                return None;
            }
            if let Some(entry) = line.entries.pop_front() {
                entry.begin();
                return Some(entry);
            }
            line = self.filled.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn close(&self) {
        self.line().is_closed = true;
        self.filled.notify_all();
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
