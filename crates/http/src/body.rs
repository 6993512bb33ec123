//! A response's body on its way to the client.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use sandtide_engine as engine;
use sandtide_runtime::Broken;

use crate::{flight::Flight, framing, watched::Watched};

/// What hyper sends.
pub(crate) enum ResponseBody {
    /// All of it.
    Full(Bytes, Flight),
    /// All of it, and trailers.
    Trailing(Box<Trailing>),
    /// The guest goes on while it is sent.
    Serving(Box<Stream>),
}

pub(crate) struct Trailing {
    data: Bytes,
    trailers: Option<HeaderMap>,
    flight: Flight,
}

/// The rest of an exchange.
pub(crate) struct Stream {
    serving: Watched,
    /// What the guest has written, and was not taken yet.
    ahead: Bytes,
    /// What is missing of the length that the guest announced.
    left: Option<u64>,
}

/// The response cannot be completed; the connection is cut.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BodyError {
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("exchange {0} answered another length than it announced")]
    Length(engine::ExchangeId),
}

impl ResponseBody {
    pub(crate) fn full(data: Bytes, flight: Flight) -> Self {
        if data.is_empty() {
            // Nobody asks for it.
            flight.land();
        }
        Self::Full(data, flight)
    }

    pub(crate) fn trailing(data: Bytes, trailers: HeaderMap, flight: Flight) -> Self {
        Self::Trailing(Box::new(Trailing { data, trailers: Some(trailers), flight }))
    }

    /// The rest of the exchange; of `length` bytes, if the guest announced that.
    pub(crate) fn serving(serving: Watched, length: Option<u64>) -> Self {
        Self::Serving(Box::new(Stream { serving, ahead: Bytes::new(), left: length }))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(match self.get_mut() {
            Self::Full(bytes, flight) => {
                let piece = take_piece(bytes, flight);
                if bytes.is_empty() {
                    flight.land();
                }
                (!piece.is_empty()).then(|| Ok(Frame::data(piece)))
            }
            Self::Trailing(whole) => {
                let piece = take_piece(&mut whole.data, &whole.flight);
                if piece.is_empty() {
                    whole.flight.land();
                    whole.trailers.take().map(|map| Ok(Frame::trailers(map)))
                } else {
                    Some(Ok(Frame::data(piece)))
                }
            }
            Self::Serving(stream) => ready!(stream.poll_frame(cx)),
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes, _) => bytes.is_empty(),
            Self::Trailing(whole) => whole.data.is_empty() && whole.trailers.is_none(),
            Self::Serving(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes, _) => SizeHint::with_exact(bytes.len() as u64),
            // A length would leave no room for the trailers in HTTP/1.1.
            Self::Trailing(_) => SizeHint::default(),
            Self::Serving(stream) => stream.left.map(SizeHint::with_exact).unwrap_or_default(),
        }
    }
}

/// What an HTTP/2 stream takes at a time: what hyper was given is out of our hands, and its client
/// may let it wait there for as long as the connection lives.
const PIECE: usize = 16 << 10;

fn take_piece(bytes: &mut Bytes, flight: &Flight) -> Bytes {
    let piece = if flight.is_stream() && bytes.len() > PIECE {
        bytes.split_to(PIECE)
    } else {
        std::mem::take(bytes)
    };
    flight.add_sent(piece.len());
    piece
}

impl Stream {
    fn first_piece(&mut self, data: Bytes) -> Bytes {
        self.ahead = data;
        take_piece(&mut self.ahead, self.serving.flight())
    }

    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.ahead.is_empty() {
            let piece = take_piece(&mut self.ahead, self.serving.flight());
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let frame = ready!(self.serving.poll_frame(cx));
        let id = self.serving.id();
        if !matches!(frame, Some(Ok(engine::Frame::Data(_)))) {
            self.serving.flight().land();
        }
        Poll::Ready(match frame {
            Some(Ok(engine::Frame::Data(data))) => match &mut self.left {
                None => Some(Ok(Frame::data(self.first_piece(data)))),
                Some(left) => match left.checked_sub(data.len() as u64) {
                    Some(rest) => {
                        *left = rest;
                        if rest == 0 {
                            self.serving.answered();
                        }
                        Some(Ok(Frame::data(self.first_piece(data))))
                    }
                    None => Some(Err(BodyError::Length(id))),
                },
            },
            Some(Ok(engine::Frame::Trailers(_))) | None if self.left.is_some_and(|n| n > 0) => {
                Some(Err(BodyError::Length(id)))
            }
            Some(Ok(engine::Frame::Trailers(mut map))) => {
                framing::clean_trailers(&mut map);
                Some(Ok(Frame::trailers(map)))
            }
            Some(Err(broken)) => Some(Err(broken.into())),
            None => None,
        })
    }
}
