//! Fuzz targets: for each parser of guest bytes, a function with an oracle.
//!
//! ```text
//!   bytes ─▶ Target::run ─▶ public API of a crate ─▶ oracle ─▶ returns, or panics: a finding
//!     ▲                                                 what must hold, whatever the guest does
//!     ├─ cargo-fuzz     fuzz/fuzz_targets, coverage-guided
//!     └─ tests/short.rs seeds, mutated seeds and random bytes, on a stable compiler
//! ```
//!
//! A target takes any bytes. It decodes them itself into what it needs, reading a zero where they
//! have ended, and never refuses them.
#![forbid(unsafe_code)]

mod config;
mod elf;
mod elf_file;
mod exchange;
mod fake_cpu;
mod guest_calls;
mod guest_memory;
mod input;
mod instructions;
mod reset;
mod resolver;
mod responses;
mod rv;
mod snapshots;
mod system_calls;
mod translation;
mod unwind;
mod vocabulary;

/// One parser of guest bytes, and what must hold for it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name: of the file in `fuzz/fuzz_targets` and of the folder in `fuzz/seeds`.
    pub name: &'static str,
    /// Feeds the parser. Panics if what must hold does not.
    pub run: fn(&[u8]),
    /// Inputs that reach deep, to start from. More are in the folder of seeds.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "config", run: config::run, seeds: config::seeds },
    Target { name: "elf", run: elf::run, seeds: elf::seeds },
    Target { name: "guest_calls", run: guest_calls::run, seeds: guest_calls::seeds },
    Target { name: "instructions", run: instructions::run, seeds: instructions::seeds },
    Target { name: "reset", run: reset::run, seeds: reset::seeds },
    Target { name: "resolver", run: resolver::run, seeds: resolver::seeds },
    Target { name: "responses", run: responses::run, seeds: responses::seeds },
    Target { name: "snapshots", run: snapshots::run, seeds: snapshots::seeds },
    Target { name: "system_calls", run: system_calls::run, seeds: system_calls::seeds },
    Target { name: "translation", run: translation::run, seeds: translation::seeds },
    Target { name: "unwind", run: unwind::run, seeds: unwind::seeds },
];

/// Feeds the target with this name.
///
/// # Panics
/// If there is none, or if what must hold does not.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let Some(target) = target else { panic!("no fuzz target `{name}`") };
    (target.run)(data);
}
