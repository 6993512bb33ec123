//! Sending and receiving.

use std::time::Duration;

use crate::{
    Errno, GuestMemory, Host,
    files::flags,
    guest::{self, CHUNK, Range},
    kernel::{Args, CallResult, Flow, Kernel, Stop, fail, value},
    objects::{Blocked, Family, State},
    readiness::Source,
    signals::SIGPIPE,
};

use super::{address::read_address, datagram, write_address};

/// `MSG_*`.
pub(super) mod message {
    pub(super) const OUT_OF_BAND: u32 = 0x1;
    pub(in super::super) const PEEK: u32 = 0x2;
    pub(in super::super) const TRUNCATE: u32 = 0x20;
    pub(in super::super) const DONT_WAIT: u32 = 0x40;
    pub(super) const WAIT_ALL: u32 = 0x100;
    pub(super) const ERROR_QUEUE: u32 = 0x2000;
    pub(super) const NO_SIGNAL: u32 = 0x4000;
}

/// The most bytes of a connection that one call waits for together.
const MOST_TOGETHER: u64 = 32 << 10;

/// How a call that receives went.
pub(crate) enum Received {
    /// So many bytes were moved.
    Bytes(u64),
    /// A message of its own, which may have been cut.
    Message { length: u64, is_cut: bool },
    /// The thread was parked.
    Waits(Flow),
}

impl Received {
    pub(crate) fn flow(self) -> Flow {
        match self {
            Self::Bytes(length) | Self::Message { length, .. } => Flow::Value(length),
            Self::Waits(flow) => flow,
        }
    }
}

impl Kernel {
    /// Whether a call on a socket must not wait.
    fn must_not_wait(&self, fd: u64, given: u32) -> Result<bool, Errno> {
        let is_set = self.files.get(fd)?.flags & flags::NONBLOCK != 0;
        Ok(is_set || given & message::DONT_WAIT != 0)
    }

    /// Tells who writes that nobody reads.
    fn broken_pipe(&mut self, given: u32) -> CallResult {
        if given & message::NO_SIGNAL == 0 {
            let running = self.threads.running();
            self.send_signal(Some(running), SIGPIPE);
        }
        fail(Errno::PIPE)
    }

    /// What has gone wrong with a socket of which nobody was told: each error is told once.
    pub(super) fn take_error(&mut self, index: usize) -> Result<Option<Errno>, Errno> {
        let socket = self.objects.endpoints.get(index)?;
        let is_broken = socket.connection().is_some_and(|connection| connection.input_broken);
        if socket.error == 0 && !is_broken {
            return Ok(None);
        }
        let socket = self.objects.endpoints.change(index)?;
        let error = std::mem::take(&mut socket.error);
        if error != 0 {
            return Ok(Some(Errno::from_raw_os_error(error)));
        }
        if let Some(connection) = socket.connection_mut() {
            connection.input_broken = false;
        }
        Ok(Some(Errno::CONNRESET))
    }

    /// The guest has read the first bytes of a connection.
    pub(crate) fn has_read(&mut self, index: usize, length: usize) -> Result<(), Errno> {
        if let Some(connection) = self.objects.endpoints.change(index)?.connection_mut() {
            connection.input.take(length);
            connection.read += length as u64;
            if let Some(peer) = connection.own_peer() {
                self.tell_peer_of_room(peer);
            }
        }
        Ok(())
    }

    /// How many bytes a read would find.
    pub(crate) fn unread(&self, index: usize) -> Result<u64, Errno> {
        let socket = self.objects.endpoints.get(index)?;
        if let Some(datagram) = socket.datagram() {
            return Ok(datagram.first().map_or(0, |message| message.len() as u64));
        }
        let connection = socket.connection().ok_or(Errno::INVAL)?;
        Ok(connection.input.len() as u64)
    }
}

