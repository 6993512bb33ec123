//! Descriptors: closing, duplicating, controlling, pipes.

use crate::{
    Errno, Host,
    files::{Description, flags},
    guest,
    kernel::{Args, CallResult, DONE, Kernel, fail, value},
    objects::{Counter, PIPE_CAPACITY, Pipe},
    vfs::Node,
};

/// The status flags that `F_SETFL` changes.
const CHANGEABLE: u32 = flags::APPEND | flags::NONBLOCK;

pub(crate) fn close(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.close(args[0])?;
    DONE
}

pub(crate) fn close_range(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const CLOEXEC: u64 = 4;
    const UNSHARE: u64 = 2;
    let (first, last) = (u64::from(args[0] as u32), u64::from(args[1] as u32));
    if first > last || args[2] & !(CLOEXEC | UNSHARE) != 0 {
        return fail(Errno::INVAL);
    }
    for fd in first..kernel.files.bound().min(last + 1) {
        // Most of them are not open.
        let _ = if args[2] & CLOEXEC != 0 {
            kernel.files.change().set_close_on_exec(fd, true)
        } else {
            kernel.close(fd)
        };
    }
    DONE
}

pub(crate) fn dup(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    value(kernel.duplicate(args[0], 0, false)?)
}

pub(crate) fn dup2(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.files.get(args[0])?;
    let (old, new) = (args[0] as u32, args[1] as u32);
    value(if old == new { new } else { kernel.duplicate_to(args[0], new, false)? })
}

pub(crate) fn dup3(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let (old, new, given) = (args[0] as u32, args[1] as u32, args[2] as u32);
    if old == new || given & !flags::CLOSE_ON_EXEC != 0 {
        return fail(Errno::INVAL);
    }
    value(kernel.duplicate_to(args[0], new, given != 0)?)
}

pub(crate) fn fcntl(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const DUPFD: u32 = 0;
    const GETFD: u32 = 1;
    const SETFD: u32 = 2;
    const GETFL: u32 = 3;
    const SETFL: u32 = 4;
    const GETLK: u32 = 5;
    const SETLK: u32 = 6;
    const SETLKW: u32 = 7;
    const OFD_GETLK: u32 = 36;
    const OFD_SETLK: u32 = 37;
    const OFD_SETLKW: u32 = 38;
    const SETPIPE_SZ: u32 = 1031;
    const DUPFD_CLOEXEC: u32 = 1030;
    const GETPIPE_SZ: u32 = 1032;
    /// `F_UNLCK`
    const UNLOCKED: u16 = 2;
    let [fd, command, argument, ..] = args;
    let description = kernel.files.get(fd)?;
    match command as u32 {
        command @ (DUPFD | DUPFD_CLOEXEC) => {
            let lowest = u64::from(argument as u32);
            if lowest >= u64::from(kernel.fixed.limits.descriptors) {
                return fail(Errno::INVAL);
            }
            value(kernel.duplicate(fd, lowest, command == DUPFD_CLOEXEC)?)
        }
        GETFD => value(u32::from(kernel.files.closes_on_exec(fd)?)),
        SETFD => {
            kernel.files.change().set_close_on_exec(fd, argument & 1 != 0)?;
            DONE
        }
        GETFL => value(description.flags),
        SETFL => {
            let new = description.flags & !CHANGEABLE | argument as u32 & CHANGEABLE;
            kernel.files.change().get_mut(fd)?.flags = new;
            DONE
        }
        // Nobody else can hold a lock.
        SETLK | SETLKW | OFD_SETLK | OFD_SETLKW => DONE,
        GETLK | OFD_GETLK => {
            guest::write(host.memory, argument, &UNLOCKED.to_le_bytes())?;
            DONE
        }
        SETPIPE_SZ if argument as u32 as usize > PIPE_CAPACITY => fail(Errno::PERM),
        GETPIPE_SZ | SETPIPE_SZ
            if matches!(description.node, Node::PipeReader(_) | Node::PipeWriter(_)) =>
        {
            value(PIPE_CAPACITY as u64)
        }
        _ => fail(Errno::INVAL),
    }
}

/// `flock`: nobody else can hold a lock.
pub(crate) fn flock(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.files.get(args[0])?;
    DONE
}

pub(crate) fn ioctl(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const FIONREAD: u32 = 0x541b;
    const FIONBIO: u32 = 0x5421;
    const FIONCLEX: u32 = 0x5450;
    const FIOCLEX: u32 = 0x5451;
    let [fd, request, argument, ..] = args;
    let description = kernel.files.get(fd)?;
    match request as u32 {
        FIOCLEX | FIONCLEX => {
            kernel.files.change().set_close_on_exec(fd, request as u32 == FIOCLEX)?;
        }
        FIONBIO => {
            let set = guest::read_u32(host.memory, argument)? != 0;
            let description = kernel.files.change().get_mut(fd)?;
            let rest = description.flags & !flags::NONBLOCK;
            description.flags = if set { rest | flags::NONBLOCK } else { rest };
        }
        FIONREAD => {
            let left = match &description.node {
                Node::PipeReader(pipe) => kernel.objects.pipes.get(*pipe)?.len() as u64,
                Node::Socket(socket) => kernel.objects.sockets.get(*socket)?.len() as u64,
                Node::Endpoint(index) => kernel.unread(*index)?,
                Node::Stdin => 0,
                node @ (Node::Host(_) | Node::Scratch(_) | Node::Text(_)) => {
                    kernel.bytes_behind(node, description.offset)?
                }
                _ => return fail(Errno::NOTTY),
            };
            let left = u32::try_from(left).unwrap_or(i32::MAX as u32).min(i32::MAX as u32);
            guest::write_u32(host.memory, argument, left)?;
        }
        // Nothing here is a terminal.
        _ => return fail(Errno::NOTTY),
    }
    DONE
}

pub(crate) fn pipe2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let given = args[1] as u32;
    if given & !(flags::CLOSE_ON_EXEC | flags::NONBLOCK) != 0 {
        return fail(Errno::INVAL);
    }
    // Look first: a bad pointer leaves nothing behind.
    host.memory.view_mut(args[0], 8)?;
    kernel.expect_free(2)?;
    let index = kernel.objects.pipes.insert(Pipe::default());
    let status = given & flags::NONBLOCK;
    let close_on_exec = given & flags::CLOSE_ON_EXEC != 0;
    let reader = Description::new(Node::PipeReader(index), status);
    let reader = kernel.install(reader, close_on_exec)?;
    let writer = Description::new(Node::PipeWriter(index), status | flags::WRITE_ONLY);
    let writer = kernel.install(writer, close_on_exec)?;
    guest::write_u32(host.memory, args[0], reader)?;
    guest::write_u32(host.memory, args[0] + 4, writer)?;
    DONE
}

/// `pipe` of x86-64.
pub(crate) fn pipe(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    pipe2(kernel, host, [args[0], 0, 0, 0, 0, 0])
}

pub(crate) fn eventfd2(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const SEMAPHORE: u32 = 1;
    let given = args[1] as u32;
    if given & !(SEMAPHORE | flags::CLOSE_ON_EXEC | flags::NONBLOCK) != 0 {
        return fail(Errno::INVAL);
    }
    kernel.expect_free(1)?;
    let counter = Counter::new(args[0] as u32, given & SEMAPHORE != 0);
    let node = Node::Counter(kernel.objects.counters.insert(counter));
    let description = Description::new(node, given & flags::NONBLOCK | flags::READ_WRITE);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

/// `eventfd` of x86-64.
pub(crate) fn eventfd(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    eventfd2(kernel, host, [args[0], 0, 0, 0, 0, 0])
}
