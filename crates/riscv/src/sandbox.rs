//! One isolated execution of a program.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{
    Console, EngineError, Mismatch, Next, Outcome, Progress, ResetError, Sandbox, Scrutiny,
    SpawnError, Turn, Usage,
};
use sandtide_linux::serve::{Delivery, Served};
use sandtide_memory::Space;

use crate::{
    machine::{Bounds, End, Machine},
    memory::Memory,
    program::RiscvProgram,
    verify,
};

/// A sandbox: a machine that starts from the program's snapshot.
pub(crate) struct RiscvSandbox {
    program: Arc<RiscvProgram>,
    console: Arc<dyn Console>,
    machine: Machine,
    delivery: Delivery,
}

impl RiscvSandbox {
    pub(crate) fn new(
        program: Arc<RiscvProgram>,
        console: Arc<dyn Console>,
    ) -> Result<Self, SpawnError> {
        let memory = Space::from_snapshot(Arc::clone(&program.snapshot), program.limits.memory)
            .map_err(|source| EngineError::System { what: "cannot map a snapshot", source })?;
        let machine = Machine::new(
            Memory(memory),
            program.process.clone(),
            Arc::clone(&program.code),
            Arc::clone(&program.host_code),
            StdRng::from_os_rng(),
        );
        let delivery = Delivery::new(&program.ready);
        Ok(Self { program, console, machine, delivery })
    }

    fn fault(&mut self, end: End) -> Progress {
        let program = &self.program;
        Progress::Ended(Outcome::Fault(self.machine.fault(end, &program.limits, &program.symbols)))
    }
}

impl Sandbox for RiscvSandbox {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        let mut bounds = Bounds::of(turn, self.program.limits.instructions);
        match self.delivery.run(&mut self.machine, &mut bounds, &*self.console, turn) {
            Ok(Served::Progress(progress)) => progress,
            Ok(Served::Over(end)) => self.fault(end),
            Err(error) => Progress::Ended(Outcome::Engine(error)),
        }
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.machine
            .memory
            .0
            .reset()
            .map_err(|source| EngineError::System { what: "cannot reset memory", source })?;
        self.machine.process.reset_from(&self.program.process);
        self.delivery.reset(&self.program.ready);
        self.begin_exchange();
        Ok(())
    }

    fn verify(&mut self, scrutiny: Scrutiny) -> Result<(), Mismatch> {
        verify::verify(&mut self.machine, &self.program, scrutiny)?;
        match self.delivery.is_reset(&self.program.ready) {
            true => Ok(()),
            false => Err(Mismatch::Part("delivery of requests")),
        }
    }

    fn keep(&mut self, next: Next) -> Result<(), ResetError> {
        self.delivery.keep(&mut self.machine, next);
        self.begin_exchange();
        Ok(())
    }

    fn usage(&self) -> Usage {
        Usage {
            instructions: self.machine.instructions,
            pages_written: self.machine.memory.0.written_pages() as u64,
            calls: self.machine.calls,
            exits: 0,
            traffic: self.machine.process.traffic(),
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.machine.memory.0.private_bytes() + size_of::<Self>() as u64
    }
}

impl RiscvSandbox {
    fn begin_exchange(&mut self) {
        if self.machine.process.has_unknown_calls() {
            self.program.count_unknown(self.machine.process.take_unknown_calls());
        }
        self.machine.clear_counts();
        self.machine.process.clear_traffic();
    }
}
