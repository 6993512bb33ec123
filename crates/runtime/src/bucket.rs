//! A token bucket.

use std::time::{Duration, Instant};

/// Lets through `rate` units a second, and what was saved up for `burst` at most.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    capacity: f64,
    level: f64,
    filled: Instant,
}

impl Bucket {
    pub(crate) fn new(rate: u32, burst: Duration, now: Instant) -> Self {
        let rate = f64::from(rate);
        let capacity = (rate * burst.as_secs_f64()).max(1.0);
        Self { rate, capacity, level: capacity, filled: now }
    }

    /// Whether `amount` may pass now. More than the capacity passes when the bucket is full.
    pub(crate) fn allows(&mut self, amount: f64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled);
        self.level = (self.level + self.rate * elapsed.as_secs_f64()).min(self.capacity);
        self.filled = now;
        self.level >= amount.min(self.capacity)
    }

    /// Takes what was allowed.
    pub(crate) fn take(&mut self, amount: f64) {
        self.level -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_the_rate_over_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, Duration::from_secs(2), start);
        let mut passed = 0;
        for ms in 0..10_000 {
            if bucket.allows(1.0, start + Duration::from_millis(ms)) {
                bucket.take(1.0);
                passed += 1;
            }
        }
        assert!((118..=120).contains(&passed), "20 saved up and 10 a second, not {passed}");
    }

    #[test]
    fn a_unit_over_the_capacity_passes_once_and_is_paid_back() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, Duration::from_secs(1), start);
        assert!(bucket.allows(100.0, start));
        bucket.take(100.0);
        assert!(!bucket.allows(1.0, start + Duration::from_secs(9)));
        assert!(bucket.allows(1.0, start + Duration::from_secs(10)));
    }
}
