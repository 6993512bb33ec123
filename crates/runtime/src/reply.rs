//! What a host gets for a request.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sandtide_engine::{ExchangeId, Fault, ResponseHead};

use crate::serving::Serving;

/// A response that is complete: nothing holds a sandbox for it any more.
#[derive(Debug)]
pub struct Whole {
    /// Status and headers.
    pub head: ResponseHead,
    /// The body.
    pub body: Bytes,
    /// The trailers, if there are any. Boxed because they are rare, and this is moved a lot.
    pub trailers: Option<Box<HeaderMap>>,
}

/// What [`crate::Reactor::begin`] came to without waiting.
pub enum Begun {
    /// The exchange is over.
    Whole(Whole),
    /// It goes on when the host polls.
    Serving(Box<Serving>),
}

/// What [`Serving::poll_head`] came to.
#[derive(Debug)]
pub enum Reply {
    /// The exchange is over.
    Whole(Whole),
    /// The response has begun; the rest comes from [`Serving::poll_frame`].
    Streaming(ResponseHead),
}

/// The response ended badly after its head was sent. The host cuts the connection (or resets the
/// stream), so that the client cannot take it for complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("exchange {0} ended badly after its response had begun")]
pub struct Broken(pub ExchangeId);

/// The header that carries the correlation id of an error page.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Why a request is answered by us and not by its program. The client learns the status, one
/// line, and the correlation id; what happened stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoTenant,
    /// The program could not be loaded; it is tried again in so many seconds.
    Unavailable(u64),
    /// Admission; a wait of so many seconds may help.
    Busy(u64),
    /// The tenant's rate; there is room again in so many seconds.
    TooMany(u64),
    BodyTooLarge,
    BodyBroken,
    Failure,
    GuestFault,
    OutOfTime,
}

impl Refusal {
    pub(crate) fn of_fault(fault: &Fault) -> Self {
        use sandtide_engine::BodyError;
        match fault {
            Fault::Deadline { .. } | Fault::Instructions { .. } => Self::OutOfTime,
            Fault::RequestBody(BodyError::TooLarge { .. }) => Self::BodyTooLarge,
            Fault::RequestBody(BodyError::Aborted) => Self::BodyBroken,
            Fault::Trap(_)
            | Fault::Signal { .. }
            | Fault::Exit { .. }
            | Fault::Memory { .. }
            | Fault::Response(_)
            | Fault::Protocol(_)
            | Fault::Stalled { .. } => Self::GuestFault,
        }
    }

    pub(crate) fn busy(wait: Duration) -> Self {
        Self::Busy(whole_seconds(wait))
    }

    pub(crate) fn over_rate(wait: Duration) -> Self {
        Self::TooMany(whole_seconds(wait))
    }

    pub(crate) fn unavailable(wait: Duration) -> Self {
        Self::Unavailable(whole_seconds(wait))
    }

    fn parts(self) -> (StatusCode, &'static str) {
        match self {
            Self::NoTenant => (StatusCode::NOT_FOUND, "nothing answers here"),
            Self::Unavailable(_) => {
                (StatusCode::SERVICE_UNAVAILABLE, "the program is not available")
            }
            Self::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many requests at a time"),
            Self::TooMany(_) => (StatusCode::TOO_MANY_REQUESTS, "too many requests a second"),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "the request body broke off"),
            Self::Failure => (StatusCode::INTERNAL_SERVER_ERROR, "the server failed"),
            Self::GuestFault => (StatusCode::BAD_GATEWAY, "the program failed"),
            Self::OutOfTime => (StatusCode::GATEWAY_TIMEOUT, "the program took too long"),
        }
    }

    #[cold]
    pub(crate) fn answer(self, id: ExchangeId) -> Whole {
        let (status, text) = self.parts();
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        let id = id.to_string();
        if let Ok(value) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID, value);
        }
        if let Self::Busy(seconds) | Self::TooMany(seconds) | Self::Unavailable(seconds) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let body = Bytes::from(format!("{}: {text} (request {id})\n", status.as_u16()));
        Whole { head: ResponseHead { status, headers }, body, trailers: None }
    }
}

/// For `retry-after`, which has no fractions (RFC 9110 §10.2.3): never too early.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).clamp(1, 3600)
}
