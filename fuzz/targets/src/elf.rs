//! `elf`: a program's file, from its first byte to its first answers.
//!
//! Must hold: loading returns; a refusal says why; a program that was loaded can be spawned,
//! served and reset, and after the reset does what it did before. A file for x86-64, and what it names
//! as its interpreter, keeps to its bounds.

use std::time::Duration;

use arbitrary::Unstructured;
use sandtide_engine::{Engine, LoadError, Outcome, Program, ProgramSource, Translate};
use sandtide_linux::elf::{self, Image, Target};
use sandtide_riscv::RiscvEngine;

use crate::{
    elf_file::{EXECUTE, ElfFile, READ, Segment, WRITE, source, tight_limits},
    exchange::{ordinary, quiet, serve},
    input::next,
    rv,
};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const BLOCK: u64 = 0x2_1000;

/// The end of the addresses of a file for x86-64.
const HIGHEST: u64 = 56 << 30;

/// The first byte chooses: the rest is the file, or says how a good file is spoilt (1); whether it
/// is translated (2); whether it is read as one for x86-64 (4).
pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let image = if choice & 1 == 0 { rest.to_vec() } else { spoil(good(), rest) };
    if choice & 4 != 0 {
        return read(image);
    }
    let engine = RiscvEngine::new();
    let recognised = engine.recognises(&image);
    let translate = if choice & 2 == 0 { Translate::Off } else { Translate::Auto };
    let source = ProgramSource { translate, ..source(image) };
    match engine.load(&source, &tight_limits(), quiet()) {
        Ok(program) => {
            assert!(recognised, "the engine loads what it does not recognise");
            exercise(&*program);
        }
        Err(error) => check_refusal(&error),
    }
}

/// Reads a file as the engine for x86-64 does.
fn read(mut image: Vec<u8>) {
    const X86_64: [u8; 2] = [62, 0];
    if let Some(machine) = image.get_mut(18..20) {
        machine.copy_from_slice(&X86_64);
    }
    let target = Target {
        machine: u16::from_le_bytes(X86_64),
        compile: "compile",
        pie_base: 0x40_0000,
        highest: HIGHEST,
        link_lower: "link lower",
        interpreter: true,
        check_flags: |_| None,
    };
    let names_interpreter = Image::names_interpreter(&image);
    match elf::parse(&image, &target) {
        Ok(file) => {
            assert_eq!(file.interpreter.is_some(), names_interpreter);
            assert!(file.interpreter.is_none_or(|path| path.starts_with('/')));
            let inside = |part: &elf::Segment<'_>| {
                part.address > 0 && part.length <= HIGHEST && part.address <= HIGHEST - part.length
            };
            assert!(file.segments.iter().all(inside));
            assert!(file.segments.is_sorted_by(|a, b| a.address + a.length <= b.address));
            assert!(file.end() <= HIGHEST);
        }
        Err(error) => check_refusal(&error),
    }
}

/// Applies changes of four bytes each: what, where (two bytes), and a value.
fn spoil(mut file: Vec<u8>, changes: &[u8]) -> Vec<u8> {
    let mut input = Unstructured::new(changes);
    while !input.is_empty() && !file.is_empty() {
        let (kind, at, value): (u8, u16, u8) = next(&mut input);
        let at = usize::from(at) % file.len();
        match kind % 8 {
            0 => file.truncate(at),
            1 => file.insert(at, value),
            2 => drop(file.remove(at)),
            // Fields of the headers are where most of the meaning is.
            3..=5 => {
                let at = at % file.len().min(256);
                file[at] = value;
            }
            6 => file[at] ^= 1 << (value % 8),
            _ => file[at] = value,
        }
    }
    file
}

fn check_refusal(error: &LoadError) {
    assert!(!error.to_string().is_empty(), "a refusal without words: {error:?}");
    assert!(error.hint() != Some(""), "an empty hint: {error:?}");
    assert!(!matches!(error, LoadError::Engine(_)), "our failure: {error:?}");
}

/// Serves two exchanges with a reset in between.
fn exercise(program: &dyn Program) {
    let limits = tight_limits();
    let mut sandbox = program.spawn(quiet()).expect("a loaded program can be spawned");
    let mut ends = Vec::new();
    for _ in 0..2 {
        let mut exchange = ordinary(limits.response_body);
        // Instructions end it long before, however busy this machine is.
        let outcome = serve(&mut *sandbox, &mut exchange, Duration::from_secs(10));
        if let Some(Outcome::Engine(error)) = &outcome {
            panic!("our failure: {error:?}");
        }
        ends.push(outcome.map(|outcome| std::mem::discriminant(&outcome)));
        sandbox.reset().expect("a sandbox can be reset");
        assert_eq!(sandbox.usage().pages_written, 0, "a reset leaves written pages");
    }
    // A spoilt program may look at the clock or at random bytes, but not in these few bytes.
    assert_eq!(ends[0], ends[1], "an exchange after a reset goes differently");
}

/// A program that answers 200 to everything.
fn good() -> Vec<u8> {
    let code = rv::assemble(&rv::answer_forever(DATA as u32, BLOCK as u32));
    let mut answer = vec![0; sandtide_abi::response::SIZE];
    answer[..2].copy_from_slice(&200u16.to_le_bytes());
    let code_length = code.len() as u64;
    ElfFile {
        entry: CODE,
        segments: vec![
            Segment { address: CODE, flags: READ | EXECUTE, bytes: code, length: code_length },
            Segment { address: DATA, flags: READ | WRITE, bytes: answer, length: 0x3000 },
        ],
        sections: Vec::new(),
    }
    .bytes()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut raw = vec![0];
    raw.extend(good());
    vec![
        raw,
        vec![1],
        vec![1, 3, 0, 18, 62],
        vec![1, 0, 0, 100, 0],
        vec![3],
        vec![3, 4, 90, 0, 200],
        vec![5],
        // The second program header, read as one of an interpreter.
        vec![5, 3, 120, 0, 3],
        vec![],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_good_file_answers() {
        let program = RiscvEngine::new().load(&source(good()), &tight_limits(), quiet()).unwrap();
        let mut sandbox = program.spawn(quiet()).unwrap();
        let mut exchange = ordinary(100);
        let outcome = serve(&mut *sandbox, &mut exchange, Duration::from_secs(10));
        assert!(matches!(outcome, Some(Outcome::Done)), "{outcome:?}");
        assert_eq!(exchange.response.take_head().unwrap().status, 200);
    }
}
