//! Times at which something happens once, or again and again.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{
    calls::time::Clock,
    readiness::{Edges, Readiness, condition},
};

/// When something happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Alarm {
    /// `None`: not armed.
    #[serde(with = "crate::saved::moment")]
    next: Option<Instant>,
    /// Zero: only once.
    interval: Duration,
}

impl Alarm {
    pub(crate) fn new(next: Option<Instant>, interval: Duration) -> Self {
        Self { next, interval }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Moves it by the time in which the process has not run.
    pub(crate) fn postpone(&mut self, pause: Duration) {
        self.next = self.next.and_then(|next| next.checked_add(pause));
    }

    /// Moves it by a time of day.
    pub(crate) fn pass(&mut self, earlier: impl Fn(Instant) -> Option<Instant>) {
        self.next = self.next.and_then(earlier);
    }

    /// How often it has happened by now.
    fn times(&self, now: Instant) -> u64 {
        let Some(late) = self.next.and_then(|next| now.checked_duration_since(next)) else {
            return 0;
        };
        let more = late.as_nanos().checked_div(self.interval.as_nanos()).unwrap_or(0);
        u64::try_from(more).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// How often it has happened; what has is over.
    pub(crate) fn take(&mut self, now: Instant) -> u64 {
        let times = self.times(now);
        if times > 0 {
            let passed = self.interval.as_nanos().saturating_mul(u128::from(times));
            let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(u64::MAX));
            let next = self.next.and_then(|next| next.checked_add(passed));
            self.next = next.filter(|_| !self.interval.is_zero());
        }
        times
    }

    /// Interval, and the time that is left: zero if it is not armed.
    pub(crate) fn left(mut self, now: Instant) -> [Duration; 2] {
        self.take(now);
        let left = self.next.map(|next| next.saturating_duration_since(now));
        // What is armed has some time left.
        [self.interval, left.map_or(Duration::ZERO, |left| left.max(Duration::from_nanos(1)))]
    }
}

/// What is behind a timerfd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Timer {
    pub(crate) clock: Clock,
    pub(crate) alarm: Alarm,
    /// Those who wait were told that it has happened.
    told: bool,
    edges: Edges,
}

impl Timer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, alarm: Alarm::default(), told: false, edges: Edges::default() }
    }

    pub(crate) fn set(&mut self, alarm: Alarm, now: Instant) {
        self.take(now);
        self.alarm = alarm;
    }

    /// Whether it stands still while the process does not run.
    pub(crate) fn pauses(&self) -> bool {
        self.clock == Clock::Monotonic && self.alarm.next().is_some()
    }

    /// When somebody must be told.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.alarm.next().filter(|_| !self.told)
    }

    pub(crate) fn tell(&mut self) {
        self.told = true;
        self.edges.input += 1;
    }

    pub(crate) fn has_happened(&self, now: Instant) -> bool {
        self.alarm.times(now) > 0
    }

    /// How often it has happened since the last time that somebody asked.
    pub(crate) fn take(&mut self, now: Instant) -> u64 {
        // Who has looked has seen that edge.
        self.edges.input += u64::from(self.has_happened(now) && !self.told);
        self.told = false;
        self.alarm.take(now)
    }

    pub(crate) fn readiness(&self, now: Instant) -> Readiness {
        let happened = self.has_happened(now);
        let mut edges = self.edges;
        // Whoever looks before anybody was told has seen it all the same.
        edges.input += u64::from(happened && !self.told);
        Readiness { conditions: if happened { condition::INPUT } else { 0 }, edges }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn an_alarm_counts_how_often_it_has_happened() {
        let now = Instant::now();
        let mut alarm = Alarm::new(Some(now + MILLISECOND), 2 * MILLISECOND);
        assert_eq!(alarm.take(now), 0);
        assert_eq!(alarm.left(now), [2 * MILLISECOND, MILLISECOND]);
        assert_eq!(alarm.take(now + 6 * MILLISECOND), 3);
        assert_eq!(alarm.next(), Some(now + 7 * MILLISECOND));
        let mut once = Alarm::new(Some(now), Duration::ZERO);
        assert_eq!((once.take(now + MILLISECOND), once.take(now + MILLISECOND)), (1, 0));
        assert_eq!(once.left(now), [Duration::ZERO; 2]);
    }

    #[test]
    fn no_interval_is_too_short_or_too_long() {
        let now = Instant::now();
        let mut fast = Alarm::new(Some(now), Duration::from_nanos(1));
        assert_eq!(fast.take(now + MILLISECOND), 1_000_001);
        let mut slow = Alarm::new(Some(now), Duration::MAX);
        assert_eq!(slow.take(now), 1);
        assert!(slow.next().is_none_or(|next| next > now + Duration::from_secs(1 << 30)));
    }
}
