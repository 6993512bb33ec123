//! Pairs of sockets: making them, and moving bytes through them.

use crate::{
    Errno, GuestMemory, Host,
    files::{Description, flags},
    guest::{self, Range},
    kernel::{Args, CallResult, DONE, Flow, Kernel, Stop, fail, value},
    objects::{SOCKET_CAPACITY, Socket, SocketKind},
    readiness::Source,
    signals::SIGPIPE,
    vfs::Node,
};

const AF_UNIX: u32 = 1;

/// The bits of a socket's type that are no flags.
const TYPE: u32 = 0xf;

const PEEK: u32 = 0x2;
const TRUNCATE: u32 = 0x20;
const DONT_WAIT: u32 = 0x40;
const WAIT_ALL: u32 = 0x100;
const NO_SIGNAL: u32 = 0x4000;

pub(crate) fn socketpair(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [family, kind, protocol, address, ..] = args;
    let (family, kind) = (family as u32, kind as u32);
    if family != AF_UNIX {
        return fail(Errno::OPNOTSUPP);
    }
    if !matches!(protocol as u32, 0 | AF_UNIX) {
        return fail(Errno::PROTONOSUPPORT);
    }
    let status = kind & flags::NONBLOCK;
    let close_on_exec = kind & flags::CLOSE_ON_EXEC != 0;
    if kind & !(TYPE | flags::NONBLOCK | flags::CLOSE_ON_EXEC) != 0 {
        return fail(Errno::INVAL);
    }
    let kind = match kind & TYPE {
        1 => SocketKind::Stream,
        2 => SocketKind::Datagram,
        5 => SocketKind::Sequenced,
        _ => return fail(Errno::SOCKTNOSUPPORT),
    };
    // Look first: a bad pointer leaves nothing behind.
    host.memory.view_mut(address, 8)?;
    kernel.expect_free(2)?;
    let sockets = &mut kernel.objects.sockets;
    let ends = [sockets.insert(Socket::new(kind)), sockets.insert(Socket::new(kind))];
    sockets.change(ends[0])?.peer = Some(ends[1]);
    sockets.change(ends[1])?.peer = Some(ends[0]);
    for (end, address) in ends.into_iter().zip([address, address + 4]) {
        let description = Description::new(Node::Socket(end), status | flags::READ_WRITE);
        let fd = kernel.install(description, close_on_exec)?;
        guest::write_u32(host.memory, address, fd)?;
    }
    DONE
}

/// What a receive brought.
struct Received {
    length: usize,
    /// The message was longer.
    is_cut: bool,
}

/// How a transfer ended.
enum Transfer<T> {
    Done(T),
    Parked(Flow),
}

