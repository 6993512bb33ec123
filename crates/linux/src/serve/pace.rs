//! How many requests a program answers before its snapshot: so many, or until it gets no faster.
//!
//! ```text
//!   requests  │ window │ window │ window │ …      each path equally often in each
//!   time      │   4.1  │   0.9  │  0.85  │ …      without its slowest quarter: compilers, collectors,
//!                                                  other programs of this machine
//! ```
//!
//! A program is steady when several windows in a row were not faster than the best before them.

use std::time::{Duration, Instant};

use sandtide_engine::{Requests, Warmed};

/// The requests of a window, at least.
const WINDOW: usize = 50;

/// So many windows in a row without a better one are the end.
const PATIENCE: u32 = 4;

/// What counts as better: 3 % less.
const BETTER: f64 = 0.97;

/// The most requests, should it never end.
const MOST: u32 = 10_000;

/// Counts requests and looks at how long they take.
pub(super) struct Pace {
    requests: Requests,
    answered: u32,
    window: Vec<Duration>,
    /// The requests of a window.
    length: usize,
    /// The times of a request in the first window, and in the best.
    first: Option<Duration>,
    best: Duration,
    stale: u32,
    /// When a program that is not steady has had time enough.
    until: Instant,
}

impl Pace {
    /// For requests to so many paths in turns. Half of the time to `deadline` is used at most.
    pub(super) fn new(requests: Requests, paths: usize, now: Instant, deadline: Instant) -> Self {
        let paths = paths.max(1);
        Self {
            requests,
            answered: 0,
            window: Vec::new(),
            length: WINDOW.div_ceil(paths) * paths,
            first: None,
            best: Duration::MAX,
            stale: 0,
            until: now + deadline.saturating_duration_since(now) / 2,
        }
    }

    /// Whether there is another request.
    pub(super) fn goes_on(&self, now: Instant) -> bool {
        match self.requests {
            Requests::Exactly(count) => self.answered < count,
            Requests::UntilSteady => {
                self.answered < MOST && self.stale < PATIENCE && now < self.until
            }
        }
    }

    /// A request took so long.
    pub(super) fn took(&mut self, time: Duration) {
        self.answered += 1;
        self.window.push(time);
        if self.window.len() < self.length {
            return;
        }
        self.window.sort_unstable();
        let usual = &self.window[..self.length - self.length / 4];
        let time = usual.iter().sum::<Duration>() / usual.len() as u32;
        self.window.clear();
        self.first.get_or_insert(time);
        if self.best == Duration::MAX || time < self.best.mul_f64(BETTER) {
            self.stale = 0;
        } else {
            self.stale += 1;
        }
        self.best = self.best.min(time);
    }

    /// What has come of it; `None` if there were no requests.
    pub(super) fn warmed(&self) -> Option<Warmed> {
        let times = self.first.map(|first| (first, self.best));
        (self.answered > 0).then_some(Warmed { requests: self.answered, times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Runs a program whose requests take what `time` says of their number.
    fn run(requests: Requests, paths: usize, time: impl Fn(u32) -> Duration) -> Warmed {
        let start = Instant::now();
        let (mut pace, mut now) = (Pace::new(requests, paths, start, start + HOUR), start);
        let mut number = 0;
        while pace.goes_on(now) {
            let time = time(number);
            pace.took(time);
            (number, now) = (number + 1, now + time);
        }
        pace.warmed().unwrap()
    }

    fn micros(micros: u32) -> Duration {
        Duration::from_micros(micros.into())
    }

    #[test]
    fn a_program_that_stays_as_fast_is_left_after_a_few_windows() {
        let warmed = run(Requests::UntilSteady, 1, |_| micros(100));
        assert_eq!(warmed.requests, 250);
        assert_eq!(warmed.times, Some((micros(100), micros(100))));
    }

    #[test]
    fn one_that_gets_faster_is_asked_until_it_no_longer_does() {
        let warmed = run(Requests::UntilSteady, 1, |number| micros(2000 - 2 * number.min(900)));
        assert!((900..1300).contains(&warmed.requests), "{warmed:?}");
        let (first, best) = warmed.times.unwrap();
        assert!(first > micros(1900) && best <= micros(210), "{warmed:?}");
    }

    #[test]
    fn what_happens_now_and_then_is_no_sign_of_anything() {
        let warmed = run(Requests::UntilSteady, 1, |number| match number % 7 {
            0 => micros(5000 + 100 * (number % 11)),
            _ => micros(100),
        });
        assert_eq!(warmed.requests, 250);
        assert_eq!(warmed.times.unwrap().1, micros(100));
    }

    #[test]
    fn each_window_has_each_path_as_often() {
        let warmed = run(Requests::UntilSteady, 7, |number| micros(1 + 100 * (number % 7)));
        assert_eq!(warmed.requests, 5 * 56);
    }

    #[test]
    fn one_that_never_is_steady_has_bounds() {
        let faster = |number: u32| Duration::from_secs_f64(0.9f64.powi(number as i32 / 50));
        let warmed = run(Requests::UntilSteady, 1, faster);
        assert!(warmed.requests <= MOST);
        let warmed = run(Requests::UntilSteady, 1, |_| HOUR / 20);
        assert_eq!(warmed.requests, 10, "half of the time");
    }

    #[test]
    fn so_many_are_so_many() {
        let warmed = run(Requests::Exactly(3), 1, |_| micros(100));
        assert_eq!((warmed.requests, warmed.times), (3, None));
        let now = Instant::now();
        let pace = Pace::new(Requests::Exactly(0), 1, now, now + HOUR);
        assert!(!pace.goes_on(now) && pace.warmed().is_none());
    }
}
