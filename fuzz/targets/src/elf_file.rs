//! Writes ELF files (ELF gABI, "Object Files"; RISC-V ELF psABI).
//!
//! ```text
//!   header │ program headers │ bytes of segments │ bytes of sections │ section headers
//! ```
//!
//! Everything starts at a multiple of 8, as readers of tables want it.

use sandtide_engine::{Limits, ProgramSource, Translate, Warmup};

pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXECUTE: u32 = 1;

pub(crate) const PROGBITS: u32 = 1;
pub(crate) const SYMTAB: u32 = 2;
pub(crate) const STRTAB: u32 = 3;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;

/// A part of the file that is put into memory.
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) flags: u32,
    pub(crate) bytes: Vec<u8>,
    /// Bytes in memory.
    pub(crate) length: u64,
}

/// A part of the file that tools look at.
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) address: u64,
    /// The number of the section that it refers to; the first one has number 1.
    pub(crate) link: u32,
    pub(crate) entry_size: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A static program for RV64GC.
#[derive(Default)]
pub(crate) struct ElfFile {
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) sections: Vec<Section>,
}

impl ElfFile {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut at = (HEADER + PROGRAM_HEADER * self.segments.len()) as u64;
        let mut program_headers = Writer::default();
        for segment in &self.segments {
            program_headers.words(&[1, segment.flags]);
            let stored = segment.bytes.len() as u64;
            let address = segment.address;
            program_headers.doubles(&[at, address, address, stored, segment.length, 1]);
            at += stored.next_multiple_of(8);
        }
        let mut names = vec![0];
        let mut section_headers = Writer(vec![0; SECTION_HEADER]);
        for section in &self.sections {
            section_headers.section(section, names.len(), at, section.bytes.len());
            names.extend(section.name.as_bytes());
            names.push(0);
            at += section.bytes.len().next_multiple_of(8) as u64;
        }
        let strings = Section {
            name: "",
            kind: STRTAB,
            address: 0,
            link: 0,
            entry_size: 0,
            bytes: Vec::new(),
        };
        section_headers.section(&strings, 0, at, names.len());
        at += names.len().next_multiple_of(8) as u64;

        let mut file = Writer(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
        file.halves(&[2, 243]);
        file.words(&[1]);
        file.doubles(&[self.entry, HEADER as u64, at]);
        file.words(&[5]);
        let segments = self.segments.len() as u16;
        let sections = self.sections.len() as u16 + 2;
        let [header, program_header, section_header] =
            [HEADER, PROGRAM_HEADER, SECTION_HEADER].map(|size| size as u16);
        file.halves(&[header, program_header, segments, section_header, sections, sections - 1]);
        file.0.extend(program_headers.0);
        self.segments.iter().for_each(|segment| file.aligned(&segment.bytes));
        self.sections.iter().for_each(|section| file.aligned(&section.bytes));
        file.aligned(&names);
        file.0.extend(section_headers.0);
        file.0
    }
}

/// Little-endian integers, one after the other.
#[derive(Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn halves(&mut self, values: &[u16]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    pub(crate) fn words(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    pub(crate) fn doubles(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.0.extend(value.to_le_bytes()));
    }

    fn aligned(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
    }

    fn section(&mut self, section: &Section, name: usize, offset: u64, length: usize) {
        self.words(&[name as u32, section.kind]);
        self.doubles(&[0, section.address, offset, length as u64]);
        self.words(&[section.link, 0]);
        self.doubles(&[1, section.entry_size]);
    }
}

/// A program source that has nothing but its file.
pub(crate) fn source(image: Vec<u8>) -> ProgramSource {
    ProgramSource {
        name: "fuzz.elf".to_owned(),
        image: image.into(),
        args: vec!["fuzz".to_owned()],
        env: Vec::new(),
        reseed: false,
        files: Vec::new(),
        network: None,
        path: "/program".to_owned(),
        directory: "/".to_owned(),
        translate: Translate::default(),
        warmup: Warmup::default(),
    }
}

/// Limits that keep one run short. A program and its stack fit.
pub(crate) fn tight_limits() -> Limits {
    Limits {
        instructions: 20_000,
        wall_time: std::time::Duration::from_millis(50),
        boot_time: std::time::Duration::from_millis(50),
        boot_instructions: 20_000,
        memory: 1 << 20,
        response_body: 64 << 10,
        response_time: std::time::Duration::from_millis(50),
        request_body: 64 << 10,
        descriptors: 16,
        threads: 4,
        scratch: 64 << 10,
        translate_time: std::time::Duration::from_millis(50),
        connections: 4,
        connections_total: 8,
        translate_size: 1 << 20,
    }
}
