//! From hyper's request to an exchange, and from its answer to hyper's response.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, service::Service};
use sandtide_engine::ResponseHead;
use sandtide_runtime::{Begun, Reactor, Reply, Whole};

use crate::{
    body::ResponseBody,
    check,
    framing::{self, Content},
    source::request_body,
    watched::Watched,
    wire::Wire,
};

/// Answers the requests of one connection.
pub(crate) struct Front {
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) wire: Rc<Wire>,
}

/// A response to come.
pub(crate) enum Answering {
    Ready(Option<Response<ResponseBody>>),
    Serving(Option<Pending>),
}

/// An exchange that has not answered yet.
pub(crate) struct Pending {
    serving: Watched,
    is_head: bool,
    /// The head of a response whose body is run to its end, but not sent.
    unsent: Option<ResponseHead>,
}

impl Service<Request<Incoming>> for Front {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        let (parts, incoming) = request.into_parts();
        if let Err(text) = check::check(&parts, &incoming) {
            return Answering::Ready(Some(bad_request(text)));
        }
        let is_head = parts.method == Method::HEAD;
        // Most guests answer in this call. Hyper polls what we return right after it, so nothing
        // is lost with a context that wakes nobody.
        let mut cx = Context::from_waker(Waker::noop());
        match self.reactor.begin(&mut cx, parts, |limit| request_body(incoming, limit)) {
            Begun::Whole(whole) => Answering::Ready(Some(response(whole, is_head))),
            Begun::Serving(serving) => {
                let serving = Watched::new(serving, self.wire.clone());
                Answering::Serving(Some(Pending { serving, is_head, unsent: None }))
            }
        }
    }
}

impl Future for Answering {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(response) => match response.take() {
                Some(response) => Poll::Ready(Ok(response)),
                None => Poll::Pending,
            },
            Self::Serving(slot) => {
                let Some(pending) = slot else { return Poll::Pending };
                let reply = ready!(pending.poll(cx));
                let Some(pending) = slot.take() else { return Poll::Pending };
                Poll::Ready(Ok(match reply {
                    Reply::Whole(whole) => response(whole, pending.is_head),
                    Reply::Streaming(head) => streaming(head, pending.serving),
                }))
            }
        }
    }
}

impl Pending {
    /// Polls to the head of a response with a body, and to the end of one without: its guest may
    /// still have to write its session, and it is not the guest's doing that nobody wants the
    /// body.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Reply> {
        if self.unsent.is_none() {
            let head = match ready!(self.serving.poll_head(cx)) {
                Reply::Streaming(head) => head,
                whole => return Poll::Ready(whole),
            };
            if Content::of(self.is_head, head.status) == Content::Body {
                return Poll::Ready(Reply::Streaming(head));
            }
            self.unsent = Some(head);
        }
        while let Some(Ok(_)) = ready!(self.serving.poll_frame(cx)) {}
        Poll::Ready(match self.unsent.take() {
            Some(head) => {
                let record = self.serving.leave();
                Reply::Whole(Whole { head, body: Bytes::new(), trailers: None, record })
            }
            None => return Poll::Pending,
        })
    }
}

#[cold]
fn bad_request(text: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Full(format!("400: {text}\n").into()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // What follows on this connection may be part of what was not understood.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response that is all there.
fn response(whole: Whole, is_head: bool) -> Response<ResponseBody> {
    let Whole { head: ResponseHead { status, mut headers }, body, trailers, record: _ } = whole;
    let announced = framing::take_framing(&mut headers);
    let body = match Content::of(is_head, status) {
        Content::Never => ResponseBody::Full(Bytes::new()),
        Content::HeadOnly => {
            if let (true, Some(length)) = (body.is_empty(), announced) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            ResponseBody::Full(body)
        }
        Content::Body => match trailers {
            None => ResponseBody::Full(body),
            Some(mut trailers) => {
                framing::clean_trailers(&mut trailers);
                framing::announce(&mut headers, &trailers);
                ResponseBody::trailing(body, *trailers)
            }
        },
    };
    with_head(status, headers, body)
}

/// A response whose body is still being made.
fn streaming(head: ResponseHead, serving: Watched) -> Response<ResponseBody> {
    let ResponseHead { status, mut headers } = head;
    let length = framing::take_framing(&mut headers);
    with_head(status, headers, ResponseBody::serving(serving, length))
}

fn with_head(
    status: StatusCode,
    headers: http::HeaderMap,
    body: ResponseBody,
) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}
