//! The one sandbox of a tenant that keeps its state between exchanges.
//!
//! Exchanges come from all reactors and hold the sandbox one after the other, in the order in
//! which they came. This is the one place where reactors meet on the way of a request, which is
//! what such a tenant asks for.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{pool::Clean, pressure::Pressure, queue::Turned, slot::Slot, version::Version};

/// The sandbox and the line before it.
#[derive(Default)]
pub(crate) struct Stateful {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Not made yet, lost, or with its holder, if `None`; with the version that it runs.
    sandbox: Option<(Clean, Arc<Version>)>,
    /// Of the version before, as it was when its state was handed over.
    kept: Option<(Clean, Arc<Version>)>,
    holder: Option<u64>,
    next_ticket: u64,
    line: VecDeque<Waiter>,
    pressure: Pressure,
}

struct Waiter {
    ticket: u64,
    waker: Waker,
    came: Instant,
    /// How many were before it.
    ahead: usize,
    /// `None` for as long as it takes.
    until: Option<Instant>,
}

/// The sole right to the sandbox. Dropping it hands it on.
pub(crate) struct Hold {
    slot: Arc<Slot>,
}

/// A place in the line. Dropping it leaves the line.
pub(crate) struct HoldTicket {
    slot: Arc<Slot>,
    /// `None` once the hold was taken.
    ticket: Option<u64>,
}

/// What came of asking for the sandbox.
pub(crate) enum Entry {
    Held(Hold),
    /// For so long at most.
    Waiting(HoldTicket, Duration),
    Turned(Turned),
}

impl Stateful {
    /// Whether nobody has state in it or waits for it.
    pub(crate) fn is_free(&self) -> bool {
        let inner = self.inner();
        inner.sandbox.is_none() && inner.holder.is_none()
    }

    /// How many wait.
    pub(crate) fn in_line(&self) -> usize {
        self.inner().line.len()
    }

    /// Takes back the sandbox of the version before. Whoever calls this holds the other one.
    pub(crate) fn bring_back_kept(&self) {
        let mut inner = self.inner();
        if let Some(kept) = inner.kept.take() {
            inner.sandbox = Some(kept);
        }
    }

    /// The version that serves needs nothing to come back to.
    pub(crate) fn let_go_of_kept(&self) {
        let kept = self.inner().kept.take();
        retire(kept);
    }

    /// Forgets the state: its tenant keeps none any more.
    pub(crate) fn forget(&self) {
        let (sandbox, kept) = {
            let mut inner = self.inner();
            (inner.sandbox.take(), inner.kept.take())
        };
        retire(sandbox);
        retire(kept);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn retire(sandbox: Option<(Clean, Arc<Version>)>) {
    if let Some((clean, _)) = sandbox {
        clean.retire();
    }
}

impl Inner {
    /// Gives the sandbox to the next in line that is not too late; wake it without the lock.
    #[must_use]
    fn hand_on(&mut self) -> Option<Waker> {
        self.holder = None;
        let now = (!self.line.is_empty()).then(Instant::now)?;
        while let Some(next) = self.line.pop_front() {
            let Some(until) = next.until else {
                self.holder = Some(next.ticket);
                return Some(next.waker);
            };
            self.pressure.waited(now.saturating_duration_since(next.came), next.ahead);
            // Who is too late is about to be told so by its own timer.
            if until > now {
                self.holder = Some(next.ticket);
                return Some(next.waker);
            }
        }
        None
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

impl Waiter {
    fn new(ticket: u64, ahead: usize, now: Instant, until: Option<Instant>) -> Self {
        Self { ticket, waker: Waker::noop().clone(), came: now, ahead, until }
    }
}

impl Hold {
    /// Takes the right to the tenant's sandbox, or one of `queue` places in the line, for
    /// `longest` at most.
    pub(crate) fn enter(slot: &Arc<Slot>, queue: u32, longest: Duration) -> Entry {
        let mut inner = slot.stateful.inner();
        if inner.holder.is_none() {
            let ticket = inner.ticket();
            inner.holder = Some(ticket);
            return Entry::Held(Self { slot: slot.clone() });
        }
        let (ahead, now) = (inner.line.len(), Instant::now());
        if ahead >= queue as usize {
            return Entry::Turned(Turned::Full(inner.pressure.wait(ahead).max(longest)));
        }
        match inner.pressure.admit(ahead, longest, now) {
            Ok(until) => {
                let ticket = inner.ticket();
                inner.line.push_back(Waiter::new(ticket, ahead, now, Some(until)));
                let ticket = HoldTicket { slot: slot.clone(), ticket: Some(ticket) };
                Entry::Waiting(ticket, until - now)
            }
            Err(wait) => Entry::Turned(Turned::TooLong(wait)),
        }
    }

    /// Waits for the right to the sandbox before all who wait. For who replaces it.
    pub(crate) fn enter_first(slot: &Arc<Slot>) -> Entry {
        let mut inner = slot.stateful.inner();
        let ticket = inner.ticket();
        if inner.holder.is_none() {
            inner.holder = Some(ticket);
            return Entry::Held(Self { slot: slot.clone() });
        }
        inner.line.push_front(Waiter::new(ticket, 0, Instant::now(), None));
        Entry::Waiting(HoldTicket { slot: slot.clone(), ticket: Some(ticket) }, Duration::MAX)
    }

    /// Keeps the sandbox of the version before, should that come back.
    pub(crate) fn keep(&self, clean: Clean, version: Arc<Version>) {
        let before = self.slot.stateful.inner().kept.replace((clean, version));
        retire(before);
    }

    /// The version that serves. It does not change while there is a holder, except to nothing.
    pub(crate) fn version(&self) -> Option<Arc<Version>> {
        self.slot.version()
    }

    pub(crate) fn take(&self) -> Option<(Clean, Arc<Version>)> {
        self.slot.stateful.inner().sandbox.take()
    }

    /// Leaves the sandbox for the next holder, unless its version serves no more.
    pub(crate) fn put(&self, clean: Clean, version: Arc<Version>) {
        if self.version().is_none_or(|serves| Arc::ptr_eq(&serves, &version)) {
            self.slot.stateful.inner().sandbox = Some((clean, version));
        } else {
            clean.retire();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let next = self.slot.stateful.inner().hand_on();
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl HoldTicket {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Hold> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut inner = self.slot.stateful.inner();
        if inner.holder == Some(ticket) {
            self.ticket = None;
            return Poll::Ready(Hold { slot: self.slot.clone() });
        }
        if let Some(waiter) = inner.line.iter_mut().find(|waiter| waiter.ticket == ticket) {
            waiter.waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut inner = self.slot.stateful.inner();
        let next = if inner.holder == Some(ticket) {
            inner.hand_on()
        } else {
            inner.line.retain(|waiter| waiter.ticket != ticket);
            None
        };
        drop(inner);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
