//! Datagrams: to the resolver and back. Programs also connect such sockets only to learn which of their
//! own addresses they would be sent from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{
    address::{read_address, write_address},
    recvmsg, sendmsg,
    transfer::{Received, message},
};
use crate::{
    Errno, GuestMemory, Host,
    guest::{self, Range},
    kernel::{Args, CallResult, DONE, Flow, Kernel, Stop, fail, value},
    objects::{Address, Family},
    readiness::Source,
};

/// Where the resolver is: what `/etc/resolv.conf` says.
const RESOLVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)), 53);

/// The longest query that is taken.
const LONGEST: u64 = 4096;

/// The most messages of one call.
const MOST_MESSAGES: u64 = 1024;

pub(super) fn connect(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    index: usize,
    args: Args,
) -> CallResult {
    const UNSPECIFIED: [u8; 2] = [0; 2];
    if args[2] as u32 >= 2 && guest::array(host.memory, args[1])? == UNSPECIFIED {
        kernel.objects.endpoints.change(index)?.remote = None;
        return DONE;
    }
    let address = read_address(host.memory, args[1], args[2])?.or_loopback();
    let socket = kernel.objects.endpoints.get(index)?;
    if address.family() != socket.family {
        return fail(Errno::AFNOSUPPORT);
    }
    // Where names have addresses of both families, programs are to take the one that works for sure.
    if address.ip().is_some_and(|ip| ip.is_ipv6() && !ip.is_loopback()) {
        return fail(Errno::NETUNREACH);
    }
    let local = match &socket.local {
        Some(local) if local.ip().is_some_and(|ip| !ip.is_unspecified()) => local.clone(),
        Some(local) => address.own_towards().with_port(local.port().unwrap_or(0)),
        None => kernel.free_port(&address.own_towards())?,
    };
    let socket = kernel.objects.endpoints.change(index)?;
    (socket.local, socket.remote) = (Some(local), Some(address));
    DONE
}

/// Sends a datagram: `to` is where it says, or where the socket is connected to.
pub(super) fn send(
    kernel: &mut Kernel,
    memory: &dyn GuestMemory,
    index: usize,
    ranges: &[Range],
    to: Option<Address>,
) -> CallResult {
    let socket = kernel.objects.endpoints.get(index)?;
    let id = socket.datagram().ok_or(Errno::NOTCONN)?.id;
    let to = to.or_else(|| socket.remote.clone()).ok_or(Errno::DESTADDRREQ)?;
    if to.outside() != Some(RESOLVER) {
        kernel.outside.traffic.denied += 1;
        return fail(Errno::ACCESS);
    }
    let Some(network) = &kernel.fixed.network else { return fail(Errno::ACCESS) };
    let length: u64 = ranges.iter().fold(0, |sum, range| range.length.saturating_add(sum));
    if length > LONGEST {
        return fail(Errno::MSGSIZE);
    }
    let mut query = Vec::with_capacity(length as usize);
    for range in ranges.iter().filter(|range| range.length > 0) {
        query.extend_from_slice(memory.view(range.address, range.length)?);
    }
    let lookup = network.resolve(&query);
    kernel.outside.ask(index, id, lookup);
    kernel.output = true;
    value(length)
}

/// Receives a datagram, cut to the ranges.
pub(super) fn receive(
    kernel: &mut Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    ranges: &[Range],
    (given, must_not_wait): (u32, bool),
) -> Result<Received, Stop> {
    let socket = kernel.objects.endpoints.get(index)?;
    let datagram = socket.datagram().ok_or(Errno::NOTCONN)?;
    let Some(bytes) = datagram.first() else {
        if must_not_wait {
            return Err(Errno::AGAIN.into());
        }
        let limit = socket.receive_limit();
        let flow = kernel.wait_at_most(Source::Endpoint(index), limit);
        return Ok(Received::Waits(flow.ok_or(Errno::AGAIN)?));
    };
    let (whole, mut rest) = (bytes.len(), bytes);
    for range in ranges {
        let length = usize::try_from(range.length).unwrap_or(usize::MAX).min(rest.len());
        guest::write(memory, range.address, &rest[..length])?;
        rest = &rest[length..];
    }
    let (is_cut, taken) = (!rest.is_empty(), whole - rest.len());
    if given & message::PEEK == 0
        && let Some(datagram) = kernel.objects.endpoints.change(index)?.datagram_mut()
    {
        datagram.take_first();
    }
    let length = if given & message::TRUNCATE != 0 { whole } else { taken };
    Ok(Received::Message { length: length as u64, is_cut })
}

/// The address that answers come from, as a socket of this family sees it.
pub(super) fn resolver(family: Family) -> Address {
    let v4 = Address::V4(Ipv4Addr::new(127, 0, 0, 53), RESOLVER.port());
    v4.seen_by(family)
}

/// Writes where a datagram came from.
pub(super) fn write_source(
    kernel: &Kernel,
    memory: &mut dyn GuestMemory,
    index: usize,
    (address, length): (u64, u64),
) -> Result<(), Stop> {
    let family = kernel.objects.endpoints.get(index)?.family;
    write_address(memory, address, length, &resolver(family))
}

/// The size of `struct mmsghdr`, and where in it the length of a message stands.
const ENTRY: u64 = 64;
const LENGTH: u64 = 56;

pub(crate) fn sendmmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    several(kernel, host, args, sendmsg)
}

/// `recvmmsg`: waits for the first message only, and takes what is there behind it.
pub(crate) fn recvmmsg(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    several(kernel, host, args, recvmsg)
}

fn several(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
    one: fn(&mut Kernel, &mut Host<'_>, Args) -> CallResult,
) -> CallResult {
    let [fd, entries, count, given, ..] = args;
    let mut done = 0;
    for number in 0..(count & 0xffff_ffff).min(MOST_MESSAGES) {
        let entry = entries.wrapping_add(ENTRY * number);
        let waits = if number == 0 { 0 } else { u64::from(message::DONT_WAIT) };
        match one(kernel, host, [fd, entry, given | waits, 0, 0, 0]) {
            Ok(Flow::Value(length)) => {
                guest::write_u32(host.memory, entry.wrapping_add(LENGTH), length as u32)?;
                done += 1;
            }
            Err(Stop::Errno(_)) if done > 0 => break,
            other => return other,
        }
    }
    value(done as u64)
}
