//! The interpreter and the translator, side by side, on generated instructions.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use sandtide_memory::Space;

use super::translated;
use crate::{
    isa::{
        Code, Cpu, Exit, run,
        tests::{
            CODE, DATA, LIMIT,
            differential::{
                generate::{Class, Generator},
                image::Program,
            },
            guest, guest_within,
        },
    },
    translate::{
        Translation,
        native::{has_faulted, take_stale},
        run_translated,
    },
};

/// Two guests that do the same.
pub(super) struct Pair {
    reference: (Cpu, Space),
    translated: (Cpu, Space),
    code: Code,
    translation: Arc<Translation>,
    limit: u64,
}

impl Pair {
    pub(super) fn new(words: &[u32], data: &[u8], symbols: &[u64]) -> Self {
        let (_, space, code) = guest(words, data);
        let translation = Arc::new(translated(&space, &code, symbols));
        Self::with(translation, LIMIT, words, data)
    }

    /// Two guests that may use so much memory.
    pub(super) fn within(limit: u64, words: &[u32], data: &[u8]) -> Self {
        Self { limit, ..Self::new(words, data, &[]) }.again(words, data)
    }

    fn with(translation: Arc<Translation>, limit: u64, words: &[u32], data: &[u8]) -> Self {
        let (cpu, space, code) = guest_within(limit, words, data);
        let (other_cpu, other_space, _) = guest_within(limit, words, data);
        let (reference, translated) = ((cpu, space), (other_cpu, other_space));
        Self { reference, translated, code, translation, limit }
    }

    /// Both from the start, with the same translation.
    pub(super) fn again(&self, words: &[u32], data: &[u8]) -> Self {
        Self::with(Arc::clone(&self.translation), self.limit, words, data)
    }

    /// Changes both in the same way.
    pub(super) fn prepare(&mut self, change: impl Fn(&mut Cpu, &mut Space)) {
        change(&mut self.reference.0, &mut self.reference.1);
        change(&mut self.translated.0, &mut self.translated.1);
    }

    /// Runs both, and compares everything but the bytes in memory.
    pub(super) fn run(&mut self, budget: u64) -> Exit {
        let (cpu, space) = &mut self.reference;
        let from = cpu.pc;
        let mut left = budget;
        let expected = run(cpu, space, &self.code, &mut left);
        let (other, other_space) = &mut self.translated;
        let mut other_left = budget;
        let translation = Some(&*self.translation);
        let exit = run_translated(translation, other, other_space, &self.code, &mut other_left);
        let where_ = |pc| format!("{budget} instructions from {from:#x}, to {pc:#x}");
        assert_eq!(
            (exit, other.pc, other_left),
            (expected, cpu.pc, left),
            "exit, pc, budget; {}",
            where_(cpu.pc)
        );
        level(cpu, other, take_stale(other_space));
        assert_same(cpu, other, &where_(cpu.pc));
        assert_eq!(space.written_pages(), other_space.written_pages(), "{}", where_(cpu.pc));
        expected
    }

    /// Whether the last run of translated code ended with a load that faulted in the host.
    pub(super) fn has_faulted(&mut self) -> bool {
        has_faulted(&mut self.translated.1)
    }

    /// Compares memory.
    pub(super) fn compare(&self, address: u32, length: usize) {
        let view = |space: &Space| space.view(address, length).unwrap().to_vec();
        let (expected, actual) = (view(&self.reference.1), view(&self.translated.1));
        let different =
            expected.iter().zip(&actual).position(|(expected, actual)| expected != actual);
        assert_eq!(different, None, "memory differs from {address:#x} on");
    }

    pub(super) fn cpu(&self) -> &Cpu {
        &self.translated.0
    }

    /// Runs both, and compares only how they end.
    pub(super) fn run_apart(&mut self, budget: u64) -> Exit {
        let (cpu, space) = &mut self.reference;
        let expected = run(cpu, space, &self.code, &mut budget.clone());
        let (other, other_space) = &mut self.translated;
        let translation = Some(&*self.translation);
        let exit = run_translated(translation, other, other_space, &self.code, &mut budget.clone());
        assert_eq!((exit, other.pc), (expected, cpu.pc));
        expected
    }

    /// The memory of both.
    pub(super) fn views(&self, address: u32, length: usize) -> (&[u8], &[u8]) {
        let (Ok(expected), Ok(actual)) =
            (self.reference.1.view(address, length), self.translated.1.view(address, length))
        else {
            panic!("no memory at {address:#x}")
        };
        (expected, actual)
    }
}

/// Gives registers that no instruction reads any more the values that they should have.
fn level(from: &Cpu, to: &mut Cpu, stale: u64) {
    for number in (0..32).filter(|number| stale >> number & 1 != 0) {
        to.x[number] = from.x[number];
    }
    for number in (0..32).filter(|number| stale >> (32 + number) & 1 != 0) {
        to.f[number] = from.f[number];
    }
}

/// Asserts that registers and counts are the same.
fn assert_same(expected: &Cpu, actual: &Cpu, after: &str) {
    for (number, (expected, actual)) in expected.x[..32].iter().zip(&actual.x).enumerate() {
        assert_eq!(expected, actual, "x{number}: {expected:#x}, not {actual:#x}; {after}");
    }
    for (number, (expected, actual)) in expected.f.iter().zip(&actual.f).enumerate() {
        assert_eq!(expected, actual, "f{number}: {expected:#x}, not {actual:#x}; {after}");
    }
    let rest = |cpu: &Cpu| (cpu.pc, cpu.frm, cpu.fflags, cpu.reservation, cpu.instret);
    assert_eq!(rest(expected), rest(actual), "pc, frm, fflags, reservation, instret; {after}");
}

/// Runs cases of a class, of whose instructions at least so many in a hundred are translated: there
/// are some of which the rest of their block is interpreted.
fn agree(class: Class, seed: u64, least: u64) {
    let mut generator = Generator::new(StdRng::seed_from_u64(seed), class);
    let cases = (0..200)
        .map(|_| {
            let mut case = generator.case();
            // Translated code rounds to nearest.
            case.fcsr &= 31;
            case
        })
        .collect();
    let program = Program::new(cases);
    let first = Pair::new(&program.words, &program.data, &[]);
    let mut most = 0;
    for piece in [1 << 40, 1000, 97, 7] {
        let mut pair = first.again(&program.words, &program.data);
        loop {
            match pair.run(piece) {
                Exit::Budget => {}
                Exit::Call => break,
                other => panic!("{other:?} {}", program.around(pair.cpu().pc)),
            }
        }
        most = most.max(100 * pair.cpu().translated / pair.cpu().instret);
        pair.compare(DATA, program.data.len());
        pair.compare(CODE, 4 * program.words.len());
    }
    assert!(most >= least, "at most {most} % of the instructions are translated");
}

#[test]
fn integers_agree() {
    agree(Class::Integer, 101, 30);
}

#[test]
fn compressed_instructions_agree() {
    agree(Class::Compressed, 102, 30);
}

#[test]
fn memory_agrees() {
    agree(Class::Memory, 103, 5);
}

#[test]
fn jumps_agree() {
    agree(Class::Jump, 104, 30);
}

#[test]
fn single_precision_agrees() {
    agree(Class::Single, 105, 30);
}

#[test]
fn double_precision_agrees() {
    agree(Class::Double, 106, 30);
}
