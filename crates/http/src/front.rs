//! From hyper's request to an exchange, and from its answer to hyper's response.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header, request::Parts};
use hyper::{body::Incoming, service::Service};
use sandtide_engine::ResponseHead;
use sandtide_runtime::{Begun, Reply, Whole};

use crate::{
    access_log::Line,
    body::ResponseBody,
    check,
    flight::Flight,
    framing::{self, Content},
    host::Host,
    inbound::{self, Origin},
    open::Open,
    source::request_body,
    watched::Watched,
};

/// Answers the requests of one connection.
pub(crate) struct Front {
    pub(crate) host: Rc<Host>,
    pub(crate) open: Rc<Open>,
}

/// A response to come.
pub(crate) enum Answering {
    Begin(Option<Box<Begin>>),
    Ready(Option<Response<ResponseBody>>),
    Serving(Option<Pending>),
}

/// A request on an HTTP/2 stream. Hyper calls for all requests that have arrived before it lets
/// any other task run, so that each begins when its own task does.
pub(crate) struct Begin {
    host: Rc<Host>,
    parts: Parts,
    incoming: Incoming,
    flight: Flight,
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
        if self.open.entry().has_streams() {
            let flight = Flight::new(self.open.clone(), Some(self.host.streams.announce()));
            let begin = Begin { host: self.host.clone(), parts, incoming, flight };
            return Answering::Begin(Some(Box::new(begin)));
        }
        let flight = Flight::new(self.open.clone(), None);
        if let Err(text) = check::check(&parts, &incoming) {
            let status = StatusCode::BAD_REQUEST;
            let mut response = refuse(&self.host, parts, status, text, flight);
            // What follows on this connection may be part of what was not understood.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return Answering::Ready(Some(response));
        }
        // Most guests answer in this call. Hyper polls what we return right after it, so nothing
        // is lost with a context that wakes nobody.
        begin(&mut Context::from_waker(Waker::noop()), &self.host, parts, incoming, flight)
    }
}

/// Begins the exchange of a request that is well formed.
fn begin(
    cx: &mut Context<'_>,
    host: &Host,
    mut parts: Parts,
    incoming: Incoming,
    mut flight: Flight,
) -> Answering {
    let found = inbound::find(&parts.headers);
    let forwarder = &flight.open().forwarder;
    let origin = inbound::correct(&mut parts, &found, forwarder, host.options.trace);
    if let Some(log) = &host.log {
        flight.set_line(Line::new(log.clone(), origin));
    }
    let is_head = parts.method == Method::HEAD;
    // HTTP/1.0 has no interim responses (RFC 9110 §15.2); hyper sends none in HTTP/2.
    let informs = parts.version == Version::HTTP_11;
    let prepare = |parts: &mut Parts, limit| {
        let added = inbound::complete(parts, &found, flight.open());
        let body = request_body(incoming, limit, flight.open(), host.options.body_timeout);
        let connection = Some(flight.open().connection.clone());
        sandtide_engine::Incoming { body, added, connection }
    };
    match host.reactor.begin(cx, &flight.open().client, parts, prepare) {
        Begun::Whole(whole) => Answering::Ready(Some(response(whole, is_head, flight))),
        Begun::Serving(serving) => {
            let serving = Watched::new(serving, flight, informs);
            Answering::Serving(Some(Pending { serving, is_head, unsent: None }))
        }
    }
}

impl Begin {
    fn begin(mut self, cx: &mut Context<'_>) -> Answering {
        match check::check_stream(&mut self.parts, self.host.options.max_headers) {
            Ok(()) => begin(cx, &self.host, self.parts, self.incoming, self.flight),
            Err((status, text)) => {
                let response = refuse(&self.host, self.parts, status, text, self.flight);
                Answering::Ready(Some(response))
            }
        }
    }
}

impl Future for Answering {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Self::Begin(begin) = this {
            let Some(begin) = begin.take() else { return Poll::Pending };
            *this = begin.begin(cx);
        }
        match this {
            Self::Begin(_) => Poll::Pending,
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

/// Answers a request that is not well formed.
#[cold]
fn refuse(
    host: &Host,
    request: Parts,
    status: StatusCode,
    text: &'static str,
    mut flight: Flight,
) -> Response<ResponseBody> {
    if let Some(log) = &host.log {
        let origin = Origin { client: flight.open().forwarder.peer(), trace: None };
        flight.set_line(Line::new(log.clone(), origin));
    }
    response(host.reactor.reject(request, status, text), false, flight)
}

/// A response that is all there.
fn response(whole: Whole, is_head: bool, flight: Flight) -> Response<ResponseBody> {
    let Whole { head: ResponseHead { status, mut headers }, body, trailers, response_time, record } =
        whole;
    flight.set_record(record);
    flight.patience().begin_whole(response_time);
    let announced = framing::take_framing(&mut headers);
    let body = match Content::of(is_head, status) {
        Content::Never => ResponseBody::full(Bytes::new(), flight),
        Content::HeadOnly => {
            let length = if body.is_empty() { announced } else { Some(body.len() as u64) };
            if let Some(length) = length {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            ResponseBody::full(Bytes::new(), flight)
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
