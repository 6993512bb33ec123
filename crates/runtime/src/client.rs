//! What the connection of a client holds of tenants with `isolation = "connection"`: of each that it
//! has asked, a sandbox that keeps its state from one exchange to the next.
//!
//! ```text
//!   Client ──▶ Seat (one for a tenant) ─┬─ sandbox    between two exchanges
//!   a connection                        ├─ SeatHold   the exchange that has it
//!                                       └─ line       exchanges that are to have it next
//! ```
//!
//! A sandbox in a seat has run, and goes back to the pool by a reset only: when the connection ends,
//! when another version serves, or when more seats hold one than the tenant may have exchanges at a
//! time. Then the one that has been idle for longest is taken back, and its connection begins anew.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt,
    rc::{Rc, Weak},
    task::{Context, Poll, ready},
    time::Instant,
};

use crate::{
    lease::verified,
    local::Local,
    place::Place,
    pool::{Clean, Pool},
    queue::{Queue, Turned},
    report,
    tenant::Admission,
};

/// A client's connection, as far as sandboxes are concerned. A host makes one for each connection and
/// drops it when that has ended.
#[derive(Default)]
pub struct Client {
    seats: RefCell<Vec<Rc<Seat>>>,
}

/// A connection's place at a tenant.
pub(crate) struct Seat {
    local: Rc<Local>,
    sandbox: RefCell<Option<Held>>,
    /// An exchange has the sandbox, or is on its way to it.
    is_taken: Cell<bool>,
    is_closed: Cell<bool>,
    line: RefCell<Queue>,
}

/// A sandbox between two exchanges of a connection.
struct Held {
    clean: Clean,
    pool: Rc<Pool>,
    /// Of [`Seated`].
    number: u64,
}

/// The seats of a tenant that hold a sandbox, in the order in which they got it back.
#[derive(Default)]
pub(crate) struct Seated {
    seats: RefCell<BTreeMap<u64, Weak<Seat>>>,
    next: Cell<u64>,
}

/// The sole right to the sandbox of a seat. Dropping it hands it on.
pub(crate) struct SeatHold {
    seat: Rc<Seat>,
}

/// A place in the line of a seat. Dropping it leaves the line.
pub(crate) struct SeatTicket {
    seat: Rc<Seat>,
    /// `None` once the right was taken.
    place: Option<Rc<Place>>,
}

/// What came of asking for the sandbox of a connection.
pub(crate) enum Entered {
    Now(SeatHold),
    /// Until then at the latest.
    Waiting(SeatTicket, Instant),
    Turned(Turned),
}

impl Client {
    /// A connection that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for the connection's sandbox of a tenant.
    pub(crate) fn enter(&self, local: &Rc<Local>, now: Instant) -> Entered {
        let seat = self.seat(local);
        if !seat.is_taken.replace(true) {
            return Entered::Now(SeatHold { seat });
        }
        let Admission { queue, queue_time, .. } = local.tenant.admission;
        let joined = seat.line.borrow_mut().join(queue as usize, queue_time, now);
        match joined {
            Ok((place, until)) => Entered::Waiting(SeatTicket { seat, place: Some(place) }, until),
            Err(turned) => Entered::Turned(turned),
        }
    }

    fn seat(&self, local: &Rc<Local>) -> Rc<Seat> {
        let mut seats = self.seats.borrow_mut();
        if let Some(seat) = seats.iter().find(|seat| Rc::ptr_eq(&seat.local, local)) {
            return seat.clone();
        }
        // The tenant has had another entry in the configuration.
        seats.retain(|seat| {
            let is_old = seat.local.name == local.name;
            if is_old {
                seat.close();
            }
            !is_old
        });
        let seat = Rc::new(Seat {
            local: local.clone(),
            sandbox: RefCell::default(),
            is_taken: Cell::new(false),
            is_closed: Cell::new(false),
            line: RefCell::default(),
        });
        seats.push(seat.clone());
        seat
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("seats", &self.seats.borrow().len()).finish()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.seats.take().iter().for_each(|seat| seat.close());
    }
}

