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
    held: RefCell<Held>,
    wait: Cell<Wait>,
    /// When the exchange on this connection must have ended, while one holds a sandbox.
    deadline: Cell<Option<Instant>>,
}

/// What hyper waits for, since it last tried to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Wait {
    #[default]
    Nothing,
    /// Room in what is held.
    Room,
    /// The socket itself, which wakes it.
    Socket,
}

/// Bytes to be sent. The buffer is kept: in steady state there is no allocation.
#[derive(Default)]
struct Held {
    bytes: Vec<u8>,
    sent: usize,
}

impl Held {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
        }
    }
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
            wait: Cell::default(),
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
        while !held.rest().is_empty() {
            let sent = ready!(self.poll_write_now(cx, held.rest()))?;
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
        self.wait.set(Wait::Nothing);
        if self.held.borrow().rest().len() < HOLD {
            return Poll::Ready(Ok(()));
        }
        self.poll_send_for_room(cx)
    }

    fn poll_send_for_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = self.poll_send(cx);
        self.wait.set(if sent.is_pending() { Wait::Room } else { Wait::Nothing });
        sent
    }

    pub(crate) fn wait(&self) -> Wait {
        self.wait.get()
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

impl Wire {
    /// Closes the sending side with the socket, and not before it as dropping it would: after
    /// [`Self::cut`] the client must see a reset and no end.
    pub(crate) fn close(self: Rc<Self>) {
        if let Some(wire) = Rc::into_inner(self) {
            wire.half.forget();
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
                self.wire.held.borrow_mut().bytes.extend_from_slice(slice);
                taken += slice.len();
                continue;
            }
            // A large piece is not copied. What is held goes before it.
            if taken > 0 {
                break;
            }
            ready!(self.wire.poll_send_for_room(cx))?;
            let sent = self.wire.poll_write_now(cx, slice);
            if sent.is_pending() {
                self.wire.wait.set(Wait::Socket);
            }
            return sent;
        }
        Poll::Ready(Ok(taken))
    }

    /// Ready while there is room: the connection sends what is held at the end of its turn.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_room(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.wire.poll_send_for_room(cx))?;
        match SockRef::from(self.wire.stream()).shutdown(Shutdown::Write) {
            // The client was faster.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}
