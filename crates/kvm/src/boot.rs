//! Running a program without requests: up to its first wait for one, or to its end.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use sandtide_abi::call;
use sandtide_engine::{Console, EngineError, Events, Fault, Limits, LoadError, ProgramSource};
use sandtide_linux::{Cpu as _, protocol::Booting};

use crate::{
    machine::{Bounds, End, Machine, Stop},
    place::place,
};

/// Time that other threads get, when the first request is waited for, to come to rest.
const SETTLE: Duration = Duration::from_millis(200);

/// What a program has come to when it waits for its first request.
pub(crate) struct Booted {
    /// The arguments of the call for it.
    pub(crate) waiting_call: [u64; 6],
    /// The events that it handles.
    pub(crate) events: Events,
}

/// Runs a program until it waits for its first request.
pub(crate) fn boot(
    machine: &mut Machine,
    limits: &Limits,
    console: &dyn Console,
) -> Result<Booted, LoadError> {
    let mut calls = Booting::default();
    let mut bounds = bounds(limits.boot_time);
    // The limits in a fault's message are those of the boot.
    let named = Limits { wall_time: limits.boot_time, ..limits.clone() };
    let fault = loop {
        match machine.run(&mut bounds, console, None)? {
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => {
                match settle(machine, arguments, &mut calls, &mut bounds, console)? {
                    Ok(waiting_call) => return Ok(Booted { waiting_call, events: calls.events }),
                    Err(end) => break machine.fault(end, &named),
                }
            }
            Stop::GuestCall { number, arguments } => match calls.call(number, arguments) {
                Some(result) => machine.process.cpu().set_result(result),
                None => break misplaced(number, "there is no request yet"),
            },
            Stop::Sliced => bounds.renew(),
            Stop::Idle { until } => wait(until, &mut bounds),
            Stop::Exit(code) => break Fault::Exit { code },
            Stop::Over(end) => break machine.fault(end, &named),
        }
    };
    console.flush();
    Err(LoadError::Boot(fault))
}

/// Lets the other threads of a program run until all of them wait, so that no work of theirs is
/// done again for every request.
fn settle(
    machine: &mut Machine,
    arguments: [u64; 6],
    calls: &mut Booting,
    bounds: &mut Bounds<'_>,
    console: &dyn Console,
) -> Result<Result<[u64; 6], End>, EngineError> {
    if machine.process.threads() == 1 {
        return Ok(Ok(arguments));
    }
    machine.wait_for_host()?;
    let enough = Instant::now() + SETTLE;
    while Instant::now() < enough {
        match machine.run(bounds, console, None)? {
            Stop::Idle { .. } => break,
            Stop::Sliced => bounds.renew(),
            // Another thread makes a guest call of its own.
            Stop::GuestCall { number, arguments } => match calls.call(number, arguments) {
                Some(result) => machine.process.cpu().set_result(result),
                // It finds a request soon enough.
                None => machine.wait_for_host()?,
            },
            Stop::Exit(_) => return Ok(Err(End::Stalled)),
            Stop::Over(end) => return Ok(Err(end)),
        }
    }
    machine.process.wake_host_waiters();
    loop {
        match machine.run(bounds, console, None)? {
            Stop::GuestCall { number: call::NEXT_REQUEST, arguments } => return Ok(Ok(arguments)),
            Stop::GuestCall { .. } => machine.wait_for_host()?,
            Stop::Sliced => bounds.renew(),
            Stop::Idle { .. } | Stop::Exit(_) => return Ok(Err(End::Stalled)),
            Stop::Over(end) => return Ok(Err(end)),
        }
    }
}

/// Runs a program to its end.
pub(crate) fn execute(
    source: &ProgramSource,
    limits: &Limits,
    mut stdin: Box<dyn Read + Send>,
    console: &dyn Console,
) -> Result<Result<u8, Fault>, LoadError> {
    let mut machine = place(source, limits)?.machine;
    let mut calls = Booting::default();
    let mut bounds = bounds(limits.wall_time);
    let end = loop {
        match machine.run(&mut bounds, console, Some(&mut *stdin))? {
            Stop::GuestCall { number, arguments } => {
                if let Some(result) = calls.call(number, arguments) {
                    machine.process.cpu().set_result(result);
                    continue;
                }
                let why = "a run has no requests; use `sandtide serve` or `sandtide call`";
                break Err(misplaced(number, why));
            }
            Stop::Sliced => bounds.renew(),
            Stop::Idle { until } => wait(until, &mut bounds),
            Stop::Exit(code) => break Ok(code),
            Stop::Over(end) => break Err(machine.fault(end, limits)),
        }
    };
    console.flush();
    Ok(end)
}

fn bounds(time: Duration) -> Bounds<'static> {
    let now = Instant::now();
    let deadline = now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(86_400));
    Bounds::new(now, deadline, Duration::from_millis(10))
}

/// Waits for a guest that waits for a timer. Only while loading, off the reactors.
fn wait(until: Option<Instant>, bounds: &mut Bounds<'_>) {
    let until = until.map_or(bounds.deadline, |until| until.min(bounds.deadline));
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    bounds.renew();
}

fn misplaced(number: u64, why: &str) -> Fault {
    let name = call::name(number).unwrap_or("?");
    Fault::Protocol(format!("guest call `{name}`: {why}"))
}
