//! The processor's time-stamp counter as a clock: what guests read without an exit.
//!
//! A [`Pair`] is one moment on the counter and on the host's clocks. From two of them comes how long
//! a tick is, and from the last one what time it is: a [`Ticks`], which is right for as long as the
//! host's clocks run as they did. It is made anew [`LIFETIME`] later.
#![allow(unsafe_code, reason = "reads the time-stamp counter")]

use std::{
    cell::Cell,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};

/// How long one is used.
const LIFETIME: Duration = Duration::from_millis(50);

/// The least time from which the length of a tick is known well enough.
const SHORTEST: Duration = Duration::from_millis(5);

/// How old the pair gets that the length of a tick is measured from, and half of that at least.
const BASELINE: Duration = Duration::from_secs(4);

/// Guests are ahead of the host by this, in nanoseconds, so that a timer that has rung has rung
/// late.
const AHEAD: u64 = 1_000;

/// By how many parts in a thousand ticks may seem to change their length, before the counter is
/// taken to have jumped.
const TOLERANCE: u64 = 2;

/// Looks of which the quickest counts.
const LOOKS: usize = 4;

const NANOSECONDS: u64 = 1_000_000_000;

/// How to tell the time from the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// A moment on the counter,
    pub(crate) at: u64,
    /// on `CLOCK_MONOTONIC`, in nanoseconds,
    pub(crate) monotonic: u64,
    /// and on `CLOCK_REALTIME`.
    pub(crate) real: u64,
    /// Nanoseconds a tick, times 2^32.
    pub(crate) rate: u64,
    /// Ticks until it is to be made anew.
    lifetime: u64,
}

/// One moment on all clocks.
#[derive(Debug, Clone, Copy)]
struct Pair {
    ticks: u64,
    monotonic: u64,
    real: u64,
}

/// What is known of the counter.
#[derive(Debug, Clone, Copy)]
struct Measured {
    older: Pair,
    newer: Pair,
    current: Option<Ticks>,
}

static MEASURED: Mutex<Option<Measured>> = Mutex::new(None);

/// What the counter shows.
pub(crate) fn counter() -> u64 {
    // SAFETY: the instruction has no effect but on two registers, and any process may use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(NANOSECONDS).wrapping_add(time.tv_nsec as u64)
}

impl Pair {
    fn now() -> Self {
        let look = || {
            let before = counter();
            let monotonic = nanoseconds(ClockId::Monotonic);
            let took = counter().wrapping_sub(before);
            (took, Self { ticks: before.wrapping_add(took / 2), monotonic, real: 0 })
        };
        let looks = std::array::from_fn::<_, LOOKS, _>(|_| look());
        let (_, pair) = looks.into_iter().min_by_key(|(took, _)| *took).unwrap_or_else(look);
        let ahead = nanoseconds(ClockId::Realtime).wrapping_sub(nanoseconds(ClockId::Monotonic));
        Self { real: pair.monotonic.wrapping_add(ahead), ..pair }
    }

    /// The length of a tick since an earlier moment; `None` if that is too close.
    fn rate_since(&self, earlier: &Self) -> Option<u64> {
        let ticks = self.ticks.checked_sub(earlier.ticks).filter(|ticks| *ticks > 0)?;
        let time = self.monotonic.checked_sub(earlier.monotonic)?;
        if Duration::from_nanos(time) < SHORTEST {
            return None;
        }
        u64::try_from((u128::from(time) << 32) / u128::from(ticks)).ok().filter(|rate| *rate > 0)
    }
}

impl Measured {
    fn begun(pair: Pair) -> Self {
        Self { older: pair, newer: pair, current: None }
    }

    /// Takes note of a moment.
    fn add(&mut self, pair: Pair) {
        let known = self.current.map(|current| current.rate);
        let rate = match (pair.rate_since(&self.older), known) {
            (Some(rate), Some(known)) if rate.abs_diff(known) > known / 1000 * TOLERANCE => {
                // The counter or the clock has stood still, as over a suspend.
                (self.older, self.newer) = (pair, pair);
                Some(known)
            }
            (Some(rate), _) => Some(rate),
            (None, known) => {
                if pair.ticks <= self.older.ticks {
                    (self.older, self.newer) = (pair, pair);
                }
                known
            }
        };
        if pair.monotonic.saturating_sub(self.newer.monotonic) > BASELINE.as_nanos() as u64 / 2 {
            (self.older, self.newer) = (self.newer, pair);
        }
        self.current = rate.map(|rate| Ticks {
            at: pair.ticks,
            monotonic: pair.monotonic + AHEAD,
            real: pair.real + AHEAD,
            rate,
            lifetime: u64::try_from((LIFETIME.as_nanos() << 32) / u128::from(rate))
                .unwrap_or(u64::MAX),
        });
    }
}

