//! One request being answered.

use std::{fmt, net::SocketAddr, rc::Rc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Uri, header, request::Parts};

use crate::{RequestBody, Response};

/// The correlation id of an exchange: in the client's error page, in the log, and in the guest's
/// request block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExchangeId(pub u64);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What an exchange is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// A client's request.
    #[default]
    Request,
    /// The guest is to answer with its state, because another version takes over.
    Save,
    /// The body is the state that the version before it has saved.
    Restore,
}

/// Headers that a host adds to the requests of a connection. They are no part of a request's map,
/// where each would be hashed and moved for each request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AddedHeaders {
    /// Those that are the same for all requests.
    pub fields: Vec<(HeaderName, HeaderValue)>,
    /// The name of the one that repeats whom the request is addressed to.
    pub authority: Option<HeaderName>,
}

/// What is known of the connection that a request came by: the same for all of its requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The client's address; `None` on a Unix socket.
    pub client: Option<SocketAddr>,
    /// The address that it connected to, likewise.
    pub local: Option<SocketAddr>,
    /// Whether it is encrypted.
    pub is_tls: bool,
}

/// A request with what a host knows beside it.
pub struct Incoming {
    /// Its body.
    pub body: RequestBody,
    /// Headers for the guest beside the request's own.
    pub added: Option<Rc<AddedHeaders>>,
    /// The connection; `None` if there is none.
    pub connection: Option<Rc<Connection>>,
}

impl From<RequestBody> for Incoming {
    fn from(body: RequestBody) -> Self {
        Self { body, added: None, connection: None }
    }
}

/// A request and the response that grows for it.
///
/// It lives on one thread. The host makes it, the sandbox reads `request` and `body` and writes
/// `response`, and the host takes the response out as it comes.
pub struct Exchange {
    /// The correlation id.
    pub id: ExchangeId,
    /// What it is for; a client's request unless something else is set.
    pub purpose: Purpose,
    /// Method, target, version and headers.
    pub request: Parts,
    /// Headers beside those of the request: see [`Exchange::headers`].
    pub added: Option<Rc<AddedHeaders>>,
    /// The connection that it came by, if it came by one.
    pub connection: Option<Rc<Connection>>,
    /// The request's body and trailers.
    pub body: RequestBody,
    /// The response so far.
    pub response: Response,
}

impl Exchange {
    /// A request with nothing answered yet. The response holds at most `response_limit` bytes of
    /// body in total.
    pub fn new(
        id: ExchangeId,
        request: Parts,
        incoming: impl Into<Incoming>,
        response_limit: u64,
    ) -> Self {
        let response = Response::new(response_limit);
        let Incoming { body, added, connection } = incoming.into();
        Self { id, purpose: Purpose::Request, request, added, connection, body, response }
    }

    /// The headers that the guest gets: names, and values.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        headers_of(&self.request, self.added.as_deref(), self.authority())
    }

    /// Asks a guest for its state ([`Purpose::Save`]): the body of a 200, of at most
    /// `response_limit` bytes.
    pub fn save(id: ExchangeId, response_limit: u64) -> Self {
        Self::event(id, Purpose::Save, RequestBody::empty(), response_limit)
    }

    /// Hands a guest the state of the version before it ([`Purpose::Restore`]); a 200 says that
    /// it has taken it. The response holds at most `response_limit` bytes of body.
    pub fn restore(id: ExchangeId, state: Bytes, response_limit: u64) -> Self {
        Self::event(id, Purpose::Restore, RequestBody::whole(state), response_limit)
    }

    /// An exchange that no client asked for. Nothing but `purpose` says so; method and target are
    /// for logs.
    fn event(id: ExchangeId, purpose: Purpose, body: RequestBody, response_limit: u64) -> Self {
        let (mut parts, ()) = Request::new(()).into_parts();
        let method: &[u8] = if purpose == Purpose::Save { b"SAVE" } else { b"RESTORE" };
        parts.method = Method::from_bytes(method).unwrap_or_default();
        parts.uri = Uri::from_static("*");
        Self { purpose, ..Self::new(id, parts, body, response_limit) }
    }

    /// Whom the request is addressed to: see [`authority_of`].
    pub fn authority(&self) -> &str {
        authority_of(&self.request)
    }
}

/// Whom a request is addressed to: the target's authority, or else the `Host` header. Empty if
/// there is neither.
pub fn authority_of(request: &Parts) -> &str {
    match request.uri.authority() {
        Some(authority) => authority.as_str(),
        None => request
            .headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default(),
    }
}

/// As [`Exchange::headers`], for who knows already whom the request is addressed to.
pub fn headers_of<'a>(
    request: &'a Parts,
    added: Option<&'a AddedHeaders>,
    authority: &'a str,
) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    let fields = added.map_or(&[][..], |added| &added.fields).iter();
    let repeated = added.and_then(|added| added.authority.as_ref());
    let repeated = repeated.filter(|_| !authority.is_empty());
    request
        .headers
        .iter()
        .chain(fields.map(|(name, value)| (name, value)))
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .chain(repeated.map(|name| (name.as_str(), authority.as_bytes())))
}
