//! A loaded program: booted, and frozen where it waits for its first request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use sandtide_engine::{
    Console, EngineError, Events, Limits, LoadError, Program, ProgramId, ProgramSource, Sandbox,
    SpawnError, Translation, Warmed,
};
use sandtide_linux::{
    Process,
    serve::{Booted, Ready},
};
use sandtide_memory::Snapshot;
use sha2::{Digest, Sha256};

use crate::{
    boot::boot,
    isa::{Code, Cpu},
    place::{Loaded, place},
    sandbox::RiscvSandbox,
    symbols::Symbols,
    translator::{HostCode, Translator},
};

/// Everything that the sandboxes of a program share.
pub(crate) struct RiscvProgram {
    id: ProgramId,
    pub(crate) limits: Limits,
    pub(crate) symbols: Symbols,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) process: Process<Cpu>,
    pub(crate) code: Arc<Code>,
    pub(crate) host_code: Arc<HostCode>,
    /// How it waits for a request where the snapshot was taken.
    pub(crate) ready: Ready,
    events: Events,
    warmed: Option<Warmed>,
    unknown_calls: Mutex<BTreeMap<&'static str, u64>>,
}

impl RiscvProgram {
    /// Counts system calls that the Linux layer does not have. Rare: no request of a program that
    /// works comes here.
    #[cold]
    pub(crate) fn count_unknown(&self, calls: Vec<(&'static str, u64)>) {
        let mut counts = self.unknown_calls.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in calls {
            *counts.entry(name).or_default() += count;
        }
    }
}

/// Loads and boots a program.
pub(crate) fn load(
    source: &ProgramSource,
    limits: &Limits,
    console: &dyn Console,
    translator: &Arc<Translator>,
) -> Result<Arc<RiscvProgram>, LoadError> {
    let Loaded { mut machine, symbols } = place(source, limits, translator)?;
    let Booted { ready, events, warmed } = boot(&mut machine, &symbols, source, limits, console)?;
    console.flush();
    machine.process.part(&mut machine.memory);
    let snapshot = machine
        .memory
        .0
        .freeze()
        .map_err(|source| EngineError::System { what: "cannot freeze the program", source })?;
    let unknown_calls = machine.process.take_unknown_calls().into_iter().collect();
    Ok(Arc::new(RiscvProgram {
        id: identify(source, limits),
        limits: limits.clone(),
        symbols,
        snapshot: Arc::new(snapshot),
        // A clone: its time stands still.
        process: machine.process.clone(),
        code: machine.code,
        host_code: machine.host_code,
        ready,
        events,
        warmed,
        unknown_calls: Mutex::new(unknown_calls),
    }))
}

/// The hash of everything that a program is made from.
fn identify(source: &ProgramSource, limits: &Limits) -> ProgramId {
    let mut hash = Sha256::new();
    hash.update(&source.image);
    // `Debug` of these types names every field, and strings are quoted: no two are alike.
    let ProgramSource { path, args, env, reseed, files, directory, warmup, .. } = source;
    hash.update(format!("{path:?} {args:?} {env:?} {reseed} {files:?} {directory:?}"));
    hash.update(format!("{limits:?} {warmup:?}"));
    ProgramId(hash.finalize().into())
}

/// A program behind the seam: what its sandboxes share.
pub(crate) struct SharedProgram(pub(crate) Arc<RiscvProgram>);

impl Program for SharedProgram {
    fn id(&self) -> ProgramId {
        self.0.id
    }

    fn unknown_calls(&self) -> Vec<(String, u64)> {
        let counts = self.0.unknown_calls.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    fn warmed(&self) -> Option<Warmed> {
        self.0.warmed
    }

    fn events(&self) -> Events {
        self.0.events
    }

    fn translation(&self) -> Option<Translation> {
        Some(self.0.host_code.status())
    }

    fn when_translated(&self, tell: Box<dyn FnOnce(&Translation) + Send>) {
        self.0.host_code.when_settled(tell);
    }

    fn spawn(&self, console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(RiscvSandbox::new(Arc::clone(&self.0), console)?))
    }
}
