//! Which resets are verified: whether a sandbox that was reset is what its snapshot is.
//!
//! A reactor that samples looks at one reset now and then, and never spends more than a thousandth of
//! its time on that: the longer a look took, the later the next one. Which reset it is that comes
//! next then is nobody's choice, so a tenant is looked at as often as it has requests.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use sandtide_engine::Scrutiny;

/// Which resets are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VerifyResets {
    /// None.
    Never,
    /// Some, in a part: at the cost of a thousandth of the time at most.
    #[default]
    Sampled,
    /// All, in every part: for tests, and for looking for an error.
    Always,
}

/// The time between two looks, in times of what the first took.
const REST: u32 = 1000;

/// The decision on one reactor.
#[derive(Debug)]
pub(crate) struct Verification {
    mode: VerifyResets,
    is_due: Cell<bool>,
    /// No look before that.
    next: Cell<Option<Instant>>,
}

impl Verification {
    pub(crate) fn new(mode: VerifyResets) -> Self {
        Self { mode, is_due: Cell::new(false), next: Cell::new(None) }
    }

    /// How much to look at after this reset, if at all.
    pub(crate) fn take(&self) -> Option<Scrutiny> {
        match self.mode {
            VerifyResets::Never => None,
            VerifyResets::Sampled => self.is_due.take().then_some(Scrutiny::Sample),
            VerifyResets::Always => Some(Scrutiny::Everything),
        }
    }

    /// A look has come to its end.
    pub(crate) fn spent(&self, now: Instant, took: Duration) {
        self.next.set(now.checked_add(took.saturating_mul(REST)));
    }

    /// What is due now and then.
    pub(crate) fn tick(&self, now: Instant) {
        if self.next.get().is_none_or(|next| next <= now) {
            self.is_due.set(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_costs_a_thousandth_of_the_time() {
        let sampled = Verification::new(VerifyResets::Sampled);
        let start = Instant::now();
        assert_eq!(sampled.take(), None);
        sampled.tick(start);
        assert_eq!(sampled.take(), Some(Scrutiny::Sample));
        assert_eq!(sampled.take(), None, "one a tick");
        sampled.spent(start, Duration::from_millis(3));
        sampled.tick(start + Duration::from_millis(2999));
        assert_eq!(sampled.take(), None);
        sampled.tick(start + Duration::from_millis(3000));
        assert_eq!(sampled.take(), Some(Scrutiny::Sample));
    }

    #[test]
    fn never_and_always_are_what_they_say() {
        for (mode, expected) in
            [(VerifyResets::Never, None), (VerifyResets::Always, Some(Scrutiny::Everything))]
        {
            let verification = Verification::new(mode);
            assert_eq!(verification.take(), expected);
            verification.tick(Instant::now());
            assert_eq!(verification.take(), expected);
        }
    }
}
