//! Making and ending threads.

use crate::{
    Architecture, Errno, Host, PAGE, guest,
    kernel::{Args, CallResult, DONE, Flow, Kernel, NewThread, Stop, fail, value},
};

const CLONE_VM: u64 = 0x100;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// What a new thread is to be.
struct Wanted {
    flags: u64,
    stack_pointer: u64,
    parent_tid: u64,
    child_tid: u64,
    thread_pointer: u64,
}

pub(crate) fn clone(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [flags, stack_pointer, parent_tid, ..] = args;
    let (thread_pointer, child_tid) = match kernel.fixed.architecture {
        Architecture::Riscv64 => (args[3], args[4]),
        Architecture::X86_64 => (args[4], args[3]),
    };
    let wanted = Wanted { flags, stack_pointer, parent_tid, child_tid, thread_pointer };
    make(kernel, host, &wanted)
}

/// `clone3(args, size)`, `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal,
/// stack, stack_size, tls, set_tid, set_tid_size, cgroup.
pub(crate) fn clone3(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const FIRST_SIZE: u64 = 64;
    const LAST_SIZE: u64 = 88;
    let [address, size, ..] = args;
    if size < FIRST_SIZE {
        return fail(Errno::INVAL);
    }
    if size > PAGE {
        return fail(Errno::TOOBIG);
    }
    // What is not known must not be asked for.
    let rest = host.memory.view(address, size)?;
    if rest[LAST_SIZE.min(size) as usize..].iter().any(|byte| *byte != 0) {
        return fail(Errno::TOOBIG);
    }
    let [flags, _, child_tid, parent_tid, _, stack, stack_size, thread_pointer] =
        guest::words(host.memory, address)?;
    let stack_pointer = match (stack, stack_size) {
        (0, 0) => 0,
        (0, _) | (_, 0) => return fail(Errno::INVAL),
        (stack, size) => stack.checked_add(size).ok_or(Errno::INVAL)?,
    };
    let wanted = Wanted { flags, stack_pointer, parent_tid, child_tid, thread_pointer };
    make(kernel, host, &wanted)
}

fn make(kernel: &mut Kernel, host: &mut Host<'_>, wanted: &Wanted) -> CallResult {
    const THREAD: u64 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    let Wanted { flags, stack_pointer, parent_tid, child_tid, thread_pointer } = *wanted;
    if flags & THREAD != THREAD {
        // A process of its own, even for a moment as `vfork` has it, would need memory of its own.
        return fail(Errno::NOSYS);
    }
    if kernel.threads.count() >= kernel.fixed.limits.threads as usize {
        return fail(Errno::AGAIN);
    }
    // Look before the thread exists: a bad pointer leaves nothing behind.
    for (flag, pointer) in [(CLONE_PARENT_SETTID, parent_tid), (CLONE_CHILD_SETTID, child_tid)] {
        if flags & flag != 0 {
            host.memory.view_mut(pointer, 4)?;
        }
    }
    let clear_child_tid = if flags & CLONE_CHILD_CLEARTID != 0 { child_tid } else { 0 };
    let tid = kernel.threads.change().add(clear_child_tid);
    for (flag, pointer) in [(CLONE_PARENT_SETTID, parent_tid), (CLONE_CHILD_SETTID, child_tid)] {
        if flags & flag != 0 {
            guest::write_u32(host.memory, pointer, tid)?;
        }
    }
    let thread_pointer = (flags & CLONE_SETTLS != 0).then_some(thread_pointer);
    Ok(Flow::Clone(NewThread { tid, stack_pointer, thread_pointer }))
}

pub(crate) fn exit(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    kernel.walk_robust_list(host.memory)?;
    let address = kernel.threads.current().clear_child_tid;
    if address != 0 {
        match guest::write_u32(host.memory, address, 0).map_err(Stop::from) {
            Ok(()) => drop(kernel.wake_futex(address, u32::MAX, 1)),
            Err(Stop::MemoryLimit) => return Err(Stop::MemoryLimit),
            // The thread's memory may be gone already.
            Err(Stop::Errno(_)) => {}
        }
    }
    Ok(Flow::ThreadExit(args[0] as u8))
}

