//! What one exchange was, and what it used: for access logs.

use std::{
    mem,
    rc::Rc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, StatusCode, Uri, Version, request::Parts};
use sandtide_engine::{Exchange, ExchangeId, RequestBody, Usage};

/// One exchange that has ended. There is one for each request that reached a reactor, if
/// [`crate::Options::records`] asks for them.
#[derive(Debug)]
pub struct Record {
    /// The correlation id.
    pub id: ExchangeId,
    /// The tenant's name; `None` if nobody answers there.
    pub tenant: Option<Rc<str>>,
    /// The request, as the guest got it, but for what the host adds for every guest.
    pub request: RequestHead,
    /// How it ended.
    pub ending: Ending,
    /// What the client was answered, or was to be; `None` if it left before that.
    pub status: Option<StatusCode>,
    /// When it began.
    pub began: Instant,
    /// What it used.
    pub spent: Spent,
}

/// What a request begins with.
#[derive(Debug, Clone, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The target.
    pub uri: Uri,
    /// The version that it came in.
    pub version: Version,
    /// The headers.
    pub headers: HeaderMap,
}

impl RequestHead {
    /// Takes the head out of a request, piece by piece: it is large, and this is on the way of each
    /// exchange.
    pub(crate) fn take(request: &mut Parts) -> Self {
        Self {
            method: mem::take(&mut request.method),
            uri: mem::take(&mut request.uri),
            version: request.version,
            headers: mem::take(&mut request.headers),
        }
    }

    pub(crate) fn copy(request: &Parts) -> Self {
        Self {
            method: request.method.clone(),
            uri: request.uri.clone(),
            version: request.version,
            headers: request.headers.clone(),
        }
    }
}

/// What an exchange used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Instructions, pages and calls.
    pub usage: Usage,
    /// Time in the turns of its sandbox.
    pub cpu: Duration,
    /// Bytes of the request body that the guest read.
    pub bytes_in: u64,
    /// Bytes of response body that the guest wrote.
    pub bytes_out: u64,
    /// How long it waited for admission.
    pub queued: Duration,
    /// From its admission to the end of the guest's work.
    pub ran: Duration,
}

/// The clock's part of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) began: Instant,
    pub(crate) queued: Duration,
    pub(crate) ran: Duration,
    pub(crate) cpu: Duration,
}

impl Times {
    /// Those of an exchange that was admitted at once.
    pub(crate) fn beginning(began: Instant) -> Self {
        let none = Duration::ZERO;
        Self { began, queued: none, ran: none, cpu: none }
    }

    pub(crate) fn spent(&self, exchange: &Exchange, usage: Usage) -> Spent {
        Spent {
            usage,
            cpu: self.cpu,
            bytes_in: exchange.body.consumed(),
            bytes_out: exchange.response.written(),
            queued: self.queued,
            ran: self.ran,
        }
    }
}

/// What takes the place of an exchange that moves on.
pub(crate) fn no_exchange(id: ExchangeId) -> Exchange {
    let (request, ()) = http::Request::new(()).into_parts();
    Exchange::new(id, request, RequestBody::empty(), 0)
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was answered in full.
    Done,
    /// The guest ended badly; with the kind of the fault.
    Fault(&'static str),
    /// It was turned away before it reached a sandbox.
    Refused(Refused),
    /// The client went away or broke its request off.
    ClientGone,
    /// We failed.
    EngineFailure,
}

/// Why a request was turned away before it reached a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nobody answers at this authority and path.
    NoTenant,
    /// The tenant has no program that works.
    Unavailable,
    /// Too many exchanges of the tenant wait already.
    QueueFull,
    /// It waited too long for its admission.
    QueueTime,
    /// The tenant has had its requests of this second.
    Rate,
    /// It is not a request that HTTP knows, or over the host's own limits.
    BadRequest,
    /// Its body is announced to be longer than the tenant's limit.
    RequestBody,
}

impl Refused {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 7] = [
        Self::NoTenant,
        Self::Unavailable,
        Self::QueueFull,
        Self::QueueTime,
        Self::Rate,
        Self::BadRequest,
        Self::RequestBody,
    ];

    /// A word for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoTenant => "no_tenant",
            Self::Unavailable => "unavailable",
            Self::QueueFull => "queue_full",
            Self::QueueTime => "queue_time",
            Self::Rate => "rate",
            Self::BadRequest => "bad_request",
            Self::RequestBody => "request_body",
        }
    }
}

impl Ending {
    /// A word for metrics and logs: `done`, `fault`, `refused`, `client_gone`, `engine_failure`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Fault(_) => "fault",
            Self::Refused(_) => "refused",
            Self::ClientGone => "client_gone",
            Self::EngineFailure => "engine_failure",
        }
    }

    /// The kind of the fault or the reason of the refusal.
    pub fn detail(self) -> Option<&'static str> {
        match self {
            Self::Fault(kind) => Some(kind),
            Self::Refused(why) => Some(why.name()),
            Self::Done | Self::ClientGone | Self::EngineFailure => None,
        }
    }
}
