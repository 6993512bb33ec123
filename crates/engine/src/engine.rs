//! The three traits, and what passes between their calls.

use std::{io::Read, path::PathBuf, sync::Arc, task::Context, time::Instant};

use serde::{Deserialize, Serialize};

use crate::{
    Condition, Console, Exchange, Fault, KeepError, Kept, Limits, Mismatch, Next, Profile,
    ProgramId, ProgramSource, Scrutiny, Slice, ToKeep, Translation, Usage, Warmed,
};

/// A way of running programs.
pub trait Engine: Send + Sync {
    /// The name in the configuration and in messages: `riscv`, `kvm`, `python`.
    fn name(&self) -> &'static str;

    /// Whether this engine runs programs that look like `image`, from its first bytes.
    fn recognises(&self, image: &[u8]) -> bool;

    /// Whether a program needs files beside its own to start: an interpreter and libraries. Looks
    /// at the whole file.
    fn is_dynamic(&self, _image: &[u8]) -> bool {
        false
    }

    /// Loads, verifies and boots a program, up to the point where it waits for its first request,
    /// and takes its snapshot there. Blocks for as long as that takes: call it off the reactors.
    fn load(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        console: Arc<dyn Console>,
    ) -> Result<Arc<dyn Program>, LoadError>;

    /// What snapshots depend on that this engine keeps: of this machine, and of this build.
    fn conditions(&self) -> Result<Vec<Condition>, LoadError> {
        Err(LoadError::Snapshot { what: KEEPS_NOTHING.to_owned() })
    }

    /// A program that goes on from a snapshot that was kept under the same conditions. Nothing of it
    /// is executed.
    fn restore(&self, _kept: &Kept) -> Result<Arc<dyn Program>, LoadError> {
        Err(LoadError::Snapshot { what: KEEPS_NOTHING.to_owned() })
    }

    /// Runs a program to its end in a sandbox, without requests, as `sandtide run` does. `Ok` has
    /// its exit code, or the fault that ended it.
    fn execute(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
    ) -> Result<Result<u8, Fault>, LoadError>;

    /// As [`Engine::execute`], and fills in where the program has spent its instructions, however
    /// it ended. An engine that cannot tell leaves the profile as it is.
    fn profile(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
        _profile: &mut Profile,
    ) -> Result<Result<u8, Fault>, LoadError> {
        self.execute(source, limits, stdin, console)
    }
}

/// What [`Engine::restore`] says where it is not implemented.
const KEEPS_NOTHING: &str = "this engine keeps none";

/// The code of a tenant: loaded, verified, initialised; immutable and shared.
pub trait Program: Send + Sync {
    /// The hash of everything the program was made from.
    fn id(&self) -> ProgramId;

    /// The files of the host that it has looked at before its snapshot, as far as that is known: if
    /// one changes, the program is not what it would be if it was loaded again.
    fn files(&self) -> &[PathBuf] {
        &[]
    }

    /// The snapshot, to be kept on disk. Reads the files that the program has looked at.
    fn to_keep(&self) -> Result<ToKeep<'_>, KeepError> {
        Err(KeepError::Unsupported)
    }

    /// System calls that its guests have made and that the engine does not have, with how often,
    /// by name. The guests were told `ENOSYS`.
    fn unknown_calls(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// What came of the requests that it has answered before its snapshot, if it has in this process.
    fn warmed(&self) -> Option<Warmed> {
        None
    }

    /// The events beside requests that its guests handle.
    fn events(&self) -> Events {
        Events::default()
    }

    /// What has become of the translation of its code; `None` if its engine has no use for that.
    fn translation(&self) -> Option<Translation> {
        None
    }

    /// Has `tell` called once, when it is settled what becomes of the translation: at once, or
    /// later on another thread. Never, if there is none or the program is dropped before.
    fn when_translated(&self, _tell: Box<dyn FnOnce(&Translation) + Send>) {}

    /// Makes a sandbox from the snapshot. The slow path: for pools, not for requests.
    fn spawn(&self, console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError>;
}

/// Events beside requests that a program has said it handles, before it waited for its first
/// request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Events {
    /// It answers [`crate::Purpose::Save`] with its state.
    pub save: bool,
    /// It takes the state of [`crate::Purpose::Restore`].
    pub restore: bool,
}

/// One isolated execution of a program.
///
/// Life: `spawn`, then any number of (`run` until [`Progress::Ended`], `reset`). A sandbox may be
/// reset at any point of an exchange, which abandons it.
pub trait Sandbox: Send {
    /// Runs the guest for at most one slice. Never blocks the thread.
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress;

    /// Puts the sandbox back to its snapshot. On `Err` it must be dropped, never run again.
    fn reset(&mut self) -> Result<(), ResetError>;

    /// Compares the sandbox with its snapshot, right after a [`reset`](Self::reset): whatever a
    /// request could have changed and that is not renewed on purpose, as random numbers and clocks
    /// are. On `Err` it must be dropped, never run again.
    fn verify(&mut self, scrutiny: Scrutiny) -> Result<(), Mismatch>;

