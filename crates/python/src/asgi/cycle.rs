//! One request and its response, between the application and the place that serves it.
//!
//! ```text
//!   place                     Cycle                    application
//!   body bytes, the end ────▶ inbox  ────receive()───▶
//!   the client is gone ─────▶
//!   exchange.response ◀────── outbox ◀────send()─────
//!        room ──────────────▶ the future of a send() that waits
//! ```
//!
//! The application may call at any time from the loop, when no exchange is in hand: what it says is
//! kept here, and the exchange is woken to fetch it.

use std::{
    fs::File,
    io::Read as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::HeaderMap;
use pyo3::{
    exceptions::{PyOSError, PyRuntimeError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyString},
};
use sandtide_engine::{BodyError, Exchange, Fault, Outcome, Response};

use crate::{
    asgi::message::Message,
    awaitable::{Ready, Waiting, What},
    event_loop::EventLoop,
    failure,
};

/// So much of a file is read at a time.
const PIECE: usize = 64 << 10;

/// The state of a request, shared by the application and the place of its exchange.
#[pyclass(frozen, module = "_sandtide")]
pub(crate) struct Cycle {
    event_loop: Arc<EventLoop>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // The request.
    inbox: Option<Bytes>,
    /// Whether nothing comes behind what is in the inbox.
    has_ended: bool,
    /// Whether the application has been told so.
    told_end: bool,
    /// Whether a `receive()` waits for body bytes.
    wants_body: bool,
    /// Whether the client is gone, or has its response.
    is_over: bool,
    /// Whether it was the client that ended it.
    is_gone: bool,
    readers: Vec<Py<PyAny>>,
    // The response.
    stage: Stage,
    outbox: Vec<Piece>,
    /// Bytes in the outbox.
    pending: usize,
    has_trailers: bool,
    trailers: Option<HeaderMap>,
    file: Option<File>,
    /// Whether the host has had no room when it was last asked.
    is_full: bool,
    writers: Vec<Py<PyAny>>,
    // Both.
    waker: Option<Waker>,
    task: Option<Py<PyAny>>,
    /// Whether the application has returned.
    has_returned: bool,
    failure: Option<String>,
}

/// How far the application's response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Head,
    Body,
    Trailers,
    Finished,
}

enum Piece {
    Inform(HeaderMap),
    Begin(u16, HeaderMap),
    Write(Py<PyBytes>),
}

