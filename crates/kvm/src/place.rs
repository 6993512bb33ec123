//! Putting a program into fresh memory.

use std::sync::Arc;

use kvm_bindings::KVM_MAX_CPUID_ENTRIES;
use kvm_ioctls::Kvm;
use object::elf::EM_X86_64;
use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{Limits, LoadError, ProgramSource};
use sandtide_linux::{
    DEFAULT_STACK, Hardware, PAGE, Process, ProcessSetup, StartError,
    elf::{self, Image, Target},
    read_granted,
};

use crate::{
    inside::VDSO,
    machine::{Machine, system},
    memory::Memory,
    paging::USER_END,
    probe,
    registers::{Registers, SIGNAL_STACK},
    stubs::CallEntry,
};

const TARGET: Target = Target {
    machine: EM_X86_64,
    compile: "compile it for x86-64 Linux",
    pie_base: 0x40_0000,
    highest: USER_END - (8 << 30),
    link_lower: "guest memory is 36 bits wide: link below 0xe00000000",
    interpreter: true,
    check_flags: |_| None,
};

/// Between a program and its interpreter.
const GAP: u64 = 2 << 20;

/// The longest file of an interpreter, in bytes.
const LONGEST_INTERPRETER: u64 = 16 << 20;

/// The KVM that was found to work, opened once for all.
pub(crate) struct Host {
    pub(crate) kvm: Kvm,
    pub(crate) entry: CallEntry,
    /// Vector registers can be restored without a call of KVM.
    pub(crate) restores: bool,
    /// Guests can tell the time by themselves.
    pub(crate) clocks: bool,
}

/// Opens KVM, if it works.
pub(crate) fn host() -> Result<Arc<Host>, LoadError> {
    let unavailable = |reason: &probe::Unavailable| LoadError::NotAProgram {
        what: format!("programs for x86-64 cannot run here: {reason}"),
        hint: Some(reason.hint()),
    };
    let support = probe::probe().map_err(unavailable)?;
    let kvm = probe::open().map_err(|reason| unavailable(&reason))?;
    let probe::Support { entry, restores, clocks, .. } = support;
    Ok(Arc::new(Host { kvm, entry, restores, clocks }))
}

/// Whether a file is one for this engine, by its first bytes.
pub(crate) fn is_x86_64(image: &[u8]) -> bool {
    elf::is_for(EM_X86_64, image)
}

/// Whether a program needs files beside its own to start.
pub(crate) fn is_dynamic(image: &[u8]) -> bool {
    is_x86_64(image) && Image::names_interpreter(image)
}

/// A program in memory, before its first instruction.
pub(crate) struct Placed {
    pub(crate) machine: Machine,
    pub(crate) host: Arc<Host>,
    /// What was added to the file's addresses.
    pub(crate) base: u64,
}

/// Puts a program, and what loads its libraries, into fresh memory and makes its process.
///
/// Both lie at the same addresses each time: every sandbox of a program has the addresses of its
/// snapshot in any case.
pub(crate) fn place(source: &ProgramSource, limits: &Limits) -> Result<Placed, LoadError> {
    let image = elf::parse(&source.image, &TARGET)?;
    let mut layout = image.layout();
    let mut entry = image.entry;
    let interpreter = image.interpreter.map(|path| read_interpreter(source, path)).transpose()?;
    let interpreter = match &interpreter {
        Some(file) => {
            let parsed = elf::parse(file, &interpreter_target(&image));
            Some(parsed.map_err(|error| of_interpreter(&image, error))?)
        }
        None => None,
    };
    if let Some(interpreter) = &interpreter {
        layout.interpreter_base = interpreter.base;
        layout.segments.extend(interpreter.layout().segments);
        entry = interpreter.entry;
    }
    let host = host()?;
    let mut memory =
        Memory::new(limits.memory, host.entry).map_err(system("cannot reserve memory"))?;
    let images = || std::iter::once(&image).chain(&interpreter);
    let stored: u64 =
        images().flat_map(|image| &image.segments).map(|part| part.bytes.len() as u64).sum();
    for image in images() {
        fill(&mut memory, image, stored, limits)?;
    }
    let mut random = StdRng::from_os_rng();
    let setup = ProcessSetup {
        program: &source.path,
        args: &source.args,
        env: &source.env,
        reseed: source.reseed,
        files: &source.files,
        limits,
        stack: DEFAULT_STACK,
        hardware: hardware(&host)?,
        directory: &source.directory,
        network: source.network.as_ref(),
    };
    let cpu = Registers::new(entry);
    let process = Process::start(&layout, &setup, cpu, &mut memory, &mut random)
        .map_err(|error| error.into_load_error(limits))?;
    if let Some(path) = image.interpreter {
        process.note_read(path);
    }
    let machine = Machine::new(&host, memory, process, random)?;
    Ok(Placed { machine, host, base: image.base })
}

