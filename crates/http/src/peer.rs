//! Who is at the other end of a connection, and how it came.

use std::net::SocketAddr;

use http::HeaderValue;

/// What is known about a connection, for each of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// The client's address: as a PROXY protocol header says it, or else the socket. `None` on a
    /// Unix socket.
    pub(crate) client: Option<SocketAddr>,
    /// The address that it connected to, likewise.
    pub(crate) local: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub(crate) is_tls: bool,
    /// The name that the client asked for in its TLS handshake (SNI).
    pub(crate) server_name: Option<Box<str>>,
    /// The client's certificate, verified, as the `client-cert` header has it (RFC 9440 §2.2).
    pub(crate) certificate: Option<HeaderValue>,
}
