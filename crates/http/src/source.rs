//! A request's body on its way to the guest.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::Body;
use hyper::body::Incoming;
use sandtide_engine::{BodyError, BodySource, Frame, RequestBody};

/// Hyper's body, up to the tenant's limit.
struct ClientBody {
    incoming: Incoming,
    left: u64,
    limit: u64,
}

/// The body as the runtime takes it; at most `limit` bytes of it.
pub(crate) fn request_body(incoming: Incoming, limit: u64) -> RequestBody {
    if incoming.is_end_stream() {
        return RequestBody::empty();
    }
    let length = incoming.size_hint().exact();
    RequestBody::streaming(Box::new(ClientBody { incoming, left: limit, limit }), length)
}

impl BodySource for ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(_)) => return Poll::Ready(Some(Err(BodyError::Aborted))),
                Some(Ok(frame)) => frame,
            };
            let frame = match frame.into_data() {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => {
                    let Some(left) = self.left.checked_sub(data.len() as u64) else {
                        let limit = self.limit;
                        return Poll::Ready(Some(Err(BodyError::TooLarge { limit })));
                    };
                    self.left = left;
                    Frame::Data(data)
                }
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => Frame::Trailers(trailers),
                    Err(_) => continue,
                },
            };
            return Poll::Ready(Some(Ok(frame)));
        }
    }
}
