//! Listening sockets: one per thread for each address, so that the kernel spreads connections.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections may wait to be accepted, for each socket.
const BACKLOG: i32 = 4096;

/// The server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Someone listens there already.
    #[error("cannot listen on {0}: the address is in use")]
    InUse(SocketAddr),
    /// We are not allowed to.
    #[error("cannot listen on {0}: permission denied")]
    Denied(SocketAddr),
    /// Another reason.
    #[error("cannot listen on {address}")]
    Other {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

impl BindError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InUse(address) => Some(format!(
                "stop what listens there (`ss -ltnp 'sport = :{}'` shows it), or choose another \
                 address with `--listen`",
                address.port()
            )),
            Self::Denied(_) => {
                Some("ports below 1024 need a privilege; choose one above".to_owned())
            }
            Self::Other { .. } => None,
        }
    }

    fn new(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::PermissionDenied => Self::Denied(address),
            _ => Self::Other { address, source },
        }
    }
}

/// Listens `threads` times on the address. Port 0 is the same free port for all of them.
pub(crate) fn listen(address: SocketAddr, threads: usize) -> Result<Vec<TcpListener>, BindError> {
    let fail = |source| BindError::new(address, source);
    // With SO_REUSEPORT a second server of the same user would get half of our connections
    // instead of an error. A socket without it finds the first one.
    drop(bound(address, false).map_err(fail)?);
    let first = bound(address, true).map_err(fail)?;
    let local = first.local_addr().map_err(fail)?;
    let others = (1..threads).map(|_| bound(local, true));
    std::iter::once(Ok(first)).chain(others).collect::<io::Result<_>>().map_err(fail)
}

fn bound(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share_port)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    if share_port {
        socket.listen(BACKLOG)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}