pub(crate) fn exit_group(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    Ok(Flow::Exit(args[0] as u8))
}

pub(crate) fn set_tid_address(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let thread = kernel.threads.change().current_mut();
    thread.clear_child_tid = args[0];
    value(thread.tid)
}

pub(crate) fn gettid(kernel: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    value(kernel.threads.current().tid)
}

pub(crate) fn sched_yield(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    Ok(Flow::Yield)
}

impl Kernel {
    /// The thread that a scheduling call means by its first argument.
    fn scheduled(&self, tid: u64) -> Result<usize, Errno> {
        match tid as u32 {
            0 => Ok(self.threads.running()),
            // The process stands for its first thread, which may have ended.
            pid if self.pid.is(pid) => Ok(0),
            tid => self.threads.find(tid).ok_or(Errno::SRCH),
        }
    }
}

pub(crate) fn sched_getaffinity(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
) -> CallResult {
    const MASK_SIZE: u64 = 8;
    kernel.scheduled(args[0])?;
    if args[1] < MASK_SIZE || !args[1].is_multiple_of(8) {
        return fail(Errno::INVAL);
    }
    guest::write_words(host.memory, args[2], &[1])?;
    value(MASK_SIZE)
}

pub(crate) fn sched_setaffinity(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
) -> CallResult {
    kernel.scheduled(args[0])?;
    if args[1] == 0 || host.memory.view(args[2], 1)?[0] & 1 == 0 {
        return fail(Errno::INVAL);
    }
    DONE
}

pub(crate) fn sched_getscheduler(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const OTHER: u64 = 0;
    kernel.scheduled(args[0])?;
    value(OTHER)
}

pub(crate) fn sched_getparam(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    kernel.scheduled(args[0])?;
    guest::write_u32(host.memory, args[1], 0)?;
    DONE
}

/// `sched_setparam(tid, param)` and `sched_setscheduler(tid, policy, param)` with what holds
/// already.
pub(crate) fn sched_setparam(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    kernel.scheduled(args[0])?;
    if guest::read_u32(host.memory, args[1])? == 0 { DONE } else { fail(Errno::INVAL) }
}

pub(crate) fn sched_setscheduler(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
) -> CallResult {
    if args[1] as u32 != 0 {
        return fail(Errno::PERM);
    }
    sched_setparam(kernel, host, [args[0], args[2], 0, 0, 0, 0])
}

/// `sched_get_priority_max` and `_min`: 0 for the ordinary policies.
pub(crate) fn sched_get_priority(_: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    match args[0] as u32 {
        0 | 3 | 5 => DONE,
        _ => fail(Errno::INVAL),
    }
}

/// `getpriority(which, who)`: 20 less the nice value, which is 0.
pub(crate) fn getpriority(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.ordered(args)?;
    value(20u32)
}

/// `setpriority(which, who, nice)`: there is nobody to be nicer to.
pub(crate) fn setpriority(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.ordered(args)?;
    if (args[2] as i32) < 0 { fail(Errno::ACCESS) } else { DONE }
}

impl Kernel {
    /// Whether there is what `getpriority` and `setpriority` mean.
    fn ordered(&self, [which, who, ..]: Args) -> Result<(), Errno> {
        const PROCESS: u32 = 0;
        const USER: u32 = 2;
        match which as u32 {
            PROCESS => self.scheduled(who).map(drop),
            which if which <= USER => Ok(()),
            _ => Err(Errno::INVAL),
        }
    }
}

/// `arch_prctl` of x86-64.
pub(crate) fn arch_prctl(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const SET_FS: u64 = 0x1002;
    const GET_FS: u64 = 0x1003;
    match args[0] {
        GET_FS => Ok(Flow::GetThreadPointer(args[1])),
        SET_FS if args[1] < kernel.space.end => Ok(Flow::SetThreadPointer(args[1])),
        SET_FS => fail(Errno::PERM),
        _ => fail(Errno::INVAL),
    }
}
