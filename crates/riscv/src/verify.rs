//! Whether a sandbox is what its snapshot is: the check behind "a reset restores everything".

use rand::Rng as _;
use sandtide_engine::{EngineError, Mismatch, Scrutiny};
use sandtide_memory::{Difference, Look, PAGES};

use crate::{machine::Machine, program::RiscvProgram};

/// How many pages a sample looks at, and how many copies it compares.
const WINDOW: usize = 4096;
const COPIES: usize = 64;

/// Compares a machine that was reset with its program.
pub(crate) fn verify(
    machine: &mut Machine,
    program: &RiscvProgram,
    scrutiny: Scrutiny,
) -> Result<(), Mismatch> {
    if let Some(part) = machine.process.differs_from(&program.process) {
        return Err(Mismatch::Part(part));
    }
    let look = match scrutiny {
        Scrutiny::Everything => Look::ALL,
        Scrutiny::Sample => sample(machine),
    };
    let memory = &machine.memory.0;
    let unseen = |source| EngineError::System { what: "cannot look at memory", source };
    match memory.verify(&look).map_err(unseen)? {
        None => Ok(()),
        Some(Difference::Bytes(address)) => Err(Mismatch::Bytes(address)),
        Some(Difference::Access(address)) => Err(Mismatch::Access(address)),
        Some(Difference::LastingCode) => Err(Mismatch::Part("note of changed code")),
    }
}

/// A part of memory: as often around pages that requests write as anywhere.
fn sample(machine: &mut Machine) -> Look {
    let random = &mut machine.random;
    let written = machine.memory.0.written_before(random.random_range(0..1 << 20));
    let anywhere = random.random_range(0..PAGES);
    let around = written.filter(|_| random.random()).unwrap_or(anywhere);
    let start = around.saturating_sub(random.random_range(0..WINDOW)).min(PAGES - WINDOW);
    Look { pages: start..start + WINDOW, copies: COPIES }
}
