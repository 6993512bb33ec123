//! Until when a client may take its time with a response.

use std::{
    cell::Cell,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use sandtide_runtime::Whole;
use tokio::time::Sleep;

/// How long a client may hold up an exchange: one for each HTTP/1 connection, whose exchanges
/// follow one another, and one for each HTTP/2 stream.
///
/// There is no timer and no look at the clock as long as the client takes what is sent.
#[derive(Debug)]
pub(crate) struct Patience {
    /// When the exchange must have ended, while it holds a sandbox.
    sandbox: Cell<Option<Instant>>,
    /// How long the response may take, from its head until the client has taken it.
    response_time: Cell<Duration>,
    /// When it must have been taken, once that is known.
    response: Cell<Option<Instant>>,
    /// Whether the client has something to take before the exchange goes on.
    is_handed: Cell<bool>,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            sandbox: Cell::new(None),
            response_time: Cell::new(Whole::RESPONSE_TIME),
            response: Cell::new(None),
            is_handed: Cell::new(false),
        }
    }
}

impl Patience {
    /// Until when the sandbox may be held.
    pub(crate) fn set_sandbox(&self, deadline: Option<Instant>) {
        self.sandbox.set(deadline);
    }

    /// A complete response goes out. Its time is counted from when it does not.
    pub(crate) fn begin_whole(&self, time: Duration) {
        self.is_handed.set(true);
        self.response_time.set(time);
    }

    /// A response begins that is still being made.
    pub(crate) fn begin_streaming(&self, time: Duration) {
        self.response_time.set(time);
        self.response.set(Instant::now().checked_add(time));
    }

    /// Everything was taken.
    pub(crate) fn end(&self) {
        self.response.set(None);
    }

    pub(crate) fn set_handed(&self, is_handed: bool) {
        self.is_handed.set(is_handed);
    }

    /// Whether it does: an HTTP/1 connection sees that by its socket.
    pub(crate) fn is_handed(&self) -> bool {
        self.is_handed.get()
    }

    /// When the response must have been taken.
    pub(crate) fn response(&self) -> Option<Instant> {
        self.response.get()
    }

    /// When a client that does not read is given up.
    fn when_stalled(&self) -> Option<Instant> {
        if self.response.get().is_none() {
            self.response.set(Instant::now().checked_add(self.response_time.get()));
        }
        match (self.sandbox.get(), self.response.get()) {
            (Some(sandbox), Some(response)) => Some(sandbox.min(response)),
            (sandbox, response) => sandbox.or(response),
        }
    }
}

/// Waits for a deadline of a client that does not read.
#[derive(Default)]
pub(crate) struct Watch {
    timer: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Watch {
    /// To be polled while the client does not take what is there. Ready when it is given up.
    pub(crate) fn poll_stalled(&mut self, cx: &mut Context<'_>, patience: &Patience) -> Poll<()> {
        self.poll_at(cx, patience.when_stalled())
    }

    /// Ready at this time.
    pub(crate) fn poll_at(&mut self, cx: &mut Context<'_>, at: Option<Instant>) -> Poll<()> {
        let Some(at) = at else {
            self.timer = None;
            return Poll::Pending;
        };
        let (_, sleep) = match &mut self.timer {
            Some(timer) if timer.0 == at => timer,
            timer => timer.insert((at, Box::pin(tokio::time::sleep_until(at.into())))),
        };
        sleep.as_mut().poll(cx)
    }
}
