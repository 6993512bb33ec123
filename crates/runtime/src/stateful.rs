//! The one sandbox of a tenant that keeps its state between exchanges.
//!
//! Exchanges come from all reactors and hold the sandbox one after the other, in the order in
//! which they came. This is the one place where reactors meet on the way of a request, which is
//! what such a tenant asks for.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use crate::{pool::Clean, slot::Slot, version::Version};

/// The sandbox and the line before it.
#[derive(Default)]
pub(crate) struct Stateful {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Not made yet, lost, or with its holder, if `None`; with the version that it runs.
    sandbox: Option<(Clean, Arc<Version>)>,
    holder: Option<u64>,
    next_ticket: u64,
    line: VecDeque<(u64, Waker)>,
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
    Waiting(HoldTicket),
    Full,
}

impl Stateful {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Gives the sandbox to the next in line; wake it without the lock.
    #[must_use]
    fn hand_on(&mut self) -> Option<Waker> {
        let next = self.line.pop_front();
        self.holder = next.as_ref().map(|(ticket, _)| *ticket);
        next.map(|(_, waker)| waker)
    }
}

impl Hold {
    /// Takes the right to the tenant's sandbox, or one of `queue` places in the line.
    pub(crate) fn enter(slot: &Arc<Slot>, queue: u32) -> Entry {
        let mut inner = slot.stateful.inner();
        let ticket = inner.next_ticket;
        inner.next_ticket += 1;
        if inner.holder.is_none() {
            inner.holder = Some(ticket);
            Entry::Held(Self { slot: slot.clone() })
        } else if inner.line.len() < queue as usize {
            inner.line.push_back((ticket, Waker::noop().clone()));
            Entry::Waiting(HoldTicket { slot: slot.clone(), ticket: Some(ticket) })
        } else {
            Entry::Full
        }
    }

    /// The version that serves. It does not change while there is a holder, except to nothing.
    pub(crate) fn version(&self) -> Option<Arc<Version>> {
        self.slot.version()
    }

    pub(crate) fn take(&self) -> Option<(Clean, Arc<Version>)> {
        self.slot.stateful.inner().sandbox.take()
    }

    /// Leaves the sandbox for the next holder.
    pub(crate) fn put(&self, clean: Clean, version: Arc<Version>) {
        self.slot.stateful.inner().sandbox = Some((clean, version));
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
        if let Some((_, waker)) = inner.line.iter_mut().find(|(other, _)| *other == ticket) {
            waker.clone_from(cx.waker());
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
            inner.line.retain(|(other, _)| *other != ticket);
            None
        };
        drop(inner);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
