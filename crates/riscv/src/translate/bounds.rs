//! What a translation may cost. The programs are strangers', so all of it is bounded.

use std::{cell::Cell, time::Duration};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// What a translation may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Guest instructions, of all regions together.
    pub(crate) instructions: usize,
    /// Guest instructions of one region.
    pub(crate) region: usize,
    /// Bytes of memory for host code and its tables.
    pub(crate) bytes: usize,
    /// Processor time of the thread that translates.
    pub(crate) time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            instructions: 400_000,
            region: 8_000,
            bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// A bound that was reached: what was not translated by then is interpreted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Reached {
    /// [`Bounds::instructions`].
    Instructions,
    /// [`Bounds::bytes`].
    Bytes,
    /// [`Bounds::time`].
    Time,
}

/// So many questions are answered without a look at the clock.
const PATIENCE: u32 = 64;

/// What is left of the time for a translation.
pub(crate) struct Allowance<'a> {
    start: Duration,
    time: Duration,
    asked: Cell<u32>,
    is_over: Cell<bool>,
    /// Whether anybody still waits for the translation.
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> Allowance<'a> {
    /// From here on, so much time of this thread.
    pub(crate) fn new(time: Duration, is_wanted: &'a dyn Fn() -> bool) -> Self {
        let (asked, is_over) = (Cell::new(0), Cell::new(false));
        Self { start: thread_time(), time, asked, is_over, is_wanted }
    }

    /// Processor time that was used so far.
    pub(crate) fn used(&self) -> Duration {
        thread_time().saturating_sub(self.start)
    }

    /// Whether it is time to stop. To be asked wherever a guest decides how long something takes,
    /// every few thousand instructions at the latest.
    pub(crate) fn is_over(&self) -> bool {
        let asked = self.asked.get() + 1;
        self.asked.set(asked % PATIENCE);
        if asked == PATIENCE {
            self.look();
        }
        self.is_over.get()
    }

    /// As [`Self::is_over`], in front of something that takes long.
    pub(crate) fn look(&self) -> bool {
        if self.used() > self.time || !(self.is_wanted)() {
            self.is_over.set(true);
        }
        self.is_over.get()
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_allowance_ends_with_its_time_or_when_nobody_waits() {
        let wanted = Cell::new(true);
        let is_wanted = || wanted.get();
        let long = Allowance::new(Duration::from_secs(1000), &is_wanted);
        assert!((0..200).all(|_| !long.is_over()));
        wanted.set(false);
        assert!((0..PATIENCE).any(|_| long.is_over()));
        assert!(long.is_over(), "it stays over");
        let none = Allowance::new(Duration::ZERO, &|| true);
        let start = Instant::now();
        while !none.is_over() {
            assert!(start.elapsed() < Duration::from_secs(60));
        }
    }
}
