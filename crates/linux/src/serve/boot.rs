//! Running a program without requests: up to its first wait for one, or to its end.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use sandtide_abi::call;
use sandtide_engine::{Console, EngineError, Events, Fault};

use super::{Machine, Stop, misplaced};
use crate::{Cpu as _, protocol::Booting};

/// Time that other threads get, when the first request is waited for, to come to rest.
const SETTLE: Duration = Duration::from_millis(200);

/// What a program has come to when it waits for its first request.
#[derive(Debug)]
pub struct Booted {
    /// The arguments of the call for it.
    pub waiting_call: [u64; 6],
    /// The events that it handles.
    pub events: Events,
}

/// Why a program did not come to wait for a request.
#[derive(Debug)]
pub enum Unready<E> {
    /// It did what it may not.
    Fault(Fault),
    /// It cannot go on.
    Over(E),
    /// We failed.
    Engine(EngineError),
}

impl<E> From<EngineError> for Unready<E> {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// Runs a program until it waits for its first request.
pub fn boot<M: Machine>(
    machine: &mut M,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Booted, Unready<M::End>> {
    let mut calls = Booting::default();
    loop {
        match machine.run(bounds, console, None)? {
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => {
                let waiting_call = settle(machine, arguments, &mut calls, bounds, console)?;
                return Ok(Booted { waiting_call, events: calls.events });
            }
            Stop::GuestCall { number, arguments } => match calls.call(number, arguments) {
                Some(result) => machine.parts().process.cpu().set_result(result),
                None => return Err(Unready::Fault(misplaced(number, "there is no request yet"))),
            },
            Stop::Sliced => M::renew(bounds),
            Stop::Idle { until } => wait::<M>(until, bounds),
            Stop::Exit(code) => return Err(Unready::Fault(Fault::Exit { code })),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}

/// Lets the other threads of a program run until all of them wait, so that no work of theirs is
/// done again for every request.
fn settle<M: Machine>(
    machine: &mut M,
    arguments: [u64; 6],
    calls: &mut Booting,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<[u64; 6], Unready<M::End>> {
    if machine.parts().process.threads() == 1 {
        return Ok(arguments);
    }
    machine.wait_for_host()?;
    let enough = Instant::now() + SETTLE;
    while Instant::now() < enough {
        match machine.run(bounds, console, None)? {
            Stop::Idle { .. } => break,
            Stop::Sliced => M::renew(bounds),
            // Another thread makes a guest call of its own.
            Stop::GuestCall { number, arguments } => match calls.call(number, arguments) {
                Some(result) => machine.parts().process.cpu().set_result(result),
                // It finds a request soon enough.
                None => machine.wait_for_host()?,
            },
            Stop::Exit(_) => return Err(Unready::Over(M::STALLED)),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
    machine.parts().process.wake_host_waiters();
    loop {
        match machine.run(bounds, console, None)? {
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => return Ok(arguments),
            Stop::GuestCall { .. } => machine.wait_for_host()?,
            Stop::Sliced => M::renew(bounds),
            Stop::Idle { .. } | Stop::Exit(_) => return Err(Unready::Over(M::STALLED)),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}

/// Runs a program to its end. `Ok` has its exit code.
pub fn execute<M: Machine>(
    machine: &mut M,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
    stdin: &mut (dyn Read + Send),
) -> Result<u8, Unready<M::End>> {
    let mut calls = Booting::default();
    loop {
        match machine.run(bounds, console, Some(&mut *stdin))? {
            Stop::GuestCall { number, arguments } => {
                let Some(result) = calls.call(number, arguments) else {
                    let why = "a run has no requests; use `sandtide serve` or `sandtide call`";
                    return Err(Unready::Fault(misplaced(number, why)));
                };
                machine.parts().process.cpu().set_result(result);
            }
            Stop::Sliced => M::renew(bounds),
            Stop::Idle { until } => wait::<M>(until, bounds),
            Stop::Exit(code) => return Ok(code),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}

/// Waits for a guest that waits for a timer. Only while loading, off the reactors.
fn wait<M: Machine>(until: Option<Instant>, bounds: &mut M::Bounds<'_>) {
    let deadline = M::deadline(bounds);
    let until = until.map_or(deadline, |until| until.min(deadline));
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    M::renew(bounds);
}
