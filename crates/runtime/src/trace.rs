//! Which trace a request belongs to (W3C Trace Context, level 1).

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header with the ids of the trace and of the caller's span.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The header with what tracing systems add for themselves.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// The flag that says that the trace is recorded.
const SAMPLED: u8 = 1;

/// A place in a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace. Never zero.
    pub trace: TraceId,
    /// The span. Never zero.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub is_sampled: bool,
}

/// The id of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub u128);

/// The id of a span.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl TraceContext {
    /// The context that a request's headers name; `None` if there is none, more than one, or one
    /// that is not valid.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Self::parse(value.as_bytes()),
            _ => None,
        }
    }

    /// `version-trace-span-flags`, in lower-case hexadecimal (§3.2.2). Later versions may be
    /// longer.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (head, more) = text.split_at_checked(LENGTH)?;
        if [head[2], head[35], head[52]] != *b"---" {
            return None;
        }
        let version = number(&head[..2])?;
        let is_length_right = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        let trace = number(&head[3..35])?;
        let span = u64::try_from(number(&head[36..52])?).ok()?;
        let flags = u8::try_from(number(&head[53..])?).ok()?;
        let is_valid = is_length_right && trace != 0 && span != 0;
        is_valid.then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            is_sampled: flags & SAMPLED != 0,
        })
    }

    /// The value of a `traceparent` of version 00.
    pub fn header(&self) -> HeaderValue {
        // Hexadecimal digits and dashes are always a value.
        HeaderValue::try_from(self.to_string()).unwrap_or(HeaderValue::from_static(""))
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}

/// Lower-case hexadecimal digits, at most 32.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0u128, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn valid_contexts() {
        let context = TraceContext::parse(VALID.as_bytes()).unwrap();
        assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(context.span.to_string(), "00f067aa0ba902b7");
        assert!(context.is_sampled);
        assert_eq!(context.header(), VALID);
        for later in ["cc-", "01-"] {
            let text = VALID.replacen("00-", later, 1);
            assert_eq!(TraceContext::parse(text.as_bytes()), Some(context));
            assert_eq!(TraceContext::parse((text + "-what-comes").as_bytes()), Some(context));
        }
        let unknown = VALID.replace("-01", "-fe");
        assert!(!TraceContext::parse(unknown.as_bytes()).unwrap().is_sampled);
    }

    #[test]
    fn contexts_that_are_none() {
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0g-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.x",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-001",
        ] {
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text}");
        }
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(TraceContext::of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(VALID));
        assert!(TraceContext::of(&headers).is_none(), "two of them");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(trace in 1u128.., span in 1u64.., is_sampled: bool) {
            let context = TraceContext { trace: TraceId(trace), span: SpanId(span), is_sampled };
            prop_assert_eq!(TraceContext::parse(context.to_string().as_bytes()), Some(context));
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            let _ = TraceContext::parse(&bytes);
        }
    }
}
