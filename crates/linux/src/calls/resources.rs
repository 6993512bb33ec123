//! Limits and usage.

use crate::{
    Errno, Host,
    calls::time::Clock,
    guest,
    kernel::{Args, CallResult, DONE, Kernel, fail},
};

/// `RLIM_INFINITY`.
const UNLIMITED: u64 = u64::MAX;

impl Kernel {
    /// A resource limit; soft and hard are the same.
    fn resource_limit(&self, resource: u64) -> Result<u64, Errno> {
        const STACK: u32 = 3;
        const CORE: u32 = 4;
        const PROCESSES: u32 = 6;
        const FILES: u32 = 7;
        const ADDRESS_SPACE: u32 = 9;
        const COUNT: u32 = 16;
        let limits = &self.fixed.limits;
        Ok(match resource as u32 {
            STACK => self.fixed.stack,
            CORE => 0,
            PROCESSES => u64::from(limits.threads),
            FILES => u64::from(limits.descriptors),
            ADDRESS_SPACE => UNLIMITED,
            resource if resource < COUNT => UNLIMITED,
            _ => return Err(Errno::INVAL),
        })
    }
}

pub(crate) fn prlimit64(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [pid, resource, new, old, ..] = args;
    if pid as u32 != 0 && !kernel.pid.is(pid as u32) {
        return fail(Errno::SRCH);
    }
    let limit = kernel.resource_limit(resource)?;
    if new != 0 {
        let [soft, hard] = guest::words(host.memory, new)?;
        if soft > hard {
            return fail(Errno::INVAL);
        }
        // A lower limit would be a promise that nobody keeps; a higher one needs privilege.
        if hard > limit {
            return fail(Errno::PERM);
        }
    }
    if old != 0 {
        guest::write_words(host.memory, old, &[limit, limit])?;
    }
    DONE
}

pub(crate) fn getrlimit(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    prlimit64(kernel, host, [0, args[0], 0, args[1], 0, 0])
}

pub(crate) fn setrlimit(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    prlimit64(kernel, host, [0, args[0], args[1], 0, 0, 0])
}

pub(crate) fn getrusage(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const SELF: i32 = 0;
    const CHILDREN: i32 = -1;
    const THREAD: i32 = 1;
    let mut words = [0; 18];
    match args[0] as i32 {
        SELF | THREAD => {
            let time = host.cpu_time.total();
            words[0] = time.as_secs();
            words[1] = u64::from(time.subsec_micros());
            let used = kernel.fixed.limits.memory.saturating_sub(host.memory.available());
            words[4] = used / 1024;
        }
        CHILDREN => {}
        _ => return fail(Errno::INVAL),
    }
    guest::write_words(host.memory, args[1], &words)?;
    DONE
}

pub(crate) fn sysinfo(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let total = kernel.fixed.limits.memory;
    let free = host.memory.available().min(total);
    let uptime = kernel.clock(Clock::Boot).as_secs();
    let processes = kernel.threads.count() as u64;
    // uptime, loads[3], totalram, freeram, sharedram, bufferram, totalswap, freeswap,
    // procs and padding, totalhigh, freehigh, mem_unit and padding
    let words = [uptime, 0, 0, 0, total, free, 0, 0, 0, 0, processes, 0, 0, 1];
    guest::write_words(host.memory, args[0], &words)?;
    DONE
}
