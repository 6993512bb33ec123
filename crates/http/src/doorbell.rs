//! Whether input has arrived while a guest computes.
//!
//! The event loop cannot say: it is what the guest keeps from running. So every socket is in a
//! second epoll instance as well, edge-triggered, which is asked without waiting. What has been
//! read before it is asked does not ring, and input that stays unread rings once.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};

/// More at a time are not needed to know that there are some.
const EVENTS: usize = 16;

/// The sockets of one reactor.
///
/// It holds no socket: one that is closed is gone from it.
pub(crate) struct Doorbell {
    epoll: OwnedFd,
}

impl Doorbell {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Rings for this socket from now on. If that is not possible, its input waits for the end of
    /// a slice.
    pub(crate) fn watch(&self, socket: impl AsFd) {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, socket, epoll::EventData::new_u64(0), flags) {
            tracing::debug!(%error, "input on a socket will not interrupt guests");
        }
    }

    /// Whether there is input that came since it was last asked, and that nobody has read.
    pub(crate) fn rings(&self) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&self.epoll, &mut events, Some(&now)) {
            Ok((ready, _)) => !ready.is_empty(),
            // A signal is handled when the slice is over.
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
        os::unix::net::UnixStream,
    };

    use super::*;

    #[test]
    fn it_rings_once_for_input_that_nobody_has_read() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let doorbell = Doorbell::new().unwrap();
        doorbell.watch(&ours);
        assert!(!doorbell.rings());
        theirs.write_all(b"a").unwrap();
        assert!(doorbell.rings());
        assert!(!doorbell.rings(), "though it is still there");
        theirs.write_all(b"b").unwrap();
        assert!(doorbell.rings());
        theirs.write_all(b"c").unwrap();
        ours.read_exact(&mut [0; 3]).unwrap();
        assert!(!doorbell.rings(), "the event loop was faster");
    }

    #[test]
    fn it_rings_for_new_connections_and_knows_no_closed_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let doorbell = Doorbell::new().unwrap();
        doorbell.watch(&listener);
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(doorbell.rings());
        let (ours, _) = listener.accept().unwrap();
        doorbell.watch(&ours);
        assert!(!doorbell.rings());
        drop(ours);
        let closed = client.read(&mut [0; 1]).unwrap();
        assert_eq!(closed, 0, "nothing else keeps the socket open");
        assert!(!doorbell.rings());
    }
}
