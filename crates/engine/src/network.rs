//! The outside of a tenant's sandboxes: whom they may connect to, and how.

use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

/// Connects the sandboxes of one tenant to the outside, as far as it may reach it. Sandboxes of
/// many threads use it at a time.
pub trait Network: fmt::Debug + Send + Sync {
    /// Begins a connection over TCP, or refuses it at once. Does not block: [`Link::poll_connected`]
    /// says what has become of it. To let go of the link is to close the connection.
    fn connect(&self, to: SocketAddr) -> Result<Box<dyn Link>, NetworkError>;

    /// Begins to look up what a DNS query asks for: a message in the format of RFC 1035 §4, and
    /// every value of it the guest's.
    fn resolve(&self, query: &[u8]) -> Lookup;
}

/// A DNS query on its way: its answer, another message, or `None` if it has none.
pub type Lookup = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;

/// A connection to the outside. What is pending wakes the context that was there last.
pub trait Link: Send {
    /// Ready once there is a connection, or why there is none.
    fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NetworkError>>;

    /// Fills the front of a buffer that is not empty; 0 is the end. Only of what is connected, as
    /// the rest.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize, NetworkError>>;

    /// Takes from the front of bytes that are there, one at least.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, NetworkError>>;

    /// Says to the other end that nothing more comes.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NetworkError>>;
}

/// Why a connection to the outside was not made, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// The tenant may not.
    #[error("not allowed")]
    Denied,
    /// The tenant has too many already.
    #[error("too many connections")]
    TooMany,
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// Nobody has answered for too long.
    #[error("timed out")]
    TimedOut,
    /// There is no way there.
    #[error("unreachable")]
    Unreachable,
    /// The other end has broken it off, or something has failed on the way.
    #[error("connection reset")]
    Reset,
}
