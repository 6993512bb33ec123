//! Clocks and sleeping.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime as host_gettime};
use serde::{Deserialize, Serialize};

use crate::{
    Errno, Host,
    calls::futex::deadline_after,
    guest,
    kernel::{Args, CallResult, DONE, Flow, Kernel, fail, value},
    threads::{Event, Wait, Wake},
};

const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;
const PROCESS_CPU: u32 = 2;
const THREAD_CPU: u32 = 3;
const MONOTONIC_RAW: u32 = 4;
const REALTIME_COARSE: u32 = 5;
const MONOTONIC_COARSE: u32 = 6;
const BOOTTIME: u32 = 7;
const TAI: u32 = 11;

/// Clock ticks in a second, as `AT_CLKTCK` says.
const TICKS: u64 = 100;

/// What a clock of the host shows.
pub(crate) fn host_clock(id: ClockId) -> Duration {
    let time = host_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The clocks that deadlines are measured by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Clock {
    Real,
    /// Stands still while the process does not run.
    Monotonic,
    Boot,
}

impl Kernel {
    /// What a clock of the guest shows.
    pub(crate) fn clock(&self, clock: Clock) -> Duration {
        match clock {
            Clock::Real => host_clock(ClockId::Realtime),
            Clock::Monotonic => self.pause.monotonic(host_clock(ClockId::Monotonic)),
            Clock::Boot => self.pause.boot(host_clock(ClockId::Monotonic)),
        }
    }

    /// The deadline at which a clock shows `time`.
    pub(super) fn deadline_at(&self, time: Duration, clock: Clock) -> Option<Instant> {
        deadline_after(time.saturating_sub(self.clock(clock)))
    }
}

/// What a clock shows, by its number.
fn guest_clock(kernel: &Kernel, host: &Host<'_>, id: u64) -> Result<Duration, Errno> {
    Ok(match id as u32 {
        REALTIME | REALTIME_COARSE | TAI => kernel.clock(Clock::Real),
        MONOTONIC | MONOTONIC_RAW | MONOTONIC_COARSE => kernel.clock(Clock::Monotonic),
        BOOTTIME => kernel.clock(Clock::Boot),
        // One processor: the threads' times are not told apart.
        PROCESS_CPU | THREAD_CPU => host.cpu_time.total(),
        _ => return Err(Errno::INVAL),
    })
}

pub(crate) fn clock_gettime(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let time = guest_clock(kernel, host, args[0])?;
    write_timespec(host, args[1], time)
}

pub(crate) fn clock_getres(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    guest_clock(kernel, host, args[0])?;
    let resolution = match args[0] as u32 {
        REALTIME_COARSE | MONOTONIC_COARSE => Duration::from_millis(4),
        _ => Duration::from_nanos(1),
    };
    if args[1] == 0 { DONE } else { write_timespec(host, args[1], resolution) }
}

fn write_timespec(host: &mut Host<'_>, address: u64, time: Duration) -> CallResult {
    let words = [time.as_secs(), u64::from(time.subsec_nanos())];
    guest::write_words(host.memory, address, &words)?;
    DONE
}

pub(crate) fn gettimeofday(_: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let time = host_clock(ClockId::Realtime);
    if args[0] != 0 {
        let words = [time.as_secs(), u64::from(time.subsec_micros())];
        guest::write_words(host.memory, args[0], &words)?;
    }
    if args[1] != 0 {
        guest::write_words(host.memory, args[1], &[0])?;
    }
    DONE
}

/// `time` of x86-64.
pub(crate) fn time(_: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let seconds = host_clock(ClockId::Realtime).as_secs();
    if args[0] != 0 {
        guest::write_words(host.memory, args[0], &[seconds])?;
    }
    value(seconds)
}

pub(crate) fn times(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let ticks = |time: Duration| (time.as_millis() as u64) / (1000 / TICKS);
    if args[0] != 0 {
        guest::write_words(host.memory, args[0], &[ticks(host.cpu_time.total()), 0, 0, 0])?;
    }
    value(ticks(kernel.clock(Clock::Monotonic)))
}

pub(crate) fn nanosleep(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let duration = guest::duration(host.memory, args[0])?;
    sleep(kernel, deadline_after(duration))
}

pub(crate) fn clock_nanosleep(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const ABSOLUTE: u64 = 1;
    let clock = match args[0] as u32 {
        REALTIME | TAI => Clock::Real,
        MONOTONIC => Clock::Monotonic,
        BOOTTIME => Clock::Boot,
        PROCESS_CPU => return fail(Errno::OPNOTSUPP),
        _ => return fail(Errno::INVAL),
    };
    let time = guest::duration(host.memory, args[2])?;
    if args[1] & ABSOLUTE == 0 {
        return sleep(kernel, deadline_after(time));
    }
    let deadline = kernel.deadline_at(time, clock);
    let flow = sleep(kernel, deadline)?;
    kernel.threads.change().current_mut().waits_for_day = clock != Clock::Monotonic;
    Ok(flow)
}

fn sleep(kernel: &mut Kernel, deadline: Option<Instant>) -> CallResult {
    kernel.threads.change().park(Wait {
        event: Event::Time,
        deadline,
        on_timeout: Wake::Result(0),
        restartable: false,
    });
    Ok(Flow::Parked)
}
