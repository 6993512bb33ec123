//! The response of an exchange, as it grows.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};

/// Status and headers.
#[derive(Debug)]
pub struct ResponseHead {
    /// The status.
    pub status: StatusCode,
    /// The headers, as the guest set them.
    pub headers: HeaderMap,
}

/// How a guest misused its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseError {
    /// A second head.
    #[error("the response was already begun")]
    AlreadyBegun,
    /// A body or an end without a head.
    #[error("the response has no status yet")]
    NotBegun,
    /// Anything after the end.
    #[error("the response was already finished")]
    AlreadyFinished,
    /// A status that is not 200 to 599 (RFC 9110 §15; 1xx do not end an exchange).
    #[error("{0} is not a final status")]
    BadStatus(u16),
    /// An interim status that is not 102 to 199: 100 and 101 are the host's (RFC 9110 §15.2).
    #[error("{0} is not an interim status that a program may send")]
    BadInterim(u16),
    /// More interim responses than anybody reads.
    #[error("more than {limit} interim responses")]
    TooManyInterim {
        /// How many there may be.
        limit: usize,
    },
    /// More body than the tenant's limit.
    #[error("the response body is over the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
}

/// A response between the sandbox that writes it and the host that takes it.
///
/// The sandbox calls `inform`, `begin`, `write`, `finish`; the host `take_interim`, `take_head`,
/// `take_data`, `take_trailers`. Bytes wait in one buffer; once [`Self::is_full`], the sandbox
/// waits until the host has taken them, which is how back-pressure reaches the guest.
#[derive(Debug)]
pub struct Response {
    interim: Vec<ResponseHead>,
    informed: usize,
    head: Option<ResponseHead>,
    pending: BytesMut,
    trailers: Option<HeaderMap>,
    /// Set once it is begun.
    status: Option<StatusCode>,
    finished: bool,
    written: u64,
    limit: u64,
}

impl Response {
    /// How many untaken bytes make a response full.
    pub const HIGH_WATER: usize = 64 << 10;

    /// How many interim responses one exchange may have.
    pub const MAX_INTERIM: usize = 16;

    pub(crate) fn new(limit: u64) -> Self {
        Self {
            interim: Vec::new(),
            informed: 0,
            head: None,
            pending: BytesMut::new(),
            trailers: None,
            status: None,
            finished: false,
            written: 0,
            limit,
        }
    }

    /// Adds an interim response (1xx), which goes to the client before the response begins.
    pub fn inform(&mut self, status: u16, headers: HeaderMap) -> Result<(), ResponseError> {
        if self.is_begun() {
            return Err(ResponseError::AlreadyBegun);
        }
        let status = match StatusCode::from_u16(status) {
            Ok(code) if (102..200).contains(&status) => code,
            _ => return Err(ResponseError::BadInterim(status)),
        };
        if self.informed == Self::MAX_INTERIM {
            return Err(ResponseError::TooManyInterim { limit: Self::MAX_INTERIM });
        }
        self.informed += 1;
        self.interim.push(ResponseHead { status, headers });
        Ok(())
    }

    /// Sets status and headers.
    pub fn begin(&mut self, status: u16, headers: HeaderMap) -> Result<(), ResponseError> {
        if self.is_begun() {
            return Err(ResponseError::AlreadyBegun);
        }
        let status = match StatusCode::from_u16(status) {
            Ok(code) if (200..600).contains(&status) => code,
            _ => return Err(ResponseError::BadStatus(status)),
        };
        self.status = Some(status);
        self.head = Some(ResponseHead { status, headers });
        Ok(())
    }

    /// Checks that `length` more bytes of body may be written, before they are copied.
    pub fn check_room(&self, length: u64) -> Result<(), ResponseError> {
        if !self.is_begun() {
            Err(ResponseError::NotBegun)
        } else if self.finished {
            Err(ResponseError::AlreadyFinished)
        } else if length > self.limit.saturating_sub(self.written) {
            Err(ResponseError::TooLarge { limit: self.limit })
        } else {
            Ok(())
        }
    }

