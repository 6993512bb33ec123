//! ASGI and WSGI applications in this process, for owners whom the operator trusts.
//!
//! ```text
//!   reactor thread ─┬─ tokio: connections ─▶ runtime ─▶ Place::run ── steps the application ─┐
//!                   │                                       ▲  wakes        a future ▼ waits │
//!                   └─ drive: asyncio's loop, one turn each time that something is ready ◀───┘
//! ```
//!
//! One thread does both: HTTP and Python. A request's coroutine is a task of asyncio whose first
//! step runs inside [`sandtide_engine::Sandbox::run`], not from the loop's queue; an application that answers without
//! waiting for anything is over when that step is, and nothing was handed between threads or
//! queued. One that waits goes on from the loop, which the reactor turns when a descriptor is
//! ready, a timer is due or something was called soon.
//!
//! The place of an exchange is a `Sandbox` in name only: see [`sandtide_engine::InProcess`].

mod asgi;
mod awaitable;
mod connections;
mod event_loop;
mod failure;
mod import;
mod path;
mod python;
mod scheduler;
mod watch;
mod wsgi;

pub use python::Python;
