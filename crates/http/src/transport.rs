//! What carries the bytes of a connection: a TCP or Unix stream, and TLS over either.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::server::TlsStream;

/// A stream as the kernel has it.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A stream, and what was read from it before anybody knew what is spoken on it.
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    ahead: Bytes,
}

/// What hyper's bytes go through.
pub(crate) enum Transport {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl Socket {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, ahead: Bytes::new() }
    }

    /// Gives bytes back, to be read again.
    pub(crate) fn unread(&mut self, bytes: Bytes) {
        debug_assert!(self.ahead.is_empty(), "nothing is read while something is ahead");
        self.ahead = bytes;
    }

    /// Makes the end of the connection a reset: the client must not take what it got for a
    /// complete response. On a Unix socket only the framing of the message can say so.
    fn cut(&self) {
        if let Stream::Tcp(stream) = &self.stream
            && let Err(error) = SockRef::from(stream).set_linger(Some(Duration::ZERO))
        {
            tracing::debug!(%error, "cannot reset the connection");
        }
    }
}

impl Transport {
    pub(crate) fn cut(&self) {
        match self {
            Self::Plain(socket) => socket.cut(),
            Self::Tls(stream) => stream.get_ref().0.cut(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Calls a method of whichever variant it is.
macro_rules! forward {
    ($of:ident, $self:ident.$method:ident($($argument:expr),*), $first:ident, $second:ident) => {
        match $self {
            $of::$first(inner) => Pin::new(inner).$method($($argument),*),
            $of::$second(inner) => Pin::new(inner).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let length = this.ahead.len().min(buffer.remaining());
            buffer.put_slice(&this.ahead[..length]);
            this.ahead.advance(length);
            return Poll::Ready(Ok(()));
        }
        let stream = &mut this.stream;
        forward!(Stream, stream.poll_read(cx, buffer), Tcp, Unix)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut self.get_mut().stream;
        forward!(Stream, stream.poll_write(cx, bytes), Tcp, Unix)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &mut self.get_mut().stream;
        forward!(Stream, stream.poll_write_vectored(cx, slices), Tcp, Unix)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().stream;
        match forward!(Stream, stream.poll_shutdown(cx), Tcp, Unix) {
            // The client was faster.
            Poll::Ready(Err(e)) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => result,
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        forward!(Self, this.poll_read(cx, buffer), Plain, Tls)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        forward!(Self, this.poll_write(cx, bytes), Plain, Tls)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        forward!(Self, this.poll_flush(cx), Plain, Tls)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        forward!(Self, this.poll_shutdown(cx), Plain, Tls)
    }
}
