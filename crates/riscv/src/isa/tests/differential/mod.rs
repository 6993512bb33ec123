//! The same instructions under QEMU user mode and here: the same registers, flags and memory.
//!
//! A program of many cases is made of raw words: each case loads all registers from its block of
//! memory, runs random instructions, and saves all registers to its block. At the end the program
//! writes all blocks to its standard output. QEMU runs it as an ELF file; here its words and data
//! are run directly, and the two outputs are compared.

pub(crate) mod assembler;
mod encodings;
pub(crate) mod flow;
pub(crate) mod generate;
pub(crate) mod image;

use std::{collections::BTreeSet, env, fs, io::Write, os::unix::fs::PermissionsExt, process};

use rand::{SeedableRng, rngs::StdRng};

use self::{
    flow::{Flow, flow},
    generate::{Class, Generator},
    image::{BLOCK, Program, describe},
};
use super::{CODE, DATA, guest};
use crate::{
    isa::{Exit, insn::op},
    translate::{Translation, run_translated, translated},
};

/// How many cases a program has.
const CASES: usize = 1000;
/// … if it is translated, which takes longer than to run it.
const TRANSLATED_CASES: usize = 80;
/// How many programs with loops and calls there are.
const FLOWS: u64 = 25;

/// Whether QEMU can be used. Without it the test is skipped, loudly, unless it is required.
fn has_qemu() -> bool {
    let found = process::Command::new("qemu-riscv64").arg("--version").output().is_ok();
    if !found {
        let required = env::var_os("SANDTIDE_REQUIRE_QEMU").is_some_and(|value| value == "1");
        assert!(!required, "`qemu-riscv64` is required but not installed");
        let _ = writeln!(std::io::stderr(), "SKIPPED: `qemu-riscv64` is not installed");
    }
    found
}

/// What QEMU writes when it runs a program.
fn run_in_qemu(program: &Program) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("program");
    fs::write(&path, program.elf()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = process::Command::new("qemu-riscv64")
        .args(["-cpu", "rv64,zba=true,zbb=true,zbs=true"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "qemu: {:?} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// What is in the data when a program writes it, running in pieces of `piece` instructions.
fn run_here(program: &Program, translation: Option<&Translation>, piece: u64) -> Vec<u8> {
    let (mut cpu, mut space, code) = guest(&program.words, &program.data);
    loop {
        let mut budget = piece;
        match run_translated(translation, &mut cpu, &mut space, &code, &mut budget) {
            Exit::Budget => {}
            Exit::Call if cpu.x[17] == 64 => break,
            // There is no such system call.
            Exit::Call => cpu.x[10] = -38i64 as u64,
            other => panic!("{other:x?} at {:#x}: {}", cpu.pc, program.around(cpu.pc)),
        }
    }
    assert_eq!((cpu.x[17], cpu.x[11]), (64, u64::from(DATA)), "the last call is `write`");
    space.view(DATA, program.data.len()).unwrap().to_vec()
}

fn translation_of(program: &Program) -> Translation {
    let (_, space, code) = guest(&program.words, &program.data);
    translated(&space, &code, &[])
}

fn compare(class: Class, seed: u64) {
    if !has_qemu() {
        return;
    }
    let mut generator = Generator::new(StdRng::seed_from_u64(seed), class);
    let mut program = |cases| Program::new((0..cases).map(|_| generator.case()).collect());
    let (many, few) = (program(CASES), program(TRANSLATED_CASES));
    same_as_qemu(class, &many, &run_here(&many, None, 1 << 40));
    assert!(
        run_here(&many, None, 1 << 40) == run_here(&many, None, 7),
        "in pieces, it is different"
    );
    same_as_qemu(class, &few, &run_here(&few, Some(&translation_of(&few)), 1 << 40));
}

fn same_as_qemu(class: Class, program: &Program, here: &[u8]) {
    let qemu = run_in_qemu(program);
    assert_eq!(here.len(), qemu.len());
    for (number, (here, qemu)) in here.chunks(BLOCK).zip(qemu.chunks(BLOCK)).enumerate() {
        if here != qemu {
            panic!("{class:?} case {number}\n{}", describe(program, number, here, qemu));
        }
    }
}

/// Programs with loops, calls and jumps: interpreted, translated, under QEMU.
#[test]
fn flows_are_as_in_qemu() {
    if !has_qemu() {
        return;
    }
    for seed in 0..FLOWS {
        let Flow { words, data, .. } = flow(seed, true);
        let program = Program::of(words, data);
        let translation = translation_of(&program);
        let qemu = run_in_qemu(&program);
        for (how, here) in [
            ("interpreted", run_here(&program, None, 1 << 40)),
            ("translated", run_here(&program, Some(&translation), 1 << 40)),
            ("in pieces", run_here(&program, Some(&translation), 333)),
        ] {
            let different = here.iter().zip(&qemu).position(|(here, qemu)| here != qemu);
            assert_eq!(different, None, "flow {seed} {how}: the data differ from there on");
        }
    }
}

#[test]
fn integers_are_as_in_qemu() {
    compare(Class::Integer, 1);
}

#[test]
fn compressed_instructions_are_as_in_qemu() {
    compare(Class::Compressed, 2);
}

#[test]
fn memory_is_as_in_qemu() {
    compare(Class::Memory, 3);
}

#[test]
fn jumps_are_as_in_qemu() {
    compare(Class::Jump, 4);
}

#[test]
fn single_precision_is_as_in_qemu() {
    compare(Class::Single, 5);
    compare(Class::Single, 6);
}

#[test]
fn double_precision_is_as_in_qemu() {
    compare(Class::Double, 7);
    compare(Class::Double, 8);
}

/// Every operation of the decoder comes up in the cases above.
#[test]
fn every_operation_is_compared() {
    let mut seen = BTreeSet::new();
    let mut functions = BTreeSet::new();
    for (class, seed) in [
        (Class::Integer, 1),
        (Class::Compressed, 2),
        (Class::Memory, 3),
        (Class::Jump, 4),
        (Class::Single, 5),
        (Class::Double, 7),
    ] {
        let mut generator = Generator::new(StdRng::seed_from_u64(seed), class);
        for _ in 0..CASES {
            for insn in generator.case().instructions() {
                seen.insert(insn.op());
                match insn.op() {
                    op::FLOAT_S | op::FLOAT_D => functions.insert((insn.op(), insn.0 >> 48 & 31)),
                    op::ATOMIC_W | op::ATOMIC_D => functions.insert((insn.op(), insn.immediate())),
                    _ => false,
                };
            }
        }
    }
    // These end a run; `run.rs` tests them. (0: not decoded yet.)
    seen.extend([0, op::ILLEGAL, op::EBREAK, op::C_EBREAK, op::ECALL]);
    let missing: Vec<_> = op::NAMES
        .iter()
        .enumerate()
        .filter(|(number, _)| !seen.contains(&(*number as u8)))
        .map(|(_, name)| name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert_eq!(functions.len(), 2 * 29 + 2 * 11);
    assert_eq!(CODE % 4096, 0);
}
