//! Putting a program into fresh memory.

use std::sync::Arc;

use kvm_ioctls::Kvm;
use object::elf::EM_X86_64;
use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{Limits, LoadError, ProgramSource};
use sandtide_linux::{
    DEFAULT_STACK, PAGE, Process, ProcessSetup,
    elf::{self, Target},
};

use crate::{
    machine::{Machine, system},
    memory::Memory,
    paging::USER_END,
    probe,
    registers::Registers,
    stubs::CallEntry,
};

const TARGET: Target = Target {
    machine: EM_X86_64,
    compile: "compile it for x86-64 Linux",
    pie_base: 0x40_0000,
    highest: USER_END - (8 << 30),
    link_lower: "guest memory is 36 bits wide: link below 0xe00000000",
    check_flags: |_| None,
};

/// The KVM that was found to work, opened once for all.
pub(crate) struct Host {
    pub(crate) kvm: Kvm,
    pub(crate) entry: CallEntry,
}

/// Opens KVM, if it works.
fn host() -> Result<Arc<Host>, LoadError> {
    let unavailable = |reason: &probe::Unavailable| LoadError::NotAProgram {
        what: format!("programs for x86-64 cannot run here: {reason}"),
        hint: Some(reason.hint()),
    };
    let support = probe::probe().map_err(unavailable)?;
    let kvm = probe::open().map_err(|reason| unavailable(&reason))?;
    Ok(Arc::new(Host { kvm, entry: support.entry }))
}

/// Whether a file is one for this engine, by its first bytes.
pub(crate) fn is_x86_64(image: &[u8]) -> bool {
    elf::is_for(EM_X86_64, image)
}

/// A program in memory, before its first instruction.
pub(crate) struct Placed {
    pub(crate) machine: Machine,
    pub(crate) host: Arc<Host>,
}

/// Puts a program into fresh memory and makes its process.
pub(crate) fn place(source: &ProgramSource, limits: &Limits) -> Result<Placed, LoadError> {
    let image = elf::parse(&source.image, &TARGET)?;
    let host = host()?;
    let mut memory =
        Memory::new(limits.memory, host.entry).map_err(system("cannot reserve memory"))?;
    for segment in &image.segments {
        // What a file asks for is mapped, and so costs page tables: an eighth of a percent.
        if segment.length > limits.memory {
            return Err(over_limit(segment.length, limits));
        }
        memory
            .initialise(segment.address, segment.bytes)
            .map_err(|_| over_limit(source.image.len() as u64, limits))?;
    }
    for segment in &image.segments {
        let (start, end) = segment.pages();
        memory.protect(start, end - start, segment.protection);
    }
    let mut random = StdRng::from_os_rng();
    let setup = ProcessSetup {
        program: source.args.first().map_or("/program", String::as_str),
        args: &source.args,
        env: &source.env,
        files: &source.files,
        limits,
        stack: DEFAULT_STACK,
        hwcap: 0,
    };
    let cpu = Registers::new(image.entry);
    let process = Process::start(&image.layout(), &setup, cpu, &mut memory, &mut random)
        .map_err(|error| error.into_load_error(limits))?;
    let machine = Machine::new(&host.kvm, host.entry, memory, process, random)?;
    Ok(Placed { machine, host })
}

fn over_limit(needed: u64, limits: &Limits) -> LoadError {
    LoadError::OverLimit {
        resource: "memory",
        needed: format!("{} bytes", needed.next_multiple_of(PAGE)),
        limit: format!("{} bytes", limits.memory),
    }
}
