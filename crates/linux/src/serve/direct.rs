//! Requests by guest calls: the direct protocol.

use sandtide_engine::{Console, EngineError, Fault, Outcome, Progress, Turn};

use super::{Machine, Parts, Served, Stop};
use crate::{
    Cpu as _,
    protocol::{GuestCall, GuestCallContext, GuestCalls},
};

/// The delivery by guest calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Direct {
    calls: GuestCalls,
    /// A guest call that has to be carried out before the guest goes on. At the snapshot, the one
    /// in which that was taken.
    pending: Option<(u64, [u64; 6])>,
    /// A call waited for the host: it is made again on the next turn.
    waited: bool,
}

impl Direct {
    pub(super) fn new(waiting: (u64, [u64; 6])) -> Self {
        let pending = Some(waiting);
        Self { calls: GuestCalls::default(), pending, waited: false }
    }

    pub(super) fn keep(&mut self) {
        (self.calls, self.waited) = (GuestCalls::default(), false);
    }

    pub(super) fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        bounds: &mut M::Bounds<'_>,
        console: &dyn Console,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Served<M::End>, EngineError> {
        if std::mem::take(&mut self.waited) {
            machine.parts().process.wake_host_waiters();
        }
        let mut call = self.pending.take();
        loop {
            // Before a call that ends the exchange, so that what was sent is on its way.
            if call.is_some() {
                machine.parts().process.exchange_outside(turn.cx);
            }
            if let Some((number, arguments)) = call.take()
                && let Some(served) = self.guest_call(machine, number, arguments, turn)?
            {
                return Ok(served);
            }
            machine.parts().process.exchange_outside(turn.cx);
            let progress = match machine.run(bounds, console, None)? {
                Stop::GuestCall { number, arguments } => {
                    call = Some((number, arguments));
                    continue;
                }
                // Nobody is connected.
                Stop::Output => continue,
                Stop::Sliced => Progress::Sliced,
                // What every thread waits for has come.
                Stop::Idle { .. } if machine.parts().process.exchange_outside(turn.cx) => continue,
                // It waits for a connection that nobody makes.
                Stop::Idle { until: None }
                    if !self.waited && !machine.parts().process.awaits_outside() =>
                {
                    return Ok(Served::Over(M::STALLED));
                }
                Stop::Idle { until } => Progress::Waiting { until },
                Stop::Exit(code) => Progress::Ended(Outcome::Fault(Fault::Exit { code })),
                Stop::Over(end) => return Ok(Served::Over(end)),
            };
            return Ok(Served::Progress(progress));
        }
    }

    /// Carries out a guest call; `Some` if the turn is over.
    fn guest_call<M: Machine>(
        &mut self,
        machine: &mut M,
        number: u64,
        arguments: [u64; 6],
        turn: &mut Turn<'_, '_>,
    ) -> Result<Option<Served<M::End>>, EngineError> {
        let Parts { process, memory, random } = machine.parts();
        let result = self.calls.call(
            number,
            arguments,
            &mut GuestCallContext { memory, exchange: turn.exchange, cx: turn.cx, random },
        );
        match result {
            GuestCall::Return(value) => process.cpu().set_result(value),
            GuestCall::Wait => {
                machine.wait_for_host()?;
                self.waited = true;
            }
            GuestCall::Ended(outcome) => {
                // A sandbox that is kept goes on behind its answer.
                process.cpu().set_result(self.calls.result_of_end());
                return Ok(Some(Served::Progress(Progress::Ended(outcome))));
            }
            GuestCall::MemoryLimit => return Ok(Some(Served::Over(M::MEMORY))),
        }
        Ok(None)
    }
}
