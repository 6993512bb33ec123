//! The time that a snapshot waits does not pass for its program.
//!
//! Seconds or days lie between a snapshot and a request that begins from it. As when a machine was
//! suspended, the time of day is the true one afterwards, and monotonic time goes on where it was:
//! an idle connection has not timed out, and what should happen every second is not due at once.
//!
//! ```text
//! CLOCK_REALTIME                   the host's
//! CLOCK_BOOTTIME                   the host's; after a start of the host, on from where it was
//! CLOCK_MONOTONIC                  the host's, less all pauses
//! sleeps, time-outs, timers        as much time is left as there was
//!   but those of CLOCK_REALTIME    end when that time has come
//! ```
//!
//! A snapshot that is kept on disk says what the clocks showed when it was taken: the host that goes
//! on from it may have been started since, or be another one.

use std::time::{Duration, Instant};

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::{
    calls::time::{Clock, host_clock},
    kernel::Kernel,
};

/// How long a process has not run.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Pause {
    /// All pauses that are over.
    total: Duration,
    /// How far the clocks of the process are ahead of the host's, without the pauses: a host that
    /// was started after the process began.
    ahead: Duration,
    boot_ahead: Duration,
    /// Since when it does not run; `None`: it does.
    since: Option<Instant>,
}

/// A clone is a snapshot: its time stands still.
impl Clone for Pause {
    fn clone(&self) -> Self {
        let since = self.since.or_else(|| Some(Instant::now()));
        Self { since, ..*self }
    }
}

/// What the clocks showed when a process stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stopped {
    monotonic: Duration,
    boot: Duration,
    day: Duration,
}

#[cfg(test)]
impl Stopped {
    pub(crate) fn run_longer(&mut self, by: Duration) {
        self.monotonic += by;
        self.boot += by;
    }
}

impl Pause {
    /// What the guest's monotonic clock shows when the host's shows this.
    pub(crate) fn monotonic(&self, host: Duration) -> Duration {
        host.saturating_add(self.ahead).saturating_sub(self.total)
    }

    /// The same for its clock of the time since the start of the machine.
    pub(crate) fn boot(&self, host: Duration) -> Duration {
        host.saturating_add(self.boot_ahead)
    }

    /// When the process stopped, and what its clocks showed. It stops if it runs.
    pub(crate) fn stopped(&self) -> (Instant, Stopped) {
        let now = Instant::now();
        let since = self.since.unwrap_or(now);
        let ago = now.saturating_duration_since(since);
        let host = |id| host_clock(id).saturating_sub(ago);
        let monotonic = host(ClockId::Monotonic);
        let stopped = Stopped {
            monotonic: self.monotonic(monotonic),
            boot: self.boot(monotonic),
            day: host(ClockId::Realtime),
        };
        (since, stopped)
    }

    /// The pause of a process that has stopped then, and goes on from a file.
    pub(crate) fn since(stopped: &Stopped, now: Instant) -> Self {
        let host = host_clock(ClockId::Monotonic);
        Self {
            total: host.saturating_sub(stopped.monotonic),
            ahead: stopped.monotonic.saturating_sub(host),
            boot_ahead: stopped.boot.saturating_sub(host),
            since: Some(now),
        }
    }
}

/// A time by the clock of days, as long a time later (or, if the second is set, earlier) as has
/// passed by that clock.
fn earlier(at: Instant, passed: Duration, is_back: bool) -> Option<Instant> {
    if is_back { at.checked_add(passed) } else { at.checked_sub(passed) }
}

impl Kernel {
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

    /// The process stopped then and is in memory since now: what waits for a time of day waits for
    /// as much less as has passed by the clock of days.
    pub(crate) fn pass_days(&mut self, stopped: &Stopped) {
        let day = host_clock(ClockId::Realtime);
        let is_back = day < stopped.day;
        let passed = day.abs_diff(stopped.day);
        self.threads.change().pass_days(|at| earlier(at, passed, is_back));
        let timers = self.objects.timers.iter();
        let of_days: Vec<usize> = timers
            .filter(|(_, timer)| timer.clock != Clock::Monotonic)
            .map(|(index, _)| index)
            .collect();
        for index in of_days {
            if let Ok(timer) = self.objects.timers.change(index) {
                timer.alarm.pass(|at| earlier(at, passed, is_back));
            }
        }
    }
}
