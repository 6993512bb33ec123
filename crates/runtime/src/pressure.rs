//! Whether it is worth while to wait.
//!
//! A queue that takes whatever comes is no help when more comes than can be served: it makes
//! everybody wait for as long as they may, and serves those who have given up. So the wait is
//! predicted, and who would wait too long is told at once when to come again. How long is too long
//! depends: a queue that has been empty a short while ago takes in a burst, one that stands does
//! not get shorter by being patient ("Fail at Scale", ACM Queue 13 (8), 2015: controlled delay).

use std::time::{Duration, Instant};

/// A queue stands after this part of the longest wait without having been empty.
const STANDS: u32 = 4;

/// While it stands, nobody is to wait for more than this part of the longest wait.
const SHORT: u32 = 20;

/// What is known of a queue.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Since when somebody waits without a break.
    since: Option<Instant>,
    /// What each of those before you adds to your wait, lately; `None` before anybody waited.
    spacing: Option<Duration>,
}

impl Pressure {
    /// Until when one more may wait behind so many; `Err` has the wait that is to be expected.
    pub(crate) fn admit(
        &mut self,
        ahead: usize,
        longest: Duration,
        now: Instant,
    ) -> Result<Instant, Duration> {
        if ahead == 0 {
            // However long it takes: nobody would ever know that it has become shorter.
            self.since = Some(now);
            return Ok(now + longest);
        }
        let since = *self.since.get_or_insert(now);
        let stands = now.saturating_duration_since(since) > longest / STANDS;
        let allowed = if stands { longest / SHORT } else { longest };
        let wait = self.wait(ahead);
        if wait > allowed {
            return Err(wait);
        }
        // The prediction may be a little off.
        Ok(now + longest.min(allowed * 2))
    }

    /// The wait that is to be expected behind so many.
    pub(crate) fn wait(&self, ahead: usize) -> Duration {
        let before = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
        self.spacing.unwrap_or_default().saturating_mul(before)
    }

    /// One has waited for this time behind so many.
    pub(crate) fn waited(&mut self, time: Duration, ahead: usize) {
        let before = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
        let seen = time / before;
        self.spacing = Some(self.spacing.map_or(seen, |known| (known * 7 + seen) / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn after(waits: Duration) -> Pressure {
        let mut pressure = Pressure::default();
        (0..50).for_each(|_| pressure.waited(waits * 3, 2));
        pressure
    }

    #[test]
    fn a_burst_may_wait_for_as_long_as_it_will_be_served() {
        let (mut pressure, now) = (after(Duration::from_millis(10)), Instant::now());
        let taken = (0..200).take_while(|&ahead| pressure.admit(ahead, LONGEST, now).is_ok());
        assert_eq!(taken.count(), 100);
        assert_eq!(pressure.admit(150, LONGEST, now), Err(Duration::from_millis(1510)));
    }

    #[test]
    fn a_queue_that_stands_takes_few() {
        let (mut pressure, start) = (after(Duration::from_millis(10)), Instant::now());
        assert!(pressure.admit(0, LONGEST, start).is_ok());
        let later = start + Duration::from_millis(251);
        let taken = (1..200).take_while(|&ahead| pressure.admit(ahead, LONGEST, later).is_ok());
        assert_eq!(taken.count(), 4, "50 ms, its own service included");
        assert!(pressure.admit(0, LONGEST, later).is_ok(), "it was empty");
        assert!(pressure.admit(90, LONGEST, later).is_ok());
    }

    #[test]
    fn one_may_always_wait() {
        let (mut pressure, now) = (after(Duration::from_secs(100)), Instant::now());
        assert_eq!(pressure.admit(0, LONGEST, now), Ok(now + LONGEST));
        assert!(pressure.admit(1, LONGEST, now).is_err());
        (0..50).for_each(|_| pressure.waited(Duration::from_millis(1), 0));
        assert!(pressure.admit(1, LONGEST, now).is_ok(), "it learns that it became shorter");
    }

    #[test]
    fn nobody_is_turned_away_before_anything_is_known() {
        assert!(Pressure::default().admit(100_000, LONGEST, Instant::now()).is_ok());
    }
}
