//! Signal actions, masks and stacks, and sending.

use crate::{
    Architecture, Errno, Host, guest,
    kernel::{Args, CallResult, DONE, Flow, Kernel, fail, value},
    signals::{SIGKILL, SIGSTOP, SignalAction, UNBLOCKABLE, number},
    threads::{AlternateStack, Event, Wait, Wake},
};

/// The size of the signal sets that calls take, in bytes.
const SET_SIZE: u64 = 8;

pub(crate) fn rt_sigaction(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [signal, new, old, size, ..] = args;
    let signal = number(signal)?;
    if size != SET_SIZE || (new != 0 && (signal == SIGKILL || signal == SIGSTOP)) {
        return fail(Errno::INVAL);
    }
    let has_restorer = kernel.fixed.architecture == Architecture::X86_64;
    let action = match (new, has_restorer) {
        (0, _) => None,
        (_, true) => {
            let [handler, flags, restorer, mask] = guest::words(host.memory, new)?;
            Some(SignalAction { handler, flags, restorer, mask })
        }
        (_, false) => {
            let [handler, flags, mask] = guest::words(host.memory, new)?;
            Some(SignalAction { handler, flags, restorer: 0, mask })
        }
    };
    if old != 0 {
        let SignalAction { handler, flags, restorer, mask } = kernel.signals.action(signal);
        if has_restorer {
            guest::write_words(host.memory, old, &[handler, flags, restorer, mask])?;
        } else {
            guest::write_words(host.memory, old, &[handler, flags, mask])?;
        }
    }
    if let Some(action) = action {
        kernel.signals.change().set_action(signal, action);
    }
    DONE
}

pub(crate) fn rt_sigprocmask(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const BLOCK: u32 = 0;
    const UNBLOCK: u32 = 1;
    const SET: u32 = 2;
    let [how, new, old, size, ..] = args;
    if size != SET_SIZE {
        return fail(Errno::INVAL);
    }
    let mask = kernel.threads.current().mask;
    let changed = if new == 0 {
        mask
    } else {
        let set = guest::read_u64(host.memory, new)?;
        match how as u32 {
            BLOCK => mask | set,
            UNBLOCK => mask & !set,
            SET => set,
            _ => return fail(Errno::INVAL),
        }
    };
    if old != 0 {
        guest::write_words(host.memory, old, &[mask])?;
    }
    kernel.set_mask(changed);
    DONE
}

pub(crate) fn rt_sigpending(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[1] > SET_SIZE {
        return fail(Errno::INVAL);
    }
    let set = (kernel.pending_signals() & kernel.threads.current().mask).to_le_bytes();
    guest::write(host.memory, args[0], &set[..args[1] as usize])?;
    DONE
}

pub(crate) fn rt_sigsuspend(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[1] != SET_SIZE {
        return fail(Errno::INVAL);
    }
    let set = guest::read_u64(host.memory, args[0])?;
    kernel.suspend_mask(set);
    if kernel.pending_signals() & !set != 0 {
        return fail(Errno::INTR);
    }
    kernel.threads.change().park(Wait {
        event: Event::Signal,
        deadline: None,
        on_timeout: Wake::Result(0),
        restartable: false,
    });
    Ok(Flow::Parked)
}

/// `pause` of x86-64.
pub(crate) fn pause(kernel: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    kernel.threads.change().park(Wait {
        event: Event::Signal,
        deadline: None,
        on_timeout: Wake::Result(0),
        restartable: false,
    });
    Ok(Flow::Parked)
}

impl Kernel {
    /// Blocks `set` for the time of this call only.
    pub(super) fn suspend_mask(&mut self, set: u64) {
        let thread = self.threads.change().current_mut();
        thread.suspended_mask = Some(thread.suspended_mask.unwrap_or(thread.mask));
        thread.mask = set & !UNBLOCKABLE;
    }
}

pub(crate) fn rt_sigreturn(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    Ok(Flow::SignalReturn)
}

/// The alternate stack. Whether the thread is on it now is not known here, as the registers are
/// not: a change while on it is allowed.
pub(crate) fn sigaltstack(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const DISABLE: u64 = 2;
    const MODES: u64 = 3;
    const MIN_SIZE: u64 = 2048;
    let [new, old, ..] = args;
    let current = kernel.threads.current().alternate_stack;
    let replacement = if new == 0 {
        None
    } else {
        let [start, flags, size] = guest::words(host.memory, new)?;
        // The upper half of `flags` is padding.
        let flags = u64::from(flags as u32);
        if flags & !MODES != 0 {
            return fail(Errno::INVAL);
        }
        if flags & DISABLE != 0 {
            Some(AlternateStack::default())
        } else if size < MIN_SIZE {
            return fail(Errno::NOMEM);
        } else {
            Some(AlternateStack { start, size })
        }
    };
    if old != 0 {
        let flags = if current.size == 0 { DISABLE } else { 0 };
        guest::write_words(host.memory, old, &[current.start, flags, current.size])?;
    }
    if let Some(stack) = replacement {
        kernel.threads.change().current_mut().alternate_stack = stack;
    }
    DONE
}

/// `kill(pid, signal)`.
pub(crate) fn kill(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let pid = args[0] as u32;
    // Its group has the same number, and is meant by the negative one.
    if matches!(pid, 0 | u32::MAX) || kernel.pid.is(pid) || kernel.pid.is(pid.wrapping_neg()) {
        send(kernel, None, args[1])
    } else {
        fail(Errno::SRCH)
    }
}

/// `tkill(tid, signal)`.
pub(crate) fn tkill(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    if args[0] as i32 <= 0 {
        return fail(Errno::INVAL);
    }
    let thread = kernel.threads.find(args[0] as u32).ok_or(Errno::SRCH)?;
    send(kernel, Some(thread), args[1])
}

/// `tgkill(pid, tid, signal)`.
pub(crate) fn tgkill(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[0] as i32 <= 0 {
        return fail(Errno::INVAL);
    }
    if !kernel.pid.is(args[0] as u32) {
        return fail(Errno::SRCH);
    }
    tkill(kernel, host, [args[1], args[2], 0, 0, 0, 0])
}

fn send(kernel: &mut Kernel, thread: Option<usize>, signal: u64) -> CallResult {
    // Signal 0 only asks whether there is somebody.
    if signal as u32 != 0 {
        kernel.send_signal(thread, number(signal)?);
    }
    value(0u32)
}
