//! What an engine may answer a guest in this process's name, while nobody else does anything to it.
//!
//! An engine for which a system call is dear puts these answers where the guest finds them before
//! it runs, and says afterwards what the guest has made of them ([`Process::take_in`]). Then all is as
//! if each call had been made here.

use rand::RngCore;

use crate::{
    Cpu, Process, files::flags, kernel::Kernel, objects::Far, threads::Threads, vfs::Node,
};

/// Answers that hold until the next call of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answers<'a> {
    /// `getpid`.
    pub process: u32,
    /// `gettid` of the running thread.
    pub thread: u32,
    /// There is one thread: `sched_yield` is 0.
    pub is_alone: bool,
    /// Whom a `FUTEX_WAKE` wakes; `None` if they wait for more futexes than this can hold.
    pub waiters: Option<Waiters>,
    /// What can be read from a connection.
    pub input: Option<Input<'a>>,
}

/// The futexes that threads wait for, with how many do: none at the end have address 0.
pub type Waiters = [(u64, u64); 16];

/// What can be read from the connection that the host has last sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input<'a> {
    /// Tells the connection from others of this process.
    pub connection: usize,
    /// The descriptor.
    pub fd: u64,
    /// How many bytes were read before: where `bytes` begin.
    pub start: u64,
    /// What a read finds.
    pub bytes: &'a [u8],
    /// A read that finds nothing is `EAGAIN`; otherwise it has to be made here.
    pub is_nonblocking: bool,
}

impl Kernel {
    /// The connection that a request comes on, as far as the guest can read from it.
    fn input(&self) -> Option<Input<'_>> {
        let index = self.sent_to?;
        let connection = self.objects.endpoints.get(index).ok()?.connection()?;
        let is_open = !connection.guest_gone && !connection.reads_no_more;
        if connection.host_gone || !is_open || connection.far != Far::Host {
            return None;
        }
        let (fd, description) = self.files.descriptors().find(
            |(_, description)| matches!(description.node, Node::Endpoint(at) if at == index),
        )?;
        let is_nonblocking = description.flags & flags::NONBLOCK != 0 && !connection.is_at_end();
        description.can_read().then(|| Input {
            connection: index,
            fd,
            start: connection.read,
            bytes: connection.input.as_slice(),
            is_nonblocking,
        })
    }
}

fn waiters(threads: &Threads) -> Option<Waiters> {
    let mut waiters = Waiters::default();
    for address in threads.futexes() {
        let place = waiters.iter_mut().find(|(at, _)| *at == address || *at == 0)?;
        *place = (address, place.1 + 1);
    }
    Some(waiters)
}

impl<C: Cpu> Process<C> {
    /// What may be answered now.
    pub fn answers(&mut self, random: &mut dyn RngCore) -> Answers<'_> {
        let kernel = &mut self.kernel;
        let process = kernel.pid.get(random);
        let threads = &kernel.threads;
        Answers {
            process,
            thread: threads.current().tid,
            is_alone: threads.count() == 1,
            waiters: waiters(threads),
            input: kernel.input(),
        }
    }

    /// The guest has woken up to `count` threads that wait for a futex.
    pub fn wake_futex(&mut self, address: u64, count: u32) {
        self.kernel.wake_futex(address, u32::MAX, count);
    }

    /// The guest has read the first bytes of a connection's [`Input`]; as many as there are if that is
    /// more.
    pub fn take_in(&mut self, connection: usize, length: usize) {
        let there = self.kernel.unread(connection).unwrap_or(0);
        let length = length.min(usize::try_from(there).unwrap_or(usize::MAX));
        if length > 0 {
            // The connection is there, as it has something to read.
            let _ = self.kernel.has_read(connection, length);
        }
    }
}
