//! One thread: an event loop, its listeners, its connections, its part of the runtime.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use sandtide_runtime::{Reactor, Runtime, Totals};
use tokio::{
    sync::watch,
    task::{LocalSet, spawn_local, yield_now},
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    accept::accept,
    access_log::AccessLog,
    connections::Connections,
    doorbell::Doorbell,
    host::Host,
    listen::{Bound, Listener},
    options::Options,
    timers::TokioTimers,
    tls::Certificates,
};

/// How long connections may take to notice that they are cut off.
const CUT_TIME: Duration = Duration::from_secs(1);

/// What a reactor thread is made from.
pub(crate) struct Plan {
    pub(crate) index: usize,
    pub(crate) reactors: usize,
    pub(crate) sockets: Vec<Bound>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) options: Options,
    pub(crate) access_log: Option<AccessLog>,
    /// Changes when the server is to shut down.
    pub(crate) shutdown: watch::Receiver<bool>,
}

/// Runs the thread until the shutdown. Returns what it counted.
pub(crate) fn run(plan: Plan) -> io::Result<Totals> {
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&event_loop, plan.serve())
}

/// As [`run`], and polls `beside` with it until the reactor has ended.
pub(crate) fn run_beside(plan: Plan, beside: impl Future<Output = ()>) -> io::Result<Totals> {
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&event_loop, async {
        let (mut serve, mut beside) = (pin!(plan.serve()), pin!(beside));
        let mut has_ended = false;
        poll_fn(|cx| {
            has_ended = has_ended || beside.as_mut().poll(cx).is_ready();
            serve.as_mut().poll(cx)
        })
        .await
    })
}

impl Plan {
    async fn serve(self) -> io::Result<Totals> {
        let reactor = self.runtime.reactor(self.index, self.reactors, Box::new(TokioTimers));
        let doorbell = Rc::new(Doorbell::new()?);
        let bell = doorbell.clone();
        reactor.turnstile().set_doorbell(Box::new(move || bell.rings()));
        let log = self.access_log.as_ref().and_then(AccessLog::log);
        let (certificates, options) = (self.certificates, self.options);
        let host = Host::new(reactor.clone(), doorbell, certificates, options, log, self.reactors);
        spawn_local(drive_turnstile(reactor.clone()));
        spawn_local(finish_abandoned(reactor.clone()));
        spawn_local(tick(host.clone()));
        spawn_local(sweep(host.connections.clone()));
        let mut acceptors = Vec::new();
        for socket in self.sockets {
            let listener = Listener::new(socket)?;
            acceptors.push(spawn_local(accept(listener, host.clone(), self.shutdown.clone())));
        }
        for acceptor in acceptors {
            if let Err(error) = acceptor.await {
                tracing::error!(%error, "a listener failed");
            }
        }
        let connections = &host.connections;
        connections.drain();
        let drained = poll_fn(|cx| connections.poll_drained(cx));
        if timeout(host.options.drain, drained).await.is_err() {
            let left = connections.len();
            tracing::warn!(connections = left, "cut off connections that did not end in time");
            connections.cut();
            let _ = timeout(CUT_TIME, poll_fn(|cx| connections.poll_drained(cx))).await;
        }
        Ok(reactor.totals())
    }
}

/// Lets one exchange that computes for long run for each turn of the event loop.
async fn drive_turnstile(reactor: Rc<Reactor>) -> Infallible {
    let turnstile = reactor.turnstile();
    loop {
        turnstile.queued().await;
        // Comes back after the event loop has looked for input, so that what just arrived goes
        // first.
        yield_now().await;
        turnstile.release();
    }
}

/// Serves exchanges to their end whose clients did not wait for it.
async fn finish_abandoned(reactor: Rc<Reactor>) -> Infallible {
    poll_fn(|cx| reactor.poll_abandoned(cx)).await
}

async fn tick(host: Rc<Host>) -> Infallible {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        host.reactor.tick();
        if let Some(log) = &host.log {
            log.flush();
        }
    }
}

async fn sweep(connections: Rc<Connections>) -> Infallible {
    let mut sweeps = interval(connections.period());
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        sweeps.tick().await;
        connections.sweep();
    }
}