impl Ticks {
    /// Begins to measure the counter.
    pub(crate) fn begin() {
        let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        measured.get_or_insert_with(|| Measured::begun(Pair::now()));
    }

    /// What is valid now; `None` until the counter has been measured for a few milliseconds.
    ///
    /// Costs a look at the counter, and at the host's clocks every [`LIFETIME`].
    #[inline]
    pub(crate) fn now() -> Option<Self> {
        thread_local! {
            static LAST: Cell<Option<Ticks>> = const { Cell::new(None) };
        }
        match LAST.get() {
            Some(ticks) if counter().wrapping_sub(ticks.at) < ticks.lifetime => Some(ticks),
            _ => {
                let ticks = Self::renewed();
                LAST.set(ticks);
                ticks
            }
        }
    }

    #[cold]
    fn renewed() -> Option<Self> {
        let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
        let measured = measured.as_mut()?;
        if let Some(current) = measured.current
            && counter().wrapping_sub(current.at) < current.lifetime
        {
            return Some(current);
        }
        measured.add(Pair::now());
        measured.current
    }

    /// How much time has passed at a moment on the counter, in nanoseconds.
    pub(super) fn since(&self, counter: u64) -> u64 {
        let ticks = u128::from(counter.saturating_sub(self.at));
        ((ticks * u128::from(self.rate)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(milliseconds: u64, ticks: u64) -> Pair {
        let monotonic = milliseconds * 1_000_000;
        Pair { ticks, monotonic, real: monotonic + NANOSECONDS }
    }

    #[test]
    fn ticks_are_measured_from_two_moments() {
        let mut measured = Measured::begun(pair(1000, 5_000_000));
        measured.add(pair(1001, 7_000_000));
        assert_eq!(measured.current, None, "too early");
        measured.add(pair(1100, 205_000_000));
        let ticks = measured.current.unwrap();
        // Two ticks a nanosecond.
        assert_eq!(ticks.rate, 1 << 31);
        assert_eq!((ticks.since(205_000_000), ticks.since(205_000_200)), (0, 100));
        assert_eq!(ticks.since(7), 0, "never back");
        assert_eq!(ticks.monotonic, 1_100_000_000 + AHEAD);
        assert_eq!(ticks.real, 2_100_000_000 + AHEAD);
        assert_eq!(ticks.lifetime, 100_000_000);
    }

    #[test]
    fn a_suspend_does_not_change_the_length_of_a_tick() {
        let mut measured = Measured::begun(pair(1000, 0));
        measured.add(pair(1100, 200_000_000));
        // The counter goes on while the clock stands still, and begins again at 0.
        for (moment, ticks) in [(1200, 900_000_000), (1300, 1_100_000_000), (1400, 5)] {
            measured.add(pair(moment, ticks));
            let current = measured.current.unwrap();
            assert_eq!((current.rate, current.at), (1 << 31, ticks));
        }
        measured.add(pair(1500, 200_000_005));
        assert_eq!(measured.current.unwrap().rate, 1 << 31);
    }

    #[test]
    fn the_baseline_moves_on() {
        let mut measured = Measured::begun(pair(0, 0));
        for second in 1..20 {
            measured.add(pair(second * 1000, second * 2 * NANOSECONDS));
        }
        assert!(measured.older.monotonic >= 12 * NANOSECONDS, "{measured:?}");
        // The clock is slowed down a little.
        for second in 20..30 {
            measured.add(pair(second * 1000 - second / 20, second * 2 * NANOSECONDS));
        }
        assert!(measured.current.unwrap().rate.abs_diff(1 << 31) < 1 << 21, "{measured:?}");
    }

    #[test]
    fn it_is_the_hosts_time() {
        Ticks::begin();
        let ticks = loop {
            if let Some(ticks) = Ticks::now() {
                break ticks;
            }
            std::hint::spin_loop();
        };
        let before = nanoseconds(ClockId::Monotonic);
        let found = ticks.monotonic + ticks.since(counter());
        let after = nanoseconds(ClockId::Monotonic);
        assert!((before - 50_000..=after + 50_000).contains(&found), "{before} {found} {after}");
    }
}