    /// Appends to the body.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ResponseError> {
        self.check_room(bytes.len() as u64)?;
        self.written += bytes.len() as u64;
        if self.pending.capacity() == 0 {
            // A body in one piece gets just the room that it needs.
            self.pending = BytesMut::from(bytes);
        } else {
            self.pending.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Ends the response.
    pub fn finish(&mut self, trailers: Option<HeaderMap>) -> Result<(), ResponseError> {
        self.check_room(0)?;
        self.trailers = trailers;
        self.finished = true;
        Ok(())
    }

    /// Whether the sandbox must wait for the host to take bytes.
    pub fn is_full(&self) -> bool {
        self.pending.len() >= Self::HIGH_WATER
    }

    /// Whether a head has been written (and perhaps taken).
    pub fn is_begun(&self) -> bool {
        self.status.is_some()
    }

    /// The status, once a head has been written.
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Whether the host has taken the head: then nothing else can be answered.
    pub fn is_head_taken(&self) -> bool {
        self.is_begun() && self.head.is_none()
    }

    /// Whether the guest has ended the response.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Bytes of body written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Whether there are interim responses to take.
    pub fn has_interim(&self) -> bool {
        !self.interim.is_empty()
    }

    /// The interim responses that are here, in their order.
    pub fn take_interim(&mut self) -> Vec<ResponseHead> {
        std::mem::take(&mut self.interim)
    }

    /// The head, once.
    pub fn take_head(&mut self) -> Option<ResponseHead> {
        self.head.take()
    }

    /// The body bytes that are here, if any.
    pub fn take_data(&mut self) -> Option<Bytes> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending).freeze())
    }

    /// The trailers, once, after the end and after the data.
    pub fn take_trailers(&mut self) -> Option<HeaderMap> {
        if self.finished && self.pending.is_empty() { self.trailers.take() } else { None }
    }

    /// Throws away a response whose head the host has not taken, so that an error can be answered
    /// instead. `false` if the head is gone: then the stream can only be cut off.
    pub fn retract(&mut self) -> bool {
        if self.is_head_taken() {
            return false;
        }
        *self = Self::new(self.limit);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(limit: u64) -> Response {
        let mut response = Response::new(limit);
        response.begin(200, HeaderMap::new()).unwrap();
        response
    }

    #[test]
    fn a_response_has_one_order() {
        let mut response = Response::new(10);
        assert_eq!(response.write(b"x"), Err(ResponseError::NotBegun));
        assert_eq!(response.begin(100, HeaderMap::new()), Err(ResponseError::BadStatus(100)));
        assert_eq!(response.begin(99, HeaderMap::new()), Err(ResponseError::BadStatus(99)));
        response.begin(204, HeaderMap::new()).unwrap();
        assert_eq!(response.begin(200, HeaderMap::new()), Err(ResponseError::AlreadyBegun));
        response.finish(None).unwrap();
        assert_eq!(response.write(b"x"), Err(ResponseError::AlreadyFinished));
    }

    #[test]
    fn the_limit_counts_bytes_that_were_taken() {
        let mut response = begun(4);
        response.write(b"abc").unwrap();
        assert_eq!(response.take_data().as_deref(), Some(&b"abc"[..]));
        assert_eq!(response.write(b"de"), Err(ResponseError::TooLarge { limit: 4 }));
        response.write(b"d").unwrap();
    }

    #[test]
    fn a_taken_head_cannot_be_retracted() {
        let mut response = begun(4);
        assert!(response.retract());
        assert!(!response.is_begun());
        response.begin(200, HeaderMap::new()).unwrap();
        assert!(response.take_head().is_some());
        assert!(!response.retract());
    }

    #[test]
    fn interim_responses_come_before_the_response_and_are_few() {
        let mut response = Response::new(4);
        for status in [99, 100, 101, 200] {
            let inform = response.inform(status, HeaderMap::new());
            assert_eq!(inform, Err(ResponseError::BadInterim(status)));
        }
        for _ in 0..Response::MAX_INTERIM {
            response.inform(103, HeaderMap::new()).unwrap();
        }
        assert_eq!(response.take_interim().len(), Response::MAX_INTERIM);
        let limit = Response::MAX_INTERIM;
        let inform = response.inform(103, HeaderMap::new());
        assert_eq!(inform, Err(ResponseError::TooManyInterim { limit }));
        response.begin(200, HeaderMap::new()).unwrap();
        assert_eq!(response.inform(103, HeaderMap::new()), Err(ResponseError::AlreadyBegun));
    }

    #[test]
    fn trailers_come_after_the_data() {
        let mut response = begun(4);
        response.write(b"ab").unwrap();
        response.finish(Some(HeaderMap::new())).unwrap();
        assert!(response.take_trailers().is_none());
        response.take_data();
        assert!(response.take_trailers().is_some());
    }
}
