//! Who runs next when guests compute for longer than a slice.
//!
//! An exchange that has used up its slice stands in line here. Its host lets one through for each
//! turn of its event loop, for one slice, after which it stands in line again. So a request that
//! needs less than a slice waits at most about one slice per turn, however many guests spin.
//!
//! The line is fair between tenants first and between the exchanges of a tenant second: each
//! tenant has a lane, the lanes take turns, a lane is first come, first served. While a tenant has
//! a lane, its new exchanges start at the end of it instead of running at once; otherwise many
//! short exchanges could take a slice each in one turn.

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use crate::place::Place;

/// The line of one reactor.
#[derive(Default)]
pub struct Turnstile {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// None is empty.
    lanes: VecDeque<Lane>,
    /// The one that was let through and has not run yet.
    released: Option<Rc<Place>>,
    host: Option<Waker>,
}

struct Lane {
    key: usize,
    places: VecDeque<Rc<Place>>,
}

/// A place in the line. Dropping it leaves the line.
pub(crate) struct InLine {
    turnstile: Rc<Turnstile>,
    place: Rc<Place>,
}

impl Turnstile {
    /// Waits until an exchange can be let through.
    ///
    /// The host's part, once for each reactor:
    ///
    /// ```text
    /// loop { turnstile.queued().await; let the event loop turn once; turnstile.release(); }
    /// ```
    ///
    /// A host polls what was woken: the next exchange is let through only after the last one ran.
    pub async fn queued(&self) {
        poll_fn(|cx| self.poll_queued(cx)).await;
    }

    fn poll_queued(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.borrow_mut();
        if inner.can_release() {
            return Poll::Ready(());
        }
        inner.host = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Lets the next one through, if the last one has run.
    pub fn release(&self) {
        let place = {
            let mut inner = self.inner.borrow_mut();
            if !inner.can_release() {
                return;
            }
            let Some(mut lane) = inner.lanes.pop_front() else { return };
            let place = lane.places.pop_front();
            if !lane.places.is_empty() {
                inner.lanes.push_back(lane);
            }
            inner.released = place.clone();
            place
        };
        if let Some(place) = place {
            place.grant();
        }
    }

    /// Whether exchanges of this tenant stand in line.
    pub(crate) fn has_lane(&self, key: usize) -> bool {
        self.inner.borrow().lanes.iter().any(|lane| lane.key == key)
    }

    pub(crate) fn enter(self: &Rc<Self>, key: usize) -> InLine {
        let place = Rc::new(Place::default());
        let mut inner = self.inner.borrow_mut();
        match inner.lanes.iter_mut().find(|lane| lane.key == key) {
            Some(lane) => lane.places.push_back(place.clone()),
            None => {
                inner.lanes.push_back(Lane { key, places: VecDeque::from([place.clone()]) });
            }
        }
        let host = inner.waker_if_useful();
        drop(inner);
        if let Some(host) = host {
            host.wake();
        }
        InLine { turnstile: self.clone(), place }
    }

    fn leave(&self, place: &Rc<Place>) {
        let mut inner = self.inner.borrow_mut();
        if inner.released.as_ref().is_some_and(|released| Rc::ptr_eq(released, place)) {
            inner.released = None;
        } else {
            inner.lanes.retain_mut(|lane| {
                lane.places.retain(|other| !Rc::ptr_eq(other, place));
                !lane.places.is_empty()
            });
        }
        let host = inner.waker_if_useful();
        drop(inner);
        if let Some(host) = host {
            host.wake();
        }
    }
}

impl Inner {
    fn can_release(&self) -> bool {
        self.released.is_none() && !self.lanes.is_empty()
    }

    fn waker_if_useful(&mut self) -> Option<Waker> {
        if self.can_release() { self.host.take() } else { None }
    }
}

impl InLine {
    /// Ready when it may run. Then drop it, which lets the next one follow.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.place.poll(cx)
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.turnstile.leave(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_let_through(place: &InLine) -> bool {
        place.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn tenants_take_turns_and_a_lane_is_first_come_first_served() {
        let line = Rc::new(Turnstile::default());
        let mut waiting: Vec<_> =
            [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (1, "a4"), (2, "b2")]
                .map(|(key, name)| (name, line.enter(key)))
                .into();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            line.release();
            line.release();
            let through: Vec<_> =
                (0..waiting.len()).filter(|&i| is_let_through(&waiting[i].1)).collect();
            assert_eq!(through.len(), 1, "one at a time");
            order.push(waiting.remove(through[0]).0);
        }
        assert_eq!(order, ["a1", "b1", "a2", "b2", "a3", "a4"]);
        assert!(!line.has_lane(1) && !line.has_lane(2));
    }

    #[test]
    fn who_leaves_holds_nobody_up() {
        let line = Rc::new(Turnstile::default());
        let (a, b, c) = (line.enter(1), line.enter(1), line.enter(1));
        line.release();
        assert!(is_let_through(&a));
        drop(b);
        drop(a);
        line.release();
        assert!(is_let_through(&c));
    }

    #[test]
    fn the_host_is_woken_when_there_is_something_to_release() {
        let line = Rc::new(Turnstile::default());
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(line.poll_queued(cx).is_pending());
        let a = line.enter(1);
        assert!(line.inner.borrow().host.is_none(), "was woken");
        assert!(line.poll_queued(cx).is_ready());
        line.release();
        let _b = line.enter(1);
        assert!(line.poll_queued(cx).is_pending(), "`a` has not run yet");
        drop(a);
        assert!(line.inner.borrow().host.is_none(), "was woken");
        assert!(line.poll_queued(cx).is_ready());
    }
}
