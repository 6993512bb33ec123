//! A tenant on one reactor: its pool, its share of the concurrency limit, and who waits for it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    place::Place,
    pool::Pool,
    stateful::{Entry, Hold, HoldTicket},
    tenant::Tenant,
};

pub(crate) struct Local {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) pool: Pool,
    share: u32,
    in_use: Cell<u32>,
    queue: RefCell<VecDeque<Rc<Place>>>,
}

/// Where a sandbox comes from and goes back to; with the right to use it.
pub(crate) enum Home {
    Pool(#[expect(dead_code, reason = "held for its drop")] Permit),
    Stateful(Hold),
}

/// The right to one of the tenant's sandboxes on this reactor. Dropping it hands it on.
pub(crate) struct Permit {
    local: Rc<Local>,
}

/// A place in the line for a [`Home`]. Dropping it leaves the line.
pub(crate) enum Ticket {
    Pool(PermitTicket),
    Stateful(HoldTicket),
}

pub(crate) struct PermitTicket {
    local: Rc<Local>,
    /// `None` once the permit was taken.
    place: Option<Rc<Place>>,
}

/// What came of asking for admission.
pub(crate) enum Admitted {
    Now(Home),
    Waiting(Ticket),
    Full,
}

impl Local {
    /// The tenant on reactor `index` of `reactors`.
    pub(crate) fn new(tenant: Arc<Tenant>, index: usize, reactors: usize) -> Self {
        let share = share_of(tenant.admission.concurrency, index, reactors);
        Self {
            tenant,
            pool: Pool::default(),
            share,
            in_use: Cell::new(0),
            queue: RefCell::default(),
        }
    }

    pub(crate) fn admit(self: &Rc<Self>) -> Admitted {
        if !self.tenant.ephemeral {
            return match Hold::enter(&self.tenant) {
                Entry::Held(hold) => Admitted::Now(Home::Stateful(hold)),
                Entry::Waiting(ticket) => Admitted::Waiting(Ticket::Stateful(ticket)),
                Entry::Full => Admitted::Full,
            };
        }
        if self.in_use.get() < self.share {
            self.in_use.set(self.in_use.get() + 1);
            return Admitted::Now(Home::Pool(Permit { local: self.clone() }));
        }
        let mut queue = self.queue.borrow_mut();
        if queue.len() >= self.tenant.admission.queue as usize {
            return Admitted::Full;
        }
        let place = Rc::new(Place::default());
        queue.push_back(place.clone());
        let local = self.clone();
        Admitted::Waiting(Ticket::Pool(PermitTicket { local, place: Some(place) }))
    }

    /// A permit goes to the next in line, or back.
    fn hand_on(&self) {
        let next = self.queue.borrow_mut().pop_front();
        match next {
            Some(place) => place.grant(),
            None => self.in_use.set(self.in_use.get() - 1),
        }
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.get()
    }
}

/// The share of reactor `index` in a limit for `reactors`: the shares sum up to the limit, except
/// that each reactor gets one at least.
fn share_of(limit: u32, index: usize, reactors: usize) -> u32 {
    let reactors = u32::try_from(reactors.max(1)).unwrap_or(u32::MAX);
    let has_remainder = (index as u64) < u64::from(limit % reactors);
    (limit / reactors + u32::from(has_remainder)).max(1)
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.local.hand_on();
    }
}

impl Ticket {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Home> {
        match self {
            Self::Pool(ticket) => {
                let Some(place) = &ticket.place else { return Poll::Pending };
                ready!(place.poll(cx));
                ticket.place = None;
                Poll::Ready(Home::Pool(Permit { local: ticket.local.clone() }))
            }
            Self::Stateful(ticket) => ticket.poll(cx).map(Home::Stateful),
        }
    }
}

impl Drop for PermitTicket {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        if place.is_granted() {
            self.local.hand_on();
        } else {
            self.local.queue.borrow_mut().retain(|other| !Rc::ptr_eq(other, &place));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::share_of;

    proptest! {
        #[test]
        fn shares_sum_up_to_the_limit(limit in 0u32..2000, reactors in 1usize..200) {
            let sum: u32 = (0..reactors).map(|i| share_of(limit, i, reactors)).sum();
            prop_assert_eq!(sum, limit.max(reactors as u32));
        }
    }
}
