//! How a tenant's program is loaded and run.

use std::time::Duration;

use sandtide_engine::{Isolation, Requests};

use crate::{
    kind::{Word, duration, integer, layer, or_never, word},
    limits::{LimitKeys, LimitLayer},
    section::{Exceeded, section},
    warmup::{Warmup, WarmupKind},
};

/// When a program is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// `"first-use"`: when the first request for it arrives.
    FirstUse,
    /// `"start"`: when the server starts, and it is kept.
    Start,
}

impl Word for Load {
    const WORDS: &'static [(&'static str, Self)] =
        &[("first-use", Self::FirstUse), ("start", Self::Start)];
}

impl Word for Isolation {
    const WORDS: &'static [(&'static str, Self)] =
        &[("request", Self::Request), ("connection", Self::Connection), ("none", Self::None)];
}

const SECOND: Duration = Duration::from_secs(1);
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

section! {
    /// How a program is loaded and run, as it is written.
    #[derive(Debug, Clone, PartialEq)]
    pub(crate) struct RunKeys / RunLayer {
        /// what shares a sandbox before it is reset ([Tenants that keep state](state.md)): nothing, as
        /// each request gets a fresh one; the requests of a client's connection; or, with `"none"`, all
        /// requests of the tenant, which has one sandbox in the whole server. Those that share one take
        /// turns
        isolation: Isolation = Isolation::Request, word();
        /// when the program is loaded: when the first request for it arrives, or when the server
        /// starts
        load: Load = Load::FirstUse, word();
        /// the program and its sandboxes are let go of when they were not used for so long. One that is
        /// loaded at the start, or that keeps its state, stays
        cold_after: Option<Duration> = Some(Duration::from_secs(600)),
            or_never(duration(SECOND..=MONTH));
        /// paths that a program is asked for (`GET`) after it has started, before it serves anybody.
        /// If it faults or answers 500 or more, it is not used. With a table, it can also answer
        /// requests before its snapshot is taken
        warmup: Warmup = Warmup { requests: Requests::Exactly(0), paths: Vec::new() }, WarmupKind;
        /// so many faults among the first 100 exchanges of a program that has replaced another bring
        /// the other back; 0 for never
        rollback_on_faults: u32 = 0, integer(0..=100);
        /// the tenant's share of the processor against other tenants that want it too
        weight: u32 = 100, integer(1..=10_000);
        /// exchanges at a time in the whole server, shared out among the threads (each has at least
        /// one)
        concurrency: u32 = 128, integer(1..=65_536), exceeded: Exceeded {
            answer: "waits in the queue",
            error: "",
            log: "",
        };
        /// exchanges that may wait for their turn, on each thread; with `isolation = "none"`, in the
        /// whole server
        queue: u32 = 1024, integer(0..=65_536), exceeded: BUSY;
        /// how long an exchange may wait for its turn. Who would have to wait longer is turned away at
        /// once. A queue that stands for a quarter of this time is too long: until it is empty again,
        /// one may wait for a twentieth
        queue_time: Duration = SECOND,
            duration(Duration::from_millis(1)..=Duration::from_secs(3600)), exceeded: BUSY;
        /// what the program may use, and how much of it may be asked, below
        limits: LimitLayer = LimitLayer::default(), layer::<LimitKeys>();
    }
}

const BUSY: Exceeded = Exceeded {
    answer: "503 with `retry-after`",
    error: "connection_limit_reached",
    log: "`refused`, with the reason",
};
