//! Connections to the outside: the host moves what a guest has written, and what has come for it.
//!
//! ```text
//!   guest  connect ───────────────▶ Link ◀─ poll_connected ─┐
//!          read  ◀─ input  ◀─┐                              │
//!          write ─▶ output ──┴──── Link ◀─ poll_read, poll_write ── Process::exchange_outside
//! ```
//!
//! Links are no part of a snapshot: a clone has none, and what was connected there is found reset. A
//! reset closes those that were made since.

use std::{
    fmt, mem,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use sandtide_engine::{Link, Lookup, NetworkError, Traffic};

use crate::{
    Cpu, Errno, Process,
    kernel::Kernel,
    objects::{CONNECTION_CAPACITY, Connection, Far, LinkId, State},
    readiness::Source,
};

/// The queries that a sandbox has on their way. What it asks beyond is lost, as datagrams are.
const MOST_LOOKUPS: usize = 32;

/// The links of a process, and what it has asked the resolver.
#[derive(Default)]
pub(crate) struct Outside {
    links: Vec<Entry>,
    lookups: Vec<Asked>,
    next: u64,
    pub(crate) traffic: Traffic,
    /// Where bytes come by.
    room: Vec<u8>,
}

struct Entry {
    id: LinkId,
    /// The socket that it belongs to.
    endpoint: usize,
    link: Owned<Box<dyn Link>>,
    /// The other end knows that nothing more comes.
    has_ended: bool,
}

struct Asked {
    /// The socket that has asked, and its own number.
    endpoint: usize,
    id: u64,
    lookup: Owned<Lookup>,
}

/// What nobody uses but the process that it is of, though a snapshot, which never has one, is shared.
struct Owned<T>(Mutex<T>);

impl<T> Owned<T> {
    fn get(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at a link came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It stays; whether the guest has something new.
    Open(bool),
    /// It is over.
    Over,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outside({} links)", self.links.len())
    }
}

/// A clone is a snapshot, and has no links.
impl Clone for Outside {
    fn clone(&self) -> Self {
        Self { next: self.next, ..Self::default() }
    }
}

impl Outside {
    /// How many connections there are.
    pub(crate) fn links(&self) -> usize {
        self.links.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.links.is_empty() && self.lookups.is_empty()
    }

    /// Closes every link, and forgets what was asked.
    pub(crate) fn clear(&mut self) {
        self.links.clear();
        self.lookups.clear();
    }

    /// A number that was not given out before.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn ask(&mut self, endpoint: usize, id: u64, lookup: Lookup) {
        if self.lookups.len() < MOST_LOOKUPS {
            let lookup = Owned(Mutex::new(lookup));
            self.lookups.push(Asked { endpoint, id, lookup });
        }
    }

    pub(crate) fn add(&mut self, endpoint: usize, link: Box<dyn Link>) -> LinkId {
        let id = self.number();
        let link = Owned(Mutex::new(link));
        self.links.push(Entry { id, endpoint, link, has_ended: false });
        id
    }
}

/// What a guest is told of it.
pub(crate) fn errno(error: NetworkError, to: Option<SocketAddr>) -> Errno {
    match error {
        // As on a machine where nobody listens.
        NetworkError::Denied if to.is_some_and(|to| to.ip().to_canonical().is_loopback()) => {
            Errno::CONNREFUSED
        }
        NetworkError::Denied => Errno::ACCESS,
        NetworkError::TooMany => Errno::ADDRNOTAVAIL,
        NetworkError::Refused => Errno::CONNREFUSED,
        NetworkError::TimedOut => Errno::TIMEDOUT,
        NetworkError::Unreachable => Errno::HOSTUNREACH,
        NetworkError::Reset => Errno::CONNRESET,
    }
}

