//! Whether the server works, and whether it wants requests.

use std::{fmt::Write, time::Duration};

use http::StatusCode;
use sandtide_runtime::Runtime;

/// An event loop that has not turned for so long is stuck. A turn is a slice and some input, a
/// second at the very most.
const STUCK: Duration = Duration::from_secs(10);

/// Whether requests are welcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// Not yet.
    Starting,
    /// Not any more.
    Draining,
}

/// `/healthz`: all event loops turn.
pub(super) fn healthz(runtime: &Runtime) -> (StatusCode, String) {
    let stuck = runtime.silences().into_iter().filter(|(_, silence)| *silence > STUCK);
    let mut text = String::new();
    for (reactor, silence) in stuck {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "reactor {reactor} has not turned for {} s", silence.as_secs());
    }
    match text.is_empty() {
        true => (StatusCode::OK, "ok\n".into()),
        false => (StatusCode::SERVICE_UNAVAILABLE, text),
    }
}

/// `/readyz`: requests are welcome.
pub(super) fn readyz(readiness: Readiness) -> (StatusCode, String) {
    match readiness {
        Readiness::Ready => (StatusCode::OK, "ok\n".into()),
        Readiness::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n".into()),
        Readiness::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n".into()),
    }
}
