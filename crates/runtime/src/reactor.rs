//! One thread's part of the runtime: where a request begins.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use arc_swap::{ArcSwap, Cache};
use http::{StatusCode, request::Parts};
use sandtide_engine::{
    EngineError, Exchange, ExchangeId, Incoming, Isolation, Outcome, Progress, Slice, SpawnError,
    Turn, Usage, authority_of,
};

use crate::{
    abandoned::Abandoned,
    client::{Client, Entered, SeatHold},
    counters::Totals,
    lease::{Fate, Lease},
    local::{Admitted, Around, Awaiting, Home, Local},
    log::EXCHANGE_TARGET,
    meters::{Meters, Vitals},
    pool::Pool,
    queue::Turned,
    record::{Ending, Record, Refused, RequestHead, Spent, Times},
    reply::{Begun, Refusal, Whole},
    report,
    serving::Serving,
    slot::Failure,
    table::Table,
    tenant::{Answer, Tenant},
    timers::Timers,
    turnstile::Turnstile,
    verification::{Verification, VerifyResets},
};

/// The runtime on one thread. It belongs to that thread: nothing in it is locked, and the request
/// path writes to no memory of other threads.
pub struct Reactor {
    view: RefCell<View>,
    turnstile: Rc<Turnstile>,
    verification: Rc<Verification>,
    pub(crate) abandoned: Abandoned,
    pub(crate) timers: Rc<dyn Timers>,
    index: usize,
    meters: Arc<Meters>,
    vitals: Arc<Vitals>,
    pub(crate) slice: Slice,
    /// Whether somebody wants records.
    records: bool,
    next_id: Cell<u64>,
}

/// What a reactor is made from, beside what all of them share.
pub(crate) struct Settings {
    pub(crate) index: usize,
    pub(crate) reactors: usize,
    pub(crate) first_id: ExchangeId,
    pub(crate) slice: Slice,
    pub(crate) records: bool,
    pub(crate) verify_resets: VerifyResets,
}

/// What became of an exchange that ran.
pub(crate) struct Concluded {
    /// `Err` if the guest's answer is not to be used.
    pub(crate) result: Result<(), Refusal>,
    pub(crate) record: Option<Box<Record>>,
}

/// The table as this reactor knows it, and what it has of each tenant.
struct View {
    cache: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    table: Arc<Table>,
    /// As many as there are tenants; those that had a request here.
    locals: Vec<Option<Rc<Local>>>,
    /// Their indices.
    made: Vec<usize>,
    meters: Arc<Meters>,
    /// Whose turn it is to be looked after.
    next_due: usize,
    around: Around,
}

/// So many tenants are looked after in each tick; more only if there are very many.
const LOOKED_AFTER: usize = 512;

impl Reactor {
    pub(crate) fn new(
        shared: Arc<ArcSwap<Table>>,
        meters: Arc<Meters>,
        settings: Settings,
        timers: Box<dyn Timers>,
    ) -> Self {
        let Settings { index, reactors, first_id, slice, records, verify_resets } = settings;
        let timers: Rc<dyn Timers> = Rc::from(timers);
        let turnstile: Rc<Turnstile> = Rc::default();
        let verification = Rc::new(Verification::new(verify_resets));
        let around = Around {
            turnstile: turnstile.clone(),
            verification: verification.clone(),
            timers: timers.clone(),
            index,
            reactors,
        };
        Self {
            view: RefCell::new(View::new(shared, meters.clone(), around)),
            turnstile,
            verification,
            abandoned: Abandoned::default(),
            timers,
            index,
            vitals: meters.vitals(index),
            meters,
            slice,
            records,
            next_id: Cell::new(first_id.0),
        }
    }

