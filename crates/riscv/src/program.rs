//! A loaded program: booted, and frozen where it waits for its first request.

use std::{
    collections::BTreeMap,
    io::Read,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::call;
use sandtide_engine::{
    Console, EngineError, Fault, Limits, LoadError, Program, ProgramId, ProgramSource, Sandbox,
    SpawnError,
};
use sandtide_linux::{Cpu as _, DEFAULT_STACK, ImageLayout, Process, ProcessSetup, StartError};
use sandtide_memory::{Denied, Snapshot, Space};
use sha2::{Digest, Sha256};

use crate::{
    elf::{self, Image, Segment},
    isa::{Code, Cpu},
    machine::{Bounds, End, Machine, Stop},
    memory::{Memory, access},
    sandbox::RiscvSandbox,
    symbols::Symbols,
};

/// `AT_HWCAP`: a bit for each of I, M, A, F, D, C.
const HARDWARE: u64 = 1 << 8 | 1 << 12 | 1 | 1 << 5 | 1 << 3 | 1 << 2;

/// Instructions that other threads get, when the first request is waited for, to come to rest.
const SETTLE: u64 = 100_000_000;

/// Everything that the sandboxes of a program share.
pub(crate) struct RiscvProgram {
    id: ProgramId,
    pub(crate) limits: Limits,
    pub(crate) symbols: Symbols,
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) process: Process<Cpu>,
    pub(crate) code: Arc<Code>,
    /// The arguments of the call for a request in which the snapshot was taken.
    pub(crate) waiting_call: [u64; 6],
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

/// A program in memory, before its first instruction.
struct Loaded {
    machine: Machine,
    symbols: Symbols,
}

/// Loads and boots a program.
pub(crate) fn load(
    source: &ProgramSource,
    limits: &Limits,
    console: &dyn Console,
) -> Result<Arc<RiscvProgram>, LoadError> {
    let Loaded { mut machine, symbols } = place(source, limits)?;
    let waiting_call = boot(&mut machine, &symbols, limits, console)?;
    console.flush();
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
        process: machine.process,
        code: machine.code,
        waiting_call,
        unknown_calls: Mutex::new(unknown_calls),
    }))
}

/// Runs a program to its end.
pub(crate) fn execute(
    source: &ProgramSource,
    limits: &Limits,
    mut stdin: Box<dyn Read + Send>,
    console: &dyn Console,
) -> Result<Result<u8, Fault>, LoadError> {
    let Loaded { mut machine, symbols } = place(source, limits)?;
    let mut bounds = bounds(limits.instructions, limits.wall_time);
    let end = loop {
        match machine.run(&mut bounds, console, Some(&mut *stdin)) {
            Stop::GuestCall { number: call::VERSION, .. } => {
                machine.process.cpu().set_result(sandtide_abi::VERSION);
            }
            Stop::GuestCall { number, .. } => break Err(without_request(number)),
            Stop::Sliced => bounds.renew(),
            Stop::Idle { until } => wait(until, &mut bounds),
            Stop::Exit(code) => break Ok(code),
            Stop::Over(end) => break Err(machine.fault(end, limits, &symbols)),
        }
    };
    console.flush();
    Ok(end)
}

/// Puts a program into fresh memory and makes its process.
fn place(source: &ProgramSource, limits: &Limits) -> Result<Loaded, LoadError> {
    let image = elf::parse(&source.image)?;
    let mut memory = Memory(
        Space::new(limits.memory)
            .map_err(|source| EngineError::System { what: "cannot reserve memory", source })?,
    );
    for segment in &image.segments {
        let (start, end) = segment.pages();
        memory.0.protect(start, end - start, access(segment.protection));
        memory.0.initialise(segment.address as u32, segment.bytes).map_err(|denied| {
            debug_assert_eq!(denied, Denied::Limit);
            LoadError::OverLimit {
                resource: "memory",
                needed: format!("{} bytes for its file alone", source.image.len()),
                limit: format!("{} bytes", limits.memory),
            }
        })?;
    }
    let code = Code::new(lasting_code(&image)).map_err(|_| LoadError::OverLimit {
        resource: "memory",
        needed: "too much for its decoded code".to_owned(),
        limit: format!("{} bytes", limits.memory),
    })?;
    let mut random = StdRng::from_os_rng();
    let setup = ProcessSetup {
        program: source.args.first().map_or("/program", String::as_str),
        args: &source.args,
        env: &source.env,
        files: &source.files,
        limits,
        stack: DEFAULT_STACK,
        hwcap: HARDWARE,
    };
    let cpu = Cpu::new(image.entry);
    let process = Process::start(&layout(&image), &setup, cpu, &mut memory, &mut random)
        .map_err(|error| start_error(error, limits))?;
    let symbols = Symbols::read(&source.image, image.base);
    Ok(Loaded { machine: Machine::new(memory, process, Arc::new(code), random), symbols })
}

/// Where instructions can be decoded once and for all sandboxes: where the file has code that stays
/// as it is. All other code is decoded afresh each time it runs:
///
/// * what can be written, and what shares a page with that;
/// * the zeros that the file does not have: a small file can ask for gigabytes of them, and the
///   guest could fill even more of the host's memory with what they decode to;
/// * the last halfword, since the rest of its instruction may lie in memory that can be written.
fn lasting_code(image: &Image<'_>) -> impl Iterator<Item = Range<u64>> {
    let is_writable = |(start, end)| {
        let overlaps = |other: &Segment<'_>| other.pages().0 < end && start < other.pages().1;
        image.segments.iter().any(|other| other.protection.write && overlaps(other))
    };
    image
        .segments
        .iter()
        .filter(|part| part.protection.execute)
        .filter(move |part| !is_writable(part.pages()))
        .map(|part| part.address..part.address + (part.bytes.len() as u64).saturating_sub(2))
}

