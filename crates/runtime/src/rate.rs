//! How many requests a second a tenant may have.
//!
//! The generic cell rate algorithm (ITU-T I.371): the one thing that is kept is the time at which
//! the next request would arrive if all had come evenly. So all reactors share a tenant's rate in
//! one atomic, and tenants without a rate share nothing.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Requests a second in the whole server. Above it the answer is 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second over time; at least one.
    pub per_second: u32,
    /// Requests that may come at once after a pause; at least one.
    pub burst: u32,
}

/// What a tenant has used of its [`Rate`].
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the next request is due if all come evenly, in nanoseconds since [`EPOCH`].
    due: AtomicU64,
}

/// What times are counted from.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Pace {
    /// Takes one request out of the rate; `Err` has the time until there is room for it.
    pub(crate) fn take(&self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let now = nanoseconds(now.saturating_duration_since(*EPOCH));
        self.take_at(rate, now).map_err(Duration::from_nanos)
    }

    fn take_at(&self, rate: Rate, now: u64) -> Result<(), u64> {
        let step = 1_000_000_000 / u64::from(rate.per_second.max(1));
        let ahead = step * u64::from(rate.burst.max(1) - 1);
        let mut due = self.due.load(Relaxed);
        loop {
            let even = due.max(now);
            if let Some(wait) = (even - now).checked_sub(ahead)
                && wait > 0
            {
                return Err(wait);
            }
            // The count is all that is shared: nothing is ordered by it.
            match self.due.compare_exchange_weak(due, even + step, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(other) => due = other,
            }
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_burst_passes_at_once_and_then_one_for_each_step() {
        let (pace, rate) = (Pace::default(), Rate { per_second: 10, burst: 3 });
        let now = 5 * SECOND;
        assert_eq!([(); 4].map(|()| pace.take_at(rate, now).is_ok()), [true, true, true, false]);
        assert_eq!(pace.take_at(rate, now), Err(SECOND / 10));
        assert_eq!(pace.take_at(rate, now + SECOND / 10 - 1), Err(1));
        assert_eq!(pace.take_at(rate, now + SECOND / 10), Ok(()));
        assert!(pace.take_at(rate, now + SECOND / 10).is_err());
        assert_eq!(
            [(); 4]
                .map(|()| pace.take_at(rate, 9 * SECOND).is_ok())
                .iter()
                .filter(|ok| **ok)
                .count(),
            3
        );
    }

    #[test]
    fn reactors_share_the_rate() {
        let (pace, rate) = (Pace::default(), Rate { per_second: 1, burst: 1000 });
        let now = Instant::now();
        let passed: usize = std::thread::scope(|scope| {
            let count = || (0..1000).filter(|_| pace.take(rate, now).is_ok()).count();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 1000);
    }

    proptest! {
        /// In no stretch of time do more pass than the burst and what the rate adds in it, and who
        /// was told to wait passes after that wait.
        #[test]
        fn it_holds_the_rate_over_every_stretch(
            per_second in 1u32..5000,
            burst in 1u32..50,
            gaps in prop::collection::vec(0u64..SECOND / 20, 1..300),
        ) {
            let (pace, rate) = (Pace::default(), Rate { per_second, burst });
            let step = SECOND / u64::from(per_second);
            let (mut now, mut passed) = (SECOND, Vec::new());
            for gap in gaps {
                now += gap;
                match pace.take_at(rate, now) {
                    Ok(()) => passed.push(now),
                    Err(wait) => {
                        prop_assert!(pace.take_at(rate, now + wait - 1).is_err());
                        let due = pace.due.load(Relaxed);
                        prop_assert_eq!(pace.take_at(rate, now + wait), Ok(()));
                        pace.due.store(due, Relaxed);
                    }
                }
            }
            for (index, &start) in passed.iter().enumerate() {
                for (count, &end) in passed[index..].iter().enumerate() {
                    prop_assert!(count as u64 <= u64::from(burst) - 1 + (end - start) / step + 1);
                }
            }
        }
    }
}
