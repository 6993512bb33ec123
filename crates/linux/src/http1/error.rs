//! What can be wrong with a guest's response.

use sandtide_engine::{Fault, ResponseError};

/// Why the bytes of a guest are no response, or none that can be passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResponse {
    /// The head is not HTTP/1.
    #[error("the response is not HTTP/1: {0}")]
    Malformed(httparse::Error),
    /// The head does not end.
    #[error("the head of the response is over {limit} bytes")]
    HeadTooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The head has too many headers.
    #[error("the response has more than {limit} headers")]
    TooManyHeaders {
        /// The limit.
        limit: usize,
    },
    /// A header that cannot be sent on.
    #[error("the header `{name}` has a byte that no header may have")]
    BadHeader {
        /// Its name.
        name: String,
    },
    /// More than one length.
    #[error("the response has more than one `content-length`")]
    TwoLengths,
    /// A length that is no number.
    #[error("`{0}` is no `content-length`")]
    BadLength(String),
    /// Two ways to find the end.
    #[error("the response has a `content-length` and a `transfer-encoding`")]
    LengthAndCoding,
    /// A coding other than `chunked`.
    #[error("the transfer coding `{0}` is not known, only `chunked` is")]
    UnknownCoding(String),
    /// HTTP/1.0 has no codings.
    #[error("a response of HTTP/1.0 has no `transfer-encoding`")]
    CodingInHttp10,
    /// 101: nobody has asked for another protocol.
    #[error("the program answers 101, but upgrades are not supported and none was asked for")]
    Upgrade,
    /// A chunk that is none.
    #[error("a chunk of the body is malformed: {0}")]
    BadChunk(&'static str),
    /// The connection ended before the head did.
    #[error("the program closed the connection without an answer")]
    NoAnswer,
    /// The connection ended inside the response.
    #[error("the program closed the connection before the end of its response")]
    Truncated,
    /// It breaks a rule or a limit of responses.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

impl From<BadResponse> for Fault {
    fn from(error: BadResponse) -> Self {
        match error {
            BadResponse::Response(error) => Self::Response(error),
            error => Self::Protocol(format!("bad response: {error}")),
        }
    }
}
