//! What a run of a program leaves behind, to be compared with another run of it.

use std::hash::{DefaultHasher, Hash, Hasher};

use rand::{Rng, SeedableRng, rngs::StdRng};
use sandtide_engine::TrapCause;
use sandtide_memory::Space;

use crate::isa::{Cpu, Exit};

/// Where a thread came out of its code other than because its budget was used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stop {
    exit: Exit,
    pc: u64,
    retired: u64,
    written: usize,
    /// Of all registers.
    registers: u64,
}

/// What a machine notes while it runs.
#[derive(Default)]
pub(crate) struct Trace {
    pub(super) stops: Vec<Stop>,
    /// Cuts runs into pieces of up to so many instructions, at places of chance.
    pub(super) pieces: Option<(StdRng, u64)>,
}

impl Trace {
    /// A trace of runs that are cut into pieces.
    pub(super) fn in_pieces(seed: u64, most: u64) -> Self {
        Self { pieces: Some((StdRng::seed_from_u64(seed), most)), ..Self::default() }
    }

    /// How much of a budget to grant at once.
    pub(crate) fn piece(&mut self, granted: u64) -> u64 {
        match &mut self.pieces {
            Some((random, most)) => granted.min(random.random_range(1..=*most)),
            None => granted,
        }
    }

    /// Notes how a run has ended.
    pub(crate) fn note(&mut self, exit: Exit, cpu: &Cpu, space: &Space) {
        if exit == Exit::Budget {
            return;
        }
        let mut hasher = DefaultHasher::new();
        use TrapCause::{Load, MisalignedAtomic, Store};

        let is_access = matches!(exit, Exit::Trap { cause: Load | Store | MisalignedAtomic, .. });
        // There, translated code has not kept registers that are not read any more.
        let cpu = if is_access { &Cpu::new(cpu.pc) } else { cpu };
        (&cpu.x[..32], cpu.f, cpu.frm, cpu.fflags, cpu.reservation.is_some()).hash(&mut hasher);
        self.stops.push(Stop {
            exit,
            pc: cpu.pc,
            retired: cpu.instret,
            written: space.written_pages(),
            registers: hasher.finish(),
        });
    }
}
