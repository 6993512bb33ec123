//! How a guest ends badly.

use std::{fmt, time::Duration};

use crate::{BodyError, ResponseError};

/// A place in guest code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Location {
    /// The guest address.
    pub pc: u64,
    /// The function it lies in and the offset from its start, if the program has symbols.
    pub symbol: Option<(String, u64)>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.symbol {
            Some((name, offset)) => write!(f, "{:#x} ({name}+{offset:#x})", self.pc),
            None => write!(f, "{:#x}", self.pc),
        }
    }
}

/// Why a guest could not go on at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TrapCause {
    /// A read of memory that is not mapped or not readable.
    Load,
    /// A write of memory that is not mapped or not writable.
    Store,
    /// A jump to memory that is not mapped or not executable.
    Fetch,
    /// Bytes that are no instruction.
    IllegalInstruction,
    /// A jump to an address that no instruction can have.
    MisalignedFetch,
    /// An atomic access that is not aligned.
    MisalignedAtomic,
    /// A breakpoint instruction (`__builtin_trap`, `ebreak`).
    Breakpoint,
    /// A division by zero or an overflow of one, or a floating-point exception that was asked for.
    Arithmetic,
    /// An instruction that is not for programs, or an address that no memory can have.
    Protection,
}

impl fmt::Display for TrapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Load => "bad read",
            Self::Store => "bad write",
            Self::Fetch => "jump to memory that is not code",
            Self::IllegalInstruction => "illegal instruction",
            Self::MisalignedFetch => "misaligned jump",
            Self::MisalignedAtomic => "misaligned atomic access",
            Self::Breakpoint => "breakpoint",
            Self::Arithmetic => "arithmetic error",
            Self::Protection => "forbidden instruction or impossible address",
        })
    }
}

/// A trap: the guest's instruction could not be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trap {
    /// What went wrong.
    pub cause: TrapCause,
    /// The data or code address concerned.
    pub address: u64,
    /// The instruction, and then its callers, innermost first. Never empty.
    pub backtrace: Vec<Location>,
}

/// How a guest ended badly. Never used for our own errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// An instruction could not be executed.
    Trap(Trap),
    /// The guest ended itself with a signal, as `abort` does.
    Signal {
        /// The Linux signal number.
        signal: u8,
        /// Where, innermost first.
        backtrace: Vec<Location>,
    },
    /// The guest left with an exit code instead of an answer.
    Exit {
        /// The exit code.
        code: u8,
    },
    /// The time for it was over.
    Deadline {
        /// The wall-time limit.
        limit: Duration,
        /// Where it was, innermost first.
        backtrace: Vec<Location>,
    },
    /// It used up its instructions.
    Instructions {
        /// The limit.
        limit: u64,
        /// Where it was, innermost first.
        backtrace: Vec<Location>,
    },
    /// It wrote more memory than it may hold.
    Memory {
        /// The limit in bytes.
        limit: u64,
        /// Where it was, innermost first.
        backtrace: Vec<Location>,
    },
    /// Its response broke a rule or a limit.
    Response(ResponseError),
    /// A guest call was used against its contract.
    Protocol(String),
    /// The request body broke off or was too long while the guest read it.
    RequestBody(BodyError),
    /// An application in this process raised an exception that it did not handle. The text is
    /// the exception's; the application's log has where.
    Exception(String),
    /// Every thread of the guest waits for something that cannot happen.
    Stalled {
        /// Where the first thread waits, innermost first.
        backtrace: Vec<Location>,
    },
}

impl Fault {
    /// A word for metrics and logs: `trap`, `signal`, `exit`, `deadline`, ….
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Trap(_) => "trap",
            Self::Signal { .. } => "signal",
            Self::Exit { .. } => "exit",
            Self::Deadline { .. } => "deadline",
            Self::Instructions { .. } => "instructions",
            Self::Memory { .. } => "memory",
            Self::Response(_) => "response",
            Self::Protocol(_) => "protocol",
            Self::RequestBody(_) => "request_body",
            Self::Exception(_) => "exception",
            Self::Stalled { .. } => "stalled",
        }
    }

    /// Where the guest was, innermost first; empty if the place means nothing.
    pub fn backtrace(&self) -> &[Location] {
        match self {
            Self::Trap(trap) => &trap.backtrace,
            Self::Signal { backtrace, .. }
            | Self::Deadline { backtrace, .. }
            | Self::Instructions { backtrace, .. }
            | Self::Memory { backtrace, .. }
            | Self::Stalled { backtrace } => backtrace,
            Self::Exit { .. }
            | Self::Response(_)
            | Self::Protocol(_)
            | Self::RequestBody(_)
            | Self::Exception(_) => &[],
        }
    }

    /// What the program's owner can do about it, if there is something to say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exit { .. } => Some(
                "a program that serves requests must wait for connections on a socket, or call \
                 `sandtide_next_request` in a loop (sdk/c/sandtide.h), and not return from main",
            ),
            Self::Deadline { .. } => Some("raise `limits.wall_time`, or answer sooner"),
            Self::Instructions { .. } => Some("raise `limits.instructions`, or compute less"),
            Self::Memory { .. } => Some("raise `limits.memory`, or use less"),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trap(Trap { cause, address, .. }) => match cause {
                TrapCause::Load | TrapCause::Store => write!(f, "{cause} of {address:#x}"),
                TrapCause::Fetch => write!(f, "{cause}, to {address:#x},"),
                _ => write!(f, "{cause}"),
            },
            Self::Signal { signal, .. } => write!(f, "ended by signal {signal}"),
            Self::Exit { code } => write!(f, "exited with code {code}"),
            Self::Deadline { limit, .. } => write!(f, "no answer within {limit:?}"),
            Self::Instructions { limit, .. } => write!(f, "used up its {limit} instructions"),
            Self::Memory { limit, .. } => write!(f, "used up its {limit} bytes of memory"),
            Self::Response(error) => write!(f, "{error}"),
            Self::Protocol(what) | Self::Exception(what) => write!(f, "{what}"),
            Self::RequestBody(error) => write!(f, "{error}"),
            Self::Stalled { .. } => f.write_str("every thread waits and nothing can wake them"),
        }?;
        match self.backtrace().first() {
            Some(location) => write!(f, " at {location}"),
            None => Ok(()),
        }
    }
}
