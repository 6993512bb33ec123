//! The way of a request from a host to a sandbox and back.
//!
//! ```text
//!   Runtime ── one per server: the routing table, swapped by the control plane
//!     └─ Reactor ── one per thread: pools, queues, counters; no locks
//!          └─ begin(request) ─ route ─ admit ─ take a Clean sandbox ─ run ─ meter ─ log ─ reset
//!               ├─▶ Whole     the guest answered in its first slice; its sandbox is back already
//!               └─▶ Serving   the rest of the exchange, which the host polls
//! ```
//!
//! The runtime knows programs and sandboxes as traits, and hosts not at all: a host calls
//! [`Reactor::begin`], polls [`Serving`], and drives the [`Turnstile`]
//! and [`Reactor::poll_abandoned`].
#![forbid(unsafe_code)]

mod abandoned;
mod attended;
mod bucket;
mod client;
mod console;
mod counters;
mod desk;
mod handover;
mod interrupts;
mod lane;
mod lease;
mod loader;
mod local;
mod log;
mod meters;
mod place;
mod pool;
mod pressure;
mod queue;
mod rate;
mod reactor;
mod record;
mod reply;
mod report;
mod route;
mod router;
mod runtime;
mod serving;
mod slot;
mod stateful;
mod table;
mod tenant;
mod timers;
mod trace;
mod turnstile;
mod verification;
mod version;
mod waiting;

pub use attended::{Answered, Attended, AttendedError};
pub use client::Client;
pub use console::{MAX_LINE, TenantConsole};
pub use counters::{DURATION_BOUNDS, FAULT_KINDS, Measures, Totals};
pub use handover::{HandOver, HandOverError, HandedOver};
pub use interrupts::Doorbell;
pub use loader::Loader;
pub use log::{EXCHANGE_TARGET, GUEST_TARGET, LogPolicy, TenantLog};
pub use rate::Rate;
pub use reactor::Reactor;
pub use record::{Ending, Record, Refused, RequestHead, Spent};
pub use reply::{Begun, Broken, PROXY_STATUS, REQUEST_ID, Reply, Whole};
pub use route::{Authority, Route, RouteError};
pub use router::{Conflict, Router};
pub use runtime::{Options, Runtime};
pub use serving::Serving;
pub use slot::{Rollback, Slot, SlotState, SlotStatus};
pub use table::{Table, TableError};
pub use tenant::{Admission, Answer, FixedResponse, Tenant};
pub use timers::{Sleep, Timers};
pub use trace::{SpanId, TRACEPARENT, TRACESTATE, TraceContext, TraceId};
pub use turnstile::Turnstile;
pub use verification::VerifyResets;
pub use version::Version;
