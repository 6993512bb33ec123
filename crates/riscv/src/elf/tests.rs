//! Files that are almost programs.

use object::elf::{ET_DYN, ET_EXEC, PF_R, PF_X, PT_INTERP, PT_LOAD};
use proptest::prelude::*;

use super::*;

/// Writes small ELF files, good and bad.
struct Builder {
    kind: u16,
    machine: u16,
    flags: u32,
    entry: u64,
    /// type, flags, offset, address, bytes in the file, bytes in memory
    headers: Vec<(u32, u32, u64, u64, u64, u64)>,
}

const RX: u32 = PF_R | PF_X;

impl Builder {
    fn good() -> Self {
        Self {
            kind: ET_EXEC,
            machine: EM_RISCV,
            flags: 5,
            entry: 0x1_0000,
            headers: vec![(PT_LOAD, RX, 0, 0x1_0000, 0x100, 0x1000)],
        }
    }

    fn file(&self) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend(self.kind.to_le_bytes());
        file.extend(self.machine.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        file.extend(self.entry.to_le_bytes());
        file.extend(64u64.to_le_bytes());
        file.extend(0u64.to_le_bytes());
        file.extend(self.flags.to_le_bytes());
        for half in [64, 56, self.headers.len() as u16, 64, 0, 0] {
            file.extend(half.to_le_bytes());
        }
        for (kind, flags, offset, address, stored, length) in &self.headers {
            file.extend(kind.to_le_bytes());
            file.extend(flags.to_le_bytes());
            for word in [*offset, *address, *address, *stored, *length, 0x1000] {
                file.extend(word.to_le_bytes());
            }
        }
        file.resize(file.len().max(0x400), 0);
        file
    }

    fn refused(&self) -> String {
        parse(&self.file()).expect_err("refused").to_string()
    }
}

#[test]
fn a_good_file_is_taken_apart() {
    let file = Builder::good().file();
    let image = parse(&file).unwrap();
    assert_eq!((image.entry, image.base), (0x1_0000, 0));
    assert_eq!(image.segments.len(), 1);
    assert_eq!(image.segments[0].bytes.len(), 0x100);
    assert_eq!(image.segments[0].pages(), (0x1_0000, 0x1_1000));
    assert_eq!(image.headers, 0x1_0040, "the program headers are in the first segment");
}

#[test]
fn a_position_independent_file_is_moved() {
    let mut builder = Builder::good();
    builder.kind = ET_DYN;
    builder.entry = 0x10;
    builder.headers[0].3 = 0;
    let file = builder.file();
    let image = parse(&file).unwrap();
    assert_eq!((image.entry, image.segments[0].address), (TARGET.pie_base + 0x10, TARGET.pie_base));
}

#[test]
fn what_is_wrong_is_said() {
    type Change = fn(&mut Builder);
    let cases: &[(Change, &str)] = &[
        (|b| b.machine = 62, "another machine"),
        (|b| b.flags = 6, "quad-precision"),
        (|b| b.flags = 8, "RV64E"),
        (|b| b.kind = 1, "not a program"),
        (|b| b.entry = 0x5_0000, "not code"),
        (|b| b.headers.push((PT_INTERP, 0, 0, 0, 0, 0)), "dynamically linked"),
        (|b| b.headers[0].2 = 0x10_0000, "outside the file"),
        (|b| b.headers[0].4 = u64::MAX, "outside the file"),
        (|b| b.headers[0].4 = 0x200, "more bytes than memory"),
        (|b| b.headers[0].3 = 0, "outside guest memory"),
        (|b| b.headers[0].3 = u64::MAX - 0xfff, "outside guest memory"),
        (|b| b.headers[0].3 = TARGET.highest, "outside guest memory"),
        (|b| b.headers[0].5 = u64::MAX, "outside guest memory"),
        (|b| b.headers.push((PT_LOAD, PF_R, 0, 0x1_0800, 0, 0x1000)), "overlap"),
        (|b| b.headers.extend([(PT_LOAD, PF_R, 0, 0x2_0000, 0, 1); 65]), "segments"),
        (|b| b.headers.clear(), "not code"),
    ];
    for (change, text) in cases {
        let mut builder = Builder::good();
        change(&mut builder);
        if *text == "more bytes than memory" {
            builder.headers[0].5 = 0x180;
        }
        let refused = builder.refused();
        assert!(refused.contains(text), "expected `{text}`, got `{refused}`");
    }
    assert!(parse(b"#!/bin/sh").unwrap_err().hint().unwrap().contains("sandtide build"));
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let file = Builder::good().file();
    for length in 0..0x100 {
        assert!(parse(&file[..length]).is_err(), "{length}");
    }
}

proptest! {
    #[test]
    fn a_file_with_wrong_bytes_never_panics(changes in prop::collection::vec((0usize..0x400, any::<u8>()), 1..20)) {
        let mut file = Builder::good().file();
        changes.iter().for_each(|(at, byte)| file[*at] = *byte);
        if let Ok(image) = parse(&file) {
            for segment in &image.segments {
                prop_assert!(segment.address + segment.length <= TARGET.highest);
                prop_assert!(segment.bytes.len() as u64 <= segment.length);
            }
        }
        let memory = crate::memory::Memory(sandtide_memory::Space::new(0).unwrap());
        crate::symbols::Symbols::read(&file, 0).backtrace(&crate::isa::Cpu::new(0x1_0000), &memory);
    }
}
