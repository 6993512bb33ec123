//! Reading, writing and seeking.

use std::time::Instant;

use sandtide_abi::file::FLAG_GATHER;

use crate::{
    Errno, GuestMemory, Host,
    calls::{exchange, network, socket},
    files::flags,
    fresh,
    guest::{self, CHUNK, Range},
    kernel::{Args, CallResult, Kernel, Stop, fail, value},
    readiness::Source,
    signals::SIGPIPE,
    vfs::{Device, Node},
};

pub(crate) fn read(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    transfer_in(kernel, host, args[0], &single(args[1], args[2])?, None)
}

pub(crate) fn readv(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let ranges = guest::ranges(host.memory, args[1], args[2])?;
    transfer_in(kernel, host, args[0], &ranges, None)
}

pub(crate) fn pread64(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let position = position(args[3])?;
    transfer_in(kernel, host, args[0], &single(args[1], args[2])?, Some(position))
}

pub(crate) fn preadv(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let position = position(args[3])?;
    let ranges = guest::ranges(host.memory, args[1], args[2])?;
    transfer_in(kernel, host, args[0], &ranges, Some(position))
}

pub(crate) fn write(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let range = single(args[1], args[2])?;
    let whole = [Range { length: args[2], ..range[0] }];
    // Few programs write what is left when a connection takes a part of it.
    let is_connection = match kernel.files.get(args[0])?.node {
        Node::Exchange(file) => return exchange::write(kernel, args, file, 0),
        Node::Endpoint(_) => true,
        _ => false,
    };
    transfer_out(kernel, host, args[0], if is_connection { &whole } else { &range }, None)
}

pub(crate) fn writev(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if let Node::Exchange(file) = kernel.files.get(args[0])?.node {
        return exchange::write(kernel, args, file, FLAG_GATHER);
    }
    let ranges = guest::ranges(host.memory, args[1], args[2])?;
    transfer_out(kernel, host, args[0], &ranges, None)
}

pub(crate) fn pwrite64(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let position = position(args[3])?;
    transfer_out(kernel, host, args[0], &single(args[1], args[2])?, Some(position))
}

pub(crate) fn pwritev(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let position = position(args[3])?;
    let ranges = guest::ranges(host.memory, args[1], args[2])?;
    transfer_out(kernel, host, args[0], &ranges, Some(position))
}

/// `preadv2` without flags; at -1, as `readv`.
pub(crate) fn preadv2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[5] as u32 != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    if args[3] == u64::MAX { readv(kernel, host, args) } else { preadv(kernel, host, args) }
}

/// `pwritev2` without flags; at -1, as `writev`.
pub(crate) fn pwritev2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[5] as u32 != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    if args[3] == u64::MAX { writev(kernel, host, args) } else { pwritev(kernel, host, args) }
}

/// `sendfile`, `splice`: whoever asks can copy by reading and writing, and does.
pub(crate) fn no_shortcut(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.files.get(args[0])?;
    fail(Errno::INVAL)
}

fn position(argument: u64) -> Result<u64, Errno> {
    if argument > i64::MAX as u64 { Err(Errno::INVAL) } else { Ok(argument) }
}

fn single(address: u64, length: u64) -> Result<[Range; 1], Errno> {
    if length > i64::MAX as u64 {
        return Err(Errno::INVAL);
    }
    Ok([Range { address, length: length.min(CHUNK) }])
}

/// What a part of a transfer did.
pub(super) enum Part {
    Moved(usize),
    /// Nothing can be moved before this changes.
    Wait(Source),
}

