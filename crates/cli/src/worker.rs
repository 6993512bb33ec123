//! A worker process, as it is to its supervisor: it gets its sockets, says when it serves, and ends
//! when its supervisor does.
//!
//! Both speak over a Unix socket that is the worker's standard input: first the listening sockets, as
//! ancillary data; then lines of the worker's; its end is the supervisor's end.

use std::{
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    thread,
    time::Duration,
};

use rustix::{
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
    process::{Signal, getpid, kill_process},
};
use sandtide_runtime::Runtime;

/// So many sockets go over at most: the kernel's limit is 253.
const MAX_SOCKETS: usize = 64;

/// How often a worker looks at what it has done.
const LOOK: Duration = Duration::from_millis(500);

/// What a worker says.
pub const READY: &str = "ready";
/// It has answered as many requests as it was to.
pub const FULL: &str = "full";

/// The worker's end.
pub struct Worker {
    supervisor: UnixStream,
}

/// Sends a worker its sockets.
pub fn send_sockets(worker: &UnixStream, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    if sockets.len() > MAX_SOCKETS {
        return Err(io::Error::other(format!("more than {MAX_SOCKETS} listeners")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(sockets));
    sendmsg(worker, &[IoSlice::new(b"s")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

impl Worker {
    /// Takes the place that the supervisor has made: its end of the socket, and the listeners.
    pub fn inherit() -> io::Result<(Self, Vec<OwnedFd>)> {
        let supervisor = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(&supervisor, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        let sockets = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
            _ => None,
        });
        let sockets = sockets.flatten().collect();
        // What the application starts shall not hold the socket.
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        Ok((Self { supervisor }, sockets))
    }

    /// Says that it serves. From here on it looks whether it has answered `limit` requests, and ends
    /// when its supervisor is gone.
    pub fn serve(mut self, runtime: Arc<Runtime>, limit: Option<u64>) -> io::Result<()> {
        writeln!(self.supervisor, "{READY}")?;
        self.supervisor.set_read_timeout(Some(LOOK))?;
        let watch = move || self.watch(&runtime, limit);
        thread::Builder::new().name("worker".to_owned()).spawn(watch)?;
        Ok(())
    }

    fn watch(&mut self, runtime: &Runtime, mut limit: Option<u64>) {
        loop {
            match self.supervisor.read(&mut [0; 16]) {
                Err(error) if is_timeout(&error) => {}
                Ok(1..) => {}
                Ok(0) | Err(_) => {
                    // Nobody would start another one.
                    let _ = kill_process(getpid(), Signal::TERM);
                    return;
                }
            }
            let answered =
                || runtime.tenant_totals().iter().map(|(_, of)| of.exchanges).sum::<u64>();
            if limit.is_some_and(|limit| answered() >= limit) {
                limit = None;
                let _ = writeln!(self.supervisor, "{FULL}");
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}
