//! One isolated execution of a program.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use sandtide_engine::{
    Console, EngineError, Mismatch, Next, Outcome, Progress, ResetError, Sandbox, Scrutiny,
    SpawnError, Turn, Usage,
};
use sandtide_linux::serve::{Delivery, Served};

use crate::{
    machine::{Bounds, End, Machine, system},
    memory::Memory,
    program::KvmProgram,
};

/// A sandbox: a machine that starts from the program's snapshot.
pub(crate) struct KvmSandbox {
    program: Arc<KvmProgram>,
    console: Arc<dyn Console>,
    machine: Machine,
    delivery: Delivery,
}

impl KvmSandbox {
    pub(crate) fn new(
        program: Arc<KvmProgram>,
        console: Arc<dyn Console>,
    ) -> Result<Self, SpawnError> {
        let machine = machine(&program)?;
        let delivery = Delivery::new(&program.ready);
        Ok(Self { program, console, machine, delivery })
    }

    /// For tests: what a guest cannot get at.
    #[cfg(test)]
    pub(crate) fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn fault(&mut self, end: End) -> Progress {
        let KvmProgram { limits, .. } = &*self.program;
        Progress::Ended(Outcome::Fault(self.machine.fault(end, limits, self.program.symbols())))
    }

    fn begin_exchange(&mut self) {
        if self.machine.process.has_unknown_calls() {
            self.program.count_unknown(self.machine.process.take_unknown_calls());
        }
        self.machine.clear_counts();
        self.machine.process.clear_traffic();
    }
}

/// A machine that starts from a program's snapshot.
fn machine(program: &KvmProgram) -> Result<Machine, EngineError> {
    let memory = Memory::from_snapshot(Arc::clone(&program.snapshot), program.limits.memory)
        .map_err(system("cannot map a snapshot"))?;
    let (host, process) = (&program.host, program.process.clone());
    let mut machine = Machine::new(host, memory, process, StdRng::from_os_rng())?;
    if host.restores {
        machine.use_prepared_vectors();
    }
    Ok(machine)
}

impl Sandbox for KvmSandbox {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        let mut bounds = Bounds::of(turn);
        match self.delivery.run(&mut self.machine, &mut bounds, &*self.console, turn) {
            Ok(Served::Progress(progress)) => progress,
            Ok(Served::Over(end)) => self.fault(end),
            Err(error) => Progress::Ended(Outcome::Engine(error)),
        }
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.machine.reset(&self.program.process)?;
        self.delivery.reset(&self.program.ready);
        self.begin_exchange();
        if self.machine.memory.has_sprawled() {
            self.machine = machine(&self.program)?;
        }
        Ok(())
    }

    fn verify(&mut self, scrutiny: Scrutiny) -> Result<(), Mismatch> {
        self.machine.verify(&self.program.process, scrutiny)?;
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
            // Not counted: the guest's instructions are the processor's own.
            instructions: 0,
            pages_written: self.machine.memory.written_pages() as u64,
            calls: self.machine.calls,
            exits: self.machine.exits,
            traffic: self.machine.process.traffic(),
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.machine.memory.private_bytes() + size_of::<Self>() as u64
    }
}
