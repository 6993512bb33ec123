//! What descriptions refer to that is neither a file nor a device.

mod counter;
mod datagram;
mod endpoint;
mod epoll;
mod pipe;
mod socket;
mod timer;

pub(crate) use counter::Counter;
pub(crate) use datagram::Datagram;
pub(crate) use endpoint::{
    Address, Blocked, CONNECTION_CAPACITY, Connection, Endpoint, Family, Far, LinkId, Listening,
    Setting, State,
};
pub(crate) use epoll::{Epoll, Watch, interest};
pub(crate) use pipe::{PIPE_CAPACITY, Pipe};
pub(crate) use socket::{SOCKET_CAPACITY, Socket, SocketKind};
pub(crate) use timer::{Alarm, Timer};

use serde::{Deserialize, Serialize};

use crate::arena::Arena;

/// The objects of a process. Each is there as long as a description refers to it, so the limit
/// for descriptors bounds them all; connections also as long as the host has its end of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Objects {
    pub(crate) pipes: Arena<Pipe>,
    pub(crate) counters: Arena<Counter>,
    pub(crate) epolls: Arena<Epoll>,
    pub(crate) timers: Arena<Timer>,
    pub(crate) sockets: Arena<Socket>,
    pub(crate) endpoints: Arena<Endpoint>,
}

impl Objects {
    pub(crate) fn has_changed(&self) -> bool {
        let Self { pipes, counters, epolls, timers, sockets, endpoints } = self;
        pipes.has_changed()
            || counters.has_changed()
            || epolls.has_changed()
            || timers.has_changed()
            || sockets.has_changed()
            || endpoints.has_changed()
    }

    /// Whether each can be what it says: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let is_open = |index: usize| self.endpoints.get(index).is_ok();
        let is_peer = |peer: usize| self.sockets.get(peer).is_ok();
        self.pipes.iter().all(|(_, pipe)| pipe.is_consistent())
            && self
                .sockets
                .iter()
                .all(|(_, socket)| socket.is_consistent() && socket.peer.is_none_or(is_peer))
            && self.epolls.iter().all(|(_, epoll)| epoll.is_consistent())
            && self.endpoints.iter().all(|(_, endpoint)| endpoint.is_consistent(is_open))
    }

    /// Restores what has changed.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) {
        let Self { pipes, counters, epolls, timers, sockets, endpoints } = snapshot;
        self.pipes.reset_from(pipes);
        self.counters.reset_from(counters);
        self.epolls.reset_from(epolls);
        self.timers.reset_from(timers);
        self.sockets.reset_from(sockets);
        self.endpoints.reset_from(endpoints);
    }
}
