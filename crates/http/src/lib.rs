//! The native host: HTTP/1.1 and HTTP/2 on hyper, TLS on rustls, one reactor thread per core.
//!
//! ```text
//!   Server ── one listener per thread and address (SO_REUSEPORT)
//!     └─ reactor thread ── event loop, runtime::Reactor, turnstile, doorbell, sweep
//!          └─ connection ── PROXY header, TLS handshake or preface, then
//!               │           hyper over a Wire over a Transport, which sends once per turn
//!               └─ request ── front: checks → Reactor::begin → response, or Serving as its body
//! ```
//!
//! An HTTP/1 connection is one task, in which its requests follow one another. An HTTP/2
//! connection has a task for each stream beside its own; all of them live on the reactor's thread.
//! What a connection does, and since when, stands in an `Entry` that a sweep looks at: slow and idle
//! connections cost no timer. An exchange in the making is a `Flight`, from the request until the
//! response is handed over.
//!
//! The host owns the framing of messages: what a guest says about lengths, connections and
//! transfer codings is dropped or checked. A guest that streams announces its trailers in a
//! `trailer` header, as RFC 9110 §6.6.2 has it; they reach clients that sent `te: trailers`.
//! Interim responses of guests reach clients of HTTP/1.1. HTTP/1.0 has none, and in HTTP/2, where
//! hyper has no interface for them, they are left out.
#![forbid(unsafe_code)]

mod accept;
mod access_log;
mod body;
mod check;
mod client_cert;
mod connection;
mod connections;
mod doorbell;
mod flight;
mod forwarded;
mod framing;
mod front;
mod head;
mod host;
mod inbound;
mod interim;
mod listen;
mod open;
mod options;
mod patience;
mod peer;
mod preface;
mod proxy;
mod reactor;
mod server;
mod source;
mod streams;
mod timers;
mod tls;
mod trace;
mod transport;
mod unix;
mod watched;
mod wire;

pub use access_log::{AccessLog, AccessLogFile, AccessLogFormat, AccessLogOptions};
pub use forwarded::{ForwardedHeaders, ForwardedPolicy};
pub use listen::{Address, BindError, Listen};
pub use options::Options;
pub use server::{Draining, ServeError, Server};
pub use tls::{CertificateFiles, Certificates, ClientAuth, Tls, TlsError};
pub use trace::TracePolicy;
