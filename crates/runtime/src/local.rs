//! A tenant on one reactor: its sandboxes, its share of the concurrency limit, and who waits for it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    counters::Counters,
    desk::{Closed, Desk},
    lane::Lane,
    place::Place,
    pool::Pool,
    slot::Failure,
    stateful::{Entry, Hold, HoldTicket},
    tenant::{Answer, Tenant},
    version::{Verdict, Version},
    waiting::Awaited,
};

pub(crate) struct Local {
    pub(crate) tenant: Arc<Tenant>,
    /// Its name, for records: counting references to it is no business of other reactors.
    pub(crate) name: Rc<str>,
    pub(crate) counters: Arc<Counters>,
    /// `None` for tenants without a program.
    desk: Option<Desk>,
    /// Its lane in the turnstile.
    pub(crate) lane: Rc<Lane>,
    share: u32,
    in_use: Cell<u32>,
    /// Exchanges that wait for the program to be loaded.
    loading: Cell<u32>,
    queue: RefCell<VecDeque<Rc<Place>>>,
}

/// Where a sandbox comes from and goes back to; with the right to use it.
pub(crate) enum Home {
    Pool(Permit),
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

/// A place among those who wait for the program. Dropping it leaves it.
pub(crate) struct ProgramTicket {
    local: Rc<Local>,
    awaited: Awaited,
}

/// What came of asking for the program.
pub(crate) enum Awaiting {
    Program(ProgramTicket),
    /// It cannot be had for now.
    Failed(Failure),
    Full,
}

/// What came of asking for admission.
pub(crate) enum Admitted {
    Now(Home),
    Waiting(Ticket),
    Full,
}

impl Local {
    /// The tenant on reactor `index` of `reactors`.
    pub(crate) fn new(
        tenant: Arc<Tenant>,
        counters: Arc<Counters>,
        index: usize,
        reactors: usize,
    ) -> Self {
        let share = share_of(tenant.admission.concurrency, index, reactors);
        let desk = match &tenant.answer {
            Answer::Program(slot) => Some(Desk::new(slot.clone(), tenant.admission.idle_sandboxes)),
            Answer::Fixed(_) => None,
        };
        let lane = Rc::new(Lane::new(tenant.admission.weight));
        Self {
            name: Rc::from(&*tenant.name),
            tenant,
            counters,
            desk,
            lane,
            share,
            in_use: Cell::new(0),
            loading: Cell::new(0),
            queue: RefCell::default(),
        }
    }

    /// The pool of the version that serves now, if one does.
    pub(crate) fn pool(&self) -> Option<Rc<Pool>> {
        self.desk.as_ref().and_then(Desk::pool)
    }

    /// What becomes of an exchange for which there is no pool.
    #[cold]
    pub(crate) fn await_program(self: &Rc<Self>) -> Awaiting {
        let Some(desk) = &self.desk else { return Awaiting::Full };
        if let Closed::Failed(failure) = desk.closed() {
            return Awaiting::Failed(failure);
        }
        // As many as can be served or wait once it is loaded.
        let room = self.share.saturating_add(self.tenant.admission.queue);
        if self.loading.get() >= room {
            return Awaiting::Full;
        }
        self.loading.set(self.loading.get() + 1);
        let awaited = Awaited::new(&desk.slot, desk.generation());
        Awaiting::Program(ProgramTicket { local: self.clone(), awaited })
    }

    pub(crate) fn admit(self: &Rc<Self>) -> Admitted {
        if let (false, Some(desk)) = (self.tenant.ephemeral, &self.desk) {
            return match Hold::enter(&desk.slot, self.tenant.admission.queue) {
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

    /// Counts an exchange of a version on probation. When that has failed, the version before it
    /// is back.
    #[cold]
    pub(crate) fn judge(&self, version: &Arc<Version>, faulted: bool) {
        if let (Verdict::Failed, Some(desk)) = (version.judge(faulted), &self.desk) {
            desk.slot.roll_back(version);
        }
    }

    /// Idle sandboxes, and those in use.
    pub(crate) fn sandboxes(&self) -> (usize, usize) {
        (self.desk.as_ref().map_or(0, Desk::idle), self.in_use.get() as usize)
    }

    /// What is due now and then.
    pub(crate) fn tick(&self) {
        self.tenant.log.settle();
        if let Some(desk) = &self.desk {
            desk.tidy(self.in_use.get() > 0);
            self.counters.idle.set(desk.idle() as u64);
            self.counters.resident_bytes.set(desk.resident_bytes());
        }
        self.counters.busy.set(u64::from(self.in_use.get()));
        let waiting = self.queue.borrow().len() as u64 + u64::from(self.loading.get());
        self.counters.waiting.set(waiting);
    }
}

/// The share of reactor `index` in a limit for `reactors`: the shares sum up to the limit, except
/// that each reactor gets one at least.
fn share_of(limit: u32, index: usize, reactors: usize) -> u32 {
    let reactors = u32::try_from(reactors.max(1)).unwrap_or(u32::MAX);
    let has_remainder = (index as u64) < u64::from(limit % reactors);
    (limit / reactors + u32::from(has_remainder)).max(1)
}

impl Drop for Local {
    fn drop(&mut self) {
        let Counters { idle, busy, waiting, resident_bytes, .. } = &*self.counters;
        [idle, busy, waiting, resident_bytes].into_iter().for_each(|count| count.set(0));
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.local.hand_on();
    }
}

impl ProgramTicket {
    /// Ready when there is something to know about the program.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.awaited.poll(cx)
    }
}

impl Drop for ProgramTicket {
    fn drop(&mut self) {
        self.local.loading.set(self.local.loading.get() - 1);
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
