//! One isolated execution of a program.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::call;
use sandtide_engine::{
    Console, EngineError, Fault, Outcome, Progress, ResetError, Sandbox, SpawnError, Turn, Usage,
};
use sandtide_linux::{
    Cpu as _,
    protocol::{Delivery, GuestCall, GuestCallContext},
};
use sandtide_memory::Space;

use crate::{
    machine::{Bounds, End, Machine, Stop},
    memory::Memory,
    program::RiscvProgram,
};

/// A sandbox: a machine that starts from the program's snapshot.
pub(crate) struct RiscvSandbox {
    program: Arc<RiscvProgram>,
    console: Arc<dyn Console>,
    machine: Machine,
    delivery: Delivery,
    /// A guest call that has to be carried out before the guest goes on. After a reset, the one
    /// in which the snapshot was taken.
    pending: Option<(u64, [u64; 6])>,
    /// A call waited for the host: it is made again on the next turn.
    waited: bool,
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
        let pending = Some((call::NEXT_REQUEST, program.waiting_call));
        let delivery = Delivery::default();
        Ok(Self { program, console, machine, delivery, pending, waited: false })
    }

    fn fault(&mut self, end: End) -> Progress {
        let program = &self.program;
        Progress::Ended(Outcome::Fault(self.machine.fault(end, &program.limits, &program.symbols)))
    }

    /// Carries out a guest call; `Some` if the turn is over.
    fn guest_call(
        &mut self,
        number: u64,
        arguments: [u64; 6],
        turn: &mut Turn<'_, '_>,
    ) -> Option<Progress> {
        let result = self.delivery.call(
            number,
            arguments,
            &mut GuestCallContext {
                memory: &mut self.machine.memory,
                exchange: turn.exchange,
                cx: turn.cx,
                random: &mut self.machine.random,
            },
        );
        match result {
            GuestCall::Return(value) => self.machine.process.cpu().set_result(value),
            GuestCall::Wait => {
                self.machine.process.wait_for_host();
                self.waited = true;
            }
            GuestCall::Ended(outcome) => {
                // A sandbox that is kept goes on behind its answer.
                self.machine.process.cpu().set_result(0);
                return Some(Progress::Ended(outcome));
            }
            GuestCall::MemoryLimit => return Some(self.fault(End::Memory)),
        }
        None
    }
}

impl Sandbox for RiscvSandbox {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        if std::mem::take(&mut self.waited) {
            self.machine.process.wake_host_waiters();
        }
        let limit = self.program.limits.instructions;
        let mut bounds = Bounds::of(turn, limit);
        let mut call = self.pending.take();
        loop {
            if let Some((number, arguments)) = call.take()
                && let Some(progress) = self.guest_call(number, arguments, turn)
            {
                return progress;
            }
            match self.machine.run(&mut bounds, &*self.console, None) {
                Stop::GuestCall { number, arguments } => call = Some((number, arguments)),
                Stop::Sliced => return Progress::Sliced,
                Stop::Idle { until } => return Progress::Waiting { until },
                Stop::Exit(code) => {
                    return Progress::Ended(Outcome::Fault(Fault::Exit { code }));
                }
                Stop::Over(end) => return self.fault(end),
            }
        }
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.machine
            .memory
            .0
            .reset()
            .map_err(|source| EngineError::System { what: "cannot reset memory", source })?;
        self.machine.process.reset_from(&self.program.process);
        self.pending = Some((call::NEXT_REQUEST, self.program.waiting_call));
        self.begin_exchange();
        Ok(())
    }

    fn keep(&mut self) -> Result<(), ResetError> {
        self.begin_exchange();
        Ok(())
    }

    fn usage(&self) -> Usage {
        Usage {
            instructions: self.machine.instructions,
            pages_written: self.machine.memory.0.written_pages() as u64,
            calls: self.machine.calls,
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
        self.delivery = Delivery::default();
        self.waited = false;
        self.machine.clear_counts();
    }
}
