//! The kernel's side of a process: all of its state but the registers.

use std::sync::Arc;

use rustix::io::Errno;
use sandtide_engine::{Limits, Network};

use crate::{
    Architecture, Host, MemoryError, files::Files, fresh::Fresh, objects::Objects,
    outside::Outside, pause::Pause, process_id::ProcessId, reads::Reads, signals::Signals,
    space::AddressSpace, threads::Threads, tracked::Tracked, vfs::Mounts, vfs::Scratch,
};

/// The user and group id that every guest sees as its own.
pub(crate) const UID: u32 = 1000;

/// Everything about a process but the registers of its threads, in the parts that a reset
/// restores one by one.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) fixed: Arc<Fixed>,
    pub(crate) threads: Tracked<Threads>,
    pub(crate) space: Tracked<AddressSpace>,
    pub(crate) files: Tracked<Files>,
    pub(crate) objects: Objects,
    pub(crate) pause: Pause,
    pub(crate) pid: ProcessId,
    pub(crate) fresh: Fresh,
    /// Something was done to a connection that the host is to see. No part of a snapshot.
    pub(crate) output: bool,
    /// The connection that the host has last sent to. No part of a snapshot.
    pub(crate) sent_to: Option<usize>,
    /// What it is connected to outside. No part of a snapshot either.
    pub(crate) outside: Outside,
    /// The files that it has looked at. No part of a snapshot either.
    pub(crate) reads: Reads,
    pub(crate) scratch: Tracked<Scratch>,
    pub(crate) signals: Tracked<Signals>,
}

/// What never changes in the life of a process.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) architecture: Architecture,
    pub(crate) limits: Limits,
    /// The stack of the first thread, in bytes.
    pub(crate) stack: u64,
    /// Whether the program loads libraries.
    pub(crate) libraries: bool,
    /// The arguments, each followed by a NUL.
    pub(crate) command_line: Vec<u8>,
    pub(crate) mounts: Mounts,
    /// The way out, if there is one.
    pub(crate) network: Option<Arc<dyn Network>>,
}

/// The arguments of a system call.
pub(crate) type Args = [u64; 6];

/// Carries out one system call.
pub(crate) type Handler = fn(&mut Kernel, &mut Host<'_>, Args) -> CallResult;

/// How a system call ended.
pub(crate) type CallResult = Result<Flow, Stop>;

/// What follows a system call that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The thread goes on with this result.
    Value(u64),
    /// The thread was parked.
    Parked,
    /// The thread goes on with 0 after the others that can run.
    Yield,
    /// A new thread starts as a copy of this one.
    Clone(NewThread),
    /// The thread leaves its signal handler.
    SignalReturn,
    /// The thread goes on with 0 and its thread pointer at this address.
    GetThreadPointer(u64),
    /// The thread goes on with 0 and this thread pointer.
    SetThreadPointer(u64),
    /// The thread ends; its code is the process's if it is the last one.
    ThreadExit(u8),
    /// The process ends.
    Exit(u8),
    /// The system call is this guest call.
    GuestCall { number: u64, args: Args },
}

/// How a new thread differs from its maker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NewThread {
    pub(crate) tid: u32,
    /// 0: the maker's.
    pub(crate) stack_pointer: u64,
    pub(crate) thread_pointer: Option<u64>,
}

/// Why a system call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The guest is told.
    Errno(Errno),
    /// The guest is over its memory limit and ends.
    MemoryLimit,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<MemoryError> for Stop {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Denied => Self::Errno(Errno::FAULT),
            MemoryError::Limit => Self::MemoryLimit,
        }
    }
}

/// The result 0.
pub(crate) const DONE: CallResult = Ok(Flow::Value(0));

/// A result that is a number.
pub(crate) fn value(number: impl Into<u64>) -> CallResult {
    Ok(Flow::Value(number.into()))
}

/// A failure that the guest is told.
pub(crate) fn fail(errno: Errno) -> CallResult {
    Err(Stop::Errno(errno))
}

/// An error number as a system call returns it.
pub(crate) fn negated(errno: Errno) -> u64 {
    i64::from(-errno.raw_os_error()) as u64
}

impl Kernel {
    /// Whether any part has changed since the last clone or reset.
    pub(crate) fn has_changed(&self) -> bool {
        self.threads.has_changed()
            || self.space.has_changed()
            || self.files.has_changed()
            || self.objects.has_changed()
            || self.scratch.has_changed()
            || self.signals.has_changed()
    }

    /// Restores what has changed. True if the threads have.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) -> bool {
        (self.output, self.sent_to) = (false, None);
        self.outside.clear();
        self.space.reset_from(&snapshot.space);
        self.files.reset_from(&snapshot.files);
        self.objects.reset_from(&snapshot.objects);
        self.pause = snapshot.pause.clone();
        self.pid = snapshot.pid.clone();
        self.fresh.reset_from(&snapshot.fresh);
        self.scratch.reset_from(&snapshot.scratch);
        self.signals.reset_from(&snapshot.signals);
        self.threads.reset_from(&snapshot.threads)
    }
}
