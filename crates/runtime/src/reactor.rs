//! One thread's part of the runtime: where a request begins.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Instant,
};

use arc_swap::{ArcSwap, Cache};
use http::{header, request::Parts};
use sandtide_engine::{
    EngineError, Exchange, ExchangeId, Outcome, Progress, RequestBody, Slice, SpawnError, Turn,
};

use crate::{
    abandoned::Abandoned,
    counters::{Counters, Totals, count},
    lease::{Ending, Lease},
    local::{Admitted, Awaiting, Home, Local},
    log::EXCHANGE_TARGET,
    pool::Pool,
    reply::{Begun, Refusal, Whole},
    report,
    serving::Serving,
    slot::Failure,
    table::Table,
    tenant::Answer,
    timers::Timers,
    turnstile::Turnstile,
};

/// The runtime on one thread. It belongs to that thread: nothing in it is locked, and the request
/// path writes to no memory of other threads.
pub struct Reactor {
    view: RefCell<View>,
    turnstile: Rc<Turnstile>,
    pub(crate) abandoned: Abandoned,
    pub(crate) timers: Box<dyn Timers>,
    pub(crate) counters: Counters,
    pub(crate) slice: Slice,
    next_id: Cell<u64>,
}

/// The table as this reactor knows it, and what it has of each tenant.
struct View {
    cache: Cache<Arc<ArcSwap<Table>>, Arc<Table>>,
    table: Arc<Table>,
    /// As many as there are tenants; those that had a request here.
    locals: Vec<Option<Rc<Local>>>,
    /// Their indices.
    made: Vec<usize>,
    index: usize,
    reactors: usize,
}

impl Reactor {
    pub(crate) fn new(
        shared: Arc<ArcSwap<Table>>,
        index: usize,
        reactors: usize,
        first_id: ExchangeId,
        slice: Slice,
        timers: Box<dyn Timers>,
    ) -> Self {
        Self {
            view: RefCell::new(View::new(shared, index, reactors)),
            turnstile: Rc::default(),
            abandoned: Abandoned::default(),
            timers,
            counters: Counters::default(),
            slice,
            next_id: Cell::new(first_id.0),
        }
    }

    /// Begins to answer a request: routes and admits it, and runs the guest for its first slice.
    ///
    /// `body` makes the request body, given the tenant's limit in bytes for it; it is not called
    /// for requests that need none. What the guest waits for wakes `cx`, but a host may call this
    /// with a context that wakes nothing, if it polls the [`Serving`] right after.
    pub fn begin(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        request: Parts,
        body: impl FnOnce(u64) -> RequestBody,
    ) -> Begun {
        let id = ExchangeId(self.next_id.get());
        self.next_id.set(id.0.wrapping_add(1));
        let local = {
            let mut view = self.view.borrow_mut();
            view.refresh();
            let Some(index) = view.find(&request) else {
                return self.refuse(id, Refusal::NoTenant);
            };
            let local = view.local(index);
            if let Some(rate) = local.tenant.admission.rate
                && let Err(wait) = local.tenant.pace.take(rate, Instant::now())
            {
                report::refused(&local.tenant, id, "too many requests a second");
                return self.refuse(id, Refusal::over_rate(wait));
            }
            match &local.tenant.answer {
                Answer::Program(_) => {}
                Answer::Fixed(fixed) => {
                    count(&self.counters.fixed);
                    return Begun::Whole(fixed.answer());
                }
            }
            local.clone()
        };
        let limits = &local.tenant.limits;
        let body = body(limits.request_body);
        if body.known_length().is_some_and(|length| length > limits.request_body) {
            return self.refuse(id, Refusal::BodyTooLarge);
        }
        let exchange = Exchange::new(id, request, body, limits.response_body);
        let Some(pool) = local.pool() else { return self.await_program(local, exchange) };
        match local.admit() {
            Admitted::Now(home) => self.first_slice(cx, local, pool, home, exchange),
            Admitted::Waiting(ticket) => {
                Begun::Serving(Box::new(Serving::waiting(self.clone(), local, exchange, ticket)))
            }
            Admitted::Full => {
                report::refused(&local.tenant, id, "too many exchanges wait");
                self.refuse(id, Refusal::busy(local.tenant.admission.queue_time))
            }
        }
    }

    /// The program is not loaded.
    #[cold]
    fn await_program(self: &Rc<Self>, local: Rc<Local>, exchange: Exchange) -> Begun {
        let id = exchange.id;
        match local.await_program() {
            Awaiting::Program(ticket) => {
                Begun::Serving(Box::new(Serving::loading(self.clone(), local, exchange, ticket)))
            }
            Awaiting::Failed(failure) => self.refuse(id, self.unavailable(&local, id, &failure)),
            Awaiting::Full => {
                report::refused(&local.tenant, id, "too many exchanges wait for the program");
                self.refuse(id, Refusal::busy(local.tenant.admission.queue_time))
            }
        }
    }