    /// Begins to answer a request: routes and admits it, and runs the guest for its first slice.
    ///
    /// `client` is the connection that it came by. `prepare` completes the request for a guest and makes its body, given the tenant's limit in
    /// bytes for that; it is not called for requests that no guest gets. What the guest waits for
    /// wakes `cx`, but a host may call this with a context that wakes nothing, if it polls the
    /// [`Serving`] right after.
    pub fn begin<B: Into<Incoming>>(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        client: &Client,
        mut request: Parts,
        prepare: impl FnOnce(&mut Parts, u64) -> B,
    ) -> Begun {
        let id = self.next_id();
        let local = {
            let mut view = self.view.borrow_mut();
            view.refresh();
            let Some(index) = view.find(&request) else {
                return self.refuse(id, None, request, Refused::NoTenant.into());
            };
            let local = view.local(index);
            if let Some(rate) = local.tenant.admission.rate
                && let Err(wait) = local.tenant.pace.take(rate, self.timers.now())
            {
                report::refused(&local.tenant, id, "too many requests a second");
                let refusal = Refusal::after(Refused::Rate, wait);
                return self.refuse(id, Some(local), request, refusal);
            }
            match &local.tenant.answer {
                Answer::Program(_) => {}
                Answer::Fixed(fixed) => {
                    local.counters.fixed.add(1);
                    local.counters.add_status(fixed.status);
                    let record = self.records.then(|| {
                        let (ending, status) = (Ending::Done, Some(fixed.status));
                        self.unserved(id, Some(local), request, ending, status)
                    });
                    return Begun::Whole(fixed.answer(record));
                }
            }
            local.clone()
        };
        let limits = &local.tenant.limits;
        let incoming = prepare(&mut request, limits.request_body).into();
        if incoming.body.known_length().is_some_and(|length| length > limits.request_body) {
            return self.refuse(id, Some(&local), request, Refused::RequestBody.into());
        }
        let exchange = Exchange::new(id, request, incoming, limits.response_body);
        let seat = match local.tenant.isolation {
            Isolation::Connection => match client.enter(&local, self.timers.now()) {
                Entered::Now(seat) => Some(seat),
                Entered::Waiting(ticket, until) => {
                    let serving = Serving::in_turn(self.clone(), local, exchange, ticket, until);
                    return Begun::Serving(Box::new(serving));
                }
                Entered::Turned(turned) => return self.turn_away(&local, exchange, turned),
            },
            Isolation::Request | Isolation::None => None,
        };
        let Some(pool) = local.pool() else { return self.await_program(local, exchange, seat) };
        match local.admit() {
            Admitted::Now(home) => self.first_slice(cx, local, pool, home.seated(seat), exchange),
            Admitted::Waiting(ticket, until) => Begun::Serving(Box::new(Serving::waiting(
                self.clone(),
                local,
                exchange,
                seat,
                (ticket, until),
            ))),
            Admitted::Turned(turned) => self.turn_away(&local, exchange, turned),
        }
    }

    #[cold]
    fn turn_away(&self, local: &Rc<Local>, exchange: Exchange, turned: Turned) -> Begun {
        let (why, wait, reason) = turned.explain();
        report::refused(&local.tenant, exchange.id, reason);
        self.refuse(exchange.id, Some(local), exchange.request, Refusal::after(why, wait))
    }

    fn queue_full(&self, local: &Local) -> Refusal {
        Refusal::after(Refused::QueueFull, local.tenant.admission.queue_time)
    }

    /// The program is not loaded.
    #[cold]
    fn await_program(
        self: &Rc<Self>,
        local: Rc<Local>,
        exchange: Exchange,
        seat: Option<SeatHold>,
    ) -> Begun {
        let id = exchange.id;
        match local.await_program() {
            Awaiting::Program(ticket) => Begun::Serving(Box::new(Serving::loading(
                self.clone(),
                local,
                exchange,
                seat,
                ticket,
            ))),
            Awaiting::Failed(failure) => {
                let refusal = self.unavailable(&local, id, &failure);
                self.refuse(id, Some(&local), exchange.request, refusal)
            }
            Awaiting::Full => {
                report::refused(&local.tenant, id, "too many exchanges wait for the program");
                self.refuse(id, Some(&local), exchange.request, self.queue_full(&local))
            }
        }
    }

    /// Why an exchange is turned away whose program could not be loaded.
    pub(crate) fn unavailable(&self, local: &Local, id: ExchangeId, failure: &Failure) -> Refusal {
        report::refused(&local.tenant, id, &failure.reason);
        let wait = failure.retry_at.saturating_duration_since(Instant::now());
        Refusal::after(Refused::Unavailable, wait)
    }

