//! One connection, from accept to close.

use std::{
    error::Error as _,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use http::{HeaderValue, header};
use hyper::server::conn::{http1, http2};
use sandtide_runtime::Whole;
use tokio::io::ReadBuf;

use crate::{
    body::BodyError,
    connections::{Entry, Listed, Order},
    front::Front,
    head,
    host::Host,
    listen::Listen,
    open::Open,
    patience::Watch,
    peer::Peer,
    preface::{self, Protocol},
    proxy,
    streams::Streams,
    tls,
    transport::{Socket, Stream, Transport},
    wire::{Io, Wait, Wire},
};

/// Bytes that are read from a client whose connection is closing, so that it reads the response
/// and not a reset.
const LINGER: usize = 1 << 20;

/// Serves a connection until it ends.
pub(crate) async fn serve(
    stream: Stream,
    peer: Peer,
    listen: Arc<Listen>,
    host: Rc<Host>,
    listed: Listed,
) {
    let entry = &listed.entry;
    let established = until_told(entry, establish(stream, peer, &listen, &host, entry)).await;
    let Established { transport, peer, protocol } = match established {
        Some(Ok(Some(established))) => established,
        Some(Ok(None)) | None => return,
        Some(Err(error)) => return tracing::debug!(%error, "a connection was not established"),
    };
    let wire = Wire::new(transport, entry.clone());
    let open = Open::new(wire.clone(), peer, &host.options);
    let front = Front { host: host.clone(), open: open.clone() };
    let io = Io::new(wire.clone());
    let result = match protocol {
        Protocol::Http1 => drive(host.http1.serve_connection(io, front), &wire).await,
        Protocol::Http2 => {
            entry.set_streams();
            drive(host.http2.serve_connection(io, front), &wire).await
        }
    };
    end(result, &open, &host).await;
}

/// A connection before its first request.
struct Established {
    transport: Transport,
    peer: Peer,
    protocol: Protocol,
}

/// Finds out who is there and what is spoken. `None` if nobody says anything.
async fn establish(
    stream: Stream,
    mut peer: Peer,
    listen: &Listen,
    host: &Host,
    entry: &Entry,
) -> io::Result<Option<Established>> {
    let mut socket = Socket::new(stream);
    if listen.proxy_protocol {
        proxy::read_header(&mut socket, &mut peer).await?;
    }
    let (transport, protocol) = match &host.certificates {
        Some(certificates) if listen.tls => {
            let (stream, protocol) = tls::accept(socket, certificates.config(), &mut peer).await?;
            (Transport::Tls(Box::new(stream)), protocol)
        }
        _ => match preface::detect(&mut socket, entry).await? {
            Some(protocol) => (Transport::Plain(socket), protocol),
            None => return Ok(None),
        },
    };
    Ok(Some(Established { transport, peer, protocol }))
}

/// A connection of hyper's.
trait Speaks: Future<Output = hyper::Result<()>> {
    /// Begins nothing more.
    fn graceful_shutdown(self: Pin<&mut Self>);
}

impl Speaks for http1::Connection<Io, Front> {
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl Speaks for http2::Connection<Io, Front, Streams> {
    fn graceful_shutdown(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

async fn drive(connection: impl Speaks, wire: &Rc<Wire>) -> Result<(), End> {
    let mut connection = pin!(connection);
    let entry = &*wire.entry;
    let mut watch = Watch::default();
    let mut is_registered = false;
    let result = poll_fn(|cx| {
        if !is_registered {
            is_registered = true;
            entry.register(cx);
        }
        loop {
            let result = connection.as_mut().poll(cx);
            let sent = wire.poll_send(cx);
            if let Poll::Ready(result) = result {
                return Poll::Ready(result.map_err(End::from));
            }
            // After the poll: what had arrived before the order has begun.
            match entry.take_order() {
                None => {}
                Some(Order::Cut) => return Poll::Ready(Err(End::Slow)),
                // It came just now.
                Some(Order::HeadTimeout) if !entry.awaits_head() => {}
                Some(Order::HeadTimeout) if entry.is_in_head() => {
                    return Poll::Ready(Err(End::HeadTimeout));
                }
                Some(Order::HeadTimeout | Order::Close) => {
                    entry.begin_close();
                    connection.as_mut().graceful_shutdown();
                    continue;
                }
            }
            entry.set_stalled(sent.is_pending());
            return match sent {
                Poll::Ready(Err(_)) => Poll::Ready(Err(End::Gone)),
                Poll::Ready(Ok(())) => match wire.wait() {
                    Wait::Nothing => {
                        if entry.has_streams() || !entry.has_exchanges() {
                            entry.patience.end();
                        }
                        Poll::Pending
                    }
                    // The room is there now, and nothing else would wake hyper.
                    Wait::Room => continue,
                    Wait::Socket => {
                        watch.poll_stalled(cx, &entry.patience).map(|()| Err(End::Slow))
                    }
                },
                Poll::Pending => watch.poll_stalled(cx, &entry.patience).map(|()| Err(End::Slow)),
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
    /// It did not take its response in time, or must make way.
    Slow,
    /// It did not send the head of its request in time.
    HeadTimeout,
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

/// Closes a connection that hyper is done with.
async fn end(result: Result<(), End>, open: &Open, host: &Host) {
    let (wire, entry) = (&open.wire, open.entry());
    match result {
        Err(End::Slow | End::Broken) => return wire.cut(),
        Err(End::HeadTimeout) if wire.wait() != Wait::Nothing => return wire.cut(),
        Err(End::HeadTimeout) => {
            entry.begin_close();
            wire.hold(&last_answer(host.reactor.give_up()));
            if !matches!(until_told(entry, poll_fn(|cx| wire.poll_close(cx))).await, Some(Ok(()))) {
                return;
            }
        }
        Ok(()) if !open.has_unread() => return,
        Ok(()) | Err(End::Gone) => {}
    }
    if !wire.has_ended() {
        linger(wire).await;
    }
}

/// The bytes of an answer behind which an HTTP/1 connection closes. Hyper writes none for a request
/// that it has not read.
fn last_answer(answer: Whole) -> Vec<u8> {
    let Whole { mut head, body, .. } = answer;
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let mut bytes = head::encode(&head);
    bytes.extend_from_slice(&body);
    bytes
}

/// Reads what a client still sends. The kernel answers bytes that nobody reads with a reset, which
/// could overtake the response.
async fn linger(wire: &Wire) {
    wire.entry.begin_close();
    let mut left = LINGER;
    let mut buffer = vec![0; 16 << 10];
    let drained = poll_fn(|cx| {
        while left > 0 {
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = ready!(wire.poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            left = left.saturating_sub(buffer.filled().len());
        }
        Poll::Ready(())
    });
    until_told(&wire.entry, drained).await;
}

/// What comes first: the future's end, or `None` when the connection is told that it takes too
/// long.
async fn until_told<T>(entry: &Entry, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|cx| {
        entry.register(cx);
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        match entry.order() {
            Some(Order::Cut | Order::HeadTimeout) => Poll::Ready(None),
            // It has to hurry.
            Some(Order::Close) => {
                entry.begin_close();
                Poll::Pending
            }
            None => Poll::Pending,
        }
    })
    .await
}
