//! Sockets with addresses: listeners, and connections to the host or between two of the guest's own.

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, Ipv6Addr},
};

use serde::{Deserialize, Serialize};

use super::Datagram;
use crate::readiness::{Edges, Readiness, condition};

/// Names a link to the outside; no other one of the same sandbox ever has the same.
pub(crate) type LinkId = u64;

/// The bytes that a connection holds each way.
pub(crate) const CONNECTION_CAPACITY: usize = 64 << 10;

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Address {
    V4(Ipv4Addr, u16),
    V6(Ipv6Addr, u16),
    /// A path, or a name behind a NUL; empty for a socket without one.
    Unix(Vec<u8>),
}

impl Address {
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Self::V4(_, port) | Self::V6(_, port) => Some(*port),
            Self::Unix(_) => None,
        }
    }

    /// Whether two sockets cannot both have these.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::V4(one, port), Self::V4(two, same)) => {
                port == same && (one == two || one.is_unspecified() || two.is_unspecified())
            }
            (Self::V6(one, port), Self::V6(two, same)) => {
                port == same && (one == two || one.is_unspecified() || two.is_unspecified())
            }
            (Self::Unix(one), Self::Unix(two)) => one == two,
            // Both at once is what servers do that ask for one family each.
            _ => false,
        }
    }
}

/// The families of addresses, as `socket` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Family {
    Unix,
    V4,
    V6,
}

impl Family {
    pub(crate) fn number(self) -> u16 {
        match self {
            Self::Unix => 1,
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    pub(crate) fn from_number(number: u16) -> Option<Self> {
        [Self::Unix, Self::V4, Self::V6].into_iter().find(|family| family.number() == number)
    }

    /// The address of a socket that was bound to none.
    pub(crate) fn unspecified(self) -> Address {
        match self {
            Self::Unix => Address::Unix(Vec::new()),
            Self::V4 => Address::V4(Ipv4Addr::UNSPECIFIED, 0),
            Self::V6 => Address::V6(Ipv6Addr::UNSPECIFIED, 0),
        }
    }
}

/// An option that a guest has set, to be told again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) level: u32,
    pub(crate) name: u32,
    pub(crate) value: [u8; 16],
    pub(crate) length: usize,
}

/// A socket: by itself, listening or connected, or for datagrams.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) family: Family,
    /// Where it is bound to.
    pub(crate) local: Option<Address>,
    /// The address of the other end, if that is not the host as a client.
    pub(crate) remote: Option<Address>,
    pub(crate) settings: Vec<Setting>,
    /// The number of an error that the guest is still to be told; 0 for none.
    pub(crate) error: i32,
    pub(crate) state: State,
    edges: Edges,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// Neither a listener nor connected.
    Fresh,
    Listening(Listening),
    /// On its way to the outside, over this link.
    Connecting(LinkId),
    Connected(Connection),
    Datagram(Datagram),
}

/// What is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Far {
    /// The host, which has connected.
    #[default]
    Host,
    /// Another socket of the guest. What is written to one is put into the other's input.
    Own(usize),
    /// Somebody outside, over this link.
    Outside(LinkId),
    /// Nobody any more.
    Nobody,
}

/// What a listener has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Listening {
    /// Which one it was to listen.
    pub(crate) order: u64,
    /// The connections that were not accepted.
    pub(crate) pending: VecDeque<usize>,
}

/// The guest's end of a connection, with what is on its way.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) far: Far,
    /// The call that has asked for it was not told that it was made.
    pub(crate) is_news: bool,
    pub(crate) input: Buffer,
    pub(crate) output: Buffer,
    /// Nothing more comes from the host.
    pub(crate) input_over: bool,
    /// And what the host was to send is lost.
    pub(crate) input_broken: bool,
    /// The host takes nothing more.
    pub(crate) host_gone: bool,
    /// The guest reads nothing more.
    pub(crate) reads_no_more: bool,
    /// The guest writes nothing more.
    pub(crate) writes_no_more: bool,
    /// The guest has closed its end.
    pub(crate) guest_gone: bool,
    pub(crate) accepted: bool,
    /// Bytes that the guest has read of the request at hand.
    pub(crate) read: u64,
    /// A call that waits until the host has taken what it has written so far.
    pub(crate) blocked: Option<Blocked>,
}

/// A call that writes and waits for room, having written a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blocked {
    /// The thread, where what it writes starts, and how long that is.
    pub(crate) call: (u32, u64, u64),
    /// How much of it is written.
    pub(crate) done: u64,
}

/// Bytes on their way.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// How many of them were taken.
    taken: usize,
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes.clone(), taken: self.taken }
    }

    /// Into the allocation that is there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { bytes, taken } = source;
        self.bytes.clone_from(bytes);
        self.taken = *taken;
    }
}

impl Buffer {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn is_consistent(&self) -> bool {
        self.taken <= self.bytes.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn room(&self) -> usize {
        CONNECTION_CAPACITY.saturating_sub(self.len())
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        if self.taken > 0 && self.bytes.len() + bytes.len() > self.bytes.capacity() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Drops the first bytes.
    pub(crate) fn take(&mut self, length: usize) {
        self.taken += length.min(self.len());
        if self.is_empty() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.taken = 0;
    }
}

impl Clone for Connection {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.clone_from(self);
        clone
    }

