//! What the host changes in a request's headers before its guest sees them.

use std::{net::IpAddr, rc::Rc};

use http::{HeaderMap, request::Parts};
use sandtide_engine::AddedHeaders;
use sandtide_runtime::TraceContext;

use crate::{
    client_cert,
    forwarded::{Forwarder, is_forwarding},
    open::Open,
    trace::{self, TracePolicy},
};

/// What is known of a request beside its headers.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The client's address; `None` behind a Unix socket that nobody vouches for.
    pub(crate) client: Option<IpAddr>,
    /// Boxed, since most have none.
    pub(crate) trace: Option<Box<TraceContext>>,
}

/// Headers that need work.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    forwarding: bool,
    trace: bool,
}

/// One look at each name: nearly all requests have none of these.
pub(crate) fn find(headers: &HeaderMap) -> Found {
    let mut found = Found::default();
    for name in headers.keys() {
        let name = name.as_str();
        match name.as_bytes().first() {
            Some(b'x' | b'f') => found.forwarding |= is_forwarding(name),
            Some(b't') => found.trace |= matches!(name, "traceparent" | "tracestate"),
            _ => {}
        }
    }
    found
}

/// Believes or corrects what the headers say about the way that the request came.
pub(crate) fn correct(
    request: &mut Parts,
    found: &Found,
    forwarder: &Forwarder,
    policy: TracePolicy,
) -> Origin {
    let client = if found.forwarding { forwarder.renew(request) } else { forwarder.peer() };
    let trace = trace::apply(policy, request, found.trace);
    Origin { client, trace: trace.map(Box::new) }
}

/// Adds what only a guest reads: most of the cost of a request's headers is here.
pub(crate) fn complete(
    request: &mut Parts,
    found: &Found,
    open: &Open,
) -> Option<Rc<AddedHeaders>> {
    client_cert::apply(&mut request.headers, &open.peer);
    if found.forwarding { None } else { open.forwarder.tell(request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_need_work_are_found() {
        let found = |name: &'static str| {
            let name = http::HeaderName::from_static(name);
            find(&HeaderMap::from_iter([(name, http::HeaderValue::from_static("x"))]))
        };
        for name in ["x-forwarded-for", "x-forwarded-anything", "forwarded", "x-real-ip"] {
            assert_eq!(found(name), Found { forwarding: true, trace: false }, "{name}");
        }
        for name in ["traceparent", "tracestate"] {
            assert_eq!(found(name), Found { forwarding: false, trace: true }, "{name}");
        }
        for name in ["from", "x-forwarder", "te", "host", "x-request-id", "forwarded-for"] {
            assert_eq!(found(name), Found::default(), "{name}");
        }
    }
}
