//! The seam between what serves requests (hosts, the runtime) and what runs programs (engines).
//!
//! ```text
//!   Engine ──load──▶ Program ──spawn──▶ Sandbox ──run(Turn)──▶ Progress
//!                    (immutable,        (one isolated           │
//!                     shared)            execution)             ├─ Ended(Outcome)
//!                                            ▲                  ├─ Sliced
//!                                            └────── reset ◀────┴─ Waiting
//! ```
//!
//! An [`Exchange`] is one request being answered. The host makes it and takes the response out of
//! it; the sandbox reads the request and writes the response. A guest that ends badly is a
//! [`Fault`], a value; an `Err` is always a failure of our own.
//!
//! This crate does no I/O and knows no engine, no host and no operating system.
#![forbid(unsafe_code)]

mod application;
mod body;
mod console;
mod egress;
mod engine;
mod exchange;
mod fault;
mod isolation;
mod kept;
mod limits;
mod network;
mod profile;
mod response;
mod source;
mod translation;
mod verify;

pub use application::{ApplicationSource, InProcess, Interface, Lifespan, Target};
pub use body::{BodyError, BodySource, Frame, RequestBody};
pub use console::{Console, Stream};
pub use egress::{EgressRule, EgressRuleError, EgressTarget, host_name};
pub use engine::{
    Engine, EngineError, Events, LoadError, Outcome, Program, Progress, ResetError, Sandbox,
    SpawnError, Turn,
};
pub use exchange::{
    AddedHeaders, Connection, Exchange, ExchangeId, Incoming, Purpose, authority_of, headers_of,
};
pub use fault::{Fault, Location, Trap, TrapCause};
pub use isolation::{Isolation, Next};
pub use kept::{Condition, KeepError, Kept, Recipe, ToKeep};
pub use limits::{Limits, Slice, Traffic, Usage};
pub use network::{Link, Lookup, Network, NetworkError};
pub use profile::{Profile, SampledStack};
pub use response::{Response, ResponseError, ResponseHead};
pub use source::{FileGrant, ProgramId, ProgramSource, Requests, Translate, Warmed, Warmup};
pub use translation::{CacheUse, Shortfall, ShortfallReason, Translation, TranslationState};
pub use verify::{Mismatch, Scrutiny};