    fn clone_from(&mut self, source: &Self) {
        let Self { far, is_news, input, output, input_over, input_broken, host_gone, .. } = source;
        let Self { reads_no_more, writes_no_more, guest_gone, accepted, .. } = source;
        let Self { read, blocked, .. } = source;
        (self.far, self.is_news) = (*far, *is_news);
        self.input.clone_from(input);
        self.output.clone_from(output);
        (self.input_over, self.input_broken) = (*input_over, *input_broken);
        (self.host_gone, self.guest_gone) = (*host_gone, *guest_gone);
        (self.reads_no_more, self.writes_no_more) = (*reads_no_more, *writes_no_more);
        (self.accepted, self.read, self.blocked) = (*accepted, *read, *blocked);
    }
}

impl Clone for Endpoint {
    fn clone(&self) -> Self {
        Self {
            family: self.family,
            local: self.local.clone(),
            remote: self.remote.clone(),
            settings: self.settings.clone(),
            error: self.error,
            state: self.state.clone(),
            edges: self.edges,
        }
    }

    fn clone_from(&mut self, source: &Self) {
        let Self { family, local, remote, settings, error, state, edges } = source;
        self.family = *family;
        self.local.clone_from(local);
        self.remote.clone_from(remote);
        self.settings.clone_from(settings);
        self.error = *error;
        match (&mut self.state, state) {
            (State::Connected(own), State::Connected(other)) => own.clone_from(other),
            (own, other) => *own = other.clone(),
        }
        self.edges = *edges;
    }
}

impl Endpoint {
    pub(crate) fn new(family: Family) -> Self {
        let (settings, edges) = (Vec::new(), Edges::default());
        Self { family, local: None, remote: None, settings, error: 0, state: State::Fresh, edges }
    }

    /// The guest's end of a connection to a listener.
    pub(crate) fn connected(&self) -> Self {
        Self {
            local: self.local.clone(),
            settings: self.settings.clone(),
            state: State::Connected(Connection::default()),
            ..Self::new(self.family)
        }
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        match &self.state {
            State::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn connection_mut(&mut self) -> Option<&mut Connection> {
        match &mut self.state {
            State::Connected(connection) => Some(connection),
            _ => None,
        }
    }

    pub(crate) fn datagram(&self) -> Option<&Datagram> {
        match &self.state {
            State::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    pub(crate) fn datagram_mut(&mut self) -> Option<&mut Datagram> {
        match &mut self.state {
            State::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    pub(crate) fn listening(&self) -> Option<&Listening> {
        match &self.state {
            State::Listening(listening) => Some(listening),
            _ => None,
        }
    }

    pub(crate) fn listening_mut(&mut self) -> Option<&mut Listening> {
        match &mut self.state {
            State::Listening(listening) => Some(listening),
            _ => None,
        }
    }

    /// Whether this can be a socket: for what was read from a file. `is_open` says which sockets
    /// there are.
    pub(crate) fn is_consistent(&self, is_open: impl Fn(usize) -> bool) -> bool {
        let is_setting = |setting: &Setting| setting.length <= setting.value.len();
        self.settings.iter().all(is_setting)
            && match &self.state {
                State::Fresh | State::Connecting(_) | State::Datagram(_) => true,
                State::Listening(listening) => listening.pending.iter().copied().all(is_open),
                State::Connected(connection) => {
                    connection.input.is_consistent()
                        && connection.output.is_consistent()
                        && connection.own_peer().is_none_or(is_open)
                }
            }
    }

    /// There is something to read or to accept that was not there.
    pub(crate) fn has_input(&mut self) {
        self.edges.input += 1;
    }

    /// There is room to write that was not there.
    pub(crate) fn has_room(&mut self) {
        self.edges.output += 1;
    }

    /// What it can do, given the socket that it is connected to, if that is the guest's own.
    pub(crate) fn readiness(&self, peer: Option<&Self>) -> Readiness {
        let conditions = match &self.state {
            State::Fresh => condition::OUTPUT | condition::HANG_UP,
            // As over TCP before the other end has answered.
            State::Connecting(_) => 0,
            State::Datagram(datagram) => datagram.conditions(),
            State::Listening(listening) if listening.pending.is_empty() => 0,
            State::Listening(_) => condition::INPUT,
            State::Connected(connection) => connection.conditions(peer.and_then(Self::connection)),
        };
        let failed = if self.error == 0 { 0 } else { FAILED };
        Readiness { conditions: conditions | failed, edges: self.edges }
    }
}

/// What a socket can do about which the guest is to be told of an error.
const FAILED: u32 =
    condition::INPUT | condition::READ_HANG_UP | condition::ERROR | condition::HANG_UP;

impl Connection {
    /// Whether a read comes to an end behind what is there.
    pub(crate) fn is_at_end(&self) -> bool {
        self.input_over || self.reads_no_more
    }

    /// Whether a write cannot get anywhere.
    pub(crate) fn is_write_over(&self) -> bool {
        self.writes_no_more || self.host_gone
    }

    /// The socket of the guest's own that it is connected to.
    pub(crate) fn own_peer(&self) -> Option<usize> {
        match self.far {
            Far::Own(index) => Some(index),
            Far::Host | Far::Outside(_) | Far::Nobody => None,
        }
    }

    /// How many bytes can be written now.
    pub(crate) fn room(&self, peer: Option<&Self>) -> usize {
        match peer {
            // What nobody will read takes no room.
            Some(peer) if peer.reads_no_more => CONNECTION_CAPACITY,
            Some(peer) => peer.input.room(),
            None => self.output.room(),
        }
    }

    fn conditions(&self, peer: Option<&Self>) -> u32 {
        let input = !self.input.is_empty() || self.is_at_end();
        let output = self.is_write_over() || self.room(peer) > 0;
        let mut conditions = 0;
        for (holds, condition) in [
            (input, condition::INPUT),
            (output, condition::OUTPUT),
            (self.is_at_end(), condition::READ_HANG_UP),
            (self.is_at_end() && self.is_write_over(), condition::HANG_UP),
            (self.input_broken, condition::ERROR),
        ] {
            if holds {
                conditions |= condition;
            }
        }
        conditions
    }
}
