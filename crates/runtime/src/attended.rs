//! One exchange after the other on a thread that may wait, outside of the reactors: for warming a
//! program up, and for handing state over.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::Request;
use sandtide_engine::{
    EngineError, Exchange, ExchangeId, Fault, Limits, Outcome, Program, Progress, RequestBody,
    ResetError, ResponseHead, Slice, SpawnError, Turn,
};

use crate::{
    log::TenantLog,
    pool::{Clean, Dirty},
};

/// Nobody else runs on this thread; but a guest that never ends has to be looked at.
const SLICE: Slice = Slice(Duration::from_millis(5));

/// A sandbox on a thread that may wait.
pub struct Attended {
    clean: Clean,
    limits: Limits,
}

/// What a guest has answered.
#[derive(Debug)]
pub struct Answered {
    /// Status and headers.
    pub head: ResponseHead,
    /// The whole body.
    pub body: Bytes,
}

/// Why a guest has not answered.
#[derive(Debug, thiserror::Error)]
pub enum AttendedError {
    /// The sandbox could not be made.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The guest ended badly.
    #[error("{0}")]
    Fault(Fault),
    /// We failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The sandbox could not be made ready for the next exchange.
    #[error(transparent)]
    Reset(#[from] ResetError),
}

impl Attended {
    /// Makes a sandbox of this program, with these limits for each exchange.
    pub fn spawn(
        program: &dyn Program,
        limits: &Limits,
        log: &Arc<TenantLog>,
    ) -> Result<Self, AttendedError> {
        let clean = Clean::spawn(program, log.console())?;
        Ok(Self { clean, limits: limits.clone() })
    }

    /// Has one request answered, and puts the sandbox back to its snapshot.
    pub fn request(self, request: Request<Bytes>) -> Result<(Answered, Self), AttendedError> {
        let (parts, body) = request.into_parts();
        let body = RequestBody::whole(body);
        let exchange = Exchange::new(new_id(), parts, body, self.limits.response_body);
        let mut dirty = self.clean.begin();
        match run(&mut dirty, exchange, &self.limits) {
            Ok(answered) => Ok((answered, Self { clean: dirty.reset()?, limits: self.limits })),
            Err(error) => {
                dirty.retire();
                Err(error)
            }
        }
    }
}

/// The id of an exchange that no client has asked for.
pub(crate) fn new_id() -> ExchangeId {
    ExchangeId(rand::random())
}

/// Runs one exchange to its end.
pub(crate) fn run(
    dirty: &mut Dirty,
    mut exchange: Exchange,
    limits: &Limits,
) -> Result<Answered, AttendedError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let deadline = Instant::now() + limits.wall_time;
    let mut body = BytesMut::new();
    let mut head = None;
    loop {
        let now = Instant::now();
        let progress = dirty.run(&mut Turn {
            cx: &mut cx,
            exchange: &mut exchange,
            now,
            slice: SLICE,
            deadline,
            interrupt: &|| false,
        });
        head = head.or_else(|| exchange.response.take_head());
        let data = exchange.response.take_data();
        let took = data.is_some();
        body.extend_from_slice(&data.unwrap_or_default());
        match progress {
            Progress::Ended(outcome) => return answered(outcome, head, body.freeze()),
            // The engine should have seen this by itself.
            _ if now >= deadline => {
                let (limit, backtrace) = (limits.wall_time, Vec::new());
                return Err(AttendedError::Fault(Fault::Deadline { limit, backtrace }));
            }
            Progress::Sliced => {}
            // There is room again.
            Progress::Waiting { .. } if took => {}
            Progress::Waiting { until } => {
                let until = until.map_or(deadline, |until| until.min(deadline));
                thread::park_timeout(until.saturating_duration_since(now));
            }
        }
    }
}

fn answered(
    outcome: Outcome,
    head: Option<ResponseHead>,
    body: Bytes,
) -> Result<Answered, AttendedError> {
    match (outcome, head) {
        (Outcome::Done, Some(head)) => Ok(Answered { head, body }),
        (Outcome::Done, None) => {
            Err(EngineError::Invariant("done without a finished response").into())
        }
        (Outcome::Fault(fault), _) => Err(AttendedError::Fault(fault)),
        (Outcome::ClientGone, _) => {
            Err(EngineError::Invariant("a body that is all here has no client").into())
        }
        (Outcome::Engine(error), _) => Err(error.into()),
    }
}

/// Wakes the thread that waits.
pub(crate) struct Unpark(pub(crate) Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