impl<C: Cpu> Process<C> {
    /// Moves what can be moved between the guest and the outside. Whether the guest has something
    /// new. What cannot be moved now wakes the context.
    pub fn exchange_outside(&mut self, cx: &mut Context<'_>) -> bool {
        if self.kernel.outside.is_empty() {
            return false;
        }
        let mut moved = false;
        let mut links = mem::take(&mut self.kernel.outside.links);
        links.retain_mut(|entry| match self.kernel.look_at_link(entry, cx) {
            Looked::Open(new) => {
                moved |= new;
                true
            }
            Looked::Over => {
                moved = true;
                false
            }
        });
        self.kernel.outside.links = links;
        let mut lookups = mem::take(&mut self.kernel.outside.lookups);
        lookups.retain_mut(|asked| match asked.lookup.get().as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                moved = true;
                self.kernel.answered(asked, answer);
                false
            }
        });
        self.kernel.outside.lookups = lookups;
        moved
    }

    /// Whether something from outside may wake a thread.
    pub fn awaits_outside(&self) -> bool {
        !self.kernel.outside.is_empty()
    }

    /// Whether a connection to the outside is being made, or a name looked up.
    pub fn is_connecting(&self) -> bool {
        let mut sockets = self.kernel.objects.endpoints.iter();
        !self.kernel.outside.lookups.is_empty()
            || sockets.any(|(_, socket)| matches!(socket.state, State::Connecting(_)))
    }

    /// What went to the outside since [`Process::clear_traffic`].
    pub fn traffic(&self) -> Traffic {
        self.kernel.outside.traffic
    }

    /// Begins to count anew.
    pub fn clear_traffic(&mut self) {
        self.kernel.outside.traffic = Traffic::default();
    }

    /// Closes every connection to the outside: the guest finds them reset. Whether there was one.
    pub fn cut_off(&mut self) -> bool {
        let any = !self.kernel.outside.is_empty();
        self.kernel.outside.clear();
        self.kernel.forget_links();
        any
    }
}

impl Kernel {
    /// Connections whose links are gone are found reset.
    pub(crate) fn forget_links(&mut self) {
        let sockets = self.objects.endpoints.iter();
        let lost: Vec<usize> = sockets
            .filter(|(_, socket)| match &socket.state {
                State::Connecting(_) => true,
                State::Connected(connection) => matches!(connection.far, Far::Outside(_)),
                _ => false,
            })
            .map(|(index, _)| index)
            .collect();
        for index in lost {
            self.lose_link(index, NetworkError::Reset);
        }
    }

    fn look_at_link(&mut self, entry: &mut Entry, cx: &mut Context<'_>) -> Looked {
        let Ok(socket) = self.objects.endpoints.get(entry.endpoint) else { return Looked::Over };
        let mut moved = false;
        match &socket.state {
            State::Connecting(id) if *id == entry.id => {
                match entry.link.get().poll_connected(cx) {
                    Poll::Pending => return Looked::Open(false),
                    Poll::Ready(Ok(())) => self.linked(entry),
                    Poll::Ready(Err(error)) => {
                        self.lose_link(entry.endpoint, error);
                        return Looked::Over;
                    }
                }
                moved = true;
            }
            State::Connected(connection) if connection.far == Far::Outside(entry.id) => {}
            _ => return Looked::Over,
        }
        let done = self.take_from_outside(entry, cx).and_then(|taken| {
            moved |= taken;
            moved |= self.give_to_outside(entry, cx)?;
            Ok(())
        });
        match done {
            Ok(()) if self.is_closed(entry) => {
                self.objects.endpoints.remove(entry.endpoint);
                Looked::Over
            }
            Ok(()) => Looked::Open(moved),
            Err(error) => {
                self.lose_link(entry.endpoint, error);
                Looked::Over
            }
        }
    }

    /// There is a connection.
    fn linked(&mut self, entry: &Entry) {
        self.outside.traffic.connections += 1;
        let Ok(socket) = self.objects.endpoints.change(entry.endpoint) else { return };
        let far = Far::Outside(entry.id);
        socket.state = State::Connected(Connection { far, is_news: true, ..Connection::default() });
        socket.has_room();
        self.notify(Source::Endpoint(entry.endpoint));
    }

    /// Whether the guest has closed the socket, and all that it has written is on its way.
    fn is_closed(&self, entry: &Entry) -> bool {
        let socket = self.objects.endpoints.get(entry.endpoint);
        let connection = socket.ok().and_then(|socket| socket.connection());
        connection.is_none_or(|connection| connection.guest_gone && connection.output.is_empty())
    }

