//! Connections of a guest to itself.

use crate::{
    Errno,
    kernel::{CallResult, DONE, Kernel},
    objects::{Address, Connection, Endpoint, Family, Far, Listening, State},
    readiness::Source,
};

/// The most connections that a listener has and the guest has not accepted.
const MOST_PENDING: usize = 128;

impl Listening {
    fn is_full(&self) -> bool {
        self.pending.len() >= MOST_PENDING
    }
}

impl Kernel {
    /// The other socket of a connection of the guest to itself.
    pub(crate) fn own_peer(&self, socket: &Endpoint) -> Option<&Endpoint> {
        self.objects.endpoints.get(socket.connection()?.own_peer()?).ok()
    }

    /// The socket of the guest that listens at an address: the first to listen.
    pub(super) fn own_listener(&self, address: &Address) -> Option<usize> {
        let sockets = self.objects.endpoints.iter();
        let listening = sockets.filter_map(|(index, socket)| {
            let order = socket.listening()?.order;
            let local = socket.local.as_ref()?;
            listens_at(local, address).then_some((order, index))
        });
        listening.min().map(|(_, index)| index)
    }

    /// Connects a socket to a listener of the same guest, at once.
    pub(super) fn connect_own(&mut self, index: usize, listener: usize, to: Address) -> CallResult {
        let endpoints = &self.objects.endpoints;
        let at = endpoints.get(listener)?;
        let is_full = at.listening().is_some_and(Listening::is_full);
        // Those that nobody has accepted have no descriptor whose limit would bound them.
        let most = 2 * self.fixed.limits.descriptors as usize;
        if is_full || endpoints.iter().count() >= most {
            return Err(Errno::CONNREFUSED.into());
        }
        let (family, mut accepted) = (at.family, at.connected());
        let local = match (&endpoints.get(index)?.local, family) {
            (Some(local), _) => local.clone().or_loopback(),
            (None, Family::Unix) => family.unspecified(),
            (None, _) => self.free_port(&to)?,
        };
        accepted.local = Some(to.clone().seen_by(family));
        accepted.remote = Some(local.clone().seen_by(family));
        accepted.state = Self::own_end(index);
        let other = self.objects.endpoints.insert(accepted);
        let socket = self.objects.endpoints.change(index)?;
        socket.state = Self::own_end(other);
        socket.remote = Some(to);
        if family != Family::Unix {
            socket.local = Some(local);
        }
        socket.has_room();
        self.notify(Source::Endpoint(index));
        let at = self.objects.endpoints.change(listener)?;
        at.has_input();
        if let Some(listening) = at.listening_mut() {
            listening.pending.push_back(other);
        }
        self.notify(Source::Endpoint(listener));
        DONE
    }

    fn own_end(peer: usize) -> State {
        State::Connected(Connection { far: Far::Own(peer), ..Connection::default() })
    }

    /// Why nobody listens at a Unix address.
    pub(super) fn unix_failure(&self, address: &Address) -> Errno {
        let Address::Unix(name) = address else { return Errno::CONNREFUSED };
        let is_bound = || {
            self.objects.endpoints.iter().any(|(_, socket)| socket.local.as_ref() == Some(address))
        };
        // A name without a path is in no directory.
        if name.first() == Some(&0) || is_bound() { Errno::CONNREFUSED } else { Errno::NOENT }
    }

    /// How many bytes can be written to a connection now.
    pub(super) fn room_to_send(&self, index: usize) -> Result<usize, Errno> {
        let socket = self.objects.endpoints.get(index)?;
        let connection = socket.connection().ok_or(Errno::NOTCONN)?;
        Ok(connection.room(self.own_peer(socket).and_then(Endpoint::connection)))
    }

    /// Puts bytes for which there is room where the other end of a connection finds them.
    pub(super) fn put_sent(&mut self, index: usize, bytes: &[u8]) -> Result<(), Errno> {
        let socket = self.objects.endpoints.get(index)?;
        let connection = socket.connection().ok_or(Errno::NOTCONN)?;
        let Some(peer) = connection.own_peer() else {
            if let Some(connection) = self.objects.endpoints.change(index)?.connection_mut() {
                if connection.far == Far::Nobody {
                    // Whom it is for says that it is gone.
                    connection.host_gone = true;
                    return Ok(());
                }
                connection.output.put(bytes);
                // What is for the outside goes when the guest waits.
                self.output |= connection.far == Far::Host;
            }
            return Ok(());
        };
        let socket = self.objects.endpoints.change(peer)?;
        if let Some(connection) = socket.connection_mut()
            && !connection.reads_no_more
        {
            connection.input.put(bytes);
            socket.has_input();
            self.notify(Source::Endpoint(peer));
        }
        Ok(())
    }

    /// A socket that the guest is connected to by itself has been read from.
    pub(super) fn tell_peer_of_room(&mut self, peer: usize) {
        if let Ok(socket) = self.objects.endpoints.change(peer) {
            socket.has_room();
            self.notify(Source::Endpoint(peer));
        }
    }

    /// The other end reads, or writes, nothing more.
    pub(super) fn tell_peer_of_shutdown(&mut self, peer: usize, reads: bool, writes: bool) {
        let Ok(socket) = self.objects.endpoints.change(peer) else { return };
        let is_unix = socket.family == Family::Unix;
        if let Some(connection) = socket.connection_mut() {
            connection.input_over |= writes;
            // Over TCP, nobody learns that the other end does not read.
            connection.host_gone |= reads && is_unix;
        }
        socket.has_input();
        socket.has_room();
        self.notify(Source::Endpoint(peer));
    }

    /// The other end is closed, with something of what it was sent unread or not.
    pub(super) fn lose_peer(&mut self, peer: usize, is_unread: bool) {
        let Ok(socket) = self.objects.endpoints.change(peer) else { return };
        let is_known = is_unread || socket.family == Family::Unix;
        if let Some(connection) = socket.connection_mut() {
            connection.far = Far::Nobody;
            connection.input_over = true;
            // Over TCP, who has heard only that nothing more comes may still write.
            connection.host_gone |= is_known;
            connection.input_broken |= is_unread;
        }
        socket.has_input();
        socket.has_room();
        self.notify(Source::Endpoint(peer));
    }
}

/// Whether a listener that is bound to one address gets connections to another.
fn listens_at(bound: &Address, to: &Address) -> bool {
    let (Some(ip), Some(wanted)) = (bound.ip(), to.ip()) else { return bound == to };
    let fits = match bound {
        // Of both families, as servers have it.
        Address::V6(any, _) if any.is_unspecified() => wanted.is_loopback(),
        Address::V4(any, _) if any.is_unspecified() => wanted.is_ipv4() && wanted.is_loopback(),
        _ => ip == wanted,
    };
    fits && bound.port() == to.port()
}