impl Kernel {
    /// The socket that a descriptor refers to, and whether calls on it wait.
    fn socket_of(&self, fd: u64) -> Result<(usize, bool), Errno> {
        let description = self.files.get(fd)?;
        match description.node {
            Node::Socket(index) => Ok((index, description.flags & flags::NONBLOCK == 0)),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// Reads from a socket into ranges.
    fn receive(
        &mut self,
        memory: &mut dyn GuestMemory,
        index: usize,
        ranges: &[Range],
        (given, waits): (u32, bool),
    ) -> Result<Transfer<Received>, Stop> {
        let wanted: usize = ranges.iter().map(|range| range.length as usize).sum();
        let socket = self.objects.sockets.get(index)?;
        let ended = socket.input_closed;
        if socket.is_stream() && wanted == 0 {
            return Ok(Transfer::Done(Received { length: 0, is_cut: false }));
        }
        let is_short = |length: usize| length < wanted.min(SOCKET_CAPACITY);
        let all = given & WAIT_ALL != 0 && given & PEEK == 0 && socket.is_stream();
        let available = match socket.available(wanted) {
            Some(found) if all && waits && !ended && is_short(found.length) => None,
            found => found,
        };
        let Some(available) = available else {
            if socket.was_reset {
                self.objects.sockets.change(index)?.was_reset = false;
                return Err(Errno::CONNRESET.into());
            }
            if ended {
                return Ok(Transfer::Done(Received { length: 0, is_cut: false }));
            }
            if !waits {
                return Err(Errno::AGAIN.into());
            }
            return Ok(Transfer::Parked(self.wait_for(Source::Socket(index))));
        };
        let mut done = 0;
        for range in ranges {
            let length = (range.length as usize).min(available.length - done);
            if length > 0 {
                socket.peek(done, memory.view_mut(range.address, length as u64)?);
            }
            done += length;
        }
        if given & PEEK == 0 {
            let socket = self.objects.sockets.change(index)?;
            socket.consume(available);
            if let Some(peer) = socket.peer {
                self.objects.sockets.change(peer)?.output_changed();
                self.notify(Source::Socket(peer));
            }
        }
        let whole = available.length + available.cut;
        let length = if given & TRUNCATE != 0 { whole } else { available.length };
        Ok(Transfer::Done(Received { length, is_cut: available.cut > 0 }))
    }

    /// Writes ranges to a socket.
    fn send(
        &mut self,
        memory: &mut dyn GuestMemory,
        index: usize,
        ranges: &[Range],
        (given, waits): (u32, bool),
    ) -> Result<Transfer<usize>, Stop> {
        let socket = self.objects.sockets.get(index)?;
        if socket.was_reset {
            self.objects.sockets.change(index)?.was_reset = false;
            return Err(Errno::CONNRESET.into());
        }
        let Some(peer) = socket.peer.filter(|_| !socket.output_closed) else {
            if socket.kind == SocketKind::Datagram && !socket.output_closed {
                return Err(Errno::CONNREFUSED.into());
            }
            if given & NO_SIGNAL == 0 && socket.kind != SocketKind::Datagram {
                let running = self.threads.running();
                self.send_signal(Some(running), SIGPIPE);
            }
            return Err(Errno::PIPE.into());
        };
        let wanted: usize = ranges.iter().map(|range| range.length as usize).sum();
        let is_stream = socket.is_stream();
        if is_stream && wanted == 0 {
            return Ok(Transfer::Done(0));
        }
        if !is_stream && wanted > SOCKET_CAPACITY {
            return Err(Errno::MSGSIZE.into());
        }
        let Some(length) = self.objects.sockets.get(peer)?.room_for(wanted) else {
            if !waits {
                return Err(Errno::AGAIN.into());
            }
            return Ok(Transfer::Parked(self.wait_for(Source::Socket(index))));
        };
        let mut parts = Vec::with_capacity(ranges.len());
        let mut left = length as u64;
        for range in ranges {
            let length = range.length.min(left);
            if length > 0 {
                parts.push(memory.view(range.address, length)?);
            }
            left -= length;
        }
        self.objects.sockets.change(peer)?.put(parts.into_iter());
        self.notify(Source::Socket(peer));
        Ok(Transfer::Done(length))
    }

    /// A socket is gone.
    pub(crate) fn close_socket(&mut self, index: usize) {
        let Some(socket) = self.objects.sockets.remove(index) else { return };
        let Some(peer) = socket.peer else { return };
        if let Ok(other) = self.objects.sockets.change(peer) {
            other.peer = None;
            if other.kind != SocketKind::Datagram {
                (other.input_closed, other.output_closed) = (true, true);
                other.was_reset = socket.len() > 0;
            }
            other.changed();
        }
        self.notify(Source::Socket(peer));
    }
}

/// `read` and `readv` of a socket.
pub(super) fn read(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    ranges: &[Range],
    waits: bool,
) -> CallResult {
    match kernel.receive(memory, index, ranges, (0, waits))? {
        Transfer::Done(received) => value(received.length as u64),
        Transfer::Parked(flow) => Ok(flow),
    }
}

/// `write` and `writev` of a socket.
pub(super) fn write(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    ranges: &[Range],
    waits: bool,
) -> CallResult {
    match kernel.send(memory, index, ranges, (0, waits))? {
        Transfer::Done(length) => value(length as u64),
        Transfer::Parked(flow) => Ok(flow),
    }
}

pub(crate) fn sendto(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, buffer, length, given, address, _] = args;
    let (index, waits) = kernel.socket_of(fd)?;
    if address != 0 {
        return fail(Errno::ISCONN);
    }
    let given = given as u32;
    let how = (given, waits && given & DONT_WAIT == 0);
    let range = Range { address: buffer, length: length.min(guest::CHUNK) };
    match kernel.send(host.memory, index, &[range], how)? {
        Transfer::Done(length) => value(length as u64),
        Transfer::Parked(flow) => Ok(flow),
    }
}

pub(crate) fn recvfrom(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, buffer, length, given, address, address_length] = args;
    let (index, waits) = kernel.socket_of(fd)?;
    let given = given as u32;
    let how = (given, waits && given & DONT_WAIT == 0);
    let range = Range { address: buffer, length: length.min(guest::CHUNK) };
    match kernel.receive(host.memory, index, &[range], how)? {
        Transfer::Done(received) => {
            // The other end of a pair has no name.
            if address != 0 {
                guest::write_u32(host.memory, address_length, 0)?;
            }
            value(received.length as u64)
        }
        Transfer::Parked(flow) => Ok(flow),
    }
}

/// `struct msghdr`: name, its length, ranges, their number, control data, its length, flags.
const HEADER: usize = 7;

/// The header of a message, and the ranges that it names.
fn header(memory: &dyn GuestMemory, address: u64) -> Result<([u64; HEADER], Vec<Range>), Stop> {
    let header: [u64; HEADER] = guest::words(memory, address)?;
    let ranges = guest::ranges(memory, header[2], header[3])?;
    Ok((header, ranges))
}