impl Seat {
    /// Its connection has ended, or its tenant is another one now.
    fn close(&self) {
        self.is_closed.set(true);
        self.let_go();
    }

    fn take(&self) -> Option<Held> {
        let held = self.sandbox.take()?;
        self.local.seated.seats.borrow_mut().remove(&held.number);
        Some(held)
    }

    /// Gives the sandbox back, if it holds one.
    fn let_go(&self) {
        let Some(Held { clean, pool, .. }) = self.take() else { return };
        let local = &*self.local;
        let clean = match (clean.begin().reset(), local.verification.take()) {
            (Ok(clean), None) => Some(clean),
            (Ok(clean), Some(scrutiny)) => verified(clean, scrutiny, local, None),
            (Err(error), _) => {
                local.counters.failed_resets.add(1);
                report::reset_failed(&local.tenant, None, &error);
                None
            }
        };
        if let Some(clean) = clean {
            pool.put(clean);
        }
    }
}

impl Seated {
    pub(crate) fn len(&self) -> usize {
        self.seats.borrow().len()
    }

    /// Lets go of those that have waited for longest, as long as there are more than so many.
    fn keep_to(&self, most: usize) {
        while self.len() > most {
            let oldest = self.seats.borrow_mut().pop_first();
            if let Some(seat) = oldest.and_then(|(_, seat)| seat.upgrade()) {
                seat.let_go();
            }
        }
    }

    /// Lets go of those whose sandbox is not of this pool.
    pub(crate) fn keep_of(&self, pool: Option<&Rc<Pool>>) {
        let all: Vec<_> = self.seats.borrow().values().filter_map(Weak::upgrade).collect();
        for seat in all {
            let is_of = |held: &Held| pool.is_some_and(|pool| Rc::ptr_eq(pool, &held.pool));
            let is_current = seat.sandbox.borrow().as_ref().is_some_and(is_of);
            if !is_current {
                seat.let_go();
            }
        }
    }
}

impl SeatHold {
    /// The sandbox that the exchange before has left, if it is of the version that serves.
    pub(crate) fn take(&self, pool: &Rc<Pool>) -> Option<Clean> {
        let is_current =
            self.seat.sandbox.borrow().as_ref().is_some_and(|held| Rc::ptr_eq(&held.pool, pool));
        if is_current {
            return self.seat.take().map(|held| held.clean);
        }
        self.seat.let_go();
        None
    }

    /// Whether there can be a next exchange.
    pub(crate) fn is_open(&self) -> bool {
        !self.seat.is_closed.get()
    }

    /// Leaves the sandbox for the next exchange of the connection.
    pub(crate) fn put(&self, clean: Clean, pool: Rc<Pool>) {
        let Seat { local, sandbox, .. } = &*self.seat;
        let number = local.seated.next.get();
        local.seated.next.set(number + 1);
        sandbox.replace(Some(Held { clean, pool, number }));
        local.seated.seats.borrow_mut().insert(number, Rc::downgrade(&self.seat));
        local.seated.keep_to(local.share() as usize);
    }
}

impl Drop for SeatHold {
    fn drop(&mut self) {
        let seat = &self.seat;
        let next = seat.line.borrow_mut().next(seat.local.timers.now());
        match next {
            Some(place) => place.grant(),
            None => seat.is_taken.set(false),
        }
    }
}

impl SeatTicket {
    /// Ready with nothing if it has waited too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<SeatHold>> {
        let Some(place) = &self.place else { return Poll::Pending };
        ready!(place.poll(cx));
        Poll::Ready(self.take())
    }

    /// The right, if it was granted. After that there is none to give back.
    fn take(&mut self) -> Option<SeatHold> {
        let place = self.place.take()?;
        if place.is_granted() {
            return Some(SeatHold { seat: self.seat.clone() });
        }
        self.seat.line.borrow_mut().leave(&place);
        None
    }
}

impl Drop for SeatTicket {
    fn drop(&mut self) {
        drop(self.take());
    }
}