    /// The fast path: a guest that answers in its first slice is served without a [`Serving`].
    fn first_slice(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        local: Rc<Local>,
        pool: Rc<Pool>,
        home: Home,
        mut exchange: Exchange,
    ) -> Begun {
        let mut lease = match self.lease(&local, pool, home, &exchange) {
            Ok(lease) => lease,
            Err(refusal) => {
                let (ending, status) = (Ending::EngineFailure, Some(refusal.status()));
                let record = self.records.then(|| {
                    self.unserved(exchange.id, Some(&local), exchange.request, ending, status)
                });
                return Begun::Whole(refusal.answer(exchange.id, record));
            }
        };
        let started = self.timers.now();
        if !self.admits(&local) {
            let times = Times::beginning(started);
            let serving = Serving::behind(self.clone(), local, exchange, lease, times);
            return Begun::Serving(Box::new(serving));
        }
        let deadline = started + local.tenant.limits.wall_time;
        let mut turn = Turn {
            cx,
            exchange: &mut exchange,
            now: started,
            slice: self.slice,
            deadline,
            interrupt: &|| self.interrupts(),
        };
        let progress = lease.run(&mut turn);
        let cpu = self.timers.now() - started;
        let times = Times { ran: cpu, cpu, ..Times::beginning(started) };
        match progress {
            Progress::Ended(outcome) => {
                self.charge(&local, cpu);
                let ended = self.conclude(&local, &mut exchange, lease, outcome, times, true);
                if ended.result.is_ok() && exchange.response.has_interim() {
                    let serving = Serving::informed(self.clone(), local, exchange, times, ended);
                    return Begun::Serving(Box::new(serving));
                }
                Begun::Whole(ended.whole(&mut exchange, &local.tenant))
            }
            progress @ (Progress::Sliced | Progress::Waiting { .. }) => Begun::Serving(Box::new(
                Serving::begun(self.clone(), local, exchange, lease, times, progress),
            )),
        }
    }

    /// Takes a sandbox for an exchange that was admitted.
    pub(crate) fn lease(
        &self,
        local: &Local,
        pool: Rc<Pool>,
        home: Home,
        exchange: &Exchange,
    ) -> Result<Lease, Refusal> {
        Lease::take(local, pool, home).map_err(|SpawnError(error)| {
            local.counters.engine_failures.add(1);
            local.counters.add_status(Refusal::Failure.status());
            report::failure(&local.tenant, exchange, &error);
            Refusal::Failure
        })
    }

    /// Meters and logs an exchange that has ended, and gives its sandbox back. `has_client` says
    /// whether somebody waits for the answer.
    pub(crate) fn conclude(
        &self,
        local: &Local,
        exchange: &mut Exchange,
        lease: Lease,
        outcome: Outcome,
        times: Times,
        has_client: bool,
    ) -> Concluded {
        let counters = &*local.counters;
        let usage = lease.usage();
        let spent = times.spent(exchange, usage);
        counters.add_exchange(&spent);
        let outcome = match outcome {
            Outcome::Done if !exchange.response.is_finished() => {
                Outcome::Engine(EngineError::Invariant("done without a finished response"))
            }
            outcome => outcome,
        };
        let fate = Fate::from(&outcome);
        let (ending, result) = match outcome {
            Outcome::Done => {
                tracing::debug!(
                    target: EXCHANGE_TARGET,
                    tenant = %local.tenant.name,
                    request = %exchange.id,
                    instructions = usage.instructions,
                    pages_written = usage.pages_written,
                    calls = usage.calls,
                    exits = usage.exits,
                    "answered",
                );
                (Ending::Done, Ok(()))
            }
            Outcome::Fault(fault) => {
                counters.add_fault(&fault);
                report::fault(&local.tenant, exchange, &fault, &usage, times.ran);
                (Ending::Fault(fault.kind()), Err(Refusal::of_fault(&fault)))
            }
            Outcome::ClientGone => {
                counters.clients_gone.add(1);
                (Ending::ClientGone, Err(Refusal::BodyBroken))
            }
            Outcome::Engine(error) => {
                counters.engine_failures.add(1);
                if matches!(error, EngineError::Panic(_)) {
                    counters.panics.add(1);
                }
                report::failure(&local.tenant, exchange, &error);
                (Ending::EngineFailure, Err(Refusal::Failure))
            }
        };
        let status = match result {
            _ if exchange.response.is_head_taken() => exchange.response.status(),
            _ if !has_client => None,
            Ok(()) => exchange.response.status(),
            Err(refusal) => Some(refusal.status()),
        };
        if let Some(status) = status {
            counters.add_status(status);
        }
        if lease.is_on_probation() {
            let faulted = matches!(result, Err(refusal) if refusal.is_of_program());
            local.judge(lease.version(), faulted);
        }
        lease.settle(local, exchange, fate);
        let record = self.record(local, exchange, ending, status, times.began, spent);
        Concluded { result, record }
    }

