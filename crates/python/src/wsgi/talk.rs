//! One request and its response, between the application and the place that serves it.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::BytesMut;
use http::HeaderMap;
use pyo3::{exceptions::PyOSError, prelude::*, types::PyBytes};
use sandtide_engine::{BodyError, Exchange, Fault, Outcome, Response};

/// A body of at most so many bytes is here as a whole before an application is called on the reactor's
/// thread.
const SMALL: usize = 64 << 10;

/// What both sides know.
#[derive(Default)]
pub(crate) struct Talk {
    state: Mutex<State>,
    /// Told when the application has something to go on with.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    inbox: BytesMut,
    /// Whether nothing comes behind what is in the inbox.
    has_ended: bool,
    wants_body: bool,
    outbox: Vec<Piece>,
    /// Bytes in the outbox.
    pending: usize,
    is_finished: bool,
    failure: Option<String>,
    /// Whether the host had no room when it was last asked.
    is_full: bool,
    is_gone: bool,
    waker: Option<Waker>,
}

/// A piece of a response.
pub(crate) enum Piece {
    Begin(u16, HeaderMap),
    Write(Py<PyBytes>),
}

impl Talk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is here of the body; whether that is all of it, and not much.
    pub(crate) fn is_all_here(&self, exchange: &mut Exchange, cx: &mut Context<'_>) -> bool {
        let mut state = self.state();
        while !state.has_ended && state.inbox.len() < SMALL {
            let before = state.inbox.len();
            // What is wrong with it is found when the application wants it.
            if state.read(exchange, cx).is_err() || state.inbox.len() == before {
                break;
            }
        }
        state.has_ended
    }

    /// More of the body, for the application, which waits for it; empty at the end.
    pub(crate) fn body(&self, py: Python<'_>) -> PyResult<BytesMut> {
        let gone = || PyOSError::new_err("the client broke the request off");
        loop {
            let mut state = self.state();
            if !state.inbox.is_empty() {
                return Ok(state.inbox.split());
            }
            match (state.has_ended, state.is_gone) {
                (true, _) => return Ok(BytesMut::new()),
                (_, true) => return Err(gone()),
                (false, false) => {}
            }
            state.wants_body = true;
            state.wake();
            drop(state);
            py.detach(|| {
                let mut state = self.state();
                while state.inbox.is_empty() && !state.has_ended && !state.is_gone {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            });
        }
    }

    /// Takes a piece of the response. `waits`: for room, if there is none.
    pub(crate) fn add(&self, py: Python<'_>, piece: Piece, waits: bool) -> PyResult<()> {
        let mut state = self.state();
        if let Piece::Write(bytes) = &piece {
            state.pending += bytes.as_bytes(py).len();
        }
        state.outbox.push(piece);
        state.wake();
        if waits && !state.has_room() {
            drop(state);
            py.detach(|| {
                let mut state = self.state();
                while !state.has_room() && !state.is_gone {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            });
            state = self.state();
        }
        if state.is_gone { Err(PyOSError::new_err("the client is gone")) } else { Ok(()) }
    }

    /// The application has answered, or failed.
    pub(crate) fn finish(&self, failure: Option<String>) {
        let mut state = self.state();
        state.is_finished = failure.is_none();
        state.failure = failure;
        state.wake();
    }

    /// Whether an application that is asked piece by piece may be asked for one more.
    pub(crate) fn has_room(&self) -> bool {
        self.state().has_room()
    }

    /// Moves what is here between the application and its exchange. `Some` when the exchange is
    /// over.
    pub(crate) fn exchange(
        &self,
        py: Python<'_>,
        exchange: &mut Exchange,
        cx: &mut Context<'_>,
    ) -> Option<Outcome> {
        let mut state = self.state();
        if let Err(fault) = state.answer(py, &mut exchange.response) {
            return Some(Outcome::Fault(fault));
        }
        if exchange.response.is_finished() {
            return Some(Outcome::Done);
        }
        if let Some(text) = state.failure.take() {
            return Some(Outcome::Fault(Fault::Exception(text)));
        }
        state.is_full = exchange.response.is_full();
        if state.wants_body
            && let Err(error) = state.read(exchange, cx)
        {
            return Some(match error {
                BodyError::Aborted => Outcome::ClientGone,
                error => Outcome::Fault(Fault::RequestBody(error)),
            });
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        self.changed.notify_all();
        None
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.waker = None;
        self.changed.notify_all();
    }
}

impl State {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn has_room(&self) -> bool {
        !self.is_full && self.pending < Response::HIGH_WATER
    }

    /// Fetches the next piece of the body, if it is here.
    fn read(&mut self, exchange: &mut Exchange, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if self.has_ended {
            return Ok(());
        }
        let body = &mut exchange.body;
        let length = match body.poll_data(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(data) => {
                let data = data?;
                self.inbox.extend_from_slice(data);
                data.len()
            }
        };
        body.consume(length);
        self.wants_body = false;
        self.has_ended = length == 0 || body.known_length() == Some(body.consumed());
        Ok(())
    }

    /// Moves what the application has answered into the response.
    fn answer(&mut self, py: Python<'_>, response: &mut Response) -> Result<(), Fault> {
        for piece in self.outbox.drain(..) {
            match piece {
                Piece::Begin(status, headers) => response.begin(status, headers),
                Piece::Write(bytes) => response.write(bytes.as_bytes(py)),
            }
            .map_err(Fault::Response)?;
        }
        self.pending = 0;
        if self.is_finished && !response.is_finished() {
            response.finish(None).map_err(Fault::Response)?;
        }
        Ok(())
    }
}
