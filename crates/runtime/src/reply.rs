//! What a host gets for a request.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sandtide_engine::{ExchangeId, Fault, ResponseHead};

use crate::{
    record::{Record, Refused},
    serving::Serving,
};

/// A response that is complete: nothing holds a sandbox for it any more.
#[derive(Debug)]
pub struct Whole {
    /// Status and headers.
    pub head: ResponseHead,
    /// The body.
    pub body: Bytes,
    /// The trailers, if there are any. Boxed because they are rare, and this is moved a lot.
    pub trailers: Option<Box<HeaderMap>>,
    /// How long the client may take to receive it.
    pub response_time: Duration,
    /// The record of the exchange, if records are wanted.
    pub record: Option<Box<Record>>,
}

impl Whole {
    /// How long a client may take to receive what is not a tenant's.
    pub const RESPONSE_TIME: Duration = Duration::from_secs(60);
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

/// The header that says that an answer is the host's own, and why (RFC 9209).
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Why a request is answered by us and not by its program. The client learns the status, one
/// line, and the correlation id; what happened stands in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It did not reach a sandbox; a wait of so many seconds may help.
    Refused(Refused, Option<u64>),
    /// The host does not take it for a request.
    Malformed(StatusCode, &'static str),
    HeadTimeout,
    BodyTooLarge,
    BodyBroken,
    BodyTimeout,
    Failure,
    GuestFault,
    /// As servers of such applications answer it.
    Exception,
    BadProtocol,
    AnswerTooLarge,
    OutOfMemory,
    OutOfInstructions,
    OutOfTime,
}

impl From<Refused> for Refusal {
    fn from(why: Refused) -> Self {
        Self::Refused(why, None)
    }
}

impl Refusal {
    pub(crate) fn of_fault(fault: &Fault) -> Self {
        use sandtide_engine::{BodyError, ResponseError};
        match fault {
            Fault::Deadline { .. } => Self::OutOfTime,
            Fault::Instructions { .. } => Self::OutOfInstructions,
            Fault::Memory { .. } => Self::OutOfMemory,
            Fault::RequestBody(BodyError::TooLarge { .. }) => Self::BodyTooLarge,
            Fault::RequestBody(BodyError::Aborted) => Self::BodyBroken,
            Fault::RequestBody(BodyError::TimedOut { .. }) => Self::BodyTimeout,
            Fault::Response(ResponseError::TooLarge { .. }) => Self::AnswerTooLarge,
            Fault::Response(_) | Fault::Protocol(_) => Self::BadProtocol,
            Fault::Exception(_) => Self::Exception,
            Fault::Trap(_) | Fault::Signal { .. } | Fault::Exit { .. } | Fault::Stalled { .. } => {
                Self::GuestFault
            }
        }
    }

    /// Whether a better program would not have been refused.
    pub(crate) fn is_of_program(self) -> bool {
        !matches!(
            self,
            Self::Refused(..) | Self::HeadTimeout | Self::BodyTooLarge | Self::BodyBroken
        )
    }

    /// A wait like this may help.
    pub(crate) fn after(why: Refused, wait: Duration) -> Self {
        Self::Refused(why, Some(whole_seconds(wait)))
    }

    pub(crate) fn status(self) -> StatusCode {
        self.told().0
    }

