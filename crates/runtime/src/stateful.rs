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

use crate::{pool::Clean, tenant::Tenant};

/// The sandbox and the line before it.
#[derive(Default)]
pub(crate) struct Stateful {
    slot: Mutex<Slot>,
}

#[derive(Default)]
struct Slot {
    /// Not made yet, lost, or with its holder, if `None`.
    sandbox: Option<Clean>,
    holder: Option<u64>,
    next_ticket: u64,
    line: VecDeque<(u64, Waker)>,
}

/// The sole right to the sandbox. Dropping it hands it on.
pub(crate) struct Hold {
    tenant: Arc<Tenant>,
}

/// A place in the line. Dropping it leaves the line.
pub(crate) struct HoldTicket {
    tenant: Arc<Tenant>,
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
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Gives the sandbox to the next in line; wake it without the lock.
    #[must_use]
    fn hand_on(&mut self) -> Option<Waker> {
        let next = self.line.pop_front();
        self.holder = next.as_ref().map(|(ticket, _)| *ticket);
        next.map(|(_, waker)| waker)
    }
}

impl Hold {
    /// Takes the right to the tenant's sandbox, or a place in the line.
    pub(crate) fn enter(tenant: &Arc<Tenant>) -> Entry {
        let mut slot = tenant.stateful.slot();
        let ticket = slot.next_ticket;
        slot.next_ticket += 1;
        if slot.holder.is_none() {
            slot.holder = Some(ticket);
            Entry::Held(Self { tenant: tenant.clone() })
        } else if slot.line.len() < tenant.admission.queue as usize {
            slot.line.push_back((ticket, Waker::noop().clone()));
            Entry::Waiting(HoldTicket { tenant: tenant.clone(), ticket: Some(ticket) })
        } else {
            Entry::Full
        }
    }

    pub(crate) fn take(&self) -> Option<Clean> {
        self.tenant.stateful.slot().sandbox.take()
    }

    /// Leaves the sandbox for the next holder.
    pub(crate) fn put(&self, clean: Clean) {
        self.tenant.stateful.slot().sandbox = Some(clean);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let next = self.tenant.stateful.slot().hand_on();
        if let Some(waker) = next {
            waker.wake();
        }
    }
}

impl HoldTicket {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Hold> {
        let Some(ticket) = self.ticket else { return Poll::Pending };
        let mut slot = self.tenant.stateful.slot();
        if slot.holder == Some(ticket) {
            self.ticket = None;
            return Poll::Ready(Hold { tenant: self.tenant.clone() });
        }
        if let Some((_, waker)) = slot.line.iter_mut().find(|(other, _)| *other == ticket) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for HoldTicket {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut slot = self.tenant.stateful.slot();
        let next = if slot.holder == Some(ticket) {
            slot.hand_on()
        } else {
            slot.line.retain(|(other, _)| *other != ticket);
            None
        };
        drop(slot);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