/// Receives from the connection that `fd` is.
pub(crate) fn receive(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    fd: u64,
    ranges: &[Range],
    given: u32,
) -> Result<Received, Stop> {
    let index = kernel.endpoint_of(fd)?;
    if given & message::OUT_OF_BAND != 0 {
        return Err(Errno::INVAL.into());
    }
    if given & message::ERROR_QUEUE != 0 {
        return Err(Errno::AGAIN.into());
    }
    let must_not_wait = kernel.must_not_wait(fd, given)?;
    if kernel.objects.endpoints.get(index)?.datagram().is_some() {
        return datagram::receive(kernel, memory, index, ranges, (given, must_not_wait));
    }
    let socket = kernel.objects.endpoints.get(index)?;
    if let State::Connecting(_) = socket.state {
        let limit = if must_not_wait { Some(Duration::ZERO) } else { socket.receive_limit() };
        let flow = kernel.wait_at_most(Source::Endpoint(index), limit);
        return Ok(Received::Waits(flow.ok_or(Errno::AGAIN)?));
    }
    let Some(connection) = socket.connection() else {
        return Err(kernel.take_error(index)?.unwrap_or(Errno::NOTCONN).into());
    };
    let wanted: u64 = ranges.iter().map(|range| range.length).sum();
    let there = connection.input.len() as u64;
    let waits_for_all = given & message::WAIT_ALL != 0 && !must_not_wait;
    let least = if waits_for_all { wanted.min(MOST_TOGETHER) } else { wanted.min(1) };
    if there < least && !connection.is_at_end() {
        if must_not_wait {
            return Err(Errno::AGAIN.into());
        }
        let limit = kernel.objects.endpoints.get(index)?.receive_limit();
        return match kernel.wait_at_most(Source::Endpoint(index), limit) {
            Some(flow) => Ok(Received::Waits(flow)),
            // Those who wait for all get what has come.
            None if there > 0 => take(kernel, memory, index, ranges, given),
            None => Err(Errno::AGAIN.into()),
        };
    }
    if there == 0
        && wanted > 0
        && let Some(errno) = kernel.take_error(index)?
    {
        return Err(errno.into());
    }
    take(kernel, memory, index, ranges, given)
}

/// Takes what has come, as far as there is room for it.
fn take(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    ranges: &[Range],
    given: u32,
) -> Result<Received, Stop> {
    let connection = kernel.objects.endpoints.get(index)?.connection().ok_or(Errno::NOTCONN)?;
    let mut bytes = connection.input.as_slice();
    let mut moved = 0;
    for range in ranges {
        let length = usize::try_from(range.length).unwrap_or(usize::MAX).min(bytes.len());
        guest::write(memory, range.address, &bytes[..length])?;
        (bytes, moved) = (&bytes[length..], moved + length);
    }
    if given & message::PEEK == 0 && moved > 0 {
        kernel.has_read(index, moved)?;
    }
    Ok(Received::Bytes(moved as u64))
}

pub(super) fn recvfrom(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, buffer, length, given, from, from_length] = args;
    let range = Range { address: buffer, length: length.min(CHUNK) };
    let received = receive(kernel, host.memory, fd, &[range], given as u32)?;
    if matches!(received, Received::Message { .. }) && from != 0 {
        let index = kernel.endpoint_of(fd)?;
        datagram::write_source(kernel, host.memory, index, (from, from_length))?;
    }
    if matches!(received, Received::Bytes(_)) && from != 0 {
        let peer = kernel.objects.endpoints.get(kernel.endpoint_of(fd)?)?.peer();
        write_address(host.memory, from, from_length, &peer)?;
    }
    Ok(received.flow())
}

/// `struct msghdr`: name, its length, ranges, their number, control data, its length, flags.
fn header(memory: &dyn GuestMemory, address: u64) -> Result<[u64; 7], Stop> {
    Ok(guest::words(memory, address)?)
}

pub(super) fn recvmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const NAME_LENGTH: u64 = 8;
    const CONTROL_LENGTH: u64 = 40;
    const FLAGS: u64 = 48;
    let [fd, message, given, ..] = args;
    let [name, _, ranges, count, ..] = header(host.memory, message)?;
    let ranges = guest::ranges(host.memory, ranges, count)?;
    let received = receive(kernel, host.memory, fd, &ranges, given as u32)?;
    if let Received::Message { is_cut, .. } = received {
        if name != 0 {
            let index = kernel.endpoint_of(fd)?;
            let length = message.wrapping_add(NAME_LENGTH);
            datagram::write_source(kernel, host.memory, index, (name, length))?;
        }
        guest::write_words(host.memory, message.wrapping_add(CONTROL_LENGTH), &[0])?;
        let flags = if is_cut { message::TRUNCATE } else { 0 };
        guest::write_u32(host.memory, message.wrapping_add(FLAGS), flags)?;
    }
    if matches!(received, Received::Bytes(_)) {
        if name != 0 {
            // Connections tell no names.
            guest::write_u32(host.memory, message + NAME_LENGTH, 0)?;
        }
        guest::write_words(host.memory, message + CONTROL_LENGTH, &[0])?;
        guest::write_u32(host.memory, message + FLAGS, 0)?;
    }
    Ok(received.flow())
}