    fn take_from_outside(
        &mut self,
        entry: &mut Entry,
        cx: &mut Context<'_>,
    ) -> Result<bool, NetworkError> {
        let mut room = mem::take(&mut self.outside.room);
        room.resize(CONNECTION_CAPACITY, 0);
        let mut came = Ok(false);
        loop {
            let socket = self.objects.endpoints.get(entry.endpoint);
            let Some(connection) = socket.ok().and_then(|socket| socket.connection()) else {
                break;
            };
            let most = connection.input.room();
            if most == 0 || connection.input_over || connection.guest_gone {
                break;
            }
            let length = match entry.link.get().poll_read(cx, &mut room[..most]) {
                Poll::Pending => break,
                Poll::Ready(Ok(length)) => length.min(most),
                Poll::Ready(Err(error)) => {
                    came = Err(error);
                    break;
                }
            };
            came = Ok(true);
            self.outside.traffic.received += length as u64;
            let Ok(socket) = self.objects.endpoints.change(entry.endpoint) else { break };
            let Some(connection) = socket.connection_mut() else { break };
            if length == 0 {
                connection.input_over = true;
            } else if !connection.reads_no_more {
                connection.input.put(&room[..length]);
            }
            socket.has_input();
        }
        self.outside.room = room;
        if matches!(came, Ok(true)) {
            self.notify(Source::Endpoint(entry.endpoint));
        }
        came
    }

    fn give_to_outside(
        &mut self,
        entry: &mut Entry,
        cx: &mut Context<'_>,
    ) -> Result<bool, NetworkError> {
        let mut has_room = false;
        loop {
            let socket = self.objects.endpoints.get(entry.endpoint);
            let Some(connection) = socket.ok().and_then(|socket| socket.connection()) else {
                break;
            };
            if connection.output.is_empty() {
                if connection.writes_no_more && !entry.has_ended {
                    match entry.link.get().poll_shutdown(cx) {
                        Poll::Ready(_) => entry.has_ended = true,
                        Poll::Pending => {}
                    }
                }
                break;
            }
            let length = match entry.link.get().poll_write(cx, connection.output.as_slice()) {
                Poll::Pending => break,
                Poll::Ready(length) => length?,
            };
            self.outside.traffic.sent += length as u64;
            let Ok(socket) = self.objects.endpoints.change(entry.endpoint) else { break };
            let Some(connection) = socket.connection_mut() else { break };
            let was_full = connection.output.room() == 0;
            connection.output.take(length);
            if was_full {
                socket.has_room();
                has_room = true;
            }
        }
        if has_room {
            self.notify(Source::Endpoint(entry.endpoint));
        }
        Ok(has_room)
    }

    /// The resolver has answered.
    fn answered(&mut self, asked: &Asked, answer: Option<Vec<u8>>) {
        let Some(answer) = answer else { return };
        let Ok(socket) = self.objects.endpoints.get(asked.endpoint) else { return };
        if socket.datagram().is_none_or(|datagram| datagram.id != asked.id) {
            return;
        }
        let Ok(socket) = self.objects.endpoints.change(asked.endpoint) else { return };
        if let Some(datagram) = socket.datagram_mut() {
            datagram.put(answer);
            socket.has_input();
            self.notify(Source::Endpoint(asked.endpoint));
        }
    }

    /// A connection to the outside was not made, or is broken.
    fn lose_link(&mut self, endpoint: usize, error: NetworkError) {
        let Ok(socket) = self.objects.endpoints.change(endpoint) else { return };
        match &mut socket.state {
            State::Connected(connection) if connection.guest_gone => {
                self.objects.endpoints.remove(endpoint);
                return;
            }
            State::Connected(connection) => {
                connection.far = Far::Nobody;
                (connection.input_over, connection.host_gone) = (true, true);
                connection.input_broken = true;
                connection.output.clear();
            }
            state => {
                *state = State::Fresh;
                let to = socket.remote.take().and_then(|remote| remote.outside());
                socket.error = errno(error, to).raw_os_error();
                self.outside.traffic.denied += u64::from(error == NetworkError::Denied);
            }
        }
        let Ok(socket) = self.objects.endpoints.change(endpoint) else { return };
        socket.has_input();
        socket.has_room();
        self.notify(Source::Endpoint(endpoint));
    }
}
