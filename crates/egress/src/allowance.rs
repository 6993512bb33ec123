//! How many connections a tenant has at a time.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

/// Counts what is taken and not given back.
#[derive(Debug)]
pub(crate) struct Allowance {
    taken: AtomicU32,
    limit: u32,
}

/// One of them; dropped, it is given back.
pub(crate) struct Taken(Arc<Allowance>);

impl Allowance {
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { taken: AtomicU32::new(0), limit })
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<Taken> {
        let more = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Taken(self.clone()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let allowance = Allowance::new(2);
        let (first, _second) = (allowance.take(), allowance.take());
        assert!(first.is_some() && allowance.take().is_none());
        drop(first);
        assert!(allowance.take().is_some());
    }
}