impl Cycle {
    pub(crate) fn new(event_loop: Arc<EventLoop>, has_ended: bool) -> Self {
        let state = State { has_ended, ..State::default() };
        Self { event_loop, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a `receive()` or `send()` gets, if it is there.
    pub(crate) fn take<'py>(
        slf: &Bound<'py, Self>,
        what: What,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = slf.py();
        let mut state = slf.get().state();
        match what {
            What::Room if state.is_gone => Err(gone()),
            What::Room if state.has_room() => Ok(Some(py.None().into_bound(py))),
            What::Room => Ok(None),
            What::Message => state.take_message(py).map(|m| m.map(Bound::into_any)),
        }
    }

    /// A future that is done when it is worth to ask again.
    pub(crate) fn wait<'py>(&self, py: Python<'py>, what: What) -> PyResult<Bound<'py, PyAny>> {
        let future = self.event_loop.future(py)?;
        let mut state = self.state();
        match what {
            What::Message => {
                state.readers.push(future.clone().unbind());
                if !state.has_ended {
                    state.wants_body = true;
                    state.wake();
                }
            }
            What::Room => state.writers.push(future.clone().unbind()),
        }
        Ok(future)
    }

    /// Starts the application.
    pub(crate) fn start(
        slf: &Bound<'_, Self>,
        application: &Bound<'_, PyAny>,
        scope: Bound<'_, PyDict>,
    ) -> PyResult<()> {
        let py = slf.py();
        let own = slf.get();
        let receive = slf.getattr(intern!(py, "receive"))?;
        let send = slf.getattr(intern!(py, "send"))?;
        let coroutine = application.call1((scope, receive, send))?;
        let task = own.event_loop.start(&coroutine)?;
        if task.call_method0(intern!(py, "done"))?.is_truthy()? {
            own.returned(&task);
            return Ok(());
        }
        own.state().task = Some(task.clone().unbind());
        own.event_loop.keep(&task)?;
        let done = slf.getattr(intern!(py, "_done"))?;
        task.call_method1(intern!(py, "add_done_callback"), (done,)).map(drop)
    }

    /// The application has come to its end.
    fn returned(&self, task: &Bound<'_, PyAny>) {
        let py = task.py();
        let raised = task.call_method0(intern!(py, "exception"));
        let mut state = self.state();
        state.has_returned = true;
        state.task = None;
        let error = match raised {
            Ok(exception) if exception.is_none() => None,
            Ok(exception) => Some(PyErr::from_value(exception)),
            // It was cancelled.
            Err(error) => Some(error),
        };
        let is_finished = state.stage == Stage::Finished;
        let text = match &error {
            Some(error) => failure::line(py, error),
            None if is_finished || state.is_gone => return,
            None => "the application returned before its response was complete".to_owned(),
        };
        let is_gone = state.is_gone;
        state.failure = Some(text);
        state.wake();
        drop(state);
        match error {
            Some(error) if !is_gone => {
                failure::log(py, "an ASGI application raised an exception", &error);
            }
            _ => {}
        }
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
        let mut woken = Vec::new();
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
        if state.has_room() {
            woken.append(&mut state.writers);
        }
        if state.wants_body
            && let Err(error) = state.read(exchange, cx)
        {
            return Some(match error {
                BodyError::Aborted => Outcome::ClientGone,
                error => Outcome::Fault(Fault::RequestBody(error)),
            });
        }
        if !state.wants_body {
            woken.append(&mut state.readers);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        drop(state);
        resolve(py, woken);
        None
    }

    /// Has a first look at the body, so that what is here already need not be waited for.
    pub(crate) fn look(&self, exchange: &mut Exchange, cx: &mut Context<'_>) {
        // What is wrong with it is found when the application wants it.
        let _ = self.state().read(exchange, cx);
    }

    /// The exchange is over. `cancel`: the application shall not go on.
    pub(crate) fn end(&self, py: Python<'_>, is_gone: bool, cancel: bool) {
        let mut state = self.state();
        state.is_over = true;
        state.is_gone = is_gone;
        state.waker = None;
        state.file = None;
        let mut woken = std::mem::take(&mut state.readers);
        woken.append(&mut state.writers);
        let task = if cancel { state.task.take() } else { None };
        drop(state);
        resolve(py, woken);
        if let Some(task) = task {
            let _ = task.call_method0(py, intern!(py, "cancel"));
        }
    }
}

/// Ends the waiting of these futures.
fn resolve(py: Python<'_>, futures: Vec<Py<PyAny>>) {
    for future in futures {
        let future = future.bind(py);
        let is_done = future.call_method0(intern!(py, "done")).and_then(|done| done.is_truthy());
        if !is_done.unwrap_or(true) {
            let _ = future.call_method1(intern!(py, "set_result"), (py.None(),));
        }
    }
}

fn gone() -> PyErr {
    PyOSError::new_err("the client is gone")
}

impl State {
    fn wake(&mut self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn has_room(&self) -> bool {
        !self.is_full && self.pending < Response::HIGH_WATER && self.file.is_none() || self.is_over
    }

    /// The next message to the application, if there is one.
    fn take_message<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        if self.is_over || self.stage == Stage::Finished {
            let message = PyDict::new(py);
            message.set_item(intern!(py, "type"), intern!(py, "http.disconnect"))?;
            return Ok(Some(message));
        }
        let bytes = match self.inbox.take() {
            Some(bytes) => bytes,
            None if self.has_ended && !self.told_end => Bytes::new(),
            None => return Ok(None),
        };
        self.told_end = self.has_ended;
        let message = PyDict::new(py);
        message.set_item(intern!(py, "type"), intern!(py, "http.request"))?;
        message.set_item(intern!(py, "body"), PyBytes::new(py, &bytes))?;
        message.set_item(intern!(py, "more_body"), !self.has_ended)?;
        Ok(Some(message))
    }

    /// Fetches the next piece of the body, if it is here.
    fn read(&mut self, exchange: &mut Exchange, cx: &mut Context<'_>) -> Result<(), BodyError> {
        if self.inbox.is_some() || self.has_ended {
            self.wants_body = false;
            return Ok(());
        }
        let body = &mut exchange.body;
        let length = match body.poll_data(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(data) => {
                let data = data?;
                if !data.is_empty() {
                    self.inbox = Some(Bytes::copy_from_slice(data));
                }
                data.len()
            }
        };
        body.consume(length);
        self.wants_body = false;
        self.has_ended = length == 0 || body.known_length() == Some(body.consumed());
        Ok(())
    }

