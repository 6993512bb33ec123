//! timerfd and setitimer.

use std::time::{Duration, Instant};

use crate::{
    Errno, GuestMemory, Host,
    calls::{futex::deadline_after, time::Clock},
    files::{Description, flags},
    guest,
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail, value},
    objects::{Alarm, Timer},
    readiness::Source,
    vfs::Node,
};

pub(crate) fn timerfd_create(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const REALTIME: u32 = 0;
    const MONOTONIC: u32 = 1;
    const BOOTTIME: u32 = 7;
    const ALARMS: [u32; 2] = [8, 9];
    let given = args[1] as u32;
    if given & !(flags::CLOSE_ON_EXEC | flags::NONBLOCK) != 0 {
        return fail(Errno::INVAL);
    }
    let clock = match args[0] as u32 {
        REALTIME => Clock::Real,
        MONOTONIC => Clock::Monotonic,
        BOOTTIME => Clock::Boot,
        // They would wake the machine, which takes a privilege.
        clock if ALARMS.contains(&clock) => return fail(Errno::PERM),
        _ => return fail(Errno::INVAL),
    };
    kernel.expect_free(1)?;
    let node = Node::Timer(kernel.objects.timers.insert(Timer::new(clock)));
    let description = Description::new(node, given & flags::NONBLOCK | flags::READ_WRITE);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

pub(crate) fn timerfd_settime(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const ABSOLUTE: u32 = 1;
    const CANCEL_ON_SET: u32 = 2;
    let [fd, given, new, old, ..] = args;
    let given = given as u32;
    if given & !(ABSOLUTE | CANCEL_ON_SET) != 0 {
        return fail(Errno::INVAL);
    }
    let interval = guest::duration(host.memory, new)?;
    let first = guest::duration(host.memory, new.wrapping_add(16))?;
    let index = kernel.timer_of(fd)?;
    let timer = kernel.objects.timers.get(index)?;
    let now = Instant::now();
    let next = match first {
        Duration::ZERO => None,
        time if given & ABSOLUTE != 0 => kernel.deadline_at(time, timer.clock),
        time => deadline_after(time),
    };
    if old != 0 {
        write_times(host.memory, old, timer.alarm.left(now))?;
    }
    kernel.objects.timers.change(index)?.set(Alarm::new(next, interval), now);
    // Those who wait have another time to wait for.
    kernel.notify(Source::Timer(index));
    DONE
}

pub(crate) fn timerfd_gettime(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let timer = kernel.objects.timers.get(kernel.timer_of(args[0])?)?;
    write_times(host.memory, args[1], timer.alarm.left(Instant::now()))?;
    DONE
}

/// `struct itimerspec`: interval and what is left.
fn write_times(
    memory: &mut dyn GuestMemory,
    address: u64,
    times: [Duration; 2],
) -> Result<(), Stop> {
    let [interval, left] = times.map(|time| [time.as_secs(), u64::from(time.subsec_nanos())]);
    guest::write_words(memory, address, &[interval, left].concat())?;
    Ok(())
}

impl Kernel {
    fn timer_of(&self, fd: u64) -> Result<usize, Errno> {
        match self.files.get(fd)?.node {
            Node::Timer(index) => Ok(index),
            _ => Err(Errno::INVAL),
        }
    }
}

/// `ITIMER_REAL`. The two others count CPU time, which nobody here looks at between slices.
fn real_only(which: u64) -> Result<(), Errno> {
    if which as u32 == 0 { Ok(()) } else { Err(Errno::INVAL) }
}

/// `struct itimerval`: interval and what is left, in microseconds.
fn write_microseconds(
    memory: &mut dyn GuestMemory,
    address: u64,
    times: [Duration; 2],
) -> Result<(), Stop> {
    let [interval, left] = times.map(|time| {
        // What is armed has some time left.
        let time = if time.is_zero() { time } else { time.max(Duration::from_micros(1)) };
        [time.as_secs(), u64::from(time.subsec_micros())]
    });
    guest::write_words(memory, address, &[interval, left].concat())?;
    Ok(())
}

pub(crate) fn setitimer(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [which, new, old, ..] = args;
    real_only(which)?;
    let words: [u64; 4] = if new == 0 { [0; 4] } else { guest::words(host.memory, new)? };
    if words[0].max(words[2]) > i64::MAX as u64 || words[1].max(words[3]) >= 1_000_000 {
        return fail(Errno::INVAL);
    }
    let time = |at: usize| Duration::new(words[at], words[at + 1] as u32 * 1000);
    let (interval, first) = (time(0), time(2));
    let left = kernel.signals.alarm.left(Instant::now());
    if old != 0 {
        write_microseconds(host.memory, old, left)?;
    }
    let next = if first.is_zero() { None } else { deadline_after(first) };
    kernel.signals.change().alarm = Alarm::new(next, interval);
    DONE
}

pub(crate) fn getitimer(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    real_only(args[0])?;
    let left = kernel.signals.alarm.left(Instant::now());
    write_microseconds(host.memory, args[1], left)?;
    DONE
}

/// `alarm` of x86-64: returns the seconds that were left.
pub(crate) fn alarm(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let [_, left] = kernel.signals.alarm.left(Instant::now());
    let first = Duration::from_secs(u64::from(args[0] as u32));
    let next = if first.is_zero() { None } else { deadline_after(first) };
    kernel.signals.change().alarm = Alarm::new(next, Duration::ZERO);
    let rounded = left.as_secs() + u64::from(left.subsec_millis() >= 500);
    value(if left.is_zero() { 0 } else { rounded.max(1) })
}