    /// The record of an exchange, if records are wanted.
    pub(crate) fn record(
        &self,
        local: &Local,
        exchange: &mut Exchange,
        ending: Ending,
        status: Option<StatusCode>,
        began: Instant,
        spent: Spent,
    ) -> Option<Box<Record>> {
        self.records.then(|| {
            let request = RequestHead::take(&mut exchange.request);
            let tenant = Some(local.name.clone());
            Box::new(Record { id: exchange.id, tenant, request, ending, status, began, spent })
        })
    }

    /// The record of an exchange that goes on without its client, as far as it has come.
    #[cold]
    pub(crate) fn left(
        &self,
        local: &Local,
        exchange: &Exchange,
        ending: Ending,
        times: Times,
    ) -> Option<Box<Record>> {
        self.records.then(|| {
            Box::new(Record {
                id: exchange.id,
                tenant: Some(local.name.clone()),
                request: RequestHead::copy(&exchange.request),
                ending,
                status: exchange.response.status().filter(|_| exchange.response.is_head_taken()),
                began: times.began,
                spent: times.spent(exchange, Usage::default()),
            })
        })
    }

    /// The record of a request that reached no sandbox.
    #[cold]
    fn unserved(
        &self,
        id: ExchangeId,
        local: Option<&Rc<Local>>,
        mut request: Parts,
        ending: Ending,
        status: Option<StatusCode>,
    ) -> Box<Record> {
        let tenant = local.map(|local| local.name.clone());
        let request = RequestHead::take(&mut request);
        let (began, spent) = (self.timers.now(), Spent::default());
        Box::new(Record { id, tenant, request, ending, status, began, spent })
    }

    /// Answers a request that the host does not take for one, with a line in words for its client.
    #[cold]
    pub fn reject(&self, request: Parts, status: StatusCode, text: &'static str) -> Whole {
        let id = self.next_id();
        let why = Refused::BadRequest;
        self.vitals.nobody.add_refused(why);
        self.vitals.nobody.add_status(status);
        let ending = Ending::Refused(why);
        let record = self.records.then(|| self.unserved(id, None, request, ending, Some(status)));
        Refusal::Malformed(status, text).answer(id, record)
    }

    /// Answers a client whose request has begun, and does not come to the end of its head. There is
    /// nothing to make a record of.
    #[cold]
    pub fn give_up(&self) -> Whole {
        self.vitals.nobody.add_refused(Refused::BadRequest);
        self.vitals.nobody.add_status(Refusal::HeadTimeout.status());
        Refusal::HeadTimeout.answer(self.next_id(), None)
    }

    fn next_id(&self) -> ExchangeId {
        let id = self.next_id.get();
        self.next_id.set(id.wrapping_add(1));
        ExchangeId(id)
    }

    #[cold]
    fn refuse(
        &self,
        id: ExchangeId,
        local: Option<&Rc<Local>>,
        request: Parts,
        refusal: Refusal,
    ) -> Begun {
        let Refusal::Refused(why, _) = refusal else {
            return Begun::Whole(refusal.answer(id, None));
        };
        let counters = local.map_or(&self.vitals.nobody, |local| &local.counters);
        counters.add_refused(why);
        counters.add_status(refusal.status());
        let (ending, status) = (Ending::Refused(why), Some(refusal.status()));
        let record = self.records.then(|| self.unserved(id, local, request, ending, status));
        Begun::Whole(refusal.answer(id, record))
    }

    /// Whether an exchange that has not run yet may run at once.
    pub(crate) fn admits(&self, local: &Local) -> bool {
        self.turnstile.admits(&local.lane, self.slice.0)
    }

    /// A guest has run without standing in line.
    pub(crate) fn charge(&self, local: &Local, time: Duration) {
        if self.turnstile.is_busy() {
            local.lane.charge(time);
        }
    }

