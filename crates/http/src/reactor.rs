//! One thread: an event loop, its listeners, its connections, its part of the runtime.

use std::{
    convert::Infallible, future::poll_fn, io, net::TcpListener as StdListener, rc::Rc, sync::Arc,
    time::Duration,
};

use hyper::server::conn::http1::Builder;
use sandtide_runtime::{Reactor, Runtime, Totals};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{LocalSet, spawn_local, yield_now},
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    connection::{Connections, serve},
    doorbell::Doorbell,
    server::Options,
    timers::TokioTimers,
};

/// How long to wait before accepting again when that failed: usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a reactor thread is made from.
pub(crate) struct Plan {
    pub(crate) index: usize,
    pub(crate) reactors: usize,
    pub(crate) listeners: Vec<StdListener>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) options: Options,
    /// Changes when the server is to shut down.
    pub(crate) shutdown: watch::Receiver<bool>,
}

/// Runs the thread until the shutdown. Returns what it counted.
pub(crate) fn run(plan: Plan) -> io::Result<Totals> {
    let event_loop = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = LocalSet::new();
    local.block_on(&event_loop, plan.serve())
}

impl Plan {
    async fn serve(mut self) -> io::Result<Totals> {
        let reactor = self.runtime.reactor(self.index, self.reactors, Box::new(TokioTimers));
        let connections = Rc::new(Connections::default());
        let doorbell = Rc::new(Doorbell::new()?);
        let bell = doorbell.clone();
        reactor.turnstile().set_doorbell(Box::new(move || bell.rings()));
        let http = Rc::new(self.options.http1());
        spawn_local(drive_turnstile(reactor.clone()));
        spawn_local(finish_abandoned(reactor.clone()));
        spawn_local(tick(reactor.clone()));
        let mut acceptors = Vec::new();
        for listener in self.listeners.drain(..) {
            let listener = TcpListener::from_std(listener)?;
            let (http, reactor, connections) = (http.clone(), reactor.clone(), connections.clone());
            let doorbell = doorbell.clone();
            acceptors.push(spawn_local(accept(listener, http, reactor, connections, doorbell)));
        }
        // An error means that the server is gone, which is a shutdown, too.
        let _ = self.shutdown.wait_for(|stop| *stop).await;
        for acceptor in acceptors {
            acceptor.abort();
            let _ = acceptor.await;
        }
        connections.drain();
        let drained = poll_fn(|cx| connections.poll_drained(cx));
        if timeout(self.options.drain, drained).await.is_err() {
            let left = connections.len();
            tracing::warn!(connections = left, "cut off connections that did not end in time");
        }
        Ok(reactor.totals())
    }
}

async fn accept(
    listener: TcpListener,
    http: Rc<Builder>,
    reactor: Rc<Reactor>,
    connections: Rc<Connections>,
    doorbell: Rc<Doorbell>,
) -> Infallible {
    doorbell.watch(&listener);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                doorbell.watch(&stream);
                spawn_local(serve(stream, http.clone(), reactor.clone(), connections.clone()));
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether only the connection that was to be accepted is concerned.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
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

async fn tick(reactor: Rc<Reactor>) -> Infallible {
    let mut seconds = interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        reactor.tick();
    }
}
