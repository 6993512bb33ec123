//! A request's trace context, on its way to the guest.

use http::request::Parts;
use sandtide_runtime::{SpanId, TRACEPARENT, TRACESTATE, TraceContext, TraceId};

/// What is done with trace contexts (W3C Trace Context).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TracePolicy {
    /// Nothing: its headers are headers like any other.
    Off,
    /// A request that has one is a part of that trace. One that is not valid is removed.
    #[default]
    Propagate,
    /// As that; and a request that has none starts a trace.
    Always,
}

/// Makes the exchange a span of the trace that its request belongs to: the guest gets the
/// exchange's span as its parent. `found` says whether the request has a header of the kind.
pub(crate) fn apply(policy: TracePolicy, request: &mut Parts, found: bool) -> Option<TraceContext> {
    match (policy, found) {
        (TracePolicy::Off, _) | (TracePolicy::Propagate, false) => None,
        (TracePolicy::Propagate, true) => enter(request),
        (TracePolicy::Always, true) => enter(request).or_else(|| start(request)),
        (TracePolicy::Always, false) => start(request),
    }
}

/// A context is valid as a whole, or gone (§3.2.2, §3.3).
#[cold]
fn enter(request: &mut Parts) -> Option<TraceContext> {
    let Some(caller) = TraceContext::of(&request.headers) else {
        request.headers.remove(TRACEPARENT);
        request.headers.remove(TRACESTATE);
        return None;
    };
    let own = TraceContext { span: fresh_span(), ..caller };
    request.headers.insert(TRACEPARENT, own.header());
    Some(own)
}

fn start(request: &mut Parts) -> Option<TraceContext> {
    let trace = TraceId(rand::random::<u128>().max(1));
    let own = TraceContext { trace, span: fresh_span(), is_sampled: true };
    request.headers.insert(TRACEPARENT, own.header());
    Some(own)
}

fn fresh_span() -> SpanId {
    SpanId(rand::random::<u64>().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    /// What the guest gets for these two headers, and the context that is logged.
    fn applied(
        policy: TracePolicy,
        parent: Option<&str>,
        state: Option<&str>,
    ) -> (Option<String>, Option<String>, Option<TraceContext>) {
        let mut request = http::Request::get("/");
        if let Some(parent) = parent {
            request = request.header("traceparent", parent);
        }
        if let Some(state) = state {
            request = request.header("tracestate", state);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let context = apply(policy, &mut parts, parent.is_some() || state.is_some());
        let text = |name| parts.headers.get(name).map(|v: &http::HeaderValue| v.to_str().unwrap());
        (text(TRACEPARENT).map(str::to_owned), text(TRACESTATE).map(str::to_owned), context)
    }

    #[test]
    fn the_guest_gets_the_exchange_as_its_parent() {
        for policy in [TracePolicy::Propagate, TracePolicy::Always] {
            let (parent, state, context) = applied(policy, Some(VALID), Some("vendor=1"));
            let caller = TraceContext::parse(VALID.as_bytes()).unwrap();
            let context = context.unwrap();
            assert_eq!((context.trace, context.is_sampled), (caller.trace, caller.is_sampled));
            assert_ne!(context.span, caller.span);
            assert_eq!(parent.unwrap(), context.to_string());
            assert_eq!(state.unwrap(), "vendor=1");
        }
    }

    #[test]
    fn an_invalid_context_is_removed_with_its_state() {
        let (parent, state, context) =
            applied(TracePolicy::Propagate, Some("00-0-0-0"), Some("vendor=1"));
        assert_eq!((parent, state, context), (None, None, None));
        let (parent, state, _) = applied(TracePolicy::Propagate, None, Some("vendor=1"));
        assert_eq!((parent, state), (None, None), "a state of nothing");
        let (parent, state, context) = applied(TracePolicy::Always, Some("x"), Some("vendor=1"));
        assert_eq!((parent, state), (context.map(|context| context.to_string()), None));
    }

    #[test]
    fn always_starts_a_trace() {
        let (parent, _, first) = applied(TracePolicy::Always, None, None);
        assert_eq!(parent, first.map(|context| context.to_string()));
        let (_, _, second) = applied(TracePolicy::Always, None, None);
        assert_ne!(first.unwrap().trace, second.unwrap().trace);
        assert_eq!(applied(TracePolicy::Propagate, None, None), (None, None, None));
    }

    #[test]
    fn off_touches_nothing() {
        let (parent, state, context) = applied(TracePolicy::Off, Some("junk"), Some("x"));
        assert_eq!((parent.as_deref(), state.as_deref()), (Some("junk"), Some("x")));
        assert_eq!(context, None);
    }
}
