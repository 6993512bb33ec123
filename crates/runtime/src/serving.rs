//! An exchange that did not end in its first slice.
//!
//! A serving is the guest's continuation. It runs only while the host polls it, on the host's
//! thread, for at most a slice at a time: a client that does not read stops the guest that writes
//! to it, without a queue between them.
//!
//! ```text
//!   Seated ──its connection's turn──▶ Loading, or
//!   Loading ──the program is there──▶ Queued, or
//!   Queued ──admitted──▶ Running ◀───let through─── InLine
//!                        │   │                       ▲ polled
//!                        │   └──slice used up──▶ Sliced
//!                        └──ended──▶ Over  (the sandbox is back; bytes may remain)
//! ```

use std::{
    mem,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use sandtide_engine::{
    Exchange, ExchangeId, Fault, Frame, Outcome, Progress, ResponseHead, Slice, Turn, Usage,
};

use crate::{
    client::{SeatHold, SeatTicket},
    lease::Lease,
    local::{Admitted, Awaiting, Home, Local, ProgramTicket, Ticket},
    pool::Pool,
    reactor::{Concluded, Reactor},
    record::{Ending, Record, Refused, Times, no_exchange},
    reply::{Broken, Refusal, Reply, Whole},
    report,
    timers::Sleep,
    turnstile::{Computing, Entry, InLine},
};

/// The shortest slice for an exchange that has used up most of its slice before.
const SHORTEST_SLICE: Duration = Duration::from_micros(50);

/// An exchange in the making. Dropping it is how a host says that the client went away.
pub struct Serving {
    reactor: Rc<Reactor>,
    local: Rc<Local>,
    exchange: Exchange,
    stage: Stage,
    /// The right to the sandbox of its connection, until it has it.
    seat: Option<SeatHold>,
    began: Instant,
    /// When it was admitted.
    started: Instant,
    /// Time in the turns of its sandbox.
    cpu: Duration,
    deadline: Instant,
    /// How much of its slice it has used since it was last let through.
    spent: Duration,
    timer: Option<(Instant, Sleep)>,
    /// While it has a slice to use up or stands in line.
    computing: Option<Computing>,
    /// The client has the whole response.
    is_answered: bool,
    /// It goes on without its client.
    is_abandoned: bool,
    /// Of the exchange that has ended, until somebody takes it.
    record: Option<Box<Record>>,
}

enum Stage {
    /// Waits for the sandbox of its connection, until then at the latest.
    Seated(SeatTicket, Instant),
    /// Waits for the tenant's program, until then at the latest.
    Loading(ProgramTicket, Instant),
    /// Waits for admission, until then at the latest.
    Queued(Ticket, Instant),
    /// May run. It waits for at most this time, if the guest said so.
    Running(Lease, Option<Instant>),
    /// Has to stand in line, as soon as the host polls: a place in line is for exchanges that are
    /// polled when they are woken, not for those whose client does not read.
    Sliced(Lease),
    /// Waits for its turn.
    InLine(Lease, InLine),
    /// The guest is done with it.
    Over(Result<(), Refusal>),
}

const LATE: &str = "waited too long for a sandbox";

/// What a stage is while it is worked on; if the work is left by a panic, it has failed.
const UNFINISHED: Stage = Stage::Over(Err(Refusal::Failure));

/// What one step came to.
enum Step {
    /// The guest ran; there may be something to take.
    Ran,
    Over(Result<(), Refusal>),
}

impl Serving {
    fn new(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        stage: Stage,
        times: Times,
    ) -> Self {
        let Times { began, cpu, .. } = times;
        let deadline = began + local.tenant.limits.wall_time;
        Self {
            reactor,
            local,
            exchange,
            stage,
            seat: None,
            began,
            started: began,
            cpu,
            deadline,
            spent: cpu,
            timer: None,
            computing: None,
            is_answered: false,
            is_abandoned: false,
            record: None,
        }
    }

    pub(crate) fn waiting(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        seat: Option<SeatHold>,
        (ticket, until): (Ticket, Instant),
    ) -> Self {
        let now = reactor.timers.now();
        let stage = Stage::Queued(ticket, until);
        let mut serving = Self::new(reactor, local, exchange, stage, Times::beginning(now));
        serving.seat = seat;
        serving
    }

    /// An exchange that waits for another one of its connection.
    pub(crate) fn in_turn(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        ticket: SeatTicket,
        until: Instant,
    ) -> Self {
        let now = reactor.timers.now();
        let stage = Stage::Seated(ticket, until);
        Self::new(reactor, local, exchange, stage, Times::beginning(now))
    }

    /// An exchange whose program is being loaded.
    pub(crate) fn loading(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        seat: Option<SeatHold>,
        ticket: ProgramTicket,
    ) -> Self {
        let now = reactor.timers.now();
        let stage = Stage::Loading(ticket, local.loaded_until());
        let mut serving = Self::new(reactor, local, exchange, stage, Times::beginning(now));
        serving.seat = seat;
        serving
    }

    pub(crate) fn begun(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        lease: Lease,
        times: Times,
        progress: Progress,
    ) -> Self {
        let turnstile = reactor.turnstile();
        let (stage, computing) = match progress {
            Progress::Waiting { until } if times.cpu < reactor.slice.0 => {
                (Stage::Running(lease, until), None)
            }
            _ => (Stage::Sliced(lease), Some(turnstile.compute(&local.lane))),
        };
        reactor.charge(&local, times.cpu);
        let mut serving = Self::new(reactor, local, exchange, stage, times);
        serving.computing = computing;
        serving
    }

    /// An exchange whose response is complete, but that has interim responses to send before it.
    pub(crate) fn informed(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        times: Times,
        ended: Concluded,
    ) -> Self {
        let Concluded { result, record } = ended;
        let mut serving = Self::new(reactor, local, exchange, Stage::Over(result), times);
        serving.record = record;
        serving
    }

    /// Its tenant is not to run at once.
    pub(crate) fn behind(
        reactor: Rc<Reactor>,
        local: Rc<Local>,
        exchange: Exchange,
        lease: Lease,
        times: Times,
    ) -> Self {
        Self::new(reactor, local, exchange, Stage::Sliced(lease), times)
    }

    /// The correlation id.
    pub fn id(&self) -> ExchangeId {
        self.exchange.id
    }

    /// How long the client may take to receive the response.
    pub fn response_time(&self) -> Duration {
        self.local.tenant.limits.response_time
    }

    /// When the exchange must have ended. A host that cannot poll until then, because the client
    /// does not take what was sent, drops the serving at this time.
    pub fn deadline(&self) -> Instant {
        match self.stage {
            Stage::Seated(_, until) | Stage::Loading(_, until) | Stage::Queued(_, until) => {
                until + self.local.tenant.limits.wall_time
            }
            _ => self.deadline,
        }
    }

    /// Whether the guest is done: what is left needs no sandbox.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// Runs until the response has begun or ended. A guest that fails before that has an error
    /// page for a response. To be polled until it is ready, once; after each poll, whatever came of
    /// it, there may be something in [`Self::take_interim`].
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        let mut ran = false;
        loop {
            if !self.is_over()
                && let Some(head) = self.exchange.response.take_head()
            {
                self.compute_no_more();
                return Poll::Ready(Reply::Streaming(head));
            }
            match ready!(self.poll_step(cx, &mut ran)) {
                Step::Ran => {}
                Step::Over(result) => {
                    let ended = Concluded { result, record: self.record.take() };
                    return Poll::Ready(Reply::Whole(
                        ended.whole(&mut self.exchange, &self.local.tenant),
                    ));
                }
            }
        }
    }

    /// The interim responses (1xx) that the guest has sent since this was last asked, to go out
    /// before what [`Self::poll_head`] came to. A host that cannot send them leaves them.
    pub fn take_interim(&mut self) -> Vec<ResponseHead> {
        self.exchange.response.take_interim()
    }

    /// Runs until there is a piece of body, the trailers, or the end (`None`). After an error the
    /// response has no end: the host cuts it off.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Broken>>> {
        let mut ran = false;
        loop {
            if let Some(data) = self.exchange.response.take_data() {
                // The client may not want more for a while.
                self.compute_no_more();
                return Poll::Ready(Some(Ok(Frame::Data(data))));
            }
            match ready!(self.poll_step(cx, &mut ran)) {
                Step::Ran => {}
                Step::Over(Ok(())) => {
                    let response = &mut self.exchange.response;
                    let last = match response.take_data() {
                        Some(data) => Some(Frame::Data(data)),
                        None => response.take_trailers().map(Frame::Trailers),
                    };
                    return Poll::Ready(last.map(Ok));
                }
                Step::Over(Err(_)) => {
                    return Poll::Ready(Some(Err(Broken(self.exchange.id))));
                }
            }
        }
    }

    /// The client has as much of the body as was announced. Whatever the guest still does it may do
    /// without the client, until its time is over.
    pub fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Runs to the end. What the guest answers goes nowhere.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(Ok(_)) = ready!(self.poll_frame(cx)) {}
        Poll::Ready(())
    }

    /// Leaves an exchange that has to come to its end to the reactor. `Err` gives back the stage
    /// of one that has not.
    fn abandon(&mut self, stage: Stage) -> Result<(), Stage> {
        let goes_on = |lease: &Lease| self.is_answered || lease.keeps_state();
        let stage = match stage {
            Stage::Running(lease, until) if goes_on(&lease) => Stage::Running(lease, until),
            Stage::Sliced(lease) | Stage::InLine(lease, _) if goes_on(&lease) => {
                Stage::Sliced(lease)
            }
            stage => return Err(stage),
        };
        if self.is_abandoned {
            return Err(stage);
        }
        let times = self.times();
        let nothing = no_exchange(self.exchange.id);
        let exchange = mem::replace(&mut self.exchange, nothing);
        let ending = if self.is_answered { Ending::Done } else { Ending::ClientGone };
        self.record = self.reactor.left(&self.local, &exchange, ending, times);
        self.reactor.abandoned.add(Self {
            reactor: self.reactor.clone(),
            local: self.local.clone(),
            exchange,
            stage,
            seat: None,
            began: self.began,
            started: self.started,
            cpu: self.cpu,
            deadline: self.deadline,
            spent: self.spent,
            timer: None,
            computing: None,
            is_answered: self.is_answered,
            is_abandoned: true,
            record: None,
        });
        Ok(())
    }

    /// One step: waits if there is nothing to do, else runs the guest. `ran` says whether the
    /// guest ran before in the same poll: then it waits for what it asked for, and not again for
    /// the wake-up or the room that this poll stands for.
    fn poll_step(&mut self, cx: &mut Context<'_>, ran: &mut bool) -> Poll<Step> {
        loop {
            match &mut self.stage {
                Stage::Seated(..) => ready!(self.poll_seat(cx)),
                Stage::Loading(..) => ready!(self.poll_program(cx)),
                Stage::Queued(..) => ready!(self.poll_admission(cx)),
                Stage::Sliced(_) => self.stand_in_line(),
                Stage::InLine(_, place) => {
                    ready!(place.poll(cx));
                    if let Stage::InLine(lease, _) = mem::replace(&mut self.stage, UNFINISHED) {
                        self.stage = Stage::Running(lease, None);
                    }
                    *ran = false;
                }
                Stage::Running(_, until) => {
                    let at = until.map_or(self.deadline, |until| until.min(self.deadline));
                    if mem::replace(ran, true) {
                        ready!(self.poll_timer(cx, at));
                    }
                    self.run(cx);
                    return Poll::Ready(match self.stage {
                        Stage::Over(result) => Step::Over(result),
                        _ => Step::Ran,
                    });
                }
                Stage::Over(result) => return Poll::Ready(Step::Over(*result)),
            }
        }
    }

    fn stand_in_line(&mut self) {
        if let Stage::Sliced(lease) = mem::replace(&mut self.stage, UNFINISHED) {
            let (turnstile, lane) = (self.reactor.turnstile(), &self.local.lane);
            self.computing.get_or_insert_with(|| turnstile.compute(lane));
            let was_interrupted = !self.spent.is_zero() && self.spent < self.reactor.slice.0;
            let entry = if was_interrupted { Entry::First } else { Entry::Last };
            if entry == Entry::Last {
                self.spent = Duration::ZERO;
            }
            self.stage = Stage::InLine(lease, turnstile.enter(lane, entry));
        }
    }

    /// It waits, or has ended: another one of its tenant may compute.
    fn compute_no_more(&mut self) {
        if self.computing.take().is_some() {
            self.local.let_in();
        }
    }

    /// Ready when the stage has changed.
    fn poll_program(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Stage::Loading(ticket, until) = &mut self.stage else { return Poll::Ready(()) };
        let until = *until;
        if ticket.poll(cx).is_pending() {
            ready!(self.poll_timer(cx, until));
            self.give_up(Refused::QueueTime, "waited too long for the program to be loaded");
            return Poll::Ready(());
        }
        self.timer = None;
        self.ask_for_sandbox(until, until);
        Poll::Ready(())
    }

    /// Ready when the stage has changed.
    fn poll_seat(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Stage::Seated(ticket, until) = &mut self.stage else { return Poll::Ready(()) };
        let until = *until;
        if let Poll::Ready(seat) = ticket.poll(cx) {
            self.timer = None;
            self.seat = seat;
            match self.seat {
                Some(_) => self.ask_for_sandbox(until, self.local.loaded_until()),
                None => self.give_up(Refused::QueueTime, LATE),
            }
            return Poll::Ready(());
        }
        ready!(self.poll_timer(cx, until));
        self.give_up(Refused::QueueTime, LATE);
        Poll::Ready(())
    }

    /// Nothing of its own is before it: it waits for a sandbox until then, or for the program until
    /// `loaded`.
    fn ask_for_sandbox(&mut self, until: Instant, loaded: Instant) {
        let Some(pool) = self.local.pool() else { return self.await_program(loaded) };
        match self.local.admit() {
            Admitted::Now(home) => self.lease(pool, home),
            Admitted::Waiting(ticket, latest) => {
                self.stage = Stage::Queued(ticket, until.min(latest));
            }
            Admitted::Turned(turned) => {
                let (why, wait, reason) = turned.explain();
                report::refused(&self.local.tenant, self.exchange.id, reason);
                self.refuse(why, Refusal::after(why, wait));
            }
        }
    }

    /// There is no program, or none any more.
    fn await_program(&mut self, until: Instant) {
        // Leaves its place among those who wait, so that it may come back to it.
        self.stage = UNFINISHED;
        match self.local.await_program() {
            Awaiting::Program(ticket) => self.stage = Stage::Loading(ticket, until),
            Awaiting::Failed(failure) => {
                let refusal = self.reactor.unavailable(&self.local, self.exchange.id, &failure);
                self.refuse(Refused::Unavailable, refusal);
            }
            Awaiting::Full => {
                self.give_up(Refused::QueueFull, "too many exchanges wait for the program");
            }
        }
    }

    /// Ready when the stage has changed.
    fn poll_admission(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Stage::Queued(ticket, until) = &mut self.stage else { return Poll::Ready(()) };
        let until = *until;
        if let Poll::Ready(home) = ticket.poll(cx) {
            self.timer = None;
            match (home, self.local.pool()) {
                (Some(home), Some(pool)) => self.lease(pool, home),
                (Some(_), None) => self.await_program(until),
                (None, _) => self.give_up(Refused::QueueTime, LATE),
            }
            return Poll::Ready(());
        }
        ready!(self.poll_timer(cx, until));
        self.give_up(Refused::QueueTime, LATE);
        Poll::Ready(())
    }

    /// It was admitted, and its time begins.
    fn lease(&mut self, pool: Rc<Pool>, home: Home) {
        let home = home.seated(self.seat.take());
        self.stage = match self.reactor.lease(&self.local, pool, home, &self.exchange) {
            Err(refusal) => self.end_unserved(Ending::EngineFailure, Some(refusal)),
            Ok(lease) if self.reactor.admits(&self.local) => Stage::Running(lease, None),
            Ok(lease) => Stage::Sliced(lease),
        };
        self.started = self.reactor.timers.now();
        self.deadline = self.started + self.local.tenant.limits.wall_time;
    }

    /// It was not admitted in time.
    fn give_up(&mut self, why: Refused, reason: &str) {
        report::refused(&self.local.tenant, self.exchange.id, reason);
        let refusal = Refusal::after(why, self.local.tenant.admission.queue_time);
        self.refuse(why, refusal);
    }

    fn refuse(&mut self, why: Refused, refusal: Refusal) {
        self.local.counters.add_refused(why);
        self.local.counters.add_status(refusal.status());
        self.stage = self.end_unserved(Ending::Refused(why), Some(refusal));
    }

    /// The end of an exchange that waited and did not get a sandbox.
    fn end_unserved(&mut self, ending: Ending, refusal: Option<Refusal>) -> Stage {
        self.seat = None;
        let queued = self.reactor.timers.now() - self.began;
        self.local.counters.add_queued(queued);
        let times = Times { queued, ..Times::beginning(self.began) };
        let spent = times.spent(&self.exchange, Usage::default());
        let status = refusal.map(Refusal::status);
        let (local, exchange) = (&self.local, &mut self.exchange);
        self.record = self.reactor.record(local, exchange, ending, status, self.began, spent);
        Stage::Over(Err(refusal.unwrap_or(Refusal::Failure)))
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let (_, sleep) = match &mut self.timer {
            Some(timer) if timer.0 == at => timer,
            timer => timer.insert((at, self.reactor.timers.sleep_until(at))),
        };
        ready!(sleep.as_mut().poll(cx));
        self.timer = None;
        Poll::Ready(())
    }

    /// Runs the guest for the rest of its slice.
    fn run(&mut self, cx: &mut Context<'_>) {
        let Stage::Running(mut lease, _) = mem::replace(&mut self.stage, UNFINISHED) else {
            return;
        };
        let before = self.reactor.timers.now();
        let full = self.reactor.slice.0;
        let slice = Slice(full.saturating_sub(self.spent).max(SHORTEST_SLICE.min(full)));
        let deadline = self.deadline;
        let cpu_before = self.computing.as_ref().map(|computing| {
            computing.begins(before, slice.0);
            self.reactor.timers.cpu_time()
        });
        let progress = lease.run(&mut Turn {
            cx,
            exchange: &mut self.exchange,
            now: before,
            slice,
            deadline,
            interrupt: &|| self.reactor.interrupts(),
        });
        let now = self.reactor.timers.now();
        let cpu = now - before;
        self.spent += cpu;
        self.cpu += cpu;
        match (&self.computing, cpu_before) {
            (Some(computing), Some(cpu_before)) => {
                // After its time was over it cannot have run for long: it was the thread that did
                // not run.
                let is_late = cpu > slice.0 + slice.0 / 4;
                let used = if is_late { self.reactor.timers.cpu_time() - cpu_before } else { cpu };
                computing.ran(used, now);
            }
            _ => self.reactor.charge(&self.local, cpu),
        }
        if !matches!(progress, Progress::Sliced) {
            self.compute_no_more();
        }
        self.stage = match progress {
            Progress::Ended(outcome) => Stage::Over(self.conclude(lease, outcome, true)),
            // The engine should have seen this by itself.
            _ if before >= deadline => Stage::Over(self.conclude(lease, self.out_of_time(), true)),
            Progress::Waiting { until } if self.spent < full => Stage::Running(lease, until),
            Progress::Waiting { .. } | Progress::Sliced => Stage::Sliced(lease),
        };
    }

    fn out_of_time(&self) -> Outcome {
        let limit = self.local.tenant.limits.wall_time;
        Outcome::Fault(Fault::Deadline { limit, backtrace: Vec::new() })
    }

    fn conclude(
        &mut self,
        lease: Lease,
        outcome: Outcome,
        has_client: bool,
    ) -> Result<(), Refusal> {
        let times = self.times();
        let has_client = has_client && !self.is_abandoned;
        let (local, exchange) = (&self.local, &mut self.exchange);
        let Concluded { result, record } =
            self.reactor.conclude(local, exchange, lease, outcome, times, has_client);
        self.record = record;
        result
    }

    fn times(&self) -> Times {
        Times {
            began: self.began,
            queued: self.started - self.began,
            ran: self.reactor.timers.now() - self.started,
            cpu: self.cpu,
        }
    }

    /// Ends the exchange if it has not ended: the client is gone, or did not take its response in
    /// time. Its record, once, if records are wanted.
    pub fn leave(&mut self) -> Option<Box<Record>> {
        self.compute_no_more();
        match mem::replace(&mut self.stage, UNFINISHED) {
            Stage::Over(result) => self.stage = Stage::Over(result),
            Stage::Seated(..) | Stage::Loading(..) | Stage::Queued(..) => {
                self.local.counters.clients_gone.add(1);
                self.stage = self.end_unserved(Ending::ClientGone, None);
            }
            stage => {
                let late = self.reactor.timers.now() >= self.deadline;
                let stage = if late { Err(stage) } else { self.abandon(stage) };
                let held = match stage {
                    Err(Stage::Running(lease, _) | Stage::Sliced(lease)) => Some(lease),
                    Err(Stage::InLine(lease, _)) => Some(lease),
                    _ => None,
                };
                if let Some(mut lease) = held {
                    // No client shall bring an old version back by not reading.
                    lease.excuse();
                    let outcome = if late { self.out_of_time() } else { Outcome::ClientGone };
                    // Nobody is left to answer.
                    let _ = self.conclude(lease, outcome, false);
                }
            }
        }
        self.record.take()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Whole {
    /// What the guest answered, all of it.
    pub(crate) fn take(
        exchange: &mut Exchange,
        response_time: Duration,
        record: Option<Box<Record>>,
    ) -> Self {
        let Some(head) = exchange.response.take_head() else {
            debug_assert!(false, "a finished response has a head until it is taken");
            return Refusal::Failure.answer(exchange.id, record);
        };
        let body = exchange.response.take_data().unwrap_or_default();
        let trailers = exchange.response.take_trailers().map(Box::new);
        Self { head, body, trailers, response_time, record }
    }
}