/// The file of an interpreter, as the program would see it.
fn read_interpreter(source: &ProgramSource, path: &str) -> Result<Vec<u8>, LoadError> {
    read_granted(&source.files, path, LONGEST_INTERPRETER).map_err(|error| {
        StartError::Interpreter { path: path.to_owned(), source: error }
            .into_load_error(&Limits::default())
    })
}

/// What is wrong with an interpreter is said of it, not of its program.
fn of_interpreter(program: &Image<'_>, error: LoadError) -> LoadError {
    let path = program.interpreter.unwrap_or_default();
    LoadError::NotAProgram {
        what: format!("the program's interpreter `{path}`: {error}"),
        hint: Some("it should be the machine's `ld.so`: build the program again"),
    }
}

/// An interpreter lies behind its program, and loads itself.
fn interpreter_target(program: &Image<'_>) -> Target {
    Target { pie_base: program.end().next_multiple_of(GAP) + GAP, interpreter: false, ..TARGET }
}

/// Puts a file into memory. It and the others that the program starts with have `stored` bytes.
fn fill(
    memory: &mut Memory,
    image: &Image<'_>,
    stored: u64,
    limits: &Limits,
) -> Result<(), LoadError> {
    for segment in &image.segments {
        let too_long = || over_limit(stored, limits);
        let shared = match segment.protection.write {
            false => memory
                .initialise_shared(segment.address, segment.bytes)
                .map_err(system("cannot share the program's file"))?,
            true => segment.address..segment.address,
        };
        // What a file asks for is mapped, and so costs page tables: an eighth of a percent.
        let own = segment.length - (shared.end - shared.start);
        if own > limits.memory {
            return Err(over_limit(own, limits));
        }
        let (before, after) = segment.bytes.split_at((shared.start - segment.address) as usize);
        let after = &after[(shared.end - shared.start) as usize..];
        memory.initialise(segment.address, before).map_err(|_| too_long())?;
        memory.initialise(shared.end, after).map_err(|_| too_long())?;
    }
    for segment in &image.segments {
        let (start, end) = segment.pages();
        memory.protect(start, end - start, segment.protection);
    }
    Ok(())
}

/// What Linux says of the processor: the features of CPUID 1, and that programs may use the
/// instructions for `fs` and `gs`.
fn hardware(host: &Host) -> Result<Hardware, LoadError> {
    const FSGSBASE: u64 = 2;
    let cpuid = host.kvm.get_supported_cpuid(KVM_MAX_CPUID_ENTRIES);
    let cpuid = cpuid.map_err(|error| system("cannot ask KVM for its processor")(error.into()))?;
    let basic = cpuid.as_slice().iter().find(|entry| entry.function == 1);
    Ok(Hardware {
        capabilities: basic.map_or(0, |entry| u64::from(entry.edx)),
        more_capabilities: FSGSBASE,
        clocks: if host.clocks { VDSO } else { 0 },
        signal_stack: SIGNAL_STACK,
    })
}

fn over_limit(needed: u64, limits: &Limits) -> LoadError {
    LoadError::OverLimit {
        resource: "memory",
        needed: format!("{} bytes", needed.next_multiple_of(PAGE)),
        limit: format!("{} bytes", limits.memory),
    }
}
