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

use crate::{
    machine::{Bounds, End, Machine, Stop, system},
    memory::Memory,
    program::KvmProgram,
};

/// A sandbox: a machine that starts from the program's snapshot.
pub(crate) struct KvmSandbox {
    program: Arc<KvmProgram>,
    console: Arc<dyn Console>,
    machine: Machine,
    delivery: Delivery,
    /// A guest call that has to be carried out before the guest goes on. After a reset, the one
    /// in which the snapshot was taken.
    pending: Option<(u64, [u64; 6])>,
    /// A call waited for the host: it is made again on the next turn.
    waited: bool,
}

impl KvmSandbox {
    pub(crate) fn new(
        program: Arc<KvmProgram>,
        console: Arc<dyn Console>,
    ) -> Result<Self, SpawnError> {
        let memory = Memory::from_snapshot(Arc::clone(&program.snapshot), program.limits.memory)
            .map_err(system("cannot map a snapshot"))?;
        let (host, process) = (&program.host, program.process.clone());
        let random = StdRng::from_os_rng();
        let machine = Machine::new(&host.kvm, host.entry, memory, process, random)?;
        let pending = Some((call::NEXT_REQUEST, program.waiting_call));
        let delivery = Delivery::default();
        Ok(Self { program, console, machine, delivery, pending, waited: false })
    }

    fn fault(&mut self, end: End) -> Progress {
        Progress::Ended(Outcome::Fault(self.machine.fault(end, &self.program.limits)))
    }

    /// Carries out a guest call; `Some` if the turn is over.
    fn guest_call(
        &mut self,
        number: u64,
        arguments: [u64; 6],
        turn: &mut Turn<'_, '_>,
    ) -> Result<Option<Progress>, EngineError> {
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
                self.machine.wait_for_host()?;
                self.waited = true;
            }
            GuestCall::Ended(outcome) => {
                // A sandbox that is kept goes on behind its answer.
                self.machine.process.cpu().set_result(0);
                return Ok(Some(Progress::Ended(outcome)));
            }
            GuestCall::MemoryLimit => return Ok(Some(self.fault(End::Memory))),
        }
        Ok(None)
    }

    fn try_run(&mut self, turn: &mut Turn<'_, '_>) -> Result<Progress, EngineError> {
        if std::mem::take(&mut self.waited) {
            self.machine.process.wake_host_waiters();
        }
        let mut bounds = Bounds::of(turn);
        let mut call = self.pending.take();
        loop {
            if let Some((number, arguments)) = call.take()
                && let Some(progress) = self.guest_call(number, arguments, turn)?
            {
                return Ok(progress);
            }
            match self.machine.run(&mut bounds, &*self.console, None)? {
                Stop::GuestCall { number, arguments } => call = Some((number, arguments)),
                Stop::Sliced => return Ok(Progress::Sliced),
                Stop::Idle { until } => return Ok(Progress::Waiting { until }),
                Stop::Exit(code) => {
                    return Ok(Progress::Ended(Outcome::Fault(Fault::Exit { code })));
                }
                Stop::Over(end) => return Ok(self.fault(end)),
            }
        }
    }

    fn begin_exchange(&mut self) {
        if self.machine.process.has_unknown_calls() {
            self.program.count_unknown(self.machine.process.take_unknown_calls());
        }
        self.delivery = Delivery::default();
        self.waited = false;
        self.machine.clear_counts();
    }
}

impl Sandbox for KvmSandbox {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        match self.try_run(turn) {
            Ok(progress) => progress,
            Err(error) => Progress::Ended(Outcome::Engine(error)),
        }
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.machine.reset(&self.program.process)?;
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
            // Not counted: the guest's instructions are the processor's own.
            instructions: 0,
            pages_written: self.machine.memory.written_pages() as u64,
            calls: self.machine.calls,
        }
    }

    fn resident_bytes(&self) -> u64 {
        self.machine.memory.private_bytes() + size_of::<Self>() as u64
    }
}
