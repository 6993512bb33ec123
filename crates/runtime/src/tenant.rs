//! An owner's entry: what it answers, where, and what it may use.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use sandtide_engine::{Isolation, Limits, ResponseHead};

use crate::{
    log::TenantLog,
    rate::{Pace, Rate},
    record::Record,
    reply::Whole,
    route::Route,
    slot::Slot,
};

/// What a tenant answers with.
pub enum Answer {
    /// A program, in a sandbox.
    Program(Arc<Slot>),
    /// Always the same response, without a sandbox.
    Fixed(FixedResponse),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(slot) => write!(f, "Program({slot:?})"),
            Self::Fixed(fixed) => write!(f, "Fixed({})", fixed.status),
        }
    }
}

/// A response that is the same for every request.
#[derive(Debug, Clone)]
pub struct FixedResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers; the host adds the length and the date.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl FixedResponse {
    /// A text with status 200.
    pub fn text(body: impl Into<Bytes>) -> Self {
        let headers = HeaderMap::from_iter([(
            HeaderName::from_static("content-type"),
            HeaderValue::from_static("text/plain; charset=utf-8"),
        )]);
        Self { status: StatusCode::OK, headers, body: body.into() }
    }

    pub(crate) fn answer(&self, record: Option<Box<Record>>) -> Whole {
        Whole {
            head: ResponseHead { status: self.status, headers: self.headers.clone() },
            body: self.body.clone(),
            trailers: None,
            response_time: Whole::RESPONSE_TIME,
            record,
        }
    }
}

/// How many exchanges a tenant may have at a time, and how many may wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Exchanges in sandboxes at a time, in the whole server. Each reactor has its share of it,
    /// and at least one, so that no counter is shared between reactors.
    pub concurrency: u32,
    /// Exchanges that wait for one of these to end; per reactor, or in the whole server for a
    /// tenant that keeps its state. Above it the answer is 503.
    pub queue: u32,
    /// How long one waits at most before the answer is 503.
    pub queue_time: Duration,
    /// Sandboxes kept ready on each reactor however few are used at once.
    pub idle_sandboxes: u32,
    /// The share of computing time against other tenants that compute, 1 to 10,000.
    pub weight: u32,
    /// Requests a second in the whole server. `None` for as many as come.
    pub rate: Option<Rate>,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            concurrency: 128,
            queue: 1024,
            queue_time: Duration::from_secs(1),
            idle_sandboxes: 4,
            weight: 100,
            rate: None,
        }
    }
}

/// An owner's entry in the routing table.
pub struct Tenant {
    /// Its name, in logs and metrics.
    pub name: Arc<str>,
    /// Where it answers.
    pub routes: Vec<Route>,
    /// What it answers with.
    pub answer: Answer,
    /// What an exchange may use.
    pub limits: Limits,
    /// How many exchanges at a time.
    pub admission: Admission,
    /// Which exchanges share a sandbox, so that each starts from the state that the one before it
    /// left.
    pub isolation: Isolation,
    /// Where the output of its guests and the reports of its faults go.
    pub log: Arc<TenantLog>,
    pub(crate) pace: Pace,
}

impl Tenant {
    /// A tenant with default limits.
    pub fn new(name: impl Into<Arc<str>>, routes: Vec<Route>, answer: Answer) -> Self {
        let name = name.into();
        Self {
            log: Arc::new(TenantLog::new(name.clone(), Default::default())),
            name,
            routes,
            answer,
            limits: Limits::default(),
            admission: Admission::default(),
            isolation: Isolation::Request,
            pace: Pace::default(),
        }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant")
            .field("name", &self.name)
            .field("answer", &self.answer)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
