//! Sandboxes between exchanges.
//!
//! ```text
//!   Pool ──take──▶ Clean ──begin──▶ Dirty ──reset──▶ Clean ──put──▶ Pool
//!                                     ├─────keep────▶ Clean
//!                                     └────retire───▶ (destroyed)
//! ```
//!
//! A dirty sandbox has no way back to a pool but through a reset that succeeded. Now and then it is
//! looked whether one has ([`Clean::verify`]).

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use sandtide_engine::{
    Console as _, EngineError, Mismatch, Next, Outcome, Program, Progress, ResetError, Sandbox,
    Scrutiny, SpawnError, Turn, Usage,
};

use crate::{console::TenantConsole, version::Version};

/// A sandbox at the start of an exchange.
pub(crate) struct Clean(Inner);

/// A sandbox that has seen a request.
pub(crate) struct Dirty(Inner);

struct Inner {
    sandbox: Box<dyn Sandbox>,
    console: Arc<TenantConsole>,
}

impl Clean {
    /// Makes a sandbox. A panic of the engine is an error here.
    pub(crate) fn spawn(
        program: &dyn Program,
        console: Arc<TenantConsole>,
    ) -> Result<Self, SpawnError> {
        let sandbox = caught(|| program.spawn(console.clone()))
            .map_err(|panic| SpawnError(EngineError::Panic(panic)))??;
        Ok(Self(Inner { sandbox, console }))
    }

    /// From here on it is dirty.
    pub(crate) fn begin(self) -> Dirty {
        Dirty(self.0)
    }

    /// Compares it with its snapshot. What is not the same is destroyed.
    pub(crate) fn verify(mut self, scrutiny: Scrutiny) -> Result<Self, Mismatch> {
        let result = caught(|| self.0.sandbox.verify(scrutiny))
            .unwrap_or_else(|panic| Err(Mismatch::Unseen(EngineError::Panic(panic))));
        match result {
            Ok(()) => Ok(self),
            Err(mismatch) => {
                self.0.destroy();
                Err(mismatch)
            }
        }
    }

    /// Destroys it.
    pub(crate) fn retire(self) {
        self.0.destroy();
    }
}

impl Dirty {
    /// Runs the guest for a slice. A panic of the engine ends the exchange.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        caught(|| self.0.sandbox.run(turn))
            .unwrap_or_else(|panic| Progress::Ended(Outcome::Engine(EngineError::Panic(panic))))
    }

    pub(crate) fn usage(&self) -> Usage {
        caught(|| self.0.sandbox.usage()).unwrap_or_default()
    }

    /// Back to the snapshot. What could not be reset is destroyed.
    pub(crate) fn reset(self) -> Result<Clean, ResetError> {
        self.renew(|sandbox| sandbox.reset())
    }

    /// On to the next exchange with what this one left.
    pub(crate) fn keep(self, next: Next) -> Result<Clean, ResetError> {
        self.renew(|sandbox| sandbox.keep(next))
    }

    fn renew(
        mut self,
        step: impl FnOnce(&mut dyn Sandbox) -> Result<(), ResetError>,
    ) -> Result<Clean, ResetError> {
        let result = caught(|| step(&mut *self.0.sandbox))
            .unwrap_or_else(|panic| Err(ResetError(EngineError::Panic(panic))));
        self.0.console.flush();
        match result {
            Ok(()) => Ok(Clean(self.0)),
            Err(error) => {
                self.0.destroy();
                Err(error)
            }
        }
    }

    /// Destroys it.
    pub(crate) fn retire(self) {
        self.0.console.flush();
        self.0.destroy();
    }
}

impl Inner {
    /// A sandbox that is broken may panic once more while it is dropped.
    fn destroy(self) {
        if let Err(panic) = caught(move || drop(self.sandbox)) {
            tracing::error!(panic, "a sandbox panicked while it was destroyed");
        }
    }
}

/// Turns a panic into its text. The state behind it is not used again: whoever gets the text
/// retires the sandbox.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| text_of(&*panic))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without text".to_owned(),
    }
}

/// The idle sandboxes of one version of a tenant's program on one reactor. The last one used is
/// taken first: its memory is the warmest.
///
/// As many are kept as were in use at once lately: making one costs far more than keeping it for a
/// moment. Those that nobody took between two looks ([`Pool::trim`]) are let go of.
pub(crate) struct Pool {
    pub(crate) version: Arc<Version>,
    idle: RefCell<Vec<Clean>>,
    /// So many are kept however rarely they are used.
    least: usize,
    /// The fewest that were idle since the last look.
    unused: Cell<usize>,
    is_closed: Cell<bool>,
}

impl Pool {
    pub(crate) fn new(version: Arc<Version>, least: u32) -> Self {
        Self {
            version,
            idle: RefCell::default(),
            least: least as usize,
            unused: Cell::new(0),
            is_closed: Cell::new(false),
        }
    }

    pub(crate) fn take(&self) -> Option<Clean> {
        let mut idle = self.idle.borrow_mut();
        let taken = idle.pop();
        self.unused.set(self.unused.get().min(idle.len()));
        taken
    }

    pub(crate) fn put(&self, clean: Clean) {
        if self.is_closed.get() {
            clean.retire();
        } else {
            self.idle.borrow_mut().push(clean);
        }
    }

    /// Lets go of some of those that were not needed since the last time. Not of all at once: the
    /// next burst may come, and destroying a sandbox takes a moment of this thread.
    pub(crate) fn trim(&self) {
        let mut idle = self.idle.borrow_mut();
        let surplus = self.unused.get().min(idle.len().saturating_sub(self.least));
        // The coldest.
        let surplus: Vec<Clean> = idle.drain(..surplus.div_ceil(4)).collect();
        self.unused.set(idle.len());
        drop(idle);
        surplus.into_iter().for_each(Clean::retire);
    }

    /// Lets go of all idle sandboxes.
    pub(crate) fn empty(&self) {
        self.unused.set(0);
        let idle = self.idle.take();
        idle.into_iter().for_each(Clean::retire);
    }

    /// Lets go of all idle sandboxes, and of those in use when they come back.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.empty();
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Bytes of memory that only these sandboxes hold.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let idle = self.idle.borrow();
        let bytes = |clean: &Clean| caught(|| clean.0.sandbox.resident_bytes()).unwrap_or(0);
        idle.iter().map(bytes).sum()
    }
}