fn transfer_in(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    fd: u64,
    ranges: &[Range],
    position: Option<u64>,
) -> CallResult {
    let description = kernel.files.get(fd)?;
    if !description.can_read() {
        return fail(Errno::BADF);
    }
    let (node, nonblock) = (description.node.clone(), description.flags & flags::NONBLOCK != 0);
    let seeks = is_seekable(&node);
    if position.is_some() && !seeks {
        return fail(Errno::SPIPE);
    }
    if let Node::Endpoint(_) = node {
        return network::receive(kernel, host.memory, fd, ranges, 0).map(network::Received::flow);
    }
    if let Node::Exchange(file) = node {
        return exchange::read(file, ranges, !nonblock);
    }
    if let Node::Device(Device::Fresh) = node {
        return fresh::read(kernel, host, fd, ranges);
    }
    if let Node::Socket(index) = node {
        return socket::read(kernel, host.memory, index, ranges, !nonblock);
    }
    let start = position.unwrap_or(description.offset);
    let mut total = 0;
    for range in ranges.iter().filter(|range| range.length > 0) {
        let moved = match read_part(kernel, host, &node, *range, start.saturating_add(total)) {
            Ok(Part::Moved(moved)) => moved,
            Ok(Part::Wait(_)) if total > 0 => break,
            Ok(Part::Wait(_)) if nonblock => return fail(Errno::AGAIN),
            Ok(Part::Wait(source)) => return Ok(kernel.wait_for(source)),
            Err(Stop::Errno(_)) if total > 0 => break,
            Err(stop) => return Err(stop),
        };
        total += moved as u64;
        // What a terminal has given must not wait for more of it.
        if (moved as u64) < range.length || matches!(node, Node::Stdin) {
            break;
        }
    }
    if seeks && position.is_none() && total > 0 {
        kernel.files.change().get_mut(fd)?.offset = start.saturating_add(total);
    }
    value(total)
}

pub(super) fn is_seekable(node: &Node) -> bool {
    matches!(node, Node::Text(_) | Node::Host(_) | Node::Scratch(_) | Node::Device(_))
}

fn read_part(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    node: &Node,
    range: Range,
    offset: u64,
) -> Result<Part, Stop> {
    let Range { address, length } = range;
    match node {
        Node::Stdin => {
            let buffer = host.memory.view_mut(address, length)?;
            match &mut host.stdin {
                Some(stdin) => match stdin.read(buffer) {
                    Ok(count) => Ok(Part::Moved(count.min(buffer.len()))),
                    Err(_) => Err(Errno::IO.into()),
                },
                None => Ok(Part::Moved(0)),
            }
        }
        Node::Device(device) => {
            Ok(Part::Moved(device.read(host.memory.view_mut(address, length)?, host.random)))
        }
        Node::PipeReader(index) => read_pipe(kernel, host.memory, *index, range),
        Node::Counter(index) => read_counter(kernel, host.memory, *index, range),
        Node::Text(_) | Node::Host(_) | Node::Scratch(_) => {
            // Do not touch more pages than there are bytes.
            let length = length.min(kernel.bytes_behind(node, offset)?);
            if length == 0 {
                return Ok(Part::Moved(0));
            }
            let buffer = host.memory.view_mut(address, length)?;
            Ok(Part::Moved(kernel.read_node(node, buffer, offset)?))
        }
        Node::MountDirectory => Err(Errno::ISDIR.into()),
        Node::Timer(index) => read_timer(kernel, host.memory, *index, range),
        Node::Signals(mask) => super::signalfd::read(kernel, host.memory, *mask, range),
        // These are read whole.
        Node::Exchange(_) | Node::Epoll(_) | Node::Socket(_) | Node::Endpoint(_) => {
            Err(Errno::INVAL.into())
        }
        Node::Console(_) | Node::PipeWriter(_) => Err(Errno::BADF.into()),
    }
}

impl Kernel {
    /// How many bytes a file has from an offset on.
    pub(super) fn bytes_behind(&self, node: &Node, offset: u64) -> Result<u64, Errno> {
        let size = match node {
            Node::Text(text) => text.len() as u64,
            Node::Host(file) if file.is_directory => return Err(Errno::ISDIR),
            Node::Host(file) => file.stat()?.size,
            Node::Scratch(id) => self.scratch.size(*id)?,
            _ => 0,
        };
        Ok(size.saturating_sub(offset))
    }