    /// Whether the slice that runs is to end early.
    pub(crate) fn interrupts(&self) -> bool {
        self.turnstile.interrupts(|| self.timers.now())
    }

    /// The line of the exchanges that compute for long. The host drives it.
    pub fn turnstile(&self) -> &Rc<Turnstile> {
        &self.turnstile
    }

    /// Lets exchanges go on whose client has gone and whose tenant keeps state. Never ready: the
    /// host polls it in a task of its own.
    pub fn poll_abandoned<T>(&self, cx: &mut Context<'_>) -> Poll<T> {
        self.abandoned.poll(cx)
    }

    /// What was counted so far.
    pub fn totals(&self) -> Totals {
        self.meters.of_reactor(self.index)
    }

    /// Does what is due now and then: hosts call it about once a second, on each reactor.
    pub fn tick(&self) {
        self.meters.beat(&self.vitals);
        self.verification.tick(self.timers.now());
        let mut view = self.view.borrow_mut();
        view.refresh();
        view.due().for_each(|local| local.tick());
    }

    /// Idle sandboxes and running exchanges on this reactor, but for tenants that keep state.
    pub fn sandboxes(&self) -> (usize, usize) {
        let view = self.view.borrow();
        view.made()
            .map(|local| local.sandboxes())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

impl Concluded {
    /// The answer, if none has been begun.
    pub(crate) fn whole(self, exchange: &mut Exchange, tenant: &Tenant) -> Whole {
        match self.result {
            Ok(()) => Whole::take(exchange, tenant.limits.response_time, self.record),
            Err(refusal) => refusal.answer(exchange.id, self.record),
        }
    }
}

impl View {
    fn new(shared: Arc<ArcSwap<Table>>, meters: Arc<Meters>, around: Around) -> Self {
        let table = shared.load_full();
        let locals = vec![None; table.tenants.len()];
        Self {
            cache: Cache::new(shared),
            table,
            locals,
            made: Vec::new(),
            next_due: 0,
            meters,
            around,
        }
    }

    /// Looks whether the control plane has swapped the table; one read of memory that nobody
    /// writes, as long as it has not.
    fn refresh(&mut self) {
        let table = self.cache.load();
        if !Arc::ptr_eq(table, &self.table) {
            self.table = table.clone();
            self.adopt();
        }
    }

    /// Takes what this reactor has of the tenants that are in both tables over into the new one.
    #[cold]
    fn adopt(&mut self) {
        let locals = vec![None; self.table.tenants.len()];
        let mut before = std::mem::replace(&mut self.locals, locals);
        for index in std::mem::take(&mut self.made) {
            let Some(local) = before[index].take() else { continue };
            if let Some(index) = self.table.index_of(&local.tenant) {
                self.locals[index] = Some(local);
                self.made.push(index);
            } else {
                local.seated.keep_of(None);
            }
        }
    }

    /// What this reactor has of a tenant. Made when it is needed for the first time: most tenants
    /// of many are never asked for here.
    fn local(&mut self, index: usize) -> &Rc<Local> {
        self.locals[index].get_or_insert_with(|| {
            self.made.push(index);
            let tenant = self.table.tenants[index].clone();
            let counters = self.meters.counters(&tenant.name, self.around.index);
            Rc::new(Local::new(tenant, counters, &self.around))
        })
    }

    /// Those whose turn it is to be looked after: a part, so that no exchange waits for all.
    fn due(&mut self) -> impl Iterator<Item = &Rc<Local>> {
        let count = (self.made.len() / 4).clamp(LOOKED_AFTER.min(self.made.len()), self.made.len());
        let first = self.next_due;
        self.next_due = if count == 0 { 0 } else { (first + count) % self.made.len() };
        let view = &*self;
        (first..first + count)
            .map(|turn| view.made[turn % view.made.len()])
            .filter_map(|index| view.locals[index].as_ref())
    }

    fn made(&self) -> impl Iterator<Item = &Rc<Local>> {
        self.made.iter().filter_map(|index| self.locals[*index].as_ref())
    }

    /// The index of the tenant that answers a request.
    fn find(&self, request: &Parts) -> Option<usize> {
        let authority = authority_of(request);
        self.table.router.find(authority, request.uri.path())
    }
}
