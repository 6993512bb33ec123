//! Sockets: listeners, connections that end at the host, connections of a guest to itself and to the
//! outside, and datagrams for the resolver.

mod address;
mod connect;
mod datagram;
mod options;
mod own;
mod transfer;

use address::{read_address, write_address};
pub(crate) use connect::connect;
pub(crate) use datagram::{recvmmsg, sendmmsg};
pub(crate) use transfer::{Received, receive, send};

use crate::{
    Errno, Host,
    calls::socket,
    files::{Description, flags},
    kernel::{Args, CallResult, DONE, Kernel, fail, value},
    objects::{Address, Connection, Datagram, Endpoint, Family, Far, Listening, State},
    readiness::Source,
    vfs::Node,
};

/// Calls on sockets of either kind.
macro_rules! calls {
    ($($name:ident => $pair:path, $own:path;)*) => {$(
        pub(crate) fn $name(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
            match kernel.files.get(args[0])?.node {
                Node::Endpoint(_) => $own(kernel, host, args),
                _ => $pair(kernel, host, args),
            }
        }
    )*}
}

calls! {
    sendto => socket::sendto, transfer::sendto;
    recvfrom => socket::recvfrom, transfer::recvfrom;
    sendmsg => socket::sendmsg, transfer::sendmsg;
    recvmsg => socket::recvmsg, transfer::recvmsg;
    getsockopt => socket::getsockopt, options::getsockopt;
    setsockopt => socket::setsockopt, options::setsockopt;
    getsockname => socket::name, own_getsockname;
    getpeername => socket::name, own_getpeername;
    shutdown => socket::shutdown, own_shutdown;
}

/// The ports that are given out (RFC 6335 §6).
const FIRST_FREE_PORT: u16 = 49_152;

impl Kernel {
    /// The socket that a descriptor is.
    fn endpoint_of(&self, fd: u64) -> Result<usize, Errno> {
        match self.files.get(fd)?.node {
            Node::Endpoint(index) => Ok(index),
            // One end of a pair has its address already.
            Node::Socket(_) => Err(Errno::OPNOTSUPP),
            _ => Err(Errno::NOTSOCK),
        }
    }

    /// Whether no other socket has this address.
    fn is_free(&self, address: &Address) -> bool {
        let mut sockets = self.objects.endpoints.iter();
        // Connections have their listener's.
        !sockets.any(|(_, socket)| {
            socket.connection().is_none()
                && socket.local.as_ref().is_some_and(|other| other.collides(address))
        })
    }

    /// The address with a port that no other socket has, of either family.
    fn free_port(&self, address: &Address) -> Result<Address, Errno> {
        let sockets = || self.objects.endpoints.iter().map(|(_, socket)| socket);
        let is_free = |port: &u16| {
            sockets().all(|socket| socket.local.as_ref().and_then(Address::port) != Some(*port))
        };
        // There are far fewer sockets than ports.
        let port = (FIRST_FREE_PORT..=u16::MAX).find(is_free).ok_or(Errno::ADDRINUSE)?;
        Ok(address.with_port(port))
    }

    /// A description is gone, and its socket with it.
    pub(crate) fn close_endpoint(&mut self, index: usize) {
        let Ok(socket) = self.objects.endpoints.change(index) else { return };
        match &mut socket.state {
            State::Connected(Connection { far: Far::Own(peer), input, .. }) => {
                let (peer, is_unread) = (*peer, !input.is_empty());
                self.objects.endpoints.remove(index);
                self.lose_peer(peer, is_unread);
            }
            // As long as something is on its way to the outside.
            State::Connected(Connection { far: Far::Outside(_), .. }) => {
                if let Some(connection) = socket.connection_mut() {
                    connection.guest_gone = true;
                    connection.writes_no_more = true;
                }
                self.output = true;
            }
            State::Connecting(_) => {
                self.objects.endpoints.remove(index);
                // To let go of the link.
                self.output = true;
            }
            State::Connected(connection)
                if connection.far == Far::Host && !connection.host_gone =>
            {
                // The host takes what is on its way, and then lets go.
                connection.guest_gone = true;
                connection.writes_no_more = true;
                self.output = true;
            }
            State::Listening(listening) => {
                for pending in std::mem::take(&mut listening.pending) {
                    self.close_endpoint(pending);
                }
                self.objects.endpoints.remove(index);
            }
            _ => drop(self.objects.endpoints.remove(index)),
        }
    }
}

pub(crate) fn socket(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const STREAM: u32 = 1;
    const KIND: u32 = 0xf;
    const DATAGRAM: u32 = 2;
    const TCP: u32 = 6;
    const UDP: u32 = 17;
    let [family, kind, protocol, ..] = args.map(|argument| argument as u32);
    if kind & !(KIND | flags::NONBLOCK | flags::CLOSE_ON_EXEC) != 0 {
        return fail(Errno::INVAL);
    }
    let family = u16::try_from(family).ok().and_then(Family::from_number);
    let Some(family) = family else { return fail(Errno::AFNOSUPPORT) };
    let own = match kind & KIND {
        STREAM => TCP,
        DATAGRAM if family != Family::Unix => UDP,
        _ => return fail(Errno::ACCESS),
    };
    if protocol != 0 && (protocol != own || family == Family::Unix) {
        return fail(Errno::PROTONOSUPPORT);
    }
    kernel.expect_free(1)?;
    let mut socket = Endpoint::new(family);
    if own == UDP {
        socket.state = State::Datagram(Datagram::new(kernel.outside.number()));
    }
    let node = Node::Endpoint(kernel.objects.endpoints.insert(socket));
    let description = Description::new(node, flags::READ_WRITE | kind & flags::NONBLOCK);
    value(kernel.install(description, kind & flags::CLOSE_ON_EXEC != 0)?)
}

