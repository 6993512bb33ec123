//! The counter behind an eventfd.

use serde::{Deserialize, Serialize};

use crate::{
    Errno,
    readiness::{Edges, Readiness, condition},
};

/// The largest value that a counter can have.
const LARGEST: u64 = u64::MAX - 1;

/// A number that writes add to and reads take away.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Counter {
    value: u64,
    /// Whether a read takes 1, not everything.
    semaphore: bool,
    edges: Edges,
}

impl Counter {
    pub(crate) fn new(value: u32, semaphore: bool) -> Self {
        Self { value: u64::from(value), semaphore, edges: Edges::default() }
    }

    /// What a read would take; `None`: nothing is there.
    pub(crate) fn available(&self) -> Option<u64> {
        match self.value {
            0 => None,
            _ if self.semaphore => Some(1),
            value => Some(value),
        }
    }

    pub(crate) fn take(&mut self, number: u64) {
        self.value -= number.min(self.value);
        self.edges.output += 1;
    }

    /// Whether a number can be added now. It never can if it is -1.
    pub(crate) fn has_room(&self, number: u64) -> Result<bool, Errno> {
        if number > LARGEST { Err(Errno::INVAL) } else { Ok(LARGEST - self.value >= number) }
    }

    /// Adds a number for which there is room.
    pub(crate) fn add(&mut self, number: u64) {
        self.value = self.value.saturating_add(number).min(LARGEST);
        self.edges.input += 1;
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let data = if self.value > 0 { condition::INPUT } else { 0 };
        let room = if self.value < LARGEST { condition::OUTPUT } else { 0 };
        Readiness { conditions: data | room, edges: self.edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_taken_whole_and_a_semaphore_by_ones() {
        let mut counter = Counter::new(3, false);
        assert_eq!(counter.available(), Some(3));
        counter.take(3);
        assert_eq!(counter.available(), None);
        let mut semaphore = Counter::new(2, true);
        semaphore.take(1);
        assert_eq!(semaphore.available(), Some(1));
    }

    #[test]
    fn a_counter_has_a_largest_value() {
        let mut counter = Counter::default();
        assert_eq!(counter.has_room(u64::MAX), Err(Errno::INVAL));
        assert_eq!(counter.has_room(LARGEST), Ok(true));
        counter.add(LARGEST);
        assert_eq!(counter.has_room(1), Ok(false));
        assert_eq!(counter.readiness().conditions, condition::INPUT);
    }
}
