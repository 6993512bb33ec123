//! How the host serves.

use std::{sync::Arc, thread, time::Duration};

use crate::{forwarded::ForwardedPolicy, trace::TracePolicy};

/// Limits and times of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Reactor threads; at least one.
    pub threads: usize,
    /// Connections at a time, shared out among the threads. With one more, the connection is
    /// closed that has been idle longest; if none is idle, the new one waits.
    pub max_connections: usize,
    /// HTTP/2 streams at a time on one connection.
    pub max_streams: u32,
    /// The most bytes of a request's line and headers; what is over it gets a 431.
    pub max_head: usize,
    /// The most headers of a request; more get a 431.
    pub max_headers: usize,
    /// From the first byte of a request, or the start of the connection, to the end of its
    /// headers; then a 408, and the connection is closed.
    pub head_timeout: Duration,
    /// Between two requests of a connection.
    pub idle_timeout: Duration,
    /// How long a client may be silent in the middle of a request body that is waited for; then a
    /// 408.
    pub body_timeout: Duration,
    /// How long exchanges may go on after the shutdown began.
    pub drain: Duration,
    /// How long connections are still accepted after the shutdown was asked for, while
    /// [`crate::Draining`] says so already.
    pub drain_delay: Duration,
    /// Who may say who the client is, and how guests learn of it.
    pub forwarded: Arc<ForwardedPolicy>,
    /// What is done with trace contexts.
    pub trace: TracePolicy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: thread::available_parallelism().map_or(1, Into::into),
            max_connections: 10_000,
            max_streams: 128,
            max_head: 64 << 10,
            max_headers: 100,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(20),
            drain: Duration::from_secs(10),
            drain_delay: Duration::ZERO,
            forwarded: Arc::default(),
            trace: TracePolicy::default(),
        }
    }
}
