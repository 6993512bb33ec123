//! Samples of where a program is, every so many instructions.
//!
//! Budgets end exactly at the instruction, translated or not. So samples are exact, and how the
//! host is doing meanwhile has no influence on them.

use std::{collections::HashMap, sync::Arc};

use sandtide_engine::{Profile, SampledStack};

use crate::{
    isa::Cpu,
    memory::Memory,
    symbols::{FunctionAt, Symbols},
};

/// The first samples come so often, on average in instructions, that short programs have some.
const SHORTEST: u64 = 1_000;

/// Until this is the mean distance, there are this many instructions for each.
const GROWTH: u64 = 1_000;

/// Later samples come this often, so that the walks through stacks stay a small part of the time.
const LONGEST: u64 = 200_000;

/// Callers that a sample has: with more, those that began it all are missing.
const MOST_CALLERS: usize = 64;

/// Different stacks that are kept apart. Beyond them only the innermost function counts.
const MOST_STACKS: usize = 100_000;

/// Collects samples of one run.
pub(crate) struct Profiler {
    symbols: Arc<Symbols>,
    /// Distances vary, so that they do not beat with the program's loops.
    random: u64,
    /// Instructions from the last sample to the next one.
    distance: u64,
    /// How many of those are left.
    left: u64,
    instructions: u64,
    translated: u64,
    samples: u64,
    stacks: HashMap<Vec<FunctionAt>, Spent>,
}

/// Instructions in all, and in translated code.
#[derive(Default)]
struct Spent {
    instructions: u64,
    translated: u64,
}

impl Profiler {
    pub(crate) fn new(symbols: Arc<Symbols>) -> Self {
        let mut this = Self {
            symbols,
            random: 0x9e37_79b9_7f4a_7c15,
            distance: 0,
            left: 0,
            instructions: 0,
            translated: 0,
            samples: 0,
            stacks: HashMap::new(),
        };
        this.renew();
        this
    }

    /// How many instructions may be run until the next sample.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Takes note of instructions that were run, at most [`Self::left`] of them, of which some in
    /// translated code.
    pub(crate) fn ran(&mut self, used: u64, translated: u64, cpu: &Cpu, memory: &Memory) {
        self.instructions += used;
        self.translated += translated;
        self.left = self.left.saturating_sub(used);
        if self.left == 0 {
            let share = translated as f64 / used.max(1) as f64;
            self.sample(share, cpu, memory);
            self.renew();
        }
    }

    fn sample(&mut self, share: f64, cpu: &Cpu, memory: &Memory) {
        self.samples += 1;
        let callers = self.symbols.callers(MOST_CALLERS, cpu, memory);
        let mut stack: Vec<FunctionAt> = std::iter::once(self.symbols.function(cpu.pc))
            // A return address may lie behind the end of a function that ends in a call.
            .chain(callers.into_iter().map(|pc| self.symbols.function(pc.wrapping_sub(1))))
            .collect();
        if self.stacks.len() >= MOST_STACKS && !self.stacks.contains_key(&stack) {
            stack.truncate(1);
        }
        let spent = self.stacks.entry(stack).or_default();
        spent.instructions += self.distance;
        spent.translated += (self.distance as f64 * share) as u64;
    }

    fn renew(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let mean = (self.instructions / GROWTH).clamp(SHORTEST, LONGEST);
        self.distance = mean / 2 + self.random % mean;
        self.left = self.distance;
    }

    /// What has been seen.
    pub(crate) fn finish(self, profile: &mut Profile) {
        let name = |function: &FunctionAt| self.symbols.name(*function);
        profile.instructions = self.instructions;
        profile.translated = self.translated;
        profile.samples = self.samples;
        profile.stacks = self
            .stacks
            .iter()
            .map(|(stack, spent)| SampledStack {
                functions: stack.iter().map(name).collect(),
                instructions: spent.instructions,
                translated: spent.translated,
            })
            .collect();
        // Hash tables have no order; a report has.
        profile.stacks.sort_by(|a, b| a.functions.cmp(&b.functions));
    }
}

#[cfg(test)]
mod tests {
    use sandtide_memory::Space;

    use super::*;

    #[test]
    fn samples_stand_for_all_instructions() {
        let memory = Memory(Space::new(1 << 20).unwrap());
        let mut profiler = Profiler::new(Arc::default());
        let mut cpu = Cpu::new(0x1000);
        let mut total = 0;
        for number in 0..100_000u64 {
            cpu.pc = if number % 3 == 0 { 0x2000 } else { 0x1000 };
            let used = profiler.left().min(700);
            total += used;
            profiler.ran(used, if cpu.pc == 0x2000 { used } else { 0 }, &cpu, &memory);
        }
        let mut profile = Profile::default();
        profiler.finish(&mut profile);
        assert_eq!(profile.instructions, total);
        let [one, two] = &profile.stacks[..] else { panic!("{:?}", profile.stacks) };
        assert_eq!((&one.functions[0][..], &two.functions[0][..]), ("0x1000", "0x2000"));
        assert_eq!((one.translated, two.translated), (0, two.instructions));
        let sampled = one.instructions + two.instructions;
        assert!(total - sampled < LONGEST * 2, "{sampled} of {total}");
        let share = two.instructions as f64 / sampled as f64;
        assert!((share - 1.0 / 3.0).abs() < 0.05, "{share}");
    }
}
