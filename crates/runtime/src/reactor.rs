//! One thread's part of the runtime: where a request begins.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
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
    local::{Admitted, Home, Local},
    log::EXCHANGE_TARGET,
    reply::{Begun, Refusal, Whole},
    report,
    serving::Serving,
    table::Table,
    tenant::{Answer, Tenant},
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
    locals: Vec<Rc<Local>>,
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
        let table = shared.load_full();
        let mut view =
            View { cache: Cache::new(shared), table, locals: Vec::new(), index, reactors };
        view.adopt();
        Self {
            view: RefCell::new(view),
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
            let Some(local) = view.find(&request) else {
                return self.refuse(id, Refusal::NoTenant);
            };
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
                Answer::Unavailable { reason } => {
                    report::refused(&local.tenant, id, reason);
                    return self.refuse(id, Refusal::Unavailable);
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
        match local.admit() {
            Admitted::Now(home) => self.first_slice(cx, local, home, exchange),
            Admitted::Waiting(ticket) => {
                Begun::Serving(Box::new(Serving::waiting(self.clone(), local, exchange, ticket)))
            }
            Admitted::Full => {
                report::refused(&local.tenant, id, "too many exchanges wait");
                self.refuse(id, Refusal::busy(local.tenant.admission.queue_time))
            }
        }
    }

    /// The fast path: a guest that answers in its first slice is served without a [`Serving`].
    fn first_slice(
        self: &Rc<Self>,
        cx: &mut Context<'_>,
        local: Rc<Local>,
        home: Home,
        mut exchange: Exchange,
    ) -> Begun {
        let mut lease = match self.lease(&local, home, &exchange) {
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
        home: Home,
        exchange: &Exchange,
    ) -> Result<Lease, Refusal> {
        Lease::take(local, home, &self.counters).map_err(|SpawnError(error)| {
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

    /// Does what is due now and then: hosts call it about once a second, on one reactor.
    pub fn tick(&self) {
        let mut view = self.view.borrow_mut();
        view.refresh();
        for local in &view.locals {
            local.tenant.log.settle();
        }
    }

    /// Idle sandboxes and running exchanges of all ephemeral tenants on this reactor.
    pub fn sandboxes(&self) -> (usize, usize) {
        let view = self.view.borrow();
        let idle = view.locals.iter().map(|local| local.pool.len()).sum();
        let busy = view.locals.iter().map(|local| local.in_use() as usize).sum();
        (idle, busy)
    }
}

/// The tenant's lane in the turnstile.
pub(crate) fn lane_of(local: &Rc<Local>) -> usize {
    Rc::as_ptr(local).addr()
}

impl View {
    /// Looks whether the control plane has swapped the table; one read of memory that nobody
    /// writes, as long as it has not.
    fn refresh(&mut self) {
        let table = self.cache.load();
        if !Arc::ptr_eq(table, &self.table) {
            self.table = table.clone();
            self.adopt();
        }
    }

    #[cold]
    fn adopt(&mut self) {
        let mut known: HashMap<_, _> = std::mem::take(&mut self.locals)
            .into_iter()
            .map(|local| (Arc::as_ptr(&local.tenant), local))
            .collect();
        let new =
            |tenant: &Arc<Tenant>| Rc::new(Local::new(tenant.clone(), self.index, self.reactors));
        self.locals = self
            .table
            .tenants
            .iter()
            .map(|tenant| known.remove(&Arc::as_ptr(tenant)).unwrap_or_else(|| new(tenant)))
            .collect();
    }

    fn find(&self, request: &Parts) -> Option<&Rc<Local>> {
        let authority = match request.uri.authority() {
            Some(authority) => authority.as_str(),
            None => request
                .headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok())
                .unwrap_or_default(),
        };
        self.locals.get(self.table.router.find(authority, request.uri.path())?)
    }
}
