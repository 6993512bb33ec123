//! Where connections are accepted: listening sockets, so many that each thread has its own.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixListener as StdUnixListener,
    },
    path::PathBuf,
    sync::Arc,
    task::{Context, Poll, ready},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, UnixListener};

use crate::{
    peer::Peer,
    transport::Stream,
    unix::{self, SocketFile},
};

/// How many connections may wait to be accepted, for each socket.
pub(crate) const BACKLOG: i32 = 4096;

/// A place where connections are accepted, and what is spoken there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where.
    pub address: Address,
    /// Whether connections begin with a TLS handshake.
    pub tls: bool,
    /// Whether connections begin with a PROXY protocol header, which says who the client is.
    pub proxy_protocol: bool,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port; port 0 takes a free one. An IPv6 address is for IPv6 alone.
    Tcp(SocketAddr),
    /// The path of a Unix socket, which the owner and the group of the server may use.
    Unix(PathBuf),
}

impl From<SocketAddr> for Listen {
    /// Plain HTTP.
    fn from(address: SocketAddr) -> Self {
        Self { address: Address::Tcp(address), tls: false, proxy_protocol: false }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Display for Listen {
    /// As a URL, as far as there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        match &self.address {
            Address::Tcp(address) => write!(f, "{scheme}://{address}"),
            address @ Address::Unix(_) if self.tls => write!(f, "{address} (TLS)"),
            address @ Address::Unix(_) => write!(f, "{address}"),
        }
    }
}

/// The server cannot listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Someone listens there already.
    #[error("cannot listen on {0}: the address is in use")]
    InUse(Address),
    /// We are not allowed to.
    #[error("cannot listen on {0}: permission denied")]
    Denied(Address),
    /// There is something else than a socket.
    #[error("cannot listen on {0}: the file is no socket")]
    NoSocket(Address),
    /// TLS without certificates.
    #[error("cannot speak TLS on {0}: there is no certificate")]
    NoCertificate(Address),
    /// Another reason.
    #[error("cannot listen on {address}")]
    Other {
        /// The address.
        address: Address,
        /// The reason.
        source: io::Error,
    },
}

impl BindError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::InUse(Address::Tcp(address)) => Some(format!(
                "stop what listens there (`ss -ltnp 'sport = :{}'` shows it), or choose another \
                 address with `--listen`",
                address.port()
            )),
            Self::InUse(Address::Unix(path)) => Some(format!(
                "stop what listens there (`ss -lxp src {}` shows it), or choose another path",
                path.display()
            )),
            Self::Denied(Address::Tcp(_)) => {
                Some("ports below 1024 need a privilege; choose one above".to_owned())
            }
            Self::Denied(Address::Unix(_)) => {
                Some("the server needs to write to the directory of the socket".to_owned())
            }
            Self::NoSocket(_) => Some("move the file away, or choose another path".to_owned()),
            Self::NoCertificate(_) => Some("name one in `[tls]`".to_owned()),
            Self::Other { .. } => None,
        }
    }

    fn new(address: &Address, source: io::Error) -> Self {
        let address = address.clone();
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::PermissionDenied => Self::Denied(address),
            io::ErrorKind::AlreadyExists => Self::NoSocket(address),
            _ => Self::Other { address, source },
        }
    }
}

/// A socket that listens, of one thread.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: BoundSocket,
    pub(crate) listen: Arc<Listen>,
}

#[derive(Debug)]
enum BoundSocket {
    Tcp(StdTcpListener),
    Unix(StdUnixListener),
}

/// Listens `threads` times. Port 0 is the same free port for all of them. Unix sockets have a file
/// beside, which goes away with the last socket.
pub(crate) fn bind(
    listen: &Listen,
    threads: usize,
) -> Result<(Vec<Bound>, Option<SocketFile>), BindError> {
    let fail = |source| BindError::new(&listen.address, source);
    match &listen.address {
        Address::Tcp(address) => {
            let sockets = bind_tcp(*address, threads).map_err(fail)?;
            let local = sockets.first().and_then(|socket| socket.local_addr().ok());
            let address = Address::Tcp(local.unwrap_or(*address));
            let listen = Arc::new(Listen { address, ..listen.clone() });
            let bound = |socket| Bound { socket: BoundSocket::Tcp(socket), listen: listen.clone() };
            Ok((sockets.into_iter().map(bound).collect(), None))
        }
        Address::Unix(path) => {
            let (socket, file) = unix::bind(path).map_err(fail)?;
            let listen = Arc::new(listen.clone());
            let bound = |_| {
                let socket = BoundSocket::Unix(socket.try_clone().map_err(fail)?);
                Ok(Bound { socket, listen: listen.clone() })
            };
            Ok(((0..threads).map(bound).collect::<Result<_, _>>()?, Some(file)))
        }
    }
}

impl Bound {
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.socket {
            BoundSocket::Tcp(socket) => socket.as_fd(),
            BoundSocket::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A socket that another process has bound, for this listener.
pub(crate) fn inherit(listen: &Listen, socket: OwnedFd) -> Bound {
    match &listen.address {
        Address::Tcp(address) => {
            let socket = StdTcpListener::from(socket);
            let address = Address::Tcp(socket.local_addr().unwrap_or(*address));
            let listen = Arc::new(Listen { address, ..listen.clone() });
            Bound { socket: BoundSocket::Tcp(socket), listen }
        }
        Address::Unix(_) => Bound {
            socket: BoundSocket::Unix(StdUnixListener::from(socket)),
            listen: Arc::new(listen.clone()),
        },
    }
}

fn bind_tcp(address: SocketAddr, threads: usize) -> io::Result<Vec<StdTcpListener>> {
    // With SO_REUSEPORT a second server of the same user would get half of our connections
    // instead of an error. A socket without it finds the first one.
    drop(tcp_socket(address, false)?);
    let first = tcp_socket(address, true)?;
    let local = first.local_addr()?;
    let others = (1..threads).map(|_| tcp_socket(local, true));
    std::iter::once(Ok(first)).chain(others).collect()
}

fn tcp_socket(address: SocketAddr, share_port: bool) -> io::Result<StdTcpListener> {
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

/// A socket that listens, in an event loop.
pub(crate) struct Listener {
    socket: ListenerSocket,
    pub(crate) listen: Arc<Listen>,
}

enum ListenerSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            ListenerSocket::Tcp(socket) => socket.as_fd(),
            ListenerSocket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Listener {
    /// Joins the event loop that this is called in.
    pub(crate) fn new(bound: Bound) -> io::Result<Self> {
        let socket = match bound.socket {
            BoundSocket::Tcp(socket) => ListenerSocket::Tcp(TcpListener::from_std(socket)?),
            BoundSocket::Unix(socket) => ListenerSocket::Unix(UnixListener::from_std(socket)?),
        };
        Ok(Self { socket, listen: bound.listen })
    }

    /// The next connection, and what its socket says about its ends.
    pub(crate) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        match &self.socket {
            ListenerSocket::Tcp(socket) => {
                let (stream, client) = ready!(socket.poll_accept(cx))?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                let peer = Peer {
                    client: Some(client),
                    local: stream.local_addr().ok(),
                    ..Peer::default()
                };
                Poll::Ready(Ok((Stream::Tcp(stream), peer)))
            }
            ListenerSocket::Unix(socket) => {
                let (stream, _) = ready!(socket.poll_accept(cx))?;
                Poll::Ready(Ok((Stream::Unix(stream), Peer::default())))
            }
        }
    }
}
