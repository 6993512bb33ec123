//! Putting a program into fresh memory.

use std::{ops::Range, sync::Arc};

use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{EngineError, Limits, LoadError, ProgramSource, Translate};
use sandtide_linux::{DEFAULT_STACK, Hardware, Process, ProcessSetup};
use sandtide_memory::{Denied, Space};

use crate::{
    elf::{self, Image, Segment},
    isa::{Code, Cpu},
    machine::Machine,
    memory::{Memory, access},
    symbols::Symbols,
    translator::Translator,
};

/// `AT_HWCAP`: a bit for each of I, M, A, F, D, C.
const HARDWARE: u64 = 1 << 8 | 1 << 12 | 1 | 1 << 5 | 1 << 3 | 1 << 2;

/// A program in memory, before its first instruction.
pub(crate) struct Loaded {
    pub(crate) machine: Machine,
    pub(crate) symbols: Symbols,
}

/// Puts a program into fresh memory and makes its process.
pub(crate) fn place(
    source: &ProgramSource,
    limits: &Limits,
    translator: &Arc<Translator>,
) -> Result<Loaded, LoadError> {
    place_with(source, limits, translator, StdRng::from_os_rng())
}

/// As [`place`], with this generator for what the process sees of chance.
pub(crate) fn place_with(
    source: &ProgramSource,
    limits: &Limits,
    translator: &Arc<Translator>,
    mut random: StdRng,
) -> Result<Loaded, LoadError> {
    let image = elf::parse(&source.image)?;
    let mut memory = Memory(
        Space::new(limits.memory)
            .map_err(|source| EngineError::System { what: "cannot reserve memory", source })?,
    );
    fill(&mut memory, &image).map_err(|denied| {
        debug_assert_eq!(denied, Denied::Limit);
        LoadError::OverLimit {
            resource: "memory",
            needed: format!("{} bytes for its file alone", source.image.len()),
            limit: format!("{} bytes", limits.memory),
        }
    })?;
    let code = Code::new(lasting_code(&image)).map_err(|_| LoadError::OverLimit {
        resource: "memory",
        needed: "too much for its decoded code".to_owned(),
        limit: format!("{} bytes", limits.memory),
    })?;
    let code = Arc::new(code);
    memory.0.set_lasting_code(lasting_code(&image));
    let host_code = match source.translate {
        Translate::Off => Arc::default(),
        Translate::Auto => translator.begin(&source.image, limits, &memory.0, &code),
    };
    let setup = ProcessSetup {
        program: &source.path,
        args: &source.args,
        env: &source.env,
        reseed: source.reseed,
        files: &source.files,
        limits,
        stack: DEFAULT_STACK,
        hardware: Hardware { capabilities: HARDWARE, ..Hardware::default() },
        directory: &source.directory,
        network: source.network.as_ref(),
    };
    let cpu = Cpu::new(image.entry);
    let process = Process::start(&image.layout(), &setup, cpu, &mut memory, &mut random)
        .map_err(|error| error.into_load_error(limits))?;
    let symbols = Symbols::read(&source.image, image.base);
    let machine = Machine::new(memory, process, code, host_code, random);
    Ok(Loaded { machine, symbols })
}

/// Puts a program's file into memory.
pub(crate) fn fill(memory: &mut Memory, image: &Image<'_>) -> Result<(), Denied> {
    for segment in &image.segments {
        let (start, end) = segment.pages();
        memory.0.protect(start, end - start, access(segment.protection));
        memory.0.initialise(segment.address as u32, segment.bytes)?;
    }
    Ok(())
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
            interpreter: None,
        };
        let shared: Vec<_> = lasting_code(&image)
            .filter(|range| !range.is_empty())
            .map(|range| (range.start, range.end))
            .collect();
        assert_eq!(shared, [(0x1_0000, 0x1_000e)]);
    }
}
