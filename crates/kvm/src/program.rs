//! A loaded program: booted, and frozen where it waits for its first request.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use sandtide_engine::{
    Console, Events, KeepError, Limits, LoadError, Program, ProgramId, ProgramSource, Sandbox,
    SpawnError, ToKeep, Warmed,
};
use sandtide_linux::{
    Process, Reads,
    serve::{Booted, Ready},
};
use sha2::{Digest, Sha256};

use crate::{
    boot::boot,
    kept::KeptSymbols,
    machine::system,
    memory::Snapshot,
    place::{Host, Placed, place},
    registers::Registers,
    sandbox::KvmSandbox,
    symbols::Symbols,
};

/// Everything that the sandboxes of a program share.
pub(crate) struct KvmProgram {
    pub(crate) id: ProgramId,
    pub(crate) host: Arc<Host>,
    pub(crate) limits: Limits,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) names: Names,
    pub(crate) process: Process<Registers>,
    /// How it waits for a request where the snapshot was taken.
    pub(crate) ready: Ready,
    pub(crate) events: Events,
    pub(crate) warmed: Option<Warmed>,
    /// The files that it has looked at; `None` if it was started from a snapshot.
    pub(crate) reads: Option<Reads>,
    /// Where these lie on the host.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) unknown_calls: Mutex<BTreeMap<&'static str, u64>>,
}

/// Names of functions, read when somebody asks for one where they lie in a file.
pub(crate) struct Names {
    symbols: OnceLock<Symbols>,
    kept: Option<KeptSymbols>,
}

impl Names {
    fn known(symbols: Symbols) -> Self {
        Self { symbols: OnceLock::from(symbols), kept: None }
    }

    pub(crate) fn kept(kept: KeptSymbols) -> Self {
        Self { symbols: OnceLock::new(), kept: Some(kept) }
    }
}

impl KvmProgram {
    /// The names of its functions.
    pub(crate) fn symbols(&self) -> &Symbols {
        let Names { symbols, kept } = &self.names;
        symbols.get_or_init(|| kept.as_ref().map(KeptSymbols::read).unwrap_or_default())
    }

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
) -> Result<Arc<KvmProgram>, LoadError> {
    let Placed { mut machine, host, base } = place(source, limits)?;
    let symbols = Symbols::read(&source.image, base);
    let Booted { ready, events, warmed } = boot(&mut machine, source, &symbols, limits, console)?;
    console.flush();
    machine.save()?;
    machine.process.part(&mut machine.memory);
    machine.prepare_vectors();
    machine.clear_desk();
    let snapshot = machine.memory.freeze().map_err(system("cannot freeze the program"))?;
    let reads = machine.process.take_reads();
    let unknown_calls = machine.process.take_unknown_calls().into_iter().collect();
    Ok(Arc::new(KvmProgram {
        id: identify(source, limits),
        host,
        limits: limits.clone(),
        snapshot: Arc::new(snapshot),
        names: Names::known(symbols),
        process: machine.process.clone(),
        ready,
        events,
        warmed,
        files: reads.on_host(&source.files),
        reads: Some(reads),
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
pub(crate) struct SharedProgram(pub(crate) Arc<KvmProgram>);

impl Program for SharedProgram {
    fn id(&self) -> ProgramId {
        self.0.id
    }

    fn to_keep(&self) -> Result<ToKeep<'_>, KeepError> {
        self.0.to_keep()
    }

    fn files(&self) -> &[PathBuf] {
        &self.0.files
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

    fn spawn(&self, console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(KvmSandbox::new(Arc::clone(&self.0), console)?))
    }
}