pub(crate) fn bind(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let index = kernel.endpoint_of(args[0])?;
    let address = read_address(host.memory, args[1], args[2])?;
    let socket = kernel.objects.endpoints.get(index)?;
    if socket.family != address.family() {
        return fail(if socket.family == Family::Unix { Errno::INVAL } else { Errno::AFNOSUPPORT });
    }
    if socket.local.is_some() || !matches!(socket.state, State::Fresh | State::Datagram(_)) {
        return fail(Errno::INVAL);
    }
    let address = if address.port() == Some(0) { kernel.free_port(&address)? } else { address };
    let shares = socket.shares_port();
    if !shares && !kernel.is_free(&address) {
        return fail(Errno::ADDRINUSE);
    }
    kernel.objects.endpoints.change(index)?.local = Some(address);
    DONE
}

pub(crate) fn listen(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let index = kernel.endpoint_of(args[0])?;
    let socket = kernel.objects.endpoints.get(index)?;
    match &socket.state {
        State::Connected(_) | State::Connecting(_) => return fail(Errno::INVAL),
        State::Datagram(_) => return fail(Errno::OPNOTSUPP),
        State::Listening(_) => return DONE,
        State::Fresh => {}
    }
    let address = match &socket.local {
        Some(address) => address.clone(),
        None if socket.family == Family::Unix => return fail(Errno::INVAL),
        None => kernel.free_port(&socket.family.unspecified())?,
    };
    let listeners = kernel.objects.endpoints.iter().filter_map(|(_, socket)| socket.listening());
    let order = listeners.map(|listening| listening.order + 1).max().unwrap_or(0);
    let socket = kernel.objects.endpoints.change(index)?;
    socket.local = Some(address);
    socket.state = State::Listening(Listening { order, ..Listening::default() });
    DONE
}

/// `accept` of both instruction sets.
pub(crate) fn accept(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    accept4(kernel, host, [args[0], args[1], args[2], 0, 0, 0])
}

pub(crate) fn accept4(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, address, length, given, ..] = args;
    let given = given as u32;
    if given & !(flags::NONBLOCK | flags::CLOSE_ON_EXEC) != 0 {
        return fail(Errno::INVAL);
    }
    let index = kernel.endpoint_of(fd)?;
    let Some(listening) = kernel.objects.endpoints.get(index)?.listening() else {
        return fail(Errno::INVAL);
    };
    let Some(pending) = listening.pending.front().copied() else {
        if kernel.files.get(fd)?.flags & flags::NONBLOCK != 0 {
            return fail(Errno::AGAIN);
        }
        let limit = kernel.objects.endpoints.get(index)?.receive_limit();
        let flow = kernel.wait_at_most(Source::Endpoint(index), limit);
        return Ok(flow.ok_or(Errno::AGAIN)?);
    };
    kernel.expect_free(1)?;
    let peer = kernel.objects.endpoints.get(pending)?.peer();
    write_address(host.memory, address, length, &peer)?;
    if let Some(listening) = kernel.objects.endpoints.change(index)?.listening_mut() {
        listening.pending.pop_front();
    }
    if let Some(connection) = kernel.objects.endpoints.change(pending)?.connection_mut() {
        connection.accepted = true;
    }
    let status = flags::READ_WRITE | given & flags::NONBLOCK;
    let description = Description::new(Node::Endpoint(pending), status);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

fn own_getsockname(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let socket = kernel.objects.endpoints.get(kernel.endpoint_of(args[0])?)?;
    write_address(host.memory, args[1], args[2], &socket.name())?;
    DONE
}

fn own_getpeername(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let socket = kernel.objects.endpoints.get(kernel.endpoint_of(args[0])?)?;
    if socket.connection().is_none() && (socket.datagram().is_none() || socket.remote.is_none()) {
        return fail(Errno::NOTCONN);
    }
    write_address(host.memory, args[1], args[2], &socket.peer())?;
    DONE
}

fn own_shutdown(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    const READ: u32 = 0;
    const WRITE: u32 = 1;
    const BOTH: u32 = 2;
    let index = kernel.endpoint_of(args[0])?;
    let how = args[1] as u32;
    if how > BOTH {
        return fail(Errno::INVAL);
    }
    let socket = kernel.objects.endpoints.change(index)?;
    match &mut socket.state {
        State::Connected(connection) => {
            connection.reads_no_more |= how != WRITE;
            connection.writes_no_more |= how != READ;
            if let Some(peer) = connection.own_peer() {
                kernel.tell_peer_of_shutdown(peer, how != WRITE, how != READ);
            }
        }
        // Who waits for a connection is woken and told.
        State::Listening(listening) if how != WRITE => {
            let pending = std::mem::take(&mut listening.pending);
            socket.state = State::Fresh;
            pending.into_iter().for_each(|index| kernel.close_endpoint(index));
        }
        State::Listening(_) => {}
        State::Datagram(_) if socket.remote.is_some() => return DONE,
        State::Fresh | State::Connecting(_) | State::Datagram(_) => return fail(Errno::NOTCONN),
    }
    let socket = kernel.objects.endpoints.change(index)?;
    socket.has_input();
    socket.has_room();
    kernel.output = true;
    kernel.notify(Source::Endpoint(index));
    DONE
}
