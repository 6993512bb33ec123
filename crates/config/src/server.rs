//! `[server]`: what the operator sets.

use std::{num::NonZeroUsize, time::Duration};

use crate::{
    Forwarded, Listen, forwarded, listen,
    reader::{Reader, Value},
};

/// The server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `listen`: where connections are accepted. Never empty. Default `"127.0.0.1:8080"`.
    pub listen: Vec<Listen>,
    /// `threads`: reactor threads, 1 to 1024. Default: one for each core that the server may use.
    pub threads: Option<NonZeroUsize>,
    /// `slice`: how long a sandbox may run before it lets others on its thread run, 50 us to 1 s.
    /// Default `"1 ms"`.
    pub slice: Duration,
    /// `drain`: how long exchanges may go on after the server was told to stop, up to 1 h.
    /// Default `"10 s"`.
    pub drain: Duration,
    /// `drain_delay`: how long connections are still accepted after the server was told to stop,
    /// while it already says that it is not ready, up to 1 h. Default none.
    pub drain_delay: Duration,
    /// `watch`: whether to reload when the configuration, a program or a certificate has changed.
    /// Default `true`.
    pub watch: bool,
    /// `max_connections`: connections at a time in the whole server, 1 to 1,000,000. Default
    /// 10,000.
    pub max_connections: u32,
    /// `max_streams`: HTTP/2 streams at a time on one connection, 1 to 10,000. Default 128.
    pub max_streams: u32,
    /// `max_head`: bytes of a request's first line and headers, 1 KiB to 1 MiB. Default 64 KiB.
    pub max_head: u32,
    /// `max_headers`: headers of a request, 1 to 10,000. Default 100.
    pub max_headers: u32,
    /// `head_timeout`: from the first byte of a request, or the start of a connection, to the end
    /// of its headers, 1 ms to 1 h. Default `"10 s"`.
    pub head_timeout: Duration,
    /// `idle_timeout`: between two requests of a connection, 1 ms to 24 h. Default `"60 s"`.
    pub idle_timeout: Duration,
    /// `body_timeout`: silence of a client in the middle of a request body, 1 ms to 1 h. Default
    /// `"20 s"`.
    pub body_timeout: Duration,
    /// `trace`: what is done with a request's trace context. Default [`Trace::Propagate`].
    pub trace: Trace,
    /// `[server.forwarded]`: who may say who the client is, and how guests learn of it.
    pub forwarded: Forwarded,
}

/// What is done with a request's trace context (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trace {
    /// `"off"`: nothing; its headers are headers like any other.
    Off,
    /// `"propagate"`: a request that has one is a part of that trace.
    Propagate,
    /// `"always"`: a request that has none starts a trace.
    Always,
}

impl Trace {
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("off", Self::Off), ("propagate", Self::Propagate), ("always", Self::Always)];
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: vec![Listen::default()],
            threads: None,
            slice: Duration::from_millis(1),
            drain: Duration::from_secs(10),
            drain_delay: Duration::ZERO,
            watch: true,
            max_connections: 10_000,
            max_streams: 128,
            max_head: 64 << 10,
            max_headers: 100,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(20),
            trace: Trace::Propagate,
            forwarded: Forwarded::default(),
        }
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MILLISECOND: Duration = Duration::from_millis(1);
const MICROSECOND: Duration = Duration::from_micros(1);

pub(crate) fn read(mut table: Reader<'_>) -> Server {
    let mut server = Server::default();
    if let Some(listen) = table.read("listen", listen::read) {
        server.listen = listen;
    }
    server.threads = table
        .read("threads", |value| value.integer(1..=1024))
        .and_then(|threads| NonZeroUsize::new(usize::try_from(threads).ok()?));
    let times = [
        ("slice", &mut server.slice, 50 * MICROSECOND..=Duration::from_secs(1)),
        ("drain", &mut server.drain, Duration::ZERO..=HOUR),
        ("drain_delay", &mut server.drain_delay, Duration::ZERO..=HOUR),
        ("head_timeout", &mut server.head_timeout, MILLISECOND..=HOUR),
        ("idle_timeout", &mut server.idle_timeout, MILLISECOND..=DAY),
        ("body_timeout", &mut server.body_timeout, MILLISECOND..=HOUR),
    ];
    for (key, time, allowed) in times {
        if let Some(value) = table.read(key, |value| value.duration(allowed)) {
            *time = value;
        }
    }
    let numbers = [
        ("max_connections", &mut server.max_connections, 1..=1_000_000),
        ("max_streams", &mut server.max_streams, 1..=10_000),
        ("max_headers", &mut server.max_headers, 1..=10_000),
    ];
    for (key, number, allowed) in numbers {
        if let Some(value) = table.read(key, |value| value.small_integer(allowed)) {
            *number = value;
        }
    }
    if let Some(head) = table.read("max_head", |value| value.size(1 << 10..=1 << 20)) {
        server.max_head = u32::try_from(head).unwrap_or(u32::MAX);
    }
    if let Some(watch) = table.read("watch", Value::boolean) {
        server.watch = watch;
    }
    if let Some(trace) = table.read("trace", |value| value.word(&Trace::WORDS)) {
        server.trace = trace;
    }
    if let Some(forwarded) = table.table("forwarded") {
        server.forwarded = forwarded::read(forwarded);
    }
    table.finish();
    server
}
