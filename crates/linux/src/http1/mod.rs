//! HTTP/1.1 as a host speaks it with a server inside a sandbox (RFC 9112).
//!
//! ```text
//!   Exchange.request, body ─▶ request: head, chunk, last_chunk ─▶ bytes for the guest
//!   Exchange.response      ◀─ response: ResponseReader         ◀─ bytes of the guest
//! ```
//!
//! Everything here is a function of its arguments. What comes from the guest is anybody's: a
//! response is taken only if there is one way to read it, and where it ends is known. Nothing of
//! how the guest frames it reaches the client, whose framing is the host's.

mod chunked;
mod error;
mod request;
mod response;

#[cfg(test)]
mod tests;

pub use error::BadResponse;
pub use request::{Framing, chunk, head, last_chunk};
pub use response::ResponseReader;

/// Whether a header is about one connection and not about its message (RFC 9110 §7.6.1). Names
/// are lower case.
fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade"
    )
}

/// The names in a list of names, as `connection` has it; in whatever case they are.
fn names_in(value: &[u8]) -> impl Iterator<Item = &str> {
    let value = str::from_utf8(value).unwrap_or_default();
    value.split(',').map(|name| name.trim_matches([' ', '\t'])).filter(|name| !name.is_empty())
}
