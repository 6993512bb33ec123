//! A tenant on one reactor: its sandboxes, its share of the concurrency limit, and who waits for it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use sandtide_engine::Isolation;

use crate::{
    client::{SeatHold, Seated},
    counters::Counters,
    desk::{Closed, Desk},
    lane::Lane,
    place::Place,
    pool::Pool,
    queue::{Queue, Turned},
    slot::Failure,
    stateful::{Entry, Hold, HoldTicket},
    tenant::{Admission, Answer, Tenant},
    timers::Timers,
    turnstile::Turnstile,
    verification::Verification,
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
    /// Of these, exchanges that were let in from the queue and have not begun.
    let_in: Cell<u32>,
    /// Exchanges that wait for the program to be loaded.
    loading: Cell<u32>,
    queue: RefCell<Queue>,
    turnstile: Rc<Turnstile>,
    pub(crate) verification: Rc<Verification>,
    pub(crate) timers: Rc<dyn Timers>,
    /// Sandboxes that connections of clients hold.
    pub(crate) seated: Seated,
}

/// Where a sandbox comes from and goes back to; with the right to use it.
pub(crate) enum Home {
    Pool(Permit),
    Seat(Permit, SeatHold),
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
    /// Until then at the latest.
    Waiting(Ticket, Instant),
    Turned(Turned),
}

/// What a tenant on a reactor needs of it.
pub(crate) struct Around {
    pub(crate) turnstile: Rc<Turnstile>,
    pub(crate) verification: Rc<Verification>,
    pub(crate) timers: Rc<dyn Timers>,
    pub(crate) index: usize,
    pub(crate) reactors: usize,
}

impl Local {
    /// The tenant on one reactor.
    pub(crate) fn new(tenant: Arc<Tenant>, counters: Arc<Counters>, around: &Around) -> Self {
        let Around { turnstile, verification, timers, index, reactors } = around;
        let share = share_of(tenant.admission.concurrency, *index, *reactors);
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
            let_in: Cell::new(0),
            loading: Cell::new(0),
            queue: RefCell::default(),
            turnstile: turnstile.clone(),
            verification: verification.clone(),
            timers: timers.clone(),
            seated: Seated::default(),
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
        let Admission { queue, queue_time, .. } = self.tenant.admission;
        if let (Isolation::None, Some(desk)) = (self.tenant.isolation, &self.desk) {
            return match Hold::enter(&desk.slot, queue, queue_time) {
                Entry::Held(hold) => Admitted::Now(Home::Stateful(hold)),
                Entry::Waiting(ticket, time) => {
                    Admitted::Waiting(Ticket::Stateful(ticket), self.timers.now() + time)
                }
                Entry::Turned(turned) => Admitted::Turned(turned),
            };
        }
        if self.queue.borrow().is_empty() && self.has_room() {
            return self.enter();
        }
        // There may be room because of other tenants, which tell nobody.
        self.let_in();
        if self.queue.borrow().is_empty() && self.has_room() {
            return self.enter();
        }
        let joined = self.queue.borrow_mut().join(queue as usize, queue_time, self.timers.now());
        match joined {
            Ok((place, until)) => {
                let ticket = PermitTicket { local: self.clone(), place: Some(place) };
                Admitted::Waiting(Ticket::Pool(ticket), until)
            }
            Err(turned) => Admitted::Turned(turned),
        }
    }

    /// How many exchanges there may be at a time.
    pub(crate) fn share(&self) -> u32 {
        self.share
    }

    /// When who waits for the program from now on has waited for long enough.
    pub(crate) fn loaded_until(&self) -> Instant {
        self.timers.now() + self.tenant.limits.boot_time + self.tenant.admission.queue_time
    }

    fn enter(self: &Rc<Self>) -> Admitted {
        self.in_use.set(self.in_use.get() + 1);
        Admitted::Now(Home::Pool(Permit { local: self.clone() }))
    }

    /// Whether one more exchange may begin.
    fn has_room(&self) -> bool {
        self.in_use.get() < self.share && self.turnstile.has_room(&self.lane, self.let_in.get())
    }

    /// Lets those in who wait, as long as there is room.
    pub(crate) fn let_in(&self) {
        if self.queue.borrow().is_empty() {
            return;
        }
        let now = self.timers.now();
        while self.has_room() {
            let next = self.queue.borrow_mut().next(now);
            let Some(place) = next else { return };
            self.in_use.set(self.in_use.get() + 1);
            self.let_in.set(self.let_in.get() + 1);
            place.grant();
        }
    }

    /// An exchange has ended.
    fn let_go(&self) {
        self.in_use.set(self.in_use.get() - 1);
        self.let_in();
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
            let held = self.seated.len();
            desk.tidy(self.in_use.get() > 0 || held > 0);
            if held > 0 {
                self.seated.keep_of(desk.current().as_ref());
            }
            self.counters.held.set(self.seated.len() as u64);
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
        let Counters { idle, held, busy, waiting, resident_bytes, .. } = &*self.counters;
        [idle, held, busy, waiting, resident_bytes].into_iter().for_each(|count| count.set(0));
    }
}

impl Home {
    /// With the right to the sandbox of a client's connection, if there is one.
    pub(crate) fn seated(self, seat: Option<SeatHold>) -> Self {
        match (self, seat) {
            (Self::Pool(permit), Some(seat)) => Self::Seat(permit, seat),
            (home, _) => home,
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.local.let_go();
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
    /// Ready with nothing if it has waited too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Home>> {
        match self {
            Self::Pool(ticket) => {
                let Some(place) = &ticket.place else { return Poll::Pending };
                ready!(place.poll(cx));
                Poll::Ready(ticket.take().map(Home::Pool))
            }
            Self::Stateful(ticket) => ticket.poll(cx).map(|hold| Some(Home::Stateful(hold))),
        }
    }
}

impl PermitTicket {
    /// The permit, if it was granted. After that there is none to give back.
    fn take(&mut self) -> Option<Permit> {
        let place = self.place.take()?;
        let local = &self.local;
        if !place.is_granted() {
            local.queue.borrow_mut().leave(&place);
            return None;
        }
        local.let_in.set(local.let_in.get() - 1);
        Some(Permit { local: local.clone() })
    }
}

impl Drop for PermitTicket {
    fn drop(&mut self) {
        drop(self.take());
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