    /// What the client is told: the status, a line, and the value of [`PROXY_STATUS`]. The error
    /// types are those of RFC 9209 §2.3; `details` names the limit that was met, as the
    /// configuration does.
    fn told(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as S;
        match self {
            Self::Refused(Refused::NoTenant, _) => {
                (S::NOT_FOUND, "nothing answers here", "sandtide; error=destination_not_found")
            }
            Self::Refused(Refused::Unavailable, _) => (
                S::SERVICE_UNAVAILABLE,
                "the program is not available",
                "sandtide; error=destination_unavailable",
            ),
            Self::Refused(Refused::QueueFull, _) => (
                S::SERVICE_UNAVAILABLE,
                "too many requests at a time",
                "sandtide; error=connection_limit_reached; details=\"queue\"",
            ),
            Self::Refused(Refused::QueueTime, _) => (
                S::SERVICE_UNAVAILABLE,
                "too many requests at a time",
                "sandtide; error=connection_limit_reached; details=\"queue_time\"",
            ),
            Self::Refused(Refused::Rate, _) => (
                S::TOO_MANY_REQUESTS,
                "too many requests a second",
                "sandtide; error=http_request_error; details=\"requests_per_second\"",
            ),
            Self::Malformed(status, text) => (status, text, "sandtide; error=http_request_error"),
            Self::Refused(Refused::BadRequest, _) => {
                (S::BAD_REQUEST, "the request is malformed", "sandtide; error=http_request_error")
            }
            Self::HeadTimeout => (
                S::REQUEST_TIMEOUT,
                "the head of the request took too long",
                "sandtide; error=http_request_error; details=\"head_timeout\"",
            ),
            Self::BodyTooLarge | Self::Refused(Refused::RequestBody, _) => (
                S::PAYLOAD_TOO_LARGE,
                "the request body is too large",
                "sandtide; error=http_request_error; details=\"request_body\"",
            ),
            Self::BodyBroken => {
                (S::BAD_REQUEST, "the request body broke off", "sandtide; error=http_request_error")
            }
            Self::BodyTimeout => (
                S::REQUEST_TIMEOUT,
                "the request body took too long",
                "sandtide; error=http_request_error; details=\"body_timeout\"",
            ),
            Self::Failure => (
                S::INTERNAL_SERVER_ERROR,
                "the server failed",
                "sandtide; error=proxy_internal_error",
            ),
            Self::GuestFault => {
                (S::BAD_GATEWAY, "the program failed", "sandtide; error=connection_terminated")
            }
            Self::Exception => (
                S::INTERNAL_SERVER_ERROR,
                "the application failed",
                "sandtide; error=connection_terminated",
            ),
            Self::BadProtocol => {
                (S::BAD_GATEWAY, "the program failed", "sandtide; error=http_protocol_error")
            }
            Self::AnswerTooLarge => (
                S::BAD_GATEWAY,
                "the program failed",
                "sandtide; error=http_response_body_size; details=\"response_body\"",
            ),
            Self::OutOfMemory => (
                S::BAD_GATEWAY,
                "the program failed",
                "sandtide; error=connection_terminated; details=\"memory\"",
            ),
            Self::OutOfInstructions => (
                S::GATEWAY_TIMEOUT,
                "the program took too long",
                "sandtide; error=http_response_timeout; details=\"instructions\"",
            ),
            Self::OutOfTime => (
                S::GATEWAY_TIMEOUT,
                "the program took too long",
                "sandtide; error=http_response_timeout; details=\"wall_time\"",
            ),
        }
    }

    #[cold]
    pub(crate) fn answer(self, id: ExchangeId, record: Option<Box<Record>>) -> Whole {
        let (status, text, why) = self.told();
        let mut headers = HeaderMap::with_capacity(4);
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(PROXY_STATUS, HeaderValue::from_static(why));
        let id = id.to_string();
        if let Ok(value) = HeaderValue::from_str(&id) {
            headers.insert(REQUEST_ID, value);
        }
        if let Self::Refused(_, Some(seconds)) = self {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        let body = Bytes::from(format!("{}: {text} (request {id})\n", status.as_u16()));
        let response_time = Whole::RESPONSE_TIME;
        Whole {
            head: ResponseHead { status, headers },
            body,
            trailers: None,
            response_time,
            record,
        }
    }
}

/// For `retry-after`, which has no fractions (RFC 9110 §10.2.3): never too early.
fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).clamp(1, 3600)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `docs/limits.md` says of each limit what the client gets above it.
    #[test]
    fn what_the_client_is_told_is_documented() {
        let document = include_str!("../../../docs/limits.md");
        let limits: Vec<Vec<&str>> = document
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.split('|').map(str::trim).collect())
            .collect();
        let refusals = [
            Refused::QueueFull.into(),
            Refused::QueueTime.into(),
            Refused::Rate.into(),
            Refused::RequestBody.into(),
            Refusal::HeadTimeout,
            Refusal::BodyTooLarge,
            Refusal::BodyTimeout,
            Refusal::AnswerTooLarge,
            Refusal::OutOfMemory,
            Refusal::OutOfInstructions,
            Refusal::OutOfTime,
        ];
        for refusal in refusals {
            let (status, _, told) = refusal.told();
            let parts =
                told.strip_prefix("sandtide; error=").and_then(|t| t.split_once("; details="));
            let (error, limit) = parts.unwrap();
            let limit = limit.trim_matches('"');
            let names = [format!("`{limit}`"), format!("`limits.{limit}`")];
            let row = limits.iter().find(|row| names.iter().any(|name| name == row[1]));
            let Some(&[_, _, _, _, _, answer, documented, ..]) = row.map(Vec::as_slice) else {
                panic!("no limit `{limit}` in docs/limits.md");
            };
            assert!(answer.contains(status.as_str()), "{limit}: {status} is not {answer}");
            assert_eq!(documented, format!("`{error}`"), "{limit}");
        }
    }
}
