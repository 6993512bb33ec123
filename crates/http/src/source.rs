//! A request's body on its way to the guest.

use std::{
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http_body::Body;
use hyper::body::Incoming;
use sandtide_engine::{BodyError, BodySource, Frame, RequestBody};
use tokio::time::{Instant, Sleep, sleep};

use crate::open::Open;

/// Hyper's body, up to the tenant's limit.
struct ClientBody {
    incoming: Incoming,
    left: u64,
    limit: u64,
    /// How long the client may be silent, while the body is waited for.
    silence: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether the timer runs.
    is_waiting: bool,
    has_ended: bool,
    open: Rc<Open>,
}

/// The body as the runtime takes it; at most `limit` bytes of it.
pub(crate) fn request_body(
    incoming: Incoming,
    limit: u64,
    open: &Rc<Open>,
    silence: Duration,
) -> RequestBody {
    if incoming.is_end_stream() {
        return RequestBody::empty();
    }
    let length = incoming.size_hint().exact();
    let body = ClientBody {
        incoming,
        left: limit,
        limit,
        silence,
        timer: None,
        is_waiting: false,
        has_ended: false,
        open: open.clone(),
    };
    RequestBody::streaming(Box::new(body), length)
}

impl BodySource for ClientBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    ready!(self.poll_silence(cx));
                    return Poll::Ready(Some(Err(BodyError::TimedOut { limit: self.silence })));
                }
            };
            self.is_waiting = false;
            let frame = match frame {
                None => {
                    self.has_ended = true;
                    return Poll::Ready(None);
                }
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
                    Ok(trailers) => {
                        self.has_ended = true;
                        Frame::Trailers(trailers)
                    }
                    Err(_) => continue,
                },
            };
            return Poll::Ready(Some(Ok(frame)));
        }
    }
}

impl ClientBody {
    /// Ready when the client has been silent for too long.
    fn poll_silence(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let silence = self.silence;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(silence)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            timer.as_mut().reset(Instant::now() + silence);
        }
        timer.as_mut().poll(cx)
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        if !self.has_ended && !self.incoming.is_end_stream() {
            self.open.leave_unread();
        }
    }
}
