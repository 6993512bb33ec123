//! The time that a snapshot waits does not pass for its program.
//!
//! Seconds or days lie between a snapshot and a request that begins from it. As when a machine was
//! suspended, the time of day is the true one afterwards, and monotonic time goes on where it was:
//! an idle connection has not timed out, and what should happen every second is not due at once.
//!
//! ```text
//! CLOCK_REALTIME, CLOCK_BOOTTIME   the host's
//! CLOCK_MONOTONIC                  the host's, less all pauses
//! sleeps, time-outs, timers        as much time is left as there was
//!   but those of CLOCK_REALTIME    end when that time has come
//! ```

use std::time::{Duration, Instant};

use crate::kernel::Kernel;

/// How long a process has not run.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// All pauses that are over.
    total: Duration,
    /// Since when it does not run; `None`: it does.
    since: Option<Instant>,
}

/// A clone is a snapshot: its time stands still.
impl Clone for Pause {
    fn clone(&self) -> Self {
        Self { total: self.total, since: self.since.or_else(|| Some(Instant::now())) }
    }
}

impl Kernel {
    /// All the time in which the process has not run.
    pub(crate) fn paused(&self) -> Duration {
        self.pause.total
    }

    /// The process runs.
    pub(crate) fn go_on(&mut self, now: Instant) {
        let Some(since) = self.pause.since.take() else { return };
        let pause = now.saturating_duration_since(since);
        self.pause.total += pause;
        if self.threads.next_deadline().is_some() {
            self.threads.change().postpone(pause);
        }
        if self.signals.alarm.next().is_some() {
            self.signals.change().alarm.postpone(pause);
        }
        let timers = self.objects.timers.iter();
        let armed: Vec<usize> =
            timers.filter(|(_, timer)| timer.pauses()).map(|(index, _)| index).collect();
        for index in armed {
            if let Ok(timer) = self.objects.timers.change(index) {
                timer.alarm.postpone(pause);
            }
        }
    }
}
