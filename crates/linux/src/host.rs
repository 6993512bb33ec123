//! What passes between an engine and a [`Process`](crate::Process).

use std::{
    io::Read,
    time::{Duration, Instant},
};

use rand::RngCore;
use sandtide_engine::Console;

use crate::GuestMemory;

/// What the engine lends for one system call.
pub struct Host<'a> {
    /// The guest's memory.
    pub memory: &'a mut dyn GuestMemory,
    /// Takes standard output and error.
    pub console: &'a dyn Console,
    /// Feeds standard input; without it, standard input is at its end.
    pub stdin: Option<&'a mut (dyn Read + Send)>,
    /// The sandbox's own generator. It is no part of the snapshot, so that no value repeats after
    /// a reset.
    pub random: &'a mut dyn RngCore,
    /// CPU time that this sandbox has used, for the process clocks.
    pub cpu_time: CpuTime,
}

/// CPU time that goes on: the clock is read only by who wants to know.
#[derive(Debug, Clone, Copy)]
pub struct CpuTime {
    /// What was used before.
    pub before: Duration,
    /// When the guest has gone on.
    pub since: Instant,
}

impl CpuTime {
    /// All of it until now.
    pub(crate) fn total(self) -> Duration {
        self.before + self.since.elapsed()
    }
}

/// What the engine does after a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The running thread goes on.
    Continue,
    /// The running thread waits, yields or has ended: call `schedule`.
    Resched,
    /// A guest call. The engine carries it out: it ends with `Cpu::set_result`, or with
    /// `wait_for_host` to make the call again later.
    GuestCall {
        /// The number, in Sandtide's range.
        number: u64,
        /// The arguments.
        args: [u64; 6],
    },
    /// The process has left with this code.
    Exit(u8),
    /// A signal has ended the process.
    Killed(u8),
    /// The call would have taken the guest over its memory limit.
    MemoryLimit,
}

/// Which thread runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// `Process::cpu` is a thread that can run.
    Run,
    /// Every thread waits; the host can wake one, or a timer.
    Idle {
        /// When a timer wakes a thread: call `schedule` again then, or after a wake.
        until: Option<Instant>,
    },
    /// Every thread waits for what nothing can do.
    Stalled,
    /// A pending signal has ended the process.
    Killed(u8),
    /// Entering a signal handler would have taken the guest over its memory limit.
    MemoryLimit,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// The running thread is at its handler.
    Handler,
    /// Nobody handles it: the process is over.
    Fatal(u8),
    /// Entering the handler would have taken the guest over its memory limit.
    MemoryLimit,
}
