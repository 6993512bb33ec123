//! Running a program without requests: up to its first wait for one, or to its end.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use sandtide_engine::{Console, Fault, Limits, LoadError, ProgramSource};
use sandtide_linux::serve::{self, Booted, Unready};

use crate::{
    machine::{Bounds, Machine},
    place::{Placed, place},
    symbols::Symbols,
};

/// Runs a program until it waits for its first request.
pub(crate) fn boot(
    machine: &mut Machine,
    source: &ProgramSource,
    symbols: &Symbols,
    limits: &Limits,
    console: &dyn Console,
) -> Result<Booted, LoadError> {
    // The limits in a fault's message are those of the boot.
    let named = Limits { wall_time: limits.boot_time, ..limits.clone() };
    let booted = serve::boot(machine, &source.warmup, &mut bounds(&named), console);
    booted.map_err(|unready| {
        console.flush();
        LoadError::Boot(match unready {
            Unready::Engine(error) => return LoadError::Engine(error),
            Unready::Fault(fault) => fault,
            Unready::Over(end) => machine.fault(end, &named, symbols),
        })
    })
}

/// Runs a program to its end.
pub(crate) fn execute(
    source: &ProgramSource,
    limits: &Limits,
    mut stdin: Box<dyn Read + Send>,
    console: &dyn Console,
) -> Result<Result<u8, Fault>, LoadError> {
    let Placed { mut machine, base, .. } = place(source, limits)?;
    let end = match serve::execute(&mut machine, &mut bounds(limits), console, &mut *stdin) {
        Ok(code) => Ok(code),
        Err(Unready::Engine(error)) => return Err(error.into()),
        Err(Unready::Fault(fault)) => Err(fault),
        Err(Unready::Over(end)) => {
            Err(machine.fault(end, limits, &Symbols::read(&source.image, base)))
        }
    };
    console.flush();
    Ok(end)
}

fn bounds(limits: &Limits) -> Bounds<'static> {
    let now = Instant::now();
    let deadline = now.checked_add(limits.wall_time);
    let deadline = deadline.unwrap_or_else(|| now + Duration::from_secs(86_400));
    Bounds::new(now, deadline, Duration::from_millis(10))
}
