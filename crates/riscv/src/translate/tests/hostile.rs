//! Programs that are made to cost much: whatever they are, a translation ends soon after its time is
//! over, and stays within its memory.

use std::{
    io::{self, Write as _},
    time::Duration,
};

use rand::{Rng as _, SeedableRng, rngs::StdRng};

use super::{Allowance, Artifact, Bounds, Reached, translate};
use crate::isa::tests::{CODE, DATA, guest};

const ZERO: u32 = 0;
const RA: u32 = 1;
const A0: u32 = 10;

fn addi(d: u32, s: u32, immediate: i32) -> u32 {
    (immediate as u32) << 20 | s << 15 | d << 7 | 0x13
}

fn jal(d: u32, offset: i32) -> u32 {
    let o = offset as u32;
    let immediate =
        (o >> 20 & 1) << 31 | (o >> 1 & 0x3ff) << 21 | (o >> 11 & 1) << 20 | (o & 0xf_f000);
    immediate | d << 7 | 0x6f
}

fn beq(a: u32, b: u32, offset: i32) -> u32 {
    let o = offset as u32;
    (o >> 12 & 1) << 31
        | (o >> 5 & 0x3f) << 25
        | b << 20
        | a << 15
        | (o >> 1 & 0xf) << 8
        | (o >> 11 & 1) << 7
        | 0x63
}

const RET: u32 = RA << 15 | 0x67;

/// Functions of nothing that call the next one.
fn many_functions(count: usize) -> Vec<u32> {
    (0..count).flat_map(|_| [jal(RA, 8), RET]).collect()
}

/// One function in which nearly every instruction may jump anywhere near.
fn dense_branches(count: usize) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(1);
    let branch = |at: usize| {
        let low = at.saturating_sub(1000);
        let target = random.random_range(low..(at + 1000).min(count));
        let registers = (random.random_range(1..32), random.random_range(1..32));
        beq(registers.0, registers.1, 4 * (target as i32 - at as i32))
    };
    (0..count).map(branch).chain([RET]).collect()
}

/// One function that changes every register in turn and may then jump anywhere near.
fn dense_values(count: usize) -> Vec<u32> {
    let mut words = dense_branches(count);
    for (at, word) in words.iter_mut().enumerate().filter(|(at, _)| at % 2 == 0) {
        let register = 1 + (at / 2 % 31) as u32;
        *word = addi(register, register, 1);
    }
    words
}

/// One function of jumps through the same table, which names all of them.
fn jump_tables(count: usize) -> (Vec<u32>, Vec<u8>) {
    let (a1, a2) = (11, 12);
    let site = [
        DATA & 0xffff_f000 | A0 << 7 | 0x37,
        a2 << 20 | A0 << 15 | a1 << 7 | 0x33,
        a1 << 15 | 3 << 12 | a1 << 7 | 0x03,
        a1 << 15 | ZERO << 7 | 0x67,
    ];
    let words = (0..count).flat_map(|_| site).collect();
    let targets = (0..count as u64).flat_map(|site| (u64::from(CODE) + 16 * site).to_le_bytes());
    (words, targets.collect())
}

/// `size` is the length of functions in which everything leads everywhere.
fn programs(size: usize) -> Vec<(&'static str, Vec<u32>, Vec<u8>)> {
    let (sites, table) = jump_tables(size / 2);
    vec![
        ("functions", many_functions(400_000), Vec::new()),
        ("branches", dense_branches(size), Vec::new()),
        ("values", dense_values(size), Vec::new()),
        ("tables", sites, table),
        ("zeros", vec![addi(ZERO, ZERO, 0); 4_000_000], Vec::new()),
    ]
}

/// Translates a program; with the processor time that it took.
fn cost(words: &[u32], data: &[u8], bounds: &Bounds) -> (Artifact, Duration) {
    let (_, space, code) = guest(words, data);
    let allowance = Allowance::new(bounds.time, &|| true);
    let entry = u64::from(CODE);
    let artifact = translate(&space, &code, entry, std::iter::empty(), bounds, &allowance);
    (artifact.unwrap(), allowance.used())
}

#[test]
fn a_translation_ends_soon_after_its_time() {
    let bounds = Bounds { time: Duration::from_millis(50), ..Bounds::default() };
    for (name, words, data) in programs(1000) {
        let (artifact, used) = cost(&words, &data, &bounds);
        // The last function is translated to its end, which is bounded by its size.
        assert!(used < Duration::from_secs(30), "{name}: {used:?}");
        let is_one = artifact.summary.regions == 1;
        assert!(is_one || artifact.summary.reached == Some(Reached::Time), "{name}");
    }
}

#[test]
fn a_translation_stays_within_its_memory() {
    let words = many_functions(10_000);
    for bytes in [64 << 10, 200 << 10, 1 << 20] {
        let bounds = Bounds { bytes, ..Bounds::default() };
        let (artifact, _) = cost(&words, &[], &bounds);
        assert_eq!(artifact.summary.reached, Some(Reached::Bytes));
        let used = artifact.bytes();
        assert!(used <= bytes as u64 && used > bytes as u64 / 2, "{used} of {bytes}");
    }
}

#[test]
fn a_translation_stays_within_its_length() {
    let bounds = Bounds { instructions: 1000, ..Bounds::default() };
    let (artifact, _) = cost(&many_functions(10_000), &[], &bounds);
    assert_eq!(artifact.summary.reached, Some(Reached::Instructions));
    assert!(artifact.summary.instructions < 1010);
}

#[test]
#[ignore = "measures, proves nothing"]
fn what_hostile_programs_cost() {
    for (name, words, data) in programs(8000) {
        for time in [Duration::from_millis(100), Duration::from_secs(1000)] {
            let bounds = Bounds { time, ..Bounds::default() };
            let (artifact, used) = cost(&words, &data, &bounds);
            let (bytes, summary) = (artifact.bytes(), artifact.summary);
            let line = format!("{name}: {used:?} of {time:?} {bytes} bytes {summary:?}");
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}
