//! `[server]`: what the operator sets.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{
    Forwarded, Listen, Translation,
    kind::{Word, boolean, duration, integer, optional, path, size, table, word},
    listen::Listeners,
    section::{Exceeded, Section, section},
};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const MILLISECOND: Duration = Duration::from_millis(1);

section! {
    /// The server as a whole.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Server / ServerLayer {
        /// where connections are accepted: an IP address and a port, or `unix:` and a path. Port 0
        /// takes a free port, which the server prints. A table says more of a listener, below
        listen: Vec<Listen> = vec![Listen::default()], Listeners;
        /// reactor threads. Each has its own listeners and its own pools
        threads: Option<NonZeroUsize> = None, optional(
            integer(NonZeroUsize::MIN..=NonZeroUsize::MIN.saturating_add(1023)),
            "one for each core",
        );
        /// how long a sandbox may run before it lets others on the same thread run
        slice: Duration = MILLISECOND,
            duration(Duration::from_micros(50)..=Duration::from_secs(1));
        /// how long exchanges may go on after SIGINT or SIGTERM; then they are cut off
        drain: Duration = Duration::from_secs(10), duration(Duration::ZERO..=HOUR);
        /// how long connections are still accepted after SIGTERM, while `/readyz` already fails, so
        /// that a load balancer can turn away before the door is closed
        drain_delay: Duration = Duration::ZERO, duration(Duration::ZERO..=HOUR);
        /// whether to reload when the configuration, a program or a certificate has changed; SIGHUP
        /// always reloads
        watch: bool = true, boolean();
        /// connections at a time in the whole server, shared out among the threads
        max_connections: u32 = 10_000, integer(1..=1_000_000), exceeded: Exceeded {
            answer: "the connection is closed that has been idle longest; if none is, the new one waits",
            error: "",
            log: "",
        };
        /// HTTP/2 streams at a time on one connection
        max_streams: u32 = 128, integer(1..=10_000), exceeded: Exceeded {
            answer: "the stream is refused (`REFUSED_STREAM`), and can be tried again",
            error: "",
            log: "",
        };
        /// a request's first line and headers
        max_head: u32 = 64 << 10, size(1 << 10..=1 << 20), exceeded: Exceeded {
            answer: "431, and the connection is closed",
            error: "",
            log: "",
        };
        /// headers of one request
        max_headers: u32 = 100, integer(1..=10_000), exceeded: Exceeded {
            answer: "431, and the connection is closed",
            error: "",
            log: "",
        };
        /// from the first byte of a request to the end of its headers, and from the start of a
        /// connection to its first request
        head_timeout: Duration = Duration::from_secs(10), duration(MILLISECOND..=HOUR),
            exceeded: Exceeded {
                answer: "408, and the connection is closed",
                error: "http_request_error",
                log: "",
            };
        /// between two requests of one connection
        idle_timeout: Duration = Duration::from_secs(60), duration(MILLISECOND..=DAY),
            exceeded: Exceeded { answer: "the connection is closed", error: "", log: "" };
        /// silence of a client in the middle of a request body
        body_timeout: Duration = Duration::from_secs(20), duration(MILLISECOND..=HOUR),
            exceeded: Exceeded {
                answer: "408, and the connection is closed",
                error: "http_request_error",
                log: "`fault=request_body`",
            };
        /// which sandboxes are compared with their snapshot after a reset: none; some, in a part, at the
        /// cost of a thousandth of the time at most; or all, in every part, which takes longer than a
        /// request
        verify_resets: VerifyResets = VerifyResets::Sampled, word();
        /// what is done with a request's trace context (W3C `traceparent`): nothing, hand it to the
        /// program as a part of that trace, or start a trace as well for requests that have none
        trace: Trace = Trace::Propagate, word();
        /// where the snapshots of programs are kept for the next start, which then needs no boot
        /// ([Snapshots on disk](snapshots.md)): a directory that nobody but the server's user can write
        snapshots: Option<PathBuf> = None, optional(path(), "none are kept");
        /// files in that directory; those that were not used for longest make room
        snapshots_size: u64 = 8 << 30, size(1 << 20..=1 << 44);
        /// who may say who the client is, and how programs learn of it, below
        forwarded: Forwarded = Forwarded::default(), table();
        /// translated code: where it is kept, and what it may take, below
        translation: Translation = Translation::default(), table();
    }
}

impl Server {
    /// The keys whose values are not the same, by their names.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        Section::differences(self, other)
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::resolve(ServerLayer::default())
    }
}

/// Which resets are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerifyResets {
    /// `"never"`: none.
    Never,
    /// `"sampled"`: some, in a part.
    Sampled,
    /// `"always"`: all, in every part.
    Always,
}

impl Word for VerifyResets {
    const WORDS: &'static [(&'static str, Self)] =
        &[("never", Self::Never), ("sampled", Self::Sampled), ("always", Self::Always)];
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

impl Word for Trace {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("propagate", Self::Propagate), ("always", Self::Always)];
}