    /// Makes the state that the exchange left the state that the next exchange starts from,
    /// instead of a reset: for tenants whose sandboxes keep state between requests.
    ///
    /// Only after [`Outcome::Done`]; the guest goes on behind its answer until it waits for the
    /// next request, which comes over the same connection if it is of the same client and the guest
    /// has not closed that.
    fn keep(&mut self, next: Next) -> Result<(), ResetError>;

    /// What the exchange has used so far; of the last exchange, after it ended, until `reset`.
    fn usage(&self) -> Usage;

    /// Bytes of host memory that only this sandbox holds.
    fn resident_bytes(&self) -> u64;
}

/// What a sandbox is given for one slice.
pub struct Turn<'a, 'cx> {
    /// Wakes the exchange when a body frame arrives.
    pub cx: &'a mut Context<'cx>,
    /// The request and the response so far.
    pub exchange: &'a mut Exchange,
    /// The time at which the turn begins. Whoever makes the turn has just looked at the clock.
    pub now: Instant,
    /// How long the guest may run before it lets others run.
    pub slice: Slice,
    /// When the exchange must have ended. Past it, `run` ends with [`Fault::Deadline`].
    pub deadline: Instant,
    /// Whether the slice is to end early, because something short has arrived that waits for this
    /// thread. An engine asks every few tens of microseconds while its guest computes, and answers
    /// `true` with [`Progress::Sliced`].
    pub interrupt: &'a dyn Fn() -> bool,
}

/// Why [`Sandbox::run`] came back.
#[derive(Debug)]
pub enum Progress {
    /// The exchange is over.
    Ended(Outcome),
    /// The slice is used up. Run again when it is this exchange's turn.
    Sliced,
    /// The guest waits: for the waker of the turn's context, for the host to take the response
    /// bytes that are there, or for the time given here, whichever is first.
    Waiting {
        /// When to run again at the latest.
        until: Option<Instant>,
    },
}

/// How an exchange ended, and whose doing it was.
#[derive(Debug)]
pub enum Outcome {
    /// The guest answered in full.
    Done,
    /// The guest ended badly.
    Fault(Fault),
    /// The client went away, or broke its request body off.
    ClientGone,
    /// We failed.
    Engine(EngineError),
}

/// A failure of an engine while it served.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The operating system refused something.
    #[error("{what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The engine panicked; the text is the panic's.
    #[error("the engine panicked: {0}")]
    Panic(String),
    /// The engine found its own state wrong.
    #[error("broken invariant: {0}")]
    Invariant(&'static str),
}

/// Why a program could not be loaded. The texts are for the tenant's owner.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is not a program that this engine runs.
    #[error("{what}")]
    NotAProgram {
        /// What is wrong with it.
        what: String,
        /// What to do about it.
        hint: Option<&'static str>,
    },
    /// It needs more than a limit allows.
    #[error("the program needs {needed} of {resource}, the limit is {limit}")]
    OverLimit {
        /// Which limit, in the configuration's word.
        resource: &'static str,
        /// How much it needs, with its unit.
        needed: String,
        /// The limit, with its unit.
        limit: String,
    },
    /// An application could not be imported, or failed to start up: the exception. The interpreter has
    /// shown where.
    #[error("the application failed before its first request: {0}")]
    Application(String),
    /// It ended badly before it waited for its first request.
    #[error("the program failed before it asked for its first request: {0}")]
    Boot(Fault),
    /// A snapshot that was kept is none for here and now.
    #[error("its snapshot cannot be used: {what}")]
    Snapshot {
        /// What is wrong with it.
        what: String,
    },
    /// Something that it was granted cannot be had.
    #[error("cannot open {path}")]
    Grant {
        /// The host path.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// We failed.
    #[error("the engine failed while loading")]
    Engine(#[from] EngineError),
}

impl LoadError {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NotAProgram { hint, .. } => *hint,
            Self::OverLimit { .. } => Some("raise the limit in the tenant's `limits`, or ask less"),
            // The limits of the boot are others than those of an exchange.
            Self::Boot(Fault::Deadline { .. }) => {
                Some("raise `limits.boot_time`, or do less before the first request")
            }
            Self::Boot(Fault::Instructions { .. }) => {
                Some("raise `limits.boot_instructions`, or compute less before the first request")
            }
            Self::Boot(fault) => fault.hint(),
            Self::Snapshot { .. } => Some("make it anew: `sandtide snapshot`"),
            Self::Grant { .. } => Some("check the tenant's `files`"),
            Self::Engine(EngineError::System { source, .. })
                if source.kind() == std::io::ErrorKind::OutOfMemory =>
            {
                Some("no memory is left, or no mapping: `sysctl vm.max_map_count` limits those")
            }
            Self::Application(_) | Self::Engine(_) => None,
        }
    }
}

/// A sandbox could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make a sandbox")]
pub struct SpawnError(#[from] pub EngineError);

/// A sandbox could not be put back to its snapshot.
#[derive(Debug, thiserror::Error)]
#[error("cannot reset the sandbox")]
pub struct ResetError(#[from] pub EngineError);