    /// Reads a file at an offset.
    pub(super) fn read_node(
        &self,
        node: &Node,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        match node {
            Node::Text(text) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
                let length = buffer.len().min(text.len() - start);
                buffer[..length].copy_from_slice(&text[start..start + length]);
                Ok(length)
            }
            Node::Host(file) => file.read_at(buffer, offset),
            Node::Scratch(id) => self.scratch.read_at(*id, buffer, offset),
            _ => Ok(0),
        }
    }
}

fn read_pipe(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    range: Range,
) -> Result<Part, Stop> {
    let pipe = kernel.objects.pipes.get(index)?;
    if pipe.len() == 0 {
        let at_end = pipe.writers == 0;
        return Ok(if at_end { Part::Moved(0) } else { Part::Wait(Source::Pipe(index)) });
    }
    let length = range.length.min(pipe.len() as u64);
    let buffer = memory.view_mut(range.address, length)?;
    kernel.objects.pipes.change(index)?.take(buffer);
    kernel.notify(Source::Pipe(index));
    Ok(Part::Moved(length as usize))
}

/// The size of what is read from and written to an eventfd, and read from a timerfd.
const COUNTER: u64 = 8;

fn read_counter(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    range: Range,
) -> Result<Part, Stop> {
    if range.length < COUNTER {
        return Err(Errno::INVAL.into());
    }
    let source = Source::Counter(index);
    let Some(number) = kernel.objects.counters.get(index)?.available() else {
        return Ok(Part::Wait(source));
    };
    guest::write_words(memory, range.address, &[number])?;
    kernel.objects.counters.change(index)?.take(number);
    kernel.notify(source);
    Ok(Part::Moved(COUNTER as usize))
}

fn read_timer(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    range: Range,
) -> Result<Part, Stop> {
    if range.length < COUNTER {
        return Err(Errno::INVAL.into());
    }
    let now = Instant::now();
    if !kernel.objects.timers.get(index)?.has_happened(now) {
        return Ok(Part::Wait(Source::Timer(index)));
    }
    // Look first: a bad pointer takes nothing.
    memory.view_mut(range.address, COUNTER)?;
    let times = kernel.objects.timers.change(index)?.take(now);
    guest::write_words(memory, range.address, &[times])?;
    Ok(Part::Moved(COUNTER as usize))
}

fn write_counter(kernel: &mut Kernel, bytes: &[u8], index: usize) -> Result<Part, Stop> {
    let number = bytes.first_chunk().copied().map(u64::from_le_bytes).ok_or(Errno::INVAL)?;
    let source = Source::Counter(index);
    if !kernel.objects.counters.get(index)?.has_room(number)? {
        return Ok(Part::Wait(source));
    }
    kernel.objects.counters.change(index)?.add(number);
    kernel.notify(source);
    Ok(Part::Moved(COUNTER as usize))
}

fn write_pipe(kernel: &mut Kernel, bytes: &[u8], index: usize) -> Result<Part, Stop> {
    let pipe = kernel.objects.pipes.get(index)?;
    if pipe.readers == 0 {
        let running = kernel.threads.running();
        kernel.send_signal(Some(running), SIGPIPE);
        return Err(Errno::PIPE.into());
    }
    let source = Source::Pipe(index);
    match pipe.room_for(bytes.len()) {
        0 => Ok(Part::Wait(source)),
        length => {
            kernel.objects.pipes.change(index)?.put(&bytes[..length]);
            kernel.notify(source);
            Ok(Part::Moved(length))
        }
    }
}

