//! Who runs next when guests compute for longer than a slice.
//!
//! An exchange that has used up its slice stands in line here. Its host lets one through for each
//! turn of its event loop, for one slice, after which it stands in line again. So a request that
//! needs less than a slice waits at most about one slice per turn, however many guests spin; and
//! less than that when its input interrupts the slice.
//!
//! The line is fair between tenants first and between the exchanges of a tenant second: each
//! tenant has a lane, the lane goes first that has had the least computing time for its weight,
//! and a lane is first come, first served. While a tenant has a lane, or has had a slice more
//! than its share, its new exchanges start at the end of its lane instead of running at once;
//! otherwise many short exchanges could take a slice each in one turn.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{
    interrupts::{Doorbell, Interrupts},
    lane::Lane,
    place::Place,
};

/// How long exchanges may run for one turn of the event loop, if they need less than a slice.
const BATCH: Duration = Duration::from_micros(50);

/// So many exchanges may compute at a time before the tenants are held to their shares of that.
/// More of them would not get more done, but all would take longer.
const CROWD: u32 = 16;

/// The line of one reactor.
#[derive(Default)]
pub struct Turnstile {
    inner: RefCell<Inner>,
    interrupts: Interrupts,
    /// Exchanges that compute: in line, or let through.
    computing: Cell<u32>,
    /// The weights of their tenants, each once.
    weights: Cell<u64>,
    /// Counts the times at which somebody began to compute while nobody did.
    busy_time: Cell<u64>,
    /// How far the lanes have come that went first.
    virtual_time: Cell<u64>,
    /// What is left of the batch of this turn of the event loop.
    left: Cell<Duration>,
}

#[derive(Default)]
struct Inner {
    /// None is empty.
    lanes: Vec<Rc<Lane>>,
    /// The one whose exchange was interrupted, and goes on with its slice.
    next: Option<Rc<Lane>>,
    /// The one that was let through and has not run yet.
    released: Option<Rc<Place>>,
    host: Option<Waker>,
}

/// Where to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Last,
    /// Before all others: the slice was interrupted.
    First,
}

/// A place in the line. Dropping it leaves the line.
pub(crate) struct InLine {
    turnstile: Rc<Turnstile>,
    lane: Rc<Lane>,
    place: Rc<Place>,
}

/// An exchange that needs more than a slice, for as long as it does not wait for anything else.
pub(crate) struct Computing {
    turnstile: Rc<Turnstile>,
    lane: Rc<Lane>,
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

    /// Lets the next one through, if the last one has run. The host has just looked for input.
    pub fn release(&self) {
        self.interrupts.host_looked();
        self.left.set(BATCH);
        self.let_through();
    }

    fn let_through(&self) {
        let mut inner = self.inner.borrow_mut();
        if !inner.can_release() {
            return;
        }
        let next = inner.next.take().filter(|lane| !lane.is_empty());
        let Some(lane) = next.or_else(|| inner.first()) else { return };
        let Some(place) = lane.pop() else { return };
        self.virtual_time.set(self.virtual_time.get().max(lane.had()));
        inner.clean(&lane);
        inner.released = Some(place.clone());
        drop(inner);
        place.grant();
    }

    /// Sets what interrupts slices: whether input has arrived that the host has not looked at.
    /// Asked every few tens of microseconds while guests compute, so it must be quick, and may
    /// say so of the same input only once.
    pub fn set_doorbell(&self, doorbell: Doorbell) {
        self.interrupts.set_doorbell(doorbell);
    }

    /// Whether the slice that runs is to end.
    pub(crate) fn interrupts(&self, now: impl FnOnce() -> Instant) -> bool {
        self.interrupts.ask(now)
    }

    /// Whether anybody computes. Only then does it matter who has had how much.
    pub(crate) fn is_busy(&self) -> bool {
        self.computing.get() > 0
    }

    /// Whether a new exchange of the tenant may run at once.
    pub(crate) fn admits(&self, lane: &Lane, slice: Duration) -> bool {
        if !self.is_busy() {
            return true;
        }
        self.catch_up(lane);
        lane.is_empty() && lane.had() <= self.virtual_time.get().saturating_add(lane.cost(slice))
    }

