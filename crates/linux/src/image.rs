//! What a process is started from.

use std::sync::Arc;

use sandtide_engine::{FileGrant, Limits, LoadError, Network};

use crate::Protection;

/// A range of addresses that the program's file occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The first address, a multiple of [`PAGE`](crate::PAGE).
    pub start: u64,
    /// The address behind the last one, a multiple of [`PAGE`](crate::PAGE).
    pub end: u64,
    /// What the guest may do there.
    pub protection: Protection,
}

/// Where the engine has put the program (and its interpreter, if it has one) in guest memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageLayout {
    /// The program's entry point (not its interpreter's).
    pub entry: u64,
    /// The guest address of its program headers.
    pub phdr: u64,
    /// The size of one of them.
    pub phent: u64,
    /// How many there are.
    pub phnum: u64,
    /// Everything that is mapped.
    pub segments: Vec<Segment>,
    /// The end of the program's data: the heap starts at or behind it.
    pub brk_start: u64,
    /// Where the interpreter was loaded; 0 without one.
    pub interpreter_base: u64,
}

/// What a process may have and is told.
#[derive(Debug, Clone, Copy)]
pub struct ProcessSetup<'a> {
    /// The path of the program as the guest sees it: `/proc/self/exe`, `AT_EXECFN`.
    pub program: &'a str,
    /// The arguments, `argv[0]` first.
    pub args: &'a [String],
    /// The environment.
    pub env: &'a [String],
    /// Whether interpreters are made to seed their generators of random numbers in each copy.
    pub reseed: bool,
    /// The host files that the guest may read.
    pub files: &'a [FileGrant],
    /// The limits for descriptors, threads, scratch files and memory.
    pub limits: &'a Limits,
    /// Bytes of stack for the first thread: [`DEFAULT_STACK`] unless told; between 64 KiB and
    /// 8 MiB.
    pub stack: u64,
    /// What it is told of the processor.
    pub hardware: Hardware,
    /// The working directory that it starts in, an absolute guest path.
    pub directory: &'a str,
    /// The way out; without one, all of the outside is refused.
    pub network: Option<&'a Arc<dyn Network>>,
}

/// What the auxiliary vector says of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hardware {
    /// `AT_HWCAP`.
    pub capabilities: u64,
    /// `AT_HWCAP2`.
    pub more_capabilities: u64,
    /// `AT_SYSINFO_EHDR`: where the engine has put a shared object with functions for clocks; 0
    /// leaves it out.
    pub clocks: u64,
    /// `AT_MINSIGSTKSZ`: the smallest stack for a signal handler, in bytes; 0 leaves it out.
    pub signal_stack: u64,
}

/// The usual stack of the first thread, in bytes: what Linux gives, and programs rely on. Only
/// what is touched costs memory.
pub const DEFAULT_STACK: u64 = 8 << 20;

/// The largest stack of the first thread, in bytes.
pub const MAX_STACK: u64 = 8 << 20;

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The image leaves no room.
    #[error("no room for {what} in an address space that ends at {end:#x}")]
    NoRoom {
        /// For what.
        what: &'static str,
        /// The end of the address space.
        end: u64,
    },
    /// Arguments and environment do not fit on the stack.
    #[error("arguments and environment take {size} bytes, a quarter of the stack is {limit}")]
    ArgumentsTooLong {
        /// What they take, in bytes.
        size: u64,
        /// What they may take, in bytes.
        limit: u64,
    },
    /// The stack does not fit in the memory limit.
    #[error("the stack is over the memory limit")]
    MemoryLimit,
    /// A file grant's guest path is not usable.
    #[error("grant for `{guest}`: {what}")]
    BadGrant {
        /// The guest path.
        guest: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The program's interpreter cannot be read.
    #[error("cannot read the program's interpreter `{path}`")]
    Interpreter {
        /// The guest path.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A file grant's host path cannot be opened.
    #[error("cannot open {path}")]
    Grant {
        /// The host path.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl StartError {
    /// What the owner of the program is told.
    pub fn into_load_error(self, limits: &Limits) -> LoadError {
        match self {
            Self::Grant { path, source } => LoadError::Grant { path, source },
            Self::MemoryLimit => LoadError::OverLimit {
                resource: "memory",
                needed: "more than that for the program and its stack".to_owned(),
                limit: format!("{} bytes", limits.memory),
            },
            Self::Interpreter { path, source } => LoadError::NotAProgram {
                what: format!("cannot read the program's interpreter `{path}`: {source}"),
                hint: Some(
                    "let the program read this machine's libraries (`libraries`), or its own (`files`)",
                ),
            },
            error => LoadError::NotAProgram { what: error.to_string(), hint: None },
        }
    }
}
