//! Running a program without requests: up to its first wait for one, or to its end.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use sandtide_abi::call;
use sandtide_engine::{Console, EngineError, Events, Fault, Warmed, Warmup};

use super::{
    Machine, Ready, Stop, misplaced,
    pace::Pace,
    wait::{exchange, wait, waker},
    warmup,
};
use crate::{Cpu as _, Listener, Process, protocol::Booting};

/// Time that other threads get, when the first request is waited for, to come to rest.
const SETTLE: Duration = Duration::from_millis(200);

/// Time that a program gets whose server listens already, to come to an end with what it has begun
/// outside.
const CONNECT: Duration = Duration::from_secs(3);

/// The answer to a guest call that a server makes.
const ENOSYS: u64 = 38;

/// What a program has come to when it waits for its first request.
#[derive(Debug)]
pub struct Booted {
    /// How it waits for it.
    pub ready: Ready,
    /// The events that it handles.
    pub events: Events,
    /// What came of the requests before the snapshot.
    pub warmed: Option<Warmed>,
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

/// Runs a program until it waits for its first request: until it makes the guest call for one, or
/// every thread of it waits, and one of them for a connection.
///
/// It answers the requests of `warmup` then, and comes to wait for the one behind them.
pub fn boot<M: Machine>(
    machine: &mut M,
    warmup: &Warmup,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Booted, Unready<M::End>> {
    let mut calls = Booting::default();
    let mut ready = reach(machine, &mut calls, bounds, console)?;
    let mut begin = Instant::now();
    let mut pace = Pace::new(warmup.requests, warmup.targets.len(), begin, M::deadline(bounds));
    let mut targets = warmup.targets();
    while pace.goes_on(begin)
        && let Some(target) = targets.next()
    {
        warmup::answer(machine, &ready, (warmup, target), bounds, console)?;
        ready = reach(machine, &mut calls, bounds, console)?;
        let end = Instant::now();
        pace.took(end - begin);
        begin = end;
    }
    ready = cut_off(machine, ready, bounds, console)?;
    Ok(Booted { ready, events: calls.events, warmed: pace.warmed() })
}

/// Runs a program until it waits for a request.
fn reach<M: Machine>(
    machine: &mut M,
    calls: &mut Booting,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Ready, Unready<M::End>> {
    let waker = waker();
    let patience = Instant::now() + CONNECT;
    loop {
        exchange(machine, &waker);
        match machine.run(bounds, console, None)? {
            Stop::GuestCall { number, arguments } if asks(number) => {
                return settle(machine, (number, arguments), calls, bounds, console);
            }
            Stop::GuestCall { number, arguments } => match calls.call(number, arguments) {
                Some(result) => machine.parts().process.cpu().set_result(result),
                None => return Err(Unready::Fault(misplaced(number, "there is no request yet"))),
            },
            // Nobody is connected.
            Stop::Output => {}
            Stop::Sliced => M::renew(bounds),
            // What every thread waits for has come.
            Stop::Idle { .. } if exchange(machine, &waker) => {}
            Stop::Idle { until } => {
                let process = machine.parts().process;
                match process.waiting_listener() {
                    Some(_) if process.is_connecting() && Instant::now() < patience => {
                        let until = until.map_or(patience, |until| until.min(patience));
                        wait::<M>(Some(until), bounds);
                    }
                    Some(listener) => {
                        return settle_server(machine, listener, bounds, console);
                    }
                    None if until.is_none() && !process.awaits_outside() => {
                        return Err(Unready::Over(M::STALLED));
                    }
                    None => wait::<M>(until, bounds),
                }
            }
            Stop::Exit(code) => return Err(Unready::Fault(Fault::Exit { code })),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}

/// Whether a guest call asks for a request.
fn asks(number: u64) -> bool {
    matches!(number, call::NEXT_REQUEST | call::RECEIVE)
}

/// Lets the other threads of a program run until all of them wait, so that no work of theirs is
/// done again for every request.
fn settle<M: Machine>(
    machine: &mut M,
    (number, arguments): (u64, [u64; 6]),
    calls: &mut Booting,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Ready, Unready<M::End>> {
    if machine.parts().process.threads() == 1 {
        return Ok(Ready::Direct { number, arguments });
    }
    machine.wait_for_host()?;
    let enough = Instant::now() + SETTLE;
    while Instant::now() < enough {
        match machine.run(bounds, console, None)? {
            Stop::Idle { .. } => break,
            Stop::Sliced => M::renew(bounds),
            Stop::Output => {}
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
            Stop::GuestCall { number, arguments } if asks(number) => {
                return Ok(Ready::Direct { number, arguments });
            }
            Stop::GuestCall { .. } => machine.wait_for_host()?,
            Stop::Sliced => M::renew(bounds),
            Stop::Output => {}
            Stop::Idle { .. } | Stop::Exit(_) => return Err(Unready::Over(M::STALLED)),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}

/// Brings a server that waits for connections to where it waits for a request on one, so that
/// what it does with a new connection is not done again for every request.
///
/// A server that does not wait for requests on a connection that says nothing gets a new one for
/// each request.
fn settle_server<M: Machine>(
    machine: &mut M,
    listener: Listener,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Ready, Unready<M::End>> {
    let connection = machine.parts().process.connect(listener);
    if let Some(connection) = connection {
        rest(machine, bounds, console, |process| process.is_accepted(connection))?;
        if machine.parts().process.is_idle(connection) {
            return Ok(Ready::Sockets { listener, connection: Some(connection) });
        }
        machine.parts().process.hang_up(connection);
        rest(machine, bounds, console, |_| true)?;
    }
    Ok(Ready::Sockets { listener, connection: None })
}

/// Closes the connections to the outside of a server, which no snapshot has, and lets it put that in
/// order, so that this is not done again for every request.
fn cut_off<M: Machine>(
    machine: &mut M,
    ready: Ready,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
) -> Result<Ready, Unready<M::End>> {
    let Ready::Sockets { listener, connection } = ready else { return Ok(ready) };
    if !machine.parts().process.cut_off() {
        return Ok(ready);
    }
    rest(machine, bounds, console, |_| true)?;
    match connection {
        // It has other things to do with it than to wait.
        Some(connection) if !machine.parts().process.is_idle(connection) => {
            machine.parts().process.hang_up(connection);
            rest(machine, bounds, console, |_| true)?;
            Ok(Ready::Sockets { listener, connection: None })
        }
        connection => Ok(Ready::Sockets { listener, connection }),
    }
}

/// Lets a program run until every thread waits and what is asked holds, or there was time enough
/// for that.
fn rest<M: Machine>(
    machine: &mut M,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
    holds: impl Fn(&Process<M::Cpu>) -> bool,
) -> Result<(), Unready<M::End>> {
    let mut calls = Booting::default();
    let waker = waker();
    let enough = Instant::now() + SETTLE;
    while Instant::now() < enough {
        exchange(machine, &waker);
        match machine.run(bounds, console, None)? {
            Stop::GuestCall { number, arguments } => {
                let result = calls.call(number, arguments).unwrap_or(ENOSYS.wrapping_neg());
                machine.parts().process.cpu().set_result(result);
            }
            Stop::Output => {}
            Stop::Sliced => M::renew(bounds),
            Stop::Idle { .. } if exchange(machine, &waker) => {}
            Stop::Idle { until: Some(until) }
                if until < enough && !holds(machine.parts().process) =>
            {
                wait::<M>(Some(until), bounds);
            }
            Stop::Idle { .. } => break,
            Stop::Exit(code) => return Err(Unready::Fault(Fault::Exit { code })),
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
    Ok(())
}

/// Runs a program to its end. `Ok` has its exit code.
pub fn execute<M: Machine>(
    machine: &mut M,
    bounds: &mut M::Bounds<'_>,
    console: &dyn Console,
    stdin: &mut (dyn Read + Send),
) -> Result<u8, Unready<M::End>> {
    let mut calls = Booting::default();
    let waker = waker();
    loop {
        exchange(machine, &waker);
        match machine.run(bounds, console, Some(&mut *stdin))? {
            Stop::GuestCall { number, arguments } => {
                let Some(result) = calls.call(number, arguments) else {
                    let why = "a run has no requests; use `sandtide serve` or `sandtide call`";
                    return Err(Unready::Fault(misplaced(number, why)));
                };
                machine.parts().process.cpu().set_result(result);
            }
            Stop::Output => {}
            Stop::Sliced => M::renew(bounds),
            // What every thread waits for has come.
            Stop::Idle { .. } if exchange(machine, &waker) => {}
            // It waits for a connection that nobody makes.
            Stop::Idle { until: None } if !machine.parts().process.awaits_outside() => {
                return Err(Unready::Over(M::STALLED));
            }
            Stop::Idle { until } => wait::<M>(until, bounds),
            Stop::Exit(code) => {
                exchange(machine, &waker);
                return Ok(code);
            }
            Stop::Over(end) => return Err(Unready::Over(end)),
        }
    }
}
