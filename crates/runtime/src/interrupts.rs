//! Ending slices early, because something short waits for the thread.
//!
//! The engine asks while its guest computes, after the first chunk of each turn. What could
//! interrupt is input for any connection of the thread; nobody knows yet whose. So that a flood of
//! it does not take the thread from those who compute, a slice is safe until it has lasted as long
//! as the host took between the slice before and this one: half of the thread is left to them.

use std::{
    cell::{Cell, OnceCell},
    time::{Duration, Instant},
};

/// The host's answer to whether input has arrived that it has not looked at.
pub type Doorbell = Box<dyn Fn() -> bool>;

/// Below this, a slice is not kept safe: about the first chunk, which the engine does not
/// interrupt anyway.
const SHORT: Duration = Duration::from_micros(20);

#[derive(Default)]
pub(crate) struct Interrupts {
    doorbell: OnceCell<Doorbell>,
    /// Whether it rang since the host last looked for input.
    rang: Cell<bool>,
    /// When the last slice ended, if somebody stood in line ever since.
    ended: Cell<Option<Instant>>,
    /// Until when the slice is safe.
    safe_until: Cell<Option<Instant>>,
}

impl Interrupts {
    /// Sets what is asked. Only the first one counts.
    pub(crate) fn set_doorbell(&self, doorbell: Doorbell) {
        // A second one would be a mistake of the host that costs nothing.
        let _ = self.doorbell.set(doorbell);
    }

    pub(crate) fn slice_begins(&self, now: Instant, slice: Duration) {
        let host = self.ended.get().map_or(Duration::ZERO, |ended| now - ended);
        self.safe_until.set((host > SHORT).then(|| now + host.min(slice)));
    }

    pub(crate) fn slice_ends(&self, now: Instant) {
        self.safe_until.set(None);
        self.ended.set(Some(now));
    }

    /// Nobody stands in line any more.
    pub(crate) fn rest(&self) {
        self.ended.set(None);
    }

    /// The host has looked for input.
    pub(crate) fn host_looked(&self) {
        self.rang.set(false);
    }

    pub(crate) fn rang(&self) -> bool {
        self.rang.get()
    }

    /// Whether the slice is to end.
    pub(crate) fn ask(&self, now: impl FnOnce() -> Instant) -> bool {
        let Some(doorbell) = self.doorbell.get() else { return false };
        if self.safe_until.get().is_some_and(|until| now() < until) {
            return false;
        }
        let rings = self.rang.get() || doorbell();
        self.rang.set(rings);
        rings
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    const SLICE: Duration = Duration::from_millis(1);

    fn ringing() -> (Interrupts, Rc<Cell<bool>>) {
        let (interrupts, rings) = (Interrupts::default(), Rc::new(Cell::new(true)));
        let answer = rings.clone();
        interrupts.set_doorbell(Box::new(move || answer.replace(false)));
        (interrupts, rings)
    }

    #[test]
    fn it_rings_until_the_host_has_looked() {
        let (interrupts, rings) = ringing();
        let now = Instant::now();
        assert!(interrupts.ask(|| now) && interrupts.ask(|| now));
        interrupts.host_looked();
        assert!(!interrupts.ask(|| now));
        rings.set(true);
        assert!(interrupts.ask(|| now));
    }

    /// The host is busy for `host` between the slices, and it always rings.
    fn share_of_guests(host: Duration) -> f64 {
        let (interrupts, rings) = ringing();
        let chunk = Duration::from_micros(20);
        let start = Instant::now();
        let (mut now, mut guests) = (start, Duration::ZERO);
        while now - start < Duration::from_secs(1) {
            interrupts.host_looked();
            rings.set(true);
            interrupts.slice_begins(now, SLICE);
            let began = now;
            loop {
                now += chunk;
                if now - began >= SLICE || interrupts.ask(|| now) {
                    break;
                }
            }
            guests += now - began;
            interrupts.slice_ends(now);
            now += host;
        }
        guests.as_secs_f64() / (now - start).as_secs_f64()
    }

    #[test]
    fn a_storm_leaves_half_of_the_thread_to_those_who_compute() {
        for host in [1, 10, 30, 100, 500, 990].map(Duration::from_micros) {
            let share = share_of_guests(host);
            assert!(share > 0.49, "{share} while the host is busy for {host:?} at a time");
        }
    }
}
