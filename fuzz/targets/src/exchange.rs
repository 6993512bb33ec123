//! Exchanges, and hosts that serve them.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, request::Parts};
use sandtide_engine::{
    BodyError, BodySource, Console, Exchange, ExchangeId, Frame, Outcome, Progress, RequestBody,
    Sandbox, Slice, Stream, Turn,
};

/// A console that nobody reads.
pub(crate) struct Quiet;

impl Console for Quiet {
    fn write(&self, _: Stream, _: &[u8]) {}
}

pub(crate) fn quiet() -> Arc<dyn Console> {
    Arc::new(Quiet)
}

/// What a client does next with its request body.
pub(crate) enum Piece {
    /// Nothing yet.
    Pending,
    /// A frame arrives.
    Frame(Frame),
    /// It breaks the body off.
    Broken(BodyError),
}

/// A client that sends a body in pieces; then it ends.
pub(crate) struct Client(pub(crate) VecDeque<Piece>);

impl BodySource for Client {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.0.pop_front() {
            Some(Piece::Pending) => Poll::Pending,
            Some(Piece::Frame(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Piece::Broken(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }
}

/// An ordinary request, with an ordinary body.
pub(crate) fn ordinary(response_limit: u64) -> Exchange {
    Exchange::new(
        ExchangeId(1),
        head("POST", "/path?query"),
        RequestBody::whole(Bytes::from_static(b"body")),
        response_limit,
    )
}

/// A request's head. What HTTP does not allow becomes `GET /`.
pub(crate) fn head(method: &str, target: &str) -> Parts {
    let request = Request::builder().method(method).uri(target).header("host", "h.example");
    let request = request.header("x-fuzz", "1").body(()).unwrap_or_default();
    request.into_parts().0
}

/// Serves an exchange as a host does, for at most `time`; `None` if the guest still waits then.
pub(crate) fn serve(
    sandbox: &mut dyn Sandbox,
    exchange: &mut Exchange,
    time: Duration,
) -> Option<Outcome> {
    let deadline = Instant::now() + time;
    loop {
        let mut turn = Turn {
            cx: &mut Context::from_waker(Waker::noop()),
            exchange,
            now: Instant::now(),
            slice: Slice(Duration::from_millis(1)),
            deadline,
            interrupt: &|| false,
        };
        match sandbox.run(&mut turn) {
            Progress::Ended(outcome) => return Some(outcome),
            Progress::Sliced => {}
            Progress::Waiting { .. } => {
                // Nothing else will come, except for room in the response.
                exchange.response.take_data()?;
            }
        }
    }
}
