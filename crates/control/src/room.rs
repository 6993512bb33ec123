//! Room for programs. A process may have so many mappings (`vm.max_map_count`), and each program
//! that is loaded takes some, with its idle sandboxes: when many tenants are asked within a short
//! time, those make room that have been unused longest, and those that are to be loaded wait for it.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    entry::Entry,
    tally::{Deed, Tally},
};

/// What a program and one idle sandbox take.
const MAPPINGS: usize = 16;

/// The part of the mappings that programs may take before they make room.
const PART: usize = 4;

/// What the kernel allows unless it was told otherwise.
const DEFAULT: usize = 65_530;

/// From this many times as many on, a program waits before it is loaded.
const FULL: usize = 2;

/// For so long, since those that are used all the time make none.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who has been unused for so long goes first.
const UNUSED: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(15),
    Duration::from_secs(4),
    Duration::from_secs(2),
];

/// How many programs are loaded, and how many may be.
pub(crate) struct Room {
    most: usize,
    loaded: Mutex<usize>,
    counted: Condvar,
}

impl Room {
    /// As much as the kernel allows.
    pub(crate) fn new() -> Self {
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let limit = limit.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT);
        Self::of(limit / (MAPPINGS * PART))
    }

    fn of(most: usize) -> Self {
        Self { most, loaded: Mutex::new(0), counted: Condvar::new() }
    }

    /// How many programs may be loaded before some make room.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// One more is to be loaded. Waits a while if there is no room for it.
    pub(crate) fn take(&self) {
        self.take_within(PATIENCE);
    }

    /// Whether there was room before the patience was over. It is taken in any case.
    fn take_within(&self, patience: Duration) -> bool {
        let full = self.most * FULL;
        let (mut loaded, waited) = self
            .counted
            .wait_timeout_while(self.loaded(), patience, |loaded| *loaded >= full)
            .unwrap_or_else(PoisonError::into_inner);
        *loaded += 1;
        !waited.timed_out()
    }

    /// So many are loaded.
    pub(crate) fn set_loaded(&self, loaded: usize) {
        *self.loaded() = loaded;
        self.counted.notify_all();
    }

    /// Lets go of programs until no more than may be are loaded, as far as they are unused and can
    /// be had again. Returns how many it let go of.
    pub(crate) fn make(&self, loaded: &[&Arc<Entry>], tally: &Tally) -> usize {
        let wanted = loaded.len().saturating_sub(self.most);
        let mut gone = 0;
        for unused in UNUSED {
            for entry in loaded {
                if gone == wanted {
                    return gone;
                }
                if entry.may_retire().is_some() && entry.slot.retire(unused) {
                    tally.add(Deed::Retired);
                    gone += 1;
                }
            }
        }
        gone
    }

    fn loaded(&self) -> MutexGuard<'_, usize> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_waits_until_there_is() {
        let room = Room::of(1);
        assert_eq!([(); 3].map(|()| room.take_within(Duration::ZERO)), [true, true, false]);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| room.take_within(Duration::from_secs(60)));
            room.set_loaded(1);
            assert!(waits.join().unwrap());
        });
        assert_eq!(*room.loaded(), 2);
    }
}
