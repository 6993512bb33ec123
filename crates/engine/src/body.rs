//! The body of a request, as the guest pulls it.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::HeaderMap;

/// One piece of a body.
#[derive(Debug)]
pub enum Frame {
    /// Bytes of the body; never empty when a [`RequestBody`] hands it out.
    Data(Bytes),
    /// The trailers. Nothing follows them.
    Trailers(HeaderMap),
}

/// Why a request body ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client went away or broke the framing.
    #[error("the client ended the request body early")]
    Aborted,
    /// The body is longer than the tenant's limit.
    #[error("the request body is over the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The client has sent nothing for too long.
    #[error("the client sent nothing of the request body for {limit:?}")]
    TimedOut {
        /// How long it may be silent.
        limit: Duration,
    },
}

/// Where a host's request body comes from. Polled only from the thread that serves the exchange.
pub trait BodySource {
    /// The next frame; `None` at the end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>>;
}

/// A request body: empty, whole, or arriving.
///
/// Data that a guest did not take in one read is kept for the next one.
#[derive(Default)]
pub struct RequestBody {
    source: Option<Box<dyn BodySource>>,
    pending: Bytes,
    trailers: Option<HeaderMap>,
    broken: Option<BodyError>,
    known_length: Option<u64>,
    consumed: u64,
}

impl RequestBody {
    /// No body at all.
    pub fn empty() -> Self {
        Self { known_length: Some(0), ..Self::default() }
    }

    /// A body that is already here.
    pub fn whole(bytes: Bytes) -> Self {
        let known_length = Some(bytes.len() as u64);
        Self { pending: bytes, known_length, ..Self::default() }
    }

    /// A body that arrives over time; `length` if the client announced it.
    pub fn streaming(source: Box<dyn BodySource>, length: Option<u64>) -> Self {
        Self { source: Some(source), known_length: length, ..Self::default() }
    }

    /// The announced length in bytes, if there was one.
    pub fn known_length(&self) -> Option<u64> {
        self.known_length
    }

    /// Polls until there is data to read or the body has ended. Ready with the unread bytes that
    /// are here; an empty slice means the end, after which [`Self::trailers`] are final. An error
    /// stays.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<&[u8], BodyError>> {
        if let Some(error) = &self.broken {
            return Poll::Ready(Err(error.clone()));
        }
        while self.pending.is_empty() {
            let Some(source) = &mut self.source else { break };
            match source.poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(Frame::Data(bytes)))) => self.pending = bytes,
                Poll::Ready(Some(Ok(Frame::Trailers(map)))) => {
                    self.trailers = Some(map);
                    self.source = None;
                }
                Poll::Ready(Some(Err(error))) => {
                    self.source = None;
                    self.broken = Some(error.clone());
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(None) => self.source = None,
            }
        }
        Poll::Ready(Ok(&self.pending))
    }

    /// Why the body broke off, if [`Self::poll_data`] has said that it did.
    pub fn broken(&self) -> Option<&BodyError> {
        self.broken.as_ref()
    }

    /// Drops the first `n` bytes of what [`Self::poll_data`] showed.
    ///
    /// # Panics
    /// If `n` is more than were shown.
    pub fn consume(&mut self, n: usize) {
        self.pending.advance(n);
        self.consumed += n as u64;
    }

    /// How many bytes were consumed so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// The request's trailers, once [`Self::poll_data`] has reached the end.
    pub fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    struct Broken(Option<Bytes>);

    impl BodySource for Broken {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            Poll::Ready(Some(match self.0.take() {
                Some(data) => Ok(Frame::Data(data)),
                None => Err(BodyError::Aborted),
            }))
        }
    }

    #[test]
    fn a_body_that_broke_off_stays_broken() {
        let mut cx = Context::from_waker(Waker::noop());
        let source = Broken(Some(Bytes::from_static(b"part")));
        let mut body = RequestBody::streaming(Box::new(source), None);
        assert_eq!(body.poll_data(&mut cx), Poll::Ready(Ok(&b"part"[..])));
        body.consume(4);
        assert_eq!(body.consumed(), 4);
        for _ in 0..2 {
            assert_eq!(body.poll_data(&mut cx), Poll::Ready(Err(BodyError::Aborted)));
            assert_eq!(body.broken(), Some(&BodyError::Aborted));
        }
    }
}