fn layout(image: &Image<'_>) -> ImageLayout {
    let segments: Vec<_> = image
        .segments
        .iter()
        .map(|segment| {
            let (start, end) = segment.pages();
            sandtide_linux::Segment { start, end, protection: segment.protection }
        })
        .collect();
    ImageLayout {
        entry: image.entry,
        phdr: image.headers,
        phent: u64::from(image.header_size),
        phnum: u64::from(image.header_count),
        brk_start: segments.iter().map(|segment| segment.end).max().unwrap_or(0),
        segments,
        interpreter_base: 0,
    }
}

fn start_error(error: StartError, limits: &Limits) -> LoadError {
    match error {
        StartError::Grant { path, source } => LoadError::Grant { path, source },
        StartError::MemoryLimit => LoadError::OverLimit {
            resource: "memory",
            needed: "more than that for the program and its stack".to_owned(),
            limit: format!("{} bytes", limits.memory),
        },
        error => LoadError::NotAProgram { what: error.to_string(), hint: None },
    }
}

/// Runs a program until it waits for its first request, and returns the arguments of that call.
fn boot(
    machine: &mut Machine,
    symbols: &Symbols,
    limits: &Limits,
    console: &dyn Console,
) -> Result<[u64; 6], LoadError> {
    let mut bounds = bounds(limits.boot_instructions, limits.boot_time);
    // The limits in a fault's message are those of the boot.
    let named = Limits {
        wall_time: limits.boot_time,
        instructions: limits.boot_instructions,
        ..limits.clone()
    };
    let fault = loop {
        match machine.run(&mut bounds, console, None) {
            Stop::GuestCall { number: call::VERSION, .. } => {
                machine.process.cpu().set_result(sandtide_abi::VERSION);
            }
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => {
                return settle(machine, arguments, &mut bounds, console)
                    .map_err(|end| LoadError::Boot(machine.fault(end, &named, symbols)));
            }
            Stop::GuestCall { number, .. } => break without_request(number),
            Stop::Sliced => bounds.renew(),
            Stop::Idle { until } => wait(until, &mut bounds),
            Stop::Exit(code) => break Fault::Exit { code },
            Stop::Over(end) => break machine.fault(end, &named, symbols),
        }
    };
    console.flush();
    Err(LoadError::Boot(fault))
}

/// Lets the other threads of a program run until all of them wait, so that no work of theirs is
/// done again for every request.
fn settle(
    machine: &mut Machine,
    arguments: [u64; 6],
    bounds: &mut Bounds,
    console: &dyn Console,
) -> Result<[u64; 6], End> {
    if machine.process.threads() == 1 {
        return Ok(arguments);
    }
    machine.process.wait_for_host();
    let enough = machine.instructions.saturating_add(SETTLE);
    while machine.instructions < enough {
        match machine.run(bounds, console, None) {
            Stop::Idle { .. } => break,
            Stop::Sliced => bounds.renew(),
            // Another thread makes a guest call of its own: it finds a request soon enough.
            Stop::GuestCall { .. } => machine.process.wait_for_host(),
            Stop::Exit(_) => return Err(End::Stalled),
            Stop::Over(end) => return Err(end),
        }
    }
    machine.process.wake_host_waiters();
    loop {
        match machine.run(bounds, console, None) {
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => return Ok(arguments),
            Stop::GuestCall { .. } => machine.process.wait_for_host(),
            Stop::Sliced => bounds.renew(),
            Stop::Idle { .. } | Stop::Exit(_) => return Err(End::Stalled),
            Stop::Over(end) => return Err(end),
        }
    }
}

fn bounds(instructions: u64, time: Duration) -> Bounds {
    let now = Instant::now();
    let deadline = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(86_400));
    Bounds::new(instructions, now, deadline, Duration::from_millis(10))
}

/// Waits for a guest that waits for a timer. Only while loading, off the reactors.
fn wait(until: Option<Instant>, bounds: &mut Bounds) {
    let until = until.map_or(bounds.deadline(), |until| until.min(bounds.deadline()));
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    bounds.renew();
}

fn without_request(number: u64) -> Fault {
    let name = call::name(number).unwrap_or("?");
    Fault::Protocol(format!("guest call `{name}`: there is no request here"))
}

/// The hash of everything that a program is made from.
fn identify(source: &ProgramSource, limits: &Limits) -> ProgramId {
    let mut hash = Sha256::new();
    hash.update(&source.image);
    // `Debug` of these types names every field, and strings are quoted: no two are alike.
    hash.update(format!("{:?} {:?} {:?} {limits:?}", source.args, source.env, source.files));
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

    fn spawn(&self, console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        Ok(Box::new(RiscvSandbox::new(Arc::clone(&self.0), console)?))
    }
}

#[cfg(test)]
mod tests {
    use sandtide_linux::Protection;

    use super::*;

    #[test]
    fn only_code_that_stays_as_it_is_is_shared() {
        let segment = |address, bytes, length, write| Segment {
            address,
            length,
            bytes,
            protection: Protection { read: true, write, execute: true },
        };
        let image = Image {
            segments: vec![
                segment(0x1_0000, &[0; 16][..], 16, false),
                segment(0x2_0000, &[], 0xb000_0000, false),
                segment(0xc000_0000, &[0; 16], 16, true),
                segment(0xc000_0800, &[0; 16], 16, false),
                segment(0xc000_1000, &[0; 1], 1, false),
            ],
            entry: 0x1_0000,
            base: 0,
            headers: 0,
            header_count: 0,
            header_size: 0,
        };
        let shared: Vec<_> = lasting_code(&image)
            .filter(|range| !range.is_empty())
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(shared, [(0x1_0000, 0x1_000e)]);
    }
}