    /// Whether one more exchange of the tenant may begin, beside `begun` that have not come as far
    /// as to compute.
    pub(crate) fn has_room(&self, lane: &Lane, begun: u32) -> bool {
        if self.computing.get() + begun < CROWD {
            return true;
        }
        let own = if lane.computing() == 0 { lane.weight() } else { 0 };
        let share = u64::from(CROWD) * lane.weight() / (self.weights.get() + own);
        u64::from(lane.computing() + begun) < share.max(1)
    }

    fn catch_up(&self, lane: &Lane) {
        lane.catch_up(self.busy_time.get(), self.virtual_time.get());
    }

    /// An exchange begins to compute.
    pub(crate) fn compute(self: &Rc<Self>, lane: &Rc<Lane>) -> Computing {
        if !self.is_busy() {
            self.busy_time.set(self.busy_time.get() + 1);
        }
        self.computing.set(self.computing.get() + 1);
        if lane.computing() == 0 {
            self.weights.set(self.weights.get() + lane.weight());
        }
        lane.set_computing(lane.computing() + 1);
        self.catch_up(lane);
        Computing { turnstile: self.clone(), lane: lane.clone() }
    }

    pub(crate) fn enter(self: &Rc<Self>, lane: &Rc<Lane>, entry: Entry) -> InLine {
        let place = Rc::new(Place::default());
        let mut inner = self.inner.borrow_mut();
        self.catch_up(lane);
        if lane.is_empty() {
            inner.lanes.push(lane.clone());
        }
        match entry {
            Entry::Last => lane.push_back(place.clone()),
            Entry::First => {
                lane.push_front(place.clone());
                inner.next = Some(lane.clone());
            }
        }
        let host = inner.waker_if_useful();
        drop(inner);
        if let Some(host) = host {
            host.wake();
        }
        InLine { turnstile: self.clone(), lane: lane.clone(), place }
    }

    fn leave(&self, lane: &Rc<Lane>, place: &Rc<Place>) {
        let mut inner = self.inner.borrow_mut();
        if inner.released.as_ref().is_some_and(|released| Rc::ptr_eq(released, place)) {
            inner.released = None;
        } else {
            lane.remove(place);
            inner.clean(lane);
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

    /// The lane that has had least; of several, the one that came first.
    fn first(&self) -> Option<Rc<Lane>> {
        self.lanes.iter().min_by_key(|lane| lane.had()).cloned()
    }

    /// Takes a lane out that is empty.
    fn clean(&mut self, lane: &Rc<Lane>) {
        if lane.is_empty() {
            self.lanes.retain(|other| !Rc::ptr_eq(other, lane));
        }
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
        self.turnstile.leave(&self.lane, &self.place);
    }
}

impl Computing {
    /// It was let through and runs from now on.
    pub(crate) fn begins(&self, now: Instant, slice: Duration) {
        self.turnstile.interrupts.slice_begins(now, slice);
    }

    /// It has run for this time, until now.
    pub(crate) fn ran(&self, time: Duration, now: Instant) {
        let turnstile = &self.turnstile;
        self.lane.charge(time);
        turnstile.interrupts.slice_ends(now);
        turnstile.left.set(turnstile.left.get().saturating_sub(time));
    }
}

impl Drop for Computing {
    /// It computes no more. If it was short, there is time for another one.
    fn drop(&mut self) {
        let turnstile = &self.turnstile;
        self.lane.set_computing(self.lane.computing() - 1);
        if self.lane.computing() == 0 {
            turnstile.weights.set(turnstile.weights.get() - self.lane.weight());
        }
        turnstile.computing.set(turnstile.computing.get() - 1);
        if !turnstile.is_busy() {
            turnstile.interrupts.rest();
        } else if !turnstile.left.get().is_zero() && !turnstile.interrupts.rang() {
            turnstile.let_through();
        }
    }
}

#[cfg(test)]
mod tests;