    /// Moves what the application has sent into the response.
    fn answer(&mut self, py: Python<'_>, response: &mut Response) -> Result<(), Fault> {
        for piece in self.outbox.drain(..) {
            match piece {
                Piece::Inform(headers) => response.inform(103, headers),
                Piece::Begin(status, headers) => response.begin(status, headers),
                Piece::Write(bytes) => response.write(bytes.as_bytes(py)),
            }
            .map_err(Fault::Response)?;
        }
        self.pending = 0;
        if let Some(file) = &mut self.file {
            let mut piece = vec![0; PIECE];
            while !response.is_full() {
                match file.read(&mut piece) {
                    Ok(0) => {
                        self.file = None;
                        self.stage =
                            if self.has_trailers { Stage::Trailers } else { Stage::Finished };
                        break;
                    }
                    Ok(length) => response.write(&piece[..length]).map_err(Fault::Response)?,
                    Err(error) => return Err(Fault::Exception(format!("cannot read: {error}"))),
                }
            }
        }
        if self.stage == Stage::Finished && !response.is_finished() {
            response.finish(self.trailers.take()).map_err(Fault::Response)?;
        }
        Ok(())
    }

    /// Takes an event of the application.
    fn send(&mut self, py: Python<'_>, message: Message) -> PyResult<()> {
        let misplaced = |what: &str| Err(PyRuntimeError::new_err(what.to_owned()));
        match (self.stage, message) {
            (_, Message::Ignored) => return Ok(()),
            (Stage::Head, Message::Start { status, headers, has_trailers }) => {
                self.outbox.push(Piece::Begin(status, headers));
                self.has_trailers = has_trailers;
                self.stage = Stage::Body;
                // Most heads are followed by a body at once.
                return Ok(());
            }
            (Stage::Head, Message::EarlyHint(headers)) => {
                self.outbox.push(Piece::Inform(headers));
            }
            (Stage::Head, _) => return misplaced("the response has no `http.response.start` yet"),
            (Stage::Body, Message::Body { .. } | Message::Path(_)) if self.file.is_some() => {
                return misplaced("nothing of a body follows a `pathsend`");
            }
            (Stage::Body, Message::Body { bytes, more }) => {
                if let Some(bytes) = bytes {
                    let length = bytes.as_bytes(py).len();
                    if length > 0 {
                        self.pending += length;
                        self.outbox.push(Piece::Write(bytes));
                    }
                }
                if !more {
                    self.stage = if self.has_trailers { Stage::Trailers } else { Stage::Finished };
                }
            }
            (Stage::Body, Message::Path(path)) => {
                let file = File::open(&path).map_err(|error| {
                    PyOSError::new_err(format!("cannot open `{path}`: {error}"))
                })?;
                self.file = Some(file);
            }
            (Stage::Trailers, Message::Trailers { headers, more }) => {
                self.trailers.get_or_insert_default().extend(headers);
                if !more {
                    self.stage = Stage::Finished;
                }
            }
            (Stage::Trailers, _) => return misplaced("only trailers follow the body"),
            (Stage::Finished, _) => return misplaced("the response is complete already"),
            (Stage::Body, _) => return misplaced("the response has been started already"),
        }
        self.wake();
        Ok(())
    }
}

#[pymethods]
impl Cycle {
    fn receive(slf: Bound<'_, Self>) -> PyResult<Py<Waiting>> {
        Py::new(slf.py(), Waiting::new(slf.clone().unbind(), What::Message))
    }

    fn send(slf: Bound<'_, Self>, event: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let message = Message::read(event)?;
        let mut state = slf.get().state();
        if state.is_gone {
            return Err(gone());
        }
        state.send(py, message)?;
        if state.has_room() {
            return Ok(ready(py)?.clone_ref(py).into_any());
        }
        drop(state);
        Ok(Py::new(py, Waiting::new(slf.clone().unbind(), What::Room))?.into_any())
    }

    fn _done(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        self.returned(task);
        self.event_loop.release(task)
    }

    fn __repr__<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, "<an exchange of sandtide>")
    }
}

/// What a `send()` that need not wait gives.
fn ready(py: Python<'_>) -> PyResult<&'static Py<Ready>> {
    static READY: PyOnceLock<Py<Ready>> = PyOnceLock::new();
    READY.get_or_try_init(py, || Py::new(py, Ready))
}