/// Sends to the connection that `fd` is: everything, or as much as there is room for if the call
/// must not wait.
pub(crate) fn send(
    kernel: &mut Kernel,
    memory: &dyn GuestMemory,
    fd: u64,
    ranges: &[Range],
    given: u32,
) -> CallResult {
    let index = kernel.endpoint_of(fd)?;
    if given & message::OUT_OF_BAND != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let must_not_wait = kernel.must_not_wait(fd, given)?;
    if kernel.objects.endpoints.get(index)?.datagram().is_some() {
        return datagram::send(kernel, memory, index, ranges, None);
    }
    let tid = kernel.threads.current().tid;
    let socket = kernel.objects.endpoints.get(index)?;
    if let State::Connecting(_) = socket.state {
        let limit = if must_not_wait { Some(Duration::ZERO) } else { socket.send_limit() };
        return Ok(kernel.wait_at_most(Source::Endpoint(index), limit).ok_or(Errno::AGAIN)?);
    }
    let Some(connection) = socket.connection() else {
        let is_unix = socket.family == Family::Unix;
        if let Some(errno) = kernel.take_error(index)? {
            return fail(errno);
        }
        if is_unix {
            return fail(Errno::NOTCONN);
        }
        return kernel.broken_pipe(given);
    };
    let wanted: u64 = ranges.iter().map(|range| range.length).sum();
    let call = (tid, ranges.first().map_or(0, |range| range.address), wanted);
    let mut done = match connection.blocked {
        Some(blocked) if blocked.call == call => blocked.done,
        _ => 0,
    };
    if connection.is_write_over() {
        if done > 0 {
            return value(done);
        }
        if let Some(errno) = kernel.take_error(index)? {
            return fail(errno);
        }
        return kernel.broken_pipe(given);
    }
    let mut room = kernel.room_to_send(index)? as u64;
    let mut skipped = done;
    for range in ranges {
        let skip = skipped.min(range.length);
        skipped -= skip;
        let length = (range.length - skip).min(room);
        if length == 0 {
            continue;
        }
        let bytes = match memory.view(range.address.wrapping_add(skip), length) {
            Ok(bytes) => bytes,
            Err(_) if done > 0 => break,
            Err(error) => return Err(error.into()),
        };
        kernel.put_sent(index, bytes)?;
        (done, room) = (done + length, room - length);
    }
    let is_short = done < wanted && room == 0;
    let mut waits = is_short && !must_not_wait;
    let mut flow = Flow::Parked;
    if waits {
        let limit = kernel.objects.endpoints.get(index)?.send_limit();
        match kernel.wait_at_most(Source::Endpoint(index), limit) {
            Some(parked) => flow = parked,
            None => waits = false,
        }
    }
    if waits
        || kernel.objects.endpoints.get(index)?.connection().is_some_and(|c| c.blocked.is_some())
    {
        let blocked = waits.then_some(Blocked { call, done });
        if let Some(connection) = kernel.objects.endpoints.change(index)?.connection_mut() {
            connection.blocked = blocked;
        }
    }
    match done {
        _ if waits => Ok(flow),
        0 if is_short => fail(Errno::AGAIN),
        done => value(done),
    }
}

pub(super) fn sendto(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, buffer, length, given, to, to_length] = args;
    let index = kernel.endpoint_of(fd)?;
    if to != 0 && kernel.objects.endpoints.get(index)?.datagram().is_some() {
        let to = read_address(host.memory, to, to_length)?;
        let range = Range { address: buffer, length };
        return datagram::send(kernel, host.memory, index, &[range], Some(to));
    }
    if to != 0 && kernel.objects.endpoints.get(kernel.endpoint_of(fd)?)?.connection().is_some() {
        return fail(Errno::ISCONN);
    }
    if length > i64::MAX as u64 {
        return fail(Errno::INVAL);
    }
    send(kernel, host.memory, fd, &[Range { address: buffer, length }], given as u32)
}

pub(super) fn sendmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, message, given, ..] = args;
    let [name, name_length, ranges, count, _, control_length, _] = header(host.memory, message)?;
    let index = kernel.endpoint_of(fd)?;
    if name != 0 && kernel.objects.endpoints.get(index)?.datagram().is_some() {
        let to = read_address(host.memory, name, name_length & 0xffff_ffff)?;
        let ranges = guest::ranges(host.memory, ranges, count)?;
        return datagram::send(kernel, host.memory, index, &ranges, Some(to));
    }
    if control_length != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let ranges = guest::ranges(host.memory, ranges, count)?;
    send(kernel, host.memory, fd, &ranges, given as u32)
}
