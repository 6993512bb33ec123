//! The socket as hyper sees it: small writes are held back and sent together at the end of each
//! turn of the connection.
//!
//! So pipelined responses leave in one system call, and a response costs one plain `write`. What
//! is held is bounded: beyond it hyper waits, and with it the guest, until the client reads.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    net::Shutdown,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{
    TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

/// Bytes held back before they have to be sent.
const HOLD: usize = 32 << 10;

/// A write of this size goes out directly.
const DIRECT: usize = 8 << 10;

/// The sending side of a connection.
pub(crate) struct Wire {
    half: OwnedWriteHalf,
    held: RefCell<BytesMut>,
    /// Whether hyper waits for the socket.
    is_blocking: Cell<bool>,
    /// When the exchange on this connection must have ended, while one holds a sandbox.
    deadline: Cell<Option<Instant>>,
}

/// Both sides, for hyper.
pub(crate) struct Io {
    read: TokioIo<OwnedReadHalf>,
    wire: Rc<Wire>,
}

impl Io {
    pub(crate) fn new(stream: TcpStream) -> (Self, Rc<Wire>) {
        let (read, half) = stream.into_split();
        let wire = Rc::new(Wire {
            half,
            held: RefCell::default(),
            is_blocking: Cell::new(false),
            deadline: Cell::new(None),
        });
        (Self { read: TokioIo::new(read), wire: wire.clone() }, wire)
    }
}

impl Wire {
    fn stream(&self) -> &TcpStream {
        self.half.as_ref()
    }

    /// Sends what is held. Ready when nothing is.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        while !held.is_empty() {
            let sent = ready!(self.poll_write_now(cx, &held))?;
            held.advance(sent);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_now(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.half.try_write(bytes) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream().poll_write_ready(cx))?;
                }
                result => return Poll::Ready(result),
            }
        }
    }

    /// Makes room for hyper's next write, and remembers if it has to wait for it.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.borrow().len() < HOLD {
            return Poll::Ready(Ok(()));
        }
        let sent = self.poll_send(cx);
        self.is_blocking.set(sent.is_pending());
        sent
    }

    /// Whether hyper was waiting for the socket since the last call.
    pub(crate) fn take_blocking(&self) -> bool {
        self.is_blocking.replace(false)
    }

    /// Sets until when the client may take its time, while a sandbox waits for it.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) {
        self.deadline.set(deadline);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get()
    }

    /// Makes the end of the connection a reset: the client must not take what it got for a
    /// complete response.
    pub(crate) fn cut(&self) {
        if let Err(error) = SockRef::from(self.stream()).set_linger(Some(Duration::ZERO)) {
            tracing::debug!(%error, "cannot reset the connection");
        }
    }
}

impl Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(cx, buffer)
    }
}

impl Write for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.wire.poll_room(cx))?;
        let mut taken = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            if slice.len() < DIRECT {
                self.wire.held.borrow_mut().extend_from_slice(slice);
                taken += slice.len();
                continue;
            }
            // A large piece is not copied; what is held goes before it.
            let sent = match self.wire.poll_send(cx) {
                Poll::Ready(Ok(())) => self.wire.poll_write_now(cx, slice),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            };
            return match sent {
                Poll::Ready(Ok(sent)) => Poll::Ready(Ok(taken + sent)),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending if taken > 0 => Poll::Ready(Ok(taken)),
                Poll::Pending => {
                    self.wire.is_blocking.set(true);
                    Poll::Pending
                }
            };
        }
        Poll::Ready(Ok(taken))
    }

    /// Ready while there is room: the connection sends what is held at the end of its turn.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_room(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.wire.poll_send(cx);
        self.wire.is_blocking.set(sent.is_pending());
        ready!(sent)?;
        match SockRef::from(self.wire.stream()).shutdown(Shutdown::Write) {
            // The client was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
