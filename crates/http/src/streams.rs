//! HTTP/2: hyper's connection, and each of its streams a task of its own on the reactor's thread.
//!
//! ```text
//!   connection ─ frames ─▶ Front::call ─▶ Answering      the guest runs when its task is polled
//!        ▲                                   │
//!        └── flow control ── stream task ────┘           and waits when the client's window is full
//! ```
//!
//! A task ends its stream when the client does not take the response in time; what was not sent
//! until then becomes a RST_STREAM. So does a response that breaks off.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use hyper::{rt::Executor, server::conn::http2};
use hyper_util::rt::TokioTimer;
use tokio::task::spawn_local;

use crate::{
    options::Options,
    patience::{Patience, Watch},
};

/// Bytes of request bodies that a client may send ahead of what guests read: for each stream, and
/// for all of a connection together.
const WINDOW: (u32, u32) = (256 << 10, 1 << 20);

/// Bytes of a response that wait for the client's window. Beyond them the guest waits.
const SEND_BUFFER: usize = 64 << 10;

/// Streams that a client may reset before they were looked at (CVE-2023-44487), and streams that
/// we may have to reset for its mistakes, before the connection is closed.
const RESETS: (usize, usize) = (20, 100);

/// How long a connection may be silent before it is asked for a sign of life, and how long that
/// may take.
const PING: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(20));

/// Runs streams. Hyper asks it to, right after it has called [`crate::front::Front`].
#[derive(Clone, Default)]
pub(crate) struct Streams {
    /// That of the stream that was called last and does not run yet.
    next: Rc<RefCell<Option<Rc<Patience>>>>,
}

impl Streams {
    /// A stream that is about to run.
    pub(crate) fn announce(&self) -> Rc<Patience> {
        let patience = Rc::new(Patience::default());
        self.next.replace(Some(patience.clone()));
        patience
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        match self.next.take() {
            Some(patience) => spawn_local(run(stream, patience)),
            None => spawn_local(stream),
        };
    }
}

/// Runs a stream until it ends or the client has taken too long.
async fn run(stream: impl Future<Output = ()>, patience: Rc<Patience>) {
    let mut stream = pin!(stream);
    let mut watch = Watch::default();
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else if patience.is_handed() {
            watch.poll_stalled(cx, &patience)
        } else {
            watch.poll_at(cx, patience.response())
        }
    })
    .await;
}

pub(crate) fn http2(options: &Options, streams: Streams) -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(streams);
    http.max_concurrent_streams(options.max_streams)
        .max_header_list_size(u32::try_from(options.max_head).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOW.0)
        .initial_connection_window_size(WINDOW.1)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS.0)
        .max_local_error_reset_streams(RESETS.1)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    http
}