pub(crate) fn sendmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, message, given, ..] = args;
    let (index, waits) = kernel.socket_of(fd)?;
    let (header, ranges) = header(host.memory, message)?;
    let [name, _, _, _, _, control_length, _] = header;
    if name != 0 {
        return fail(Errno::ISCONN);
    }
    // Descriptors of a process of one are not passed.
    if control_length != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let given = given as u32;
    let how = (given, waits && given & DONT_WAIT == 0);
    match kernel.send(host.memory, index, &ranges, how)? {
        Transfer::Done(length) => value(length as u64),
        Transfer::Parked(flow) => Ok(flow),
    }
}

pub(crate) fn recvmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const NAME_LENGTH: u64 = 8;
    const CONTROL_LENGTH: u64 = 40;
    const FLAGS: u64 = 48;
    let [fd, message, given, ..] = args;
    let (index, waits) = kernel.socket_of(fd)?;
    let (_, ranges) = header(host.memory, message)?;
    host.memory.view_mut(message, 8 * HEADER as u64)?;
    let given = given as u32;
    let how = (given, waits && given & DONT_WAIT == 0);
    match kernel.receive(host.memory, index, &ranges, how)? {
        Transfer::Done(Received { length, is_cut }) => {
            guest::write_u32(host.memory, message + NAME_LENGTH, 0)?;
            guest::write_words(host.memory, message + CONTROL_LENGTH, &[0])?;
            let found = if is_cut { TRUNCATE } else { 0 };
            guest::write_u32(host.memory, message + FLAGS, found)?;
            value(length as u64)
        }
        Transfer::Parked(flow) => Ok(flow),
    }
}

pub(crate) fn shutdown(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let (index, _) = kernel.socket_of(args[0])?;
    let (input, output) = match args[1] as u32 {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return fail(Errno::INVAL),
    };
    let socket = kernel.objects.sockets.change(index)?;
    socket.input_closed |= input;
    socket.output_closed |= output;
    socket.changed();
    let peer = socket.peer.filter(|_| socket.kind != SocketKind::Datagram);
    kernel.notify(Source::Socket(index));
    if let Some(peer) = peer {
        let other = kernel.objects.sockets.change(peer)?;
        other.input_closed |= output;
        other.output_closed |= input;
        other.changed();
        kernel.notify(Source::Socket(peer));
    }
    DONE
}

/// `getsockname`, `getpeername`: the ends of a pair have no names, only a family.
pub(crate) fn name(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const LENGTH: u32 = 2;
    kernel.socket_of(args[0])?;
    let room = guest::read_u32(host.memory, args[2])?;
    if room > i32::MAX as u32 {
        return fail(Errno::INVAL);
    }
    let family = (AF_UNIX as u16).to_le_bytes();
    guest::write(host.memory, args[1], &family[..room.min(LENGTH) as usize])?;
    guest::write_u32(host.memory, args[2], LENGTH)?;
    DONE
}

pub(crate) fn getsockopt(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const SOCKET: u32 = 1;
    const KIND: u32 = 3;
    const ERROR: u32 = 4;
    const SEND_BUFFER: u32 = 7;
    const RECEIVE_BUFFER: u32 = 8;
    const ACCEPTS: u32 = 30;
    const PROTOCOL: u32 = 38;
    const DOMAIN: u32 = 39;
    let [fd, level, option, address, length, _] = args;
    let (index, _) = kernel.socket_of(fd)?;
    if level as u32 != SOCKET {
        return fail(Errno::OPNOTSUPP);
    }
    let socket = kernel.objects.sockets.get(index)?;
    let number = match option as u32 {
        KIND => match socket.kind {
            SocketKind::Stream => 1,
            SocketKind::Datagram => 2,
            SocketKind::Sequenced => 5,
        },
        ERROR if socket.was_reset => {
            kernel.objects.sockets.change(index)?.was_reset = false;
            Errno::CONNRESET.raw_os_error() as u32
        }
        ERROR | ACCEPTS | PROTOCOL => 0,
        SEND_BUFFER | RECEIVE_BUFFER => SOCKET_CAPACITY as u32,
        DOMAIN => AF_UNIX,
        _ => return fail(Errno::NOPROTOOPT),
    };
    let room = guest::read_u32(host.memory, length)?;
    if room > i32::MAX as u32 {
        return fail(Errno::INVAL);
    }
    let written = room.min(4);
    guest::write(host.memory, address, &number.to_le_bytes()[..written as usize])?;
    guest::write_u32(host.memory, length, written)?;
    DONE
}

/// `setsockopt`: the options that change nothing here are accepted.
pub(crate) fn setsockopt(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const SOCKET: u32 = 1;
    /// Addresses, buffers, keep-alive, and what lingers.
    const ACCEPTED: [u32; 7] = [2, 7, 8, 9, 13, 15, 16];
    let [fd, level, option, address, length, _] = args;
    kernel.socket_of(fd)?;
    if level as u32 != SOCKET {
        return fail(Errno::OPNOTSUPP);
    }
    if (length as u32) < 4 {
        return fail(Errno::INVAL);
    }
    guest::read_u32(host.memory, address)?;
    if ACCEPTED.contains(&(option as u32)) { DONE } else { fail(Errno::NOPROTOOPT) }
}