fn transfer_out(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    fd: u64,
    ranges: &[Range],
    position: Option<u64>,
) -> CallResult {
    let description = kernel.files.get(fd)?;
    if !description.can_write() {
        return fail(Errno::BADF);
    }
    let status = description.flags;
    let node = description.node.clone();
    let seeks = is_seekable(&node);
    if position.is_some() && !seeks {
        return fail(Errno::SPIPE);
    }
    if let Node::Endpoint(_) = node {
        return network::send(kernel, host.memory, fd, ranges, 0);
    }
    if let Node::Socket(index) = node {
        let waits = status & flags::NONBLOCK == 0;
        return socket::write(kernel, host.memory, index, ranges, waits);
    }
    let start = match &node {
        Node::Scratch(id) if status & flags::APPEND != 0 => kernel.scratch.size(*id)?,
        _ => position.unwrap_or(description.offset),
    };
    let mut total = 0;
    for range in ranges.iter().filter(|range| range.length > 0) {
        let moved = match write_part(kernel, host, &node, *range, start.saturating_add(total)) {
            Ok(Part::Moved(moved)) => moved,
            Ok(Part::Wait(_)) if total > 0 => break,
            Ok(Part::Wait(_)) if status & flags::NONBLOCK != 0 => return fail(Errno::AGAIN),
            Ok(Part::Wait(source)) => return Ok(kernel.wait_for(source)),
            Err(Stop::Errno(_)) if total > 0 => break,
            Err(stop) => return Err(stop),
        };
        total += moved as u64;
        if (moved as u64) < range.length {
            break;
        }
    }
    if seeks && position.is_none() && total > 0 {
        kernel.files.change().get_mut(fd)?.offset = start.saturating_add(total);
    }
    value(total)
}

fn write_part(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    node: &Node,
    range: Range,
    offset: u64,
) -> Result<Part, Stop> {
    let bytes = host.memory.view(range.address, range.length)?;
    match node {
        Node::Console(stream) => host.console.write(*stream, bytes),
        Node::Device(device) => device.write()?,
        Node::Scratch(id) => {
            let now = super::metadata::now();
            kernel.scratch.change().write_at(*id, bytes, offset, now)?;
        }
        Node::PipeWriter(index) => return write_pipe(kernel, bytes, *index),
        Node::Counter(index) => return write_counter(kernel, bytes, *index),
        Node::Epoll(_) | Node::Timer(_) | Node::Signals(_) => return Err(Errno::INVAL.into()),
        _ => return Err(Errno::BADF.into()),
    }
    Ok(Part::Moved(bytes.len()))
}

pub(crate) fn lseek(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const SET: u32 = 0;
    const CURRENT: u32 = 1;
    const END: u32 = 2;
    const DATA: u32 = 3;
    const HOLE: u32 = 4;
    let [fd, offset, whence, ..] = args;
    let offset = offset as i64;
    let description = kernel.files.get(fd)?;
    let node = &description.node;
    if matches!(node, Node::Counter(_) | Node::Timer(_) | Node::Signals(_) | Node::Epoll(_)) {
        // As on Linux: nothing happens.
        return value(0u32);
    }
    let is_directory = kernel.node_is_directory(node);
    if !is_seekable(node) && !is_directory {
        return fail(Errno::SPIPE);
    }
    let size = if is_directory { 0 } else { kernel.bytes_behind(node, 0)? };
    let base = match whence as u32 {
        SET => 0,
        CURRENT => description.offset as i64,
        END => size as i64,
        // Files without holes: data up to the end, and a hole there.
        DATA | HOLE if offset < 0 || offset as u64 >= size => return fail(Errno::NXIO),
        DATA => 0,
        HOLE => size as i64 - offset,
        _ => return fail(Errno::INVAL),
    };
    let new = base.checked_add(offset).ok_or(Errno::OVERFLOW)?;
    let new = u64::try_from(new).map_err(|_| Errno::INVAL)?;
    if new != description.offset {
        let description = kernel.files.change().get_mut(fd)?;
        description.offset = new;
        if new == 0 {
            // `rewinddir` looks again.
            description.listing = None;
        }
    }
    value(new)
}
