//! What the black-box suites stand on: the real binary, guests that it built, and a client that
//! can misbehave.
//!
//! ```text
//!   guest("suite_isolation.c") ─ `sandtide build`, cached ─▶ program
//!   Server::start(tenants)     ─ `sandtide serve` on a free port ─▶ address, log
//!   Client::connect(address)   ─ bytes out as the test wants them, responses in
//!   h2::Connection::open(…)    ─ the same with HTTP/2's frames
//!   Curl::new(address, url)    ─ a client that shares no code with the server
//! ```
//!
//! Nothing here sleeps to wait: tests wait for lines of the log, for bytes, or for an exit, each
//! with [`PATIENCE`] as an upper bound that is met only when something is broken.
#![forbid(unsafe_code)]

pub mod binary;
pub mod client;
pub mod curl;
pub mod documented;
pub mod guest;
pub mod h2;
pub mod log;
pub mod message;
pub mod proxy;
pub mod runtimes;
pub mod server;
pub mod tls;
pub mod tools;

use std::time::Duration;

pub use binary::{Run, sandtide};
pub use client::{Client, Request};
pub use curl::Curl;
pub use documented::documented;
pub use guest::{built, guest};
pub use log::Log;
pub use message::{Head, Response};
pub use server::{Server, Signal};
pub use tools::{has_tools, installed};

/// How long a test waits for something that has to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
