//! Tests of the translator.

mod lockstep;
mod programs;
mod speed;

use std::hash::{DefaultHasher, Hash, Hasher};

use sandtide_memory::Space;

use super::{Bounds, Translation};
use crate::isa::{Code, Cpu, Exit, tests::CODE};

/// Translates test code.
fn translated(space: &Space, code: &Code, symbols: &[u64]) -> Translation {
    let symbols = symbols.iter().copied();
    let translation = Translation::new(space, code, u64::from(CODE), symbols, &Bounds::default());
    translation.unwrap().0
}

/// What one run of a thread has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    exit: Exit,
    pc: u64,
    left: u64,
    retired: u64,
    written: usize,
    /// Of all registers.
    registers: u64,
}

impl Run {
    pub(crate) fn new(exit: Exit, cpu: &Cpu, left: u64, space: &Space) -> Self {
        let mut hasher = DefaultHasher::new();
        (&cpu.x[..32], cpu.f, cpu.frm, cpu.fflags, cpu.reservation.is_some()).hash(&mut hasher);
        Self {
            exit,
            pc: cpu.pc,
            left,
            retired: cpu.instret,
            written: space.written_pages(),
            registers: hasher.finish(),
        }
    }
}
