//! From hyper's request to an exchange, and from its answer to hyper's response.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::{body::Incoming, service::Service};
use sandtide_engine::ResponseHead;
use sandtide_runtime::{Begun, Reactor, Reply, Whole};

use crate::{
    body::ResponseBody,
    check,
    flight::Flight,
    framing::{self, Content},
    open::Open,
    source::request_body,
    watched::Watched,
};

/// Answers the requests of one connection.
pub(crate) struct Front {
    pub(crate) reactor: Rc<Reactor>,
    pub(crate) body_timeout: Duration,
    pub(crate) open: Rc<Open>,
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
        let flight = Flight::new(self.open.clone());
        if let Err(text) = check::check(&parts, &incoming) {
            return Answering::Ready(Some(bad_request(text, flight)));
        }
        let is_head = parts.method == Method::HEAD;
        // HTTP/1.0 has no interim responses (RFC 9110 §15.2); hyper sends none in HTTP/2.
        let informs = parts.version == Version::HTTP_11;
        // Most guests answer in this call. Hyper polls what we return right after it, so nothing
        // is lost with a context that wakes nobody.
        let mut cx = Context::from_waker(Waker::noop());
        let body = |limit| request_body(incoming, limit, &self.open, self.body_timeout);
        match self.reactor.begin(&mut cx, parts, body) {
            Begun::Whole(whole) => Answering::Ready(Some(response(whole, is_head, flight))),
            Begun::Serving(serving) => {
                let serving = Watched::new(serving, flight, informs);
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
                    Reply::Whole(whole) => {
                        response(whole, pending.is_head, pending.serving.into_flight())
                    }
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
                // Nothing is there to be taken.
                let response_time = Whole::RESPONSE_TIME;
                Reply::Whole(Whole {
                    head,
                    body: Bytes::new(),
                    trailers: None,
                    response_time,
                    record,
                })
            }
            None => return Poll::Pending,
        })
    }
}

#[cold]
fn bad_request(text: &'static str, flight: Flight) -> Response<ResponseBody> {
    let body = ResponseBody::full(format!("400: {text}\n").into(), flight);
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    // What follows on this connection may be part of what was not understood.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response that is all there.
fn response(whole: Whole, is_head: bool, flight: Flight) -> Response<ResponseBody> {
    let Whole {
        head: ResponseHead { status, mut headers },
        body,
        trailers,
        response_time,
        record: _,
    } = whole;
    flight.patience().begin_whole(response_time);
    let announced = framing::take_framing(&mut headers);
    let body = match Content::of(is_head, status) {
        Content::Never => ResponseBody::full(Bytes::new(), flight),
        Content::HeadOnly => {
            if let (true, Some(length)) = (body.is_empty(), announced) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            ResponseBody::full(body, flight)
        }
        Content::Body => match trailers {
            None => ResponseBody::full(body, flight),
            Some(mut trailers) => {
                framing::clean_trailers(&mut trailers);
                framing::announce(&mut headers, &trailers);
                ResponseBody::trailing(body, *trailers, flight)
            }
        },
    };
    with_head(status, headers, body)
}

/// A response whose body is still being made.
fn streaming(head: ResponseHead, serving: Watched) -> Response<ResponseBody> {
    let ResponseHead { status, mut headers } = head;
    let length = framing::take_framing(&mut headers);
    serving.begin_response();
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
