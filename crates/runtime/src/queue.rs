//! Exchanges of a tenant on one reactor that wait for a sandbox.

use std::{
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{place::Place, pressure::Pressure, record::Refused};

/// First come, first served. Who has waited for too long is taken out when somebody looks, and not
/// only when its host polls it.
#[derive(Default)]
pub(crate) struct Queue {
    waiters: VecDeque<Waiter>,
    pressure: Pressure,
}

struct Waiter {
    place: Rc<Place>,
    came: Instant,
    until: Instant,
    /// How many were before it.
    ahead: usize,
}

/// Why one may not wait; with the wait that would help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turned {
    /// Too many wait.
    Full(Duration),
    /// It would wait too long.
    TooLong(Duration),
}

impl Turned {
    /// Why, the wait that would help, and a line for the log.
    pub(crate) fn explain(self) -> (Refused, Duration, &'static str) {
        match self {
            Self::Full(wait) => (Refused::QueueFull, wait, "too many exchanges wait"),
            Self::TooLong(wait) => (Refused::QueueTime, wait, "would wait too long for a sandbox"),
        }
    }
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Joins those who wait, of which there are `limit` at most, for `longest` at most. With the
    /// place comes the time until which it is kept.
    pub(crate) fn join(
        &mut self,
        limit: usize,
        longest: Duration,
        now: Instant,
    ) -> Result<(Rc<Place>, Instant), Turned> {
        if self.waiters.len() >= limit {
            self.remove_late(now);
        }
        let ahead = self.waiters.len();
        if ahead >= limit {
            return Err(Turned::Full(self.pressure.wait(ahead).max(longest)));
        }
        let until = self.pressure.admit(ahead, longest, now).map_err(Turned::TooLong)?;
        let place = Rc::new(Place::default());
        self.waiters.push_back(Waiter { place: place.clone(), came: now, until, ahead });
        Ok((place, until))
    }

    /// The next one that is not too late.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Rc<Place>> {
        while let Some(waiter) = self.waiters.pop_front() {
            self.pressure.waited(now.saturating_duration_since(waiter.came), waiter.ahead);
            if waiter.until > now {
                return Some(waiter.place);
            }
            waiter.place.expire();
        }
        None
    }

    fn remove_late(&mut self, now: Instant) {
        let pressure = &mut self.pressure;
        self.waiters.retain(|waiter| {
            let is_late = waiter.until <= now;
            if is_late {
                pressure.waited(now.saturating_duration_since(waiter.came), waiter.ahead);
                waiter.place.expire();
            }
            !is_late
        });
    }

    pub(crate) fn leave(&mut self, place: &Rc<Place>) {
        self.waiters.retain(|waiter| !Rc::ptr_eq(&waiter.place, place));
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    fn has_expired(place: &Place) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        place.poll(cx).is_ready() && !place.is_granted()
    }

    #[test]
    fn who_is_too_late_makes_room_without_being_polled() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (late, until) = queue.join(1, LONGEST, now).unwrap();
        assert_eq!(until, now + LONGEST);
        assert!(matches!(queue.join(1, LONGEST, now), Err(Turned::Full(_))));
        let (next, _) = queue.join(1, LONGEST, until).unwrap();
        assert!(has_expired(&late));
        assert!(queue.next(until + LONGEST).is_none());
        assert!(has_expired(&next));
    }

    #[test]
    fn the_next_one_is_the_first_that_is_not_too_late() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (late, until) = queue.join(3, LONGEST, now).unwrap();
        let (left, _) = queue.join(3, LONGEST, now).unwrap();
        let (last, _) = queue.join(3, LONGEST * 2, now).unwrap();
        queue.leave(&left);
        let next = queue.next(until).unwrap();
        assert!(Rc::ptr_eq(&next, &last) && has_expired(&late));
        assert!(queue.is_empty());
    }

    /// Twice as many come as can be served: the queue stays short, nobody in it is too late, and
    /// whoever serves it never waits.
    #[test]
    fn under_overload_the_wait_stays_short_and_nothing_is_idle() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        let service = Duration::from_millis(2);
        let (mut served, mut late, mut longest) = (0, 0, Duration::ZERO);
        for tick in 0..10_000u32 {
            let now = start + tick * service / 2;
            // Who comes, and who is turned away.
            let _ = queue.join(1024, LONGEST, now);
            if tick % 2 == 1 {
                let came = queue.waiters.front().map(|waiter| waiter.came);
                match queue.next(now) {
                    Some(_) => served += 1,
                    None => late += 1,
                }
                if tick > 2000 {
                    longest = longest.max(came.map_or(Duration::ZERO, |came| now - came));
                }
            }
        }
        assert!(served >= 4990 && late <= 10, "{served} served, {late} times idle");
        assert!(longest <= Duration::from_millis(100), "{longest:?}");
    }
}
