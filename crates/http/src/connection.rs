//! One connection, from accept to close.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    error::Error as _,
    future::poll_fn,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::Instant,
};

use hyper::server::conn::http1::Builder;
use sandtide_runtime::Reactor;
use tokio::{net::TcpStream, time::Sleep};

use crate::{
    body::BodyError,
    front::Front,
    wire::{Io, Wait, Wire},
};

/// The connections of one reactor, and whether they are to end.
#[derive(Default)]
pub(crate) struct Connections {
    is_draining: Cell<bool>,
    next_key: Cell<u64>,
    open: RefCell<HashMap<u64, Waker>>,
    /// Waits for the last one to end.
    drained: RefCell<Option<Waker>>,
}

impl Connections {
    /// Tells all connections to end with the exchange they are in.
    pub(crate) fn drain(&self) {
        self.is_draining.set(true);
        for waker in self.open.borrow().values() {
            waker.wake_by_ref();
        }
    }

    /// Ready when no connection is open.
    pub(crate) fn poll_drained(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.open.borrow().is_empty() {
            return Poll::Ready(());
        }
        *self.drained.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.borrow().len()
    }
}

/// An entry in the list of open connections.
struct Open {
    connections: Rc<Connections>,
    key: u64,
}

impl Open {
    fn new(connections: &Rc<Connections>) -> Self {
        let key = connections.next_key.get();
        connections.next_key.set(key + 1);
        connections.open.borrow_mut().insert(key, Waker::noop().clone());
        Self { connections: connections.clone(), key }
    }

    fn register(&self, cx: &Context<'_>) {
        if let Some(waker) = self.connections.open.borrow_mut().get_mut(&self.key) {
            waker.clone_from(cx.waker());
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.connections.open.borrow_mut();
        open.remove(&self.key);
        if open.is_empty()
            && let Some(waker) = self.connections.drained.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

/// Serves a connection until it ends.
pub(crate) async fn serve(
    stream: TcpStream,
    http: Rc<Builder>,
    reactor: Rc<Reactor>,
    connections: Rc<Connections>,
) {
    let open = Open::new(&connections);
    let (io, wire) = Io::new(stream);
    let result = drive(io, &wire, &http, reactor, &open).await;
    if let Err(End::Slow | End::Broken) = result {
        wire.cut();
    }
    wire.close();
}

async fn drive(
    io: Io,
    wire: &Rc<Wire>,
    http: &Builder,
    reactor: Rc<Reactor>,
    open: &Open,
) -> Result<(), End> {
    let mut connection = pin!(http.serve_connection(io, Front { reactor, wire: wire.clone() }));
    let mut watch = Watch::default();
    let mut is_registered = false;
    let mut is_draining = false;
    let result = poll_fn(|cx| {
        // A task's waker stays the same, so that once is enough.
        if !is_registered {
            is_registered = true;
            open.register(cx);
        }
        if open.connections.is_draining.get() && !is_draining {
            is_draining = true;
            connection.as_mut().graceful_shutdown();
        }
        loop {
            let result = connection.as_mut().poll(cx);
            let sent = wire.poll_send(cx);
            return match (result, sent) {
                (Poll::Ready(result), _) => Poll::Ready(result.map_err(End::from)),
                (Poll::Pending, Poll::Ready(Err(_))) => Poll::Ready(Err(End::Gone)),
                (Poll::Pending, Poll::Ready(Ok(()))) => match wire.wait() {
                    Wait::Nothing => Poll::Pending,
                    // The room is there now, and nothing else would wake hyper.
                    Wait::Room => continue,
                    Wait::Socket => watch.poll(cx, wire).map(Err),
                },
                (Poll::Pending, Poll::Pending) => watch.poll(cx, wire).map(Err),
            };
        }
    })
    .await;
    if let Err(End::Broken) = result {
        // What was answered before it broke may go out, if there is room for it.
        let _ = wire.poll_send(&mut Context::from_waker(Waker::noop()));
    }
    result
}

/// Why a connection ends before its time.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The client went away or broke the protocol; hyper has said so to it.
    Gone,
    /// It did not take its response while a sandbox waited for it.
    Slow,
    /// The response cannot be completed.
    Broken,
}

impl From<hyper::Error> for End {
    fn from(error: hyper::Error) -> Self {
        tracing::debug!(%error, "a connection ended early");
        let broken = error.source().is_some_and(|source| source.is::<BodyError>());
        if broken { Self::Broken } else { Self::Gone }
    }
}

/// Watches the deadline of an exchange whose client does not read. There is no timer as long as
/// everything could be sent.
#[derive(Default)]
struct Watch {
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Watch {
    fn poll(&mut self, cx: &mut Context<'_>, wire: &Wire) -> Poll<End> {
        let Some(at) = wire.deadline() else {
            self.timer = None;
            return Poll::Pending;
        };
        let (_, sleep) = match &mut self.timer {
            Some(timer) if timer.0 == at => timer,
            timer => timer.insert((at, Box::pin(tokio::time::sleep_until(at.into())))),
        };
        sleep.as_mut().poll(cx).map(|()| End::Slow)
    }
}