    /// Why an exchange is turned away whose program could not be loaded.
    pub(crate) fn unavailable(&self, local: &Local, id: ExchangeId, failure: &Failure) -> Refusal {
        report::refused(&local.tenant, id, &failure.reason);
        Refusal::unavailable(failure.retry_at.saturating_duration_since(Instant::now()))
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
            Err(refusal) => return Begun::Whole(refusal.answer(exchange.id)),
        };
        let started = Instant::now();
        if self.turnstile.has_lane(lane_of(&local)) {
            let progress = Progress::Sliced;
            let serving = Serving::begun(self.clone(), local, exchange, lease, started, progress);
            return Begun::Serving(Box::new(serving));
        }
        let deadline = started + local.tenant.limits.wall_time;
        let mut turn = Turn {
            cx,
            exchange: &mut exchange,
            now: started,
            slice: self.slice,
            deadline,
            interrupt: &|| false,
        };
        match lease.run(&mut turn) {
            Progress::Ended(outcome) => {
                let whole = match self.conclude(&local, &exchange, lease, outcome, started) {
                    Ok(()) if exchange.response.has_interim() => {
                        let serving = Serving::informed(self.clone(), local, exchange, started);
                        return Begun::Serving(Box::new(serving));
                    }
                    Ok(()) => Whole::take(&mut exchange),
                    Err(refusal) => refusal.answer(exchange.id),
                };
                Begun::Whole(whole)
            }
            progress @ (Progress::Sliced | Progress::Waiting { .. }) => Begun::Serving(Box::new(
                Serving::begun(self.clone(), local, exchange, lease, started, progress),
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
        Lease::take(&local.tenant, pool, home, &self.counters).map_err(|SpawnError(error)| {
            count(&self.counters.engine_failures);
            report::failure(&local.tenant, exchange, &error);
            Refusal::Failure
        })
    }

    /// Meters and logs an exchange that has ended, and gives its sandbox back.
    pub(crate) fn conclude(
        &self,
        local: &Local,
        exchange: &Exchange,
        lease: Lease,
        outcome: Outcome,
        started: Instant,
    ) -> Result<(), Refusal> {
        let usage = lease.usage();
        self.counters.add_usage(&usage);
        let outcome = match outcome {
            Outcome::Done if !exchange.response.is_finished() => {
                Outcome::Engine(EngineError::Invariant("done without a finished response"))
            }
            outcome => outcome,
        };
        let ending = Ending::from(&outcome);
        let result = match outcome {
            Outcome::Done => {
                tracing::debug!(
                    target: EXCHANGE_TARGET,
                    tenant = %local.tenant.name,
                    request = %exchange.id,
                    instructions = usage.instructions,
                    pages_written = usage.pages_written,
                    calls = usage.calls,
                    "answered",
                );
                Ok(())
            }
            Outcome::Fault(fault) => {
                self.counters.add_fault(&fault);
                report::fault(&local.tenant, exchange, &fault, &usage, started.elapsed());
                Err(Refusal::of_fault(&fault))
            }
            Outcome::ClientGone => {
                count(&self.counters.clients_gone);
                Err(Refusal::BodyBroken)
            }
            Outcome::Engine(error) => {
                count(&self.counters.engine_failures);
                if matches!(error, EngineError::Panic(_)) {
                    count(&self.counters.panics);
                }
                report::failure(&local.tenant, exchange, &error);
                Err(Refusal::Failure)
            }
        };
        lease.settle(local, exchange, ending, &self.counters);
        result
    }

    #[cold]
    pub(crate) fn refuse(&self, id: ExchangeId, refusal: Refusal) -> Begun {
        count(&self.counters.refused);
        Begun::Whole(refusal.answer(id))
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
        self.counters.totals()
    }

    /// Does what is due now and then: hosts call it about once a second, on each reactor.
    pub fn tick(&self) {
        let mut view = self.view.borrow_mut();
        view.refresh();
        view.made().for_each(|local| local.tick());
    }

    /// Idle sandboxes and running exchanges of all ephemeral tenants on this reactor.
    pub fn sandboxes(&self) -> (usize, usize) {
        let view = self.view.borrow();
        view.made()
            .map(|local| local.sandboxes())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

/// The tenant's lane in the turnstile.
pub(crate) fn lane_of(local: &Rc<Local>) -> usize {
    Rc::as_ptr(local).addr()
}

impl View {
    fn new(shared: Arc<ArcSwap<Table>>, index: usize, reactors: usize) -> Self {
        let table = shared.load_full();
        let locals = vec![None; table.tenants.len()];
        Self { cache: Cache::new(shared), table, locals, made: Vec::new(), index, reactors }
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
            }
        }
    }

    /// What this reactor has of a tenant. Made when it is needed for the first time: most tenants
    /// of many are never asked for here.
    fn local(&mut self, index: usize) -> &Rc<Local> {
        self.locals[index].get_or_insert_with(|| {
            self.made.push(index);
            let tenant = self.table.tenants[index].clone();
            Rc::new(Local::new(tenant, self.index, self.reactors))
        })
    }

    fn made(&self) -> impl Iterator<Item = &Rc<Local>> {
        self.made.iter().filter_map(|index| self.locals[*index].as_ref())
    }

    /// The index of the tenant that answers a request.
    fn find(&self, request: &Parts) -> Option<usize> {
        let authority = match request.uri.authority() {
            Some(authority) => authority.as_str(),
            None => request
                .headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default(),
        };
        self.table.router.find(authority, request.uri.path())
    }
}
