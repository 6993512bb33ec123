//! The connection as hyper sees it: small writes are held back and sent together at the end of each
//! turn of the connection.
//!
//! So pipelined responses leave in one system call (and as few TLS records as they fit in), and a
//! response costs one plain `write`. What is held is bounded: beyond it hyper waits, and with it
//! the guest, until the client reads.

use std::{
    cell::{Cell, RefCell},
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{connections::Entry, transport::Transport};

/// Bytes held back before they have to be sent.
const HOLD: usize = 32 << 10;

/// A write of this size goes out directly.
const DIRECT: usize = 8 << 10;

/// A connection's transport, and what is to be sent through it.
pub(crate) struct Wire {
    transport: RefCell<Transport>,
    /// Whether the transport has a buffer of its own.
    is_tls: bool,
    held: RefCell<Held>,
    wait: Cell<Wait>,
    /// Hyper holds nothing back: it has flushed since it last wrote.
    is_flushed: Cell<bool>,
    has_ended: Cell<bool>,
    pub(crate) entry: Rc<Entry>,
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
    read: TokioIo<Reading>,
    wire: Rc<Wire>,
}

/// The receiving side.
struct Reading(Rc<Wire>);

impl Io {
    pub(crate) fn new(wire: Rc<Wire>) -> Self {
        Self { read: TokioIo::new(Reading(wire.clone())), wire }
    }
}

impl Wire {
    pub(crate) fn new(transport: Transport, entry: Rc<Entry>) -> Rc<Self> {
        Rc::new(Self {
            is_tls: matches!(transport, Transport::Tls(_)),
            transport: RefCell::new(transport),
            held: RefCell::default(),
            wait: Cell::default(),
            is_flushed: Cell::new(true),
            has_ended: Cell::new(false),
            entry,
        })
    }

    /// Adds bytes behind what hyper has written.
    pub(crate) fn hold(&self, bytes: &[u8]) {
        self.held.borrow_mut().bytes.extend_from_slice(bytes);
    }

    /// Sends what is held. Ready when nothing is.
    pub(crate) fn poll_send(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut held = self.held.borrow_mut();
        while !held.rest().is_empty() {
            let sent = ready!(self.poll_write_now(cx, held.rest()))?;
            held.advance(sent);
        }
        if self.is_tls {
            return Pin::new(&mut *self.transport.borrow_mut()).poll_flush(cx);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_now(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut *self.transport.borrow_mut()).poll_write(cx, bytes)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
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

    /// Sends an interim response for the request whose response hyper waits for, with this turn of
    /// the connection. It is left out if hyper may still hold a part of the response before, or if
    /// too much is held already: nobody depends on interim responses.
    pub(crate) fn inform(&self, bytes: &[u8]) {
        if self.is_flushed.get() && self.held.borrow().rest().len() < HOLD {
            self.hold(bytes);
        }
    }

    /// Makes the end of the connection a reset: the client must not take what it got for a
    /// complete response.
    pub(crate) fn cut(&self) {
        self.transport.borrow().cut();
    }

    /// Sends what is held and says that nothing follows.
    pub(crate) fn poll_close(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_for_room(cx))?;
        Pin::new(&mut *self.transport.borrow_mut()).poll_shutdown(cx)
    }

    /// Whether the client has said that it sends nothing more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut *self.transport.borrow_mut()).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.entry.received();
        } else {
            self.has_ended.set(true);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Reading {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buffer)
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
        self.wire.is_flushed.set(false);
        ready!(self.wire.poll_room(cx))?;
        let mut taken = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()) {
            if slice.len() < DIRECT {
                self.wire.hold(slice);
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

    /// Ready while there is room: the connection sends what is held at the end of its turn. Hyper
    /// flushes when it has written all that it had.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.is_flushed.set(true);
        self.wire.poll_room(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, io::Read as _, task::Waker, thread};

    use tokio::net::UnixStream;

    use super::*;
    use crate::{
        Options,
        connections::Connections,
        transport::{Socket, Stream},
    };

    #[tokio::test]
    async fn interim_responses_keep_out_of_what_hyper_still_holds() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let stream = Stream::Unix(UnixStream::from_std(ours).unwrap());
        let listed = Rc::new(Connections::new(&Options::default(), 1)).add();
        let wire = Wire::new(Transport::Plain(Socket::new(stream)), listed.entry.clone());
        let mut io = Io::new(wire.clone());
        wire.inform(b"first");
        let piece = [b'x'; 4096];
        let mut noop = Context::from_waker(Waker::noop());
        let mut written = 0;
        while let Poll::Ready(taken) = Pin::new(&mut io).poll_write(&mut noop, &piece) {
            written += taken.unwrap();
        }
        // Hyper has a piece that it cannot write.
        wire.inform(b"left out");
        let reader = thread::spawn(move || {
            let mut bytes = Vec::new();
            theirs.read_to_end(&mut bytes).map(|_| bytes)
        });
        written += poll_fn(|cx| Pin::new(&mut io).poll_write(cx, &piece)).await.unwrap();
        wire.inform(b"left out");
        poll_fn(|cx| Pin::new(&mut io).poll_flush(cx)).await.unwrap();
        wire.inform(b"last");
        poll_fn(|cx| wire.poll_close(cx)).await.unwrap();
        let expected = [b"first", &*vec![b'x'; written], b"last"].concat();
        assert!(reader.join().unwrap().unwrap() == expected);
    }
}
