//! Snapshots on disk: what is in them, what they depend on, and a program that goes on from one.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt as _,
    sync::{Arc, Mutex},
};

use sandtide_engine::{Condition, Events, KeepError, Kept, LoadError, ProgramId, ToKeep};
use sandtide_linux::{
    DEFAULT_STACK, FileRead, Hardware, Process, ProcessSetup, RestoreError, serve::Ready,
};
use serde::{Deserialize, Serialize};

use crate::{
    machine::system,
    memory::{Layout, Snapshot},
    paging::PAGE,
    place,
    program::{KvmProgram, Names},
    symbols::Symbols,
    vcpu,
};

/// The longest names of functions that are read, in bytes.
const LONGEST_SYMBOLS: u64 = 64 << 20;

/// Everything of a program but its pages.
#[derive(Serialize, Deserialize)]
struct State {
    id: ProgramId,
    ready: Ready,
    events: Events,
    layout: Layout,
    /// How long the names of functions are, which lie behind the pages.
    symbols: u64,
    process: Vec<u8>,
}

/// Names of functions in a file, for when somebody asks.
pub(crate) struct KeptSymbols {
    file: Arc<File>,
    start: u64,
    length: u64,
}

impl KeptSymbols {
    /// What can be read of them.
    pub(crate) fn read(&self) -> Symbols {
        let mut bytes = vec![0; self.length as usize];
        match self.file.read_exact_at(&mut bytes, self.start) {
            Ok(()) => Symbols::from_bytes(&bytes).unwrap_or_default(),
            Err(_) => Symbols::default(),
        }
    }
}

/// What snapshots depend on: the processor as guests see it, how they enter the host, and this engine.
pub(crate) fn conditions() -> Result<Vec<Condition>, LoadError> {
    let host = place::host()?;
    let processor =
        vcpu::processor(&host.kvm).map_err(system("cannot ask KVM for its processor"))?;
    Ok(vec![
        Condition::new(
            "build",
            format_args!("{} ({})", env!("CARGO_PKG_VERSION"), env!("SANDTIDE_KVM")),
        ),
        Condition::new("processor", processor.name),
        Condition::new("processor features", processor.features),
        Condition::new("system calls", host.entry),
    ])
}

impl KvmProgram {
    /// The snapshot, to be kept.
    pub(crate) fn to_keep(&self) -> Result<ToKeep<'_>, KeepError> {
        let refused = |error: &dyn std::fmt::Display| KeepError::Refused(error.to_string());
        let Some(reads) = &self.reads else {
            return Err(KeepError::Refused("it was itself started from a snapshot".to_owned()));
        };
        let process = self.process.save(reads).map_err(|error| refused(&error))?;
        let files = FileRead::of(&process).map_err(|error| refused(&error))?;
        let mut symbols = self.symbols().to_bytes().map_err(|error| refused(&error))?;
        let state = State {
            id: self.id,
            ready: self.ready,
            events: self.events,
            layout: self.snapshot.layout(),
            symbols: symbols.len() as u64,
            process,
        };
        symbols.resize(symbols.len().next_multiple_of(PAGE as usize), 0);
        Ok(ToKeep {
            state: postcard::to_allocvec(&state).map_err(|error| refused(&error))?,
            pages: self.snapshot.runs().map(Cow::Borrowed).chain([Cow::Owned(symbols)]).collect(),
            files: files.iter().map(ToString::to_string).collect(),
        })
    }
}

/// The program of a snapshot that was kept.
pub(crate) fn restore(kept: &Kept) -> Result<Arc<KvmProgram>, LoadError> {
    let unusable = |what: &str| LoadError::Snapshot { what: what.to_owned() };
    let state: State = match postcard::take_from_bytes(&kept.state) {
        Ok((state, [])) => state,
        _ => return Err(unusable("its state cannot be read")),
    };
    let State { id, ready, events, layout, symbols, process } = state;
    let pages = kept.pages_length.checked_sub(symbols.next_multiple_of(PAGE));
    if symbols > LONGEST_SYMBOLS || !layout.is_consistent() || pages != Some(layout.length()) {
        return Err(unusable("its memory contradicts itself"));
    }
    let host = place::host()?;
    let setup = ProcessSetup {
        program: &kept.source.path,
        args: &kept.source.args,
        env: &kept.source.env,
        reseed: kept.source.reseed,
        files: &kept.source.files,
        limits: &kept.limits,
        stack: DEFAULT_STACK,
        hardware: Hardware::default(),
        directory: &kept.source.directory,
        network: kept.source.network.as_ref(),
    };
    let process = Process::restore(&process, &setup).map_err(|error| match error {
        RestoreError::Start(error) => error.into_load_error(&kept.limits),
        error => unusable(&error.to_string()),
    })?;
    if !ready.is_of(&process) {
        return Err(unusable("it waits for nothing that is there"));
    }
    let names = KeptSymbols {
        file: Arc::clone(&kept.file),
        start: kept.pages_start + layout.length(),
        length: symbols,
    };
    let file = kept.file.try_clone().map_err(system("cannot keep a snapshot open"))?;
    let snapshot = Snapshot::of_file(file.into(), kept.pages_start, layout)
        .map_err(system("cannot map a snapshot"))?;
    Ok(Arc::new(KvmProgram {
        id,
        host,
        limits: kept.limits.clone(),
        snapshot: Arc::new(snapshot),
        names: Names::kept(names),
        process,
        ready,
        events,
        warmed: None,
        reads: None,
        files: Vec::new(),
        unknown_calls: Mutex::new(BTreeMap::new()),
    }))
}
