//! Taking signals without a handler: signalfd and rt_sigtimedwait.

use std::time::Instant;

use crate::{
    Errno, GuestMemory, Host, SignalInfo,
    calls::{futex::relative, io::Part},
    files::{Description, flags},
    guest::{self, Range},
    kernel::{Args, CallResult, Flow, Kernel, Stop, fail, value},
    readiness::Source,
    signals::UNBLOCKABLE,
    threads::{Event, Wait, Wake},
    vfs::Node,
};

/// The size of `struct signalfd_siginfo` and of `siginfo_t`, in bytes.
const INFO_SIZE: u64 = 128;

pub(crate) fn signalfd4(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, set, size, given, ..] = args;
    let given = given as u32;
    if size != 8 || given & !(flags::CLOSE_ON_EXEC | flags::NONBLOCK) != 0 {
        return fail(Errno::INVAL);
    }
    let node = Node::Signals(guest::read_u64(host.memory, set)? & !UNBLOCKABLE);
    if fd as i32 != -1 {
        let Node::Signals(_) = kernel.files.get(fd)?.node else { return fail(Errno::INVAL) };
        kernel.files.change().get_mut(fd)?.node = node;
        // Who waits may have something to take.
        kernel.notify(Source::Signals);
        return value(u64::from(fd as u32));
    }
    let description = Description::new(node, given & flags::NONBLOCK | flags::READ_WRITE);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

/// `signalfd` of x86-64.
pub(crate) fn signalfd(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    signalfd4(kernel, host, [args[0], args[1], args[2], 0, 0, 0])
}

/// Reads as many signals as there are and fit.
pub(super) fn read(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    set: u64,
    range: Range,
) -> Result<Part, Stop> {
    if range.length < INFO_SIZE {
        return Err(Errno::INVAL.into());
    }
    let mut done = 0;
    while range.length - done >= INFO_SIZE && kernel.pending_signals() & set != 0 {
        // Look first: a bad pointer takes no signal.
        let bytes = memory.view_mut(range.address + done, INFO_SIZE)?;
        if let Some(SignalInfo { signal, code, address }) = kernel.take_signal_of(set) {
            bytes.fill(0);
            bytes[..4].copy_from_slice(&u32::from(signal).to_le_bytes());
            bytes[8..12].copy_from_slice(&code.to_le_bytes());
            bytes[12..20].copy_from_slice(&address.to_le_bytes());
        }
        done += INFO_SIZE;
    }
    if done == 0 {
        return Ok(Part::Wait(Source::Signals));
    }
    Ok(Part::Moved(done as usize))
}

pub(crate) fn rt_sigtimedwait(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [set, info, timeout, size, ..] = args;
    if size != 8 {
        return fail(Errno::INVAL);
    }
    let set = guest::read_u64(host.memory, set)? & !UNBLOCKABLE;
    let deadline = relative(host.memory, timeout)?;
    if let Some(SignalInfo { signal, code, address }) = kernel.take_signal_of(set) {
        if info != 0 {
            let bytes = host.memory.view_mut(info, INFO_SIZE)?;
            bytes.fill(0);
            bytes[..4].copy_from_slice(&u32::from(signal).to_le_bytes());
            bytes[8..12].copy_from_slice(&code.to_le_bytes());
            bytes[16..24].copy_from_slice(&address.to_le_bytes());
        }
        return value(signal);
    }
    let thread = kernel.threads.current();
    let deadline = thread.call_deadline.or(deadline);
    if thread.timed_out || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return fail(Errno::AGAIN);
    }
    kernel.threads.change().park(Wait {
        event: Event::Change(Source::Signals),
        deadline,
        on_timeout: Wake::Retry,
        restartable: false,
    });
    Ok(Flow::Parked)
}
