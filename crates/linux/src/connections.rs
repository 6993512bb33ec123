//! The host's end of a guest's sockets.
//!
//! ```text
//!   guest  listen, accept ─────▶ Listener ◀─ connect ── host
//!          read  ◀─ input  ◀─┐
//!          write ─▶ output ──┴─ Connection ◀── send, receive ── host
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    Cpu, Process,
    kernel::Kernel,
    objects::{Connection as Guest, Far},
    readiness::Source,
    threads::Event,
};

/// A socket on which a guest waits for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener(usize);

/// A connection between the host and a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection(usize);

impl Kernel {
    /// Whether something that the host may do can wake a thread.
    pub(crate) fn may_hear_from_host(&self) -> bool {
        !self.outside.is_empty()
            || self.objects.endpoints.iter().any(|(_, socket)| {
                let is_open = socket
                    .connection()
                    .is_some_and(|connection| connection.far == Far::Host && !connection.host_gone);
                is_open || socket.listening().is_some()
            })
    }

    fn guest_end(&self, connection: Connection) -> Option<&Guest> {
        self.objects.endpoints.get(connection.0).ok()?.connection()
    }

    /// Takes a connection out of the queue of whom it was to.
    fn forget_pending(&mut self, connection: Connection) {
        let listeners = self.objects.endpoints.iter().filter_map(|(index, endpoint)| {
            endpoint.listening()?.pending.contains(&connection.0).then_some(index)
        });
        for index in listeners.collect::<Vec<_>>() {
            if let Ok(endpoint) = self.objects.endpoints.change(index)
                && let Some(listening) = endpoint.listening_mut()
            {
                listening.pending.retain(|pending| *pending != connection.0);
            }
        }
    }

    /// Changes the guest's end of a connection, and lets it look again.
    fn change_guest_end(&mut self, connection: Connection, change: impl FnOnce(&mut Guest)) {
        let Ok(socket) = self.objects.endpoints.change(connection.0) else { return };
        let Some(guest) = socket.connection_mut() else { return };
        let had_room = guest.output.room() > 0;
        let input = (guest.input.len(), guest.input_over);
        change(guest);
        let (has_room, new_input) =
            (guest.output.room() > 0, input != (guest.input.len(), guest.input_over));
        let is_free = guest.host_gone && guest.guest_gone;
        if new_input {
            socket.has_input();
        }
        if has_room && !had_room {
            socket.has_room();
        }
        if is_free {
            self.objects.endpoints.remove(connection.0);
        }
        self.notify(Source::Endpoint(connection.0));
    }
}

impl<C: Cpu> Process<C> {
    /// The listener on which the guest waits for connections, if there is one: of several the
    /// first to listen. Only when every thread waits.
    pub fn waiting_listener(&self) -> Option<Listener> {
        let waits = |index| {
            let event = Event::Change(Source::Endpoint(index));
            !self
                .kernel
                .threads
                .waiting(|other| other == event || other == Event::AnyChange)
                .is_empty()
        };
        let sockets = self.kernel.objects.endpoints.iter();
        let listeners =
            sockets.filter_map(|(index, socket)| Some((socket.listening()?.order, index)));
        let (_, index) = listeners.filter(|(_, index)| waits(*index)).min()?;
        Some(Listener(index))
    }

    /// Whether there is such a listener.
    pub(crate) fn has_listener(&self, listener: Listener) -> bool {
        let socket = self.kernel.objects.endpoints.get(listener.0);
        socket.is_ok_and(|socket| socket.listening().is_some())
    }

    /// Connects to a listener; `None` if there is none any more.
    pub fn connect(&mut self, listener: Listener) -> Option<Connection> {
        let kernel = &mut self.kernel;
        let socket = kernel.objects.endpoints.get(listener.0).ok()?;
        socket.listening()?;
        let connection = socket.connected();
        let index = kernel.objects.endpoints.insert(connection);
        let socket = kernel.objects.endpoints.change(listener.0).ok()?;
        socket.has_input();
        socket.listening_mut()?.pending.push_back(index);
        kernel.notify(Source::Endpoint(listener.0));
        Some(Connection(index))
    }

    /// How many bytes a connection takes now, beside what must go together.
    pub fn room(&self, connection: Connection) -> usize {
        self.kernel.guest_end(connection).map_or(0, |guest| guest.input.room())
    }

    /// Sends bytes to the guest, all of them.
    pub fn send(&mut self, connection: Connection, bytes: &[u8]) {
        self.kernel.sent_to = Some(connection.0);
        self.kernel.change_guest_end(connection, |guest| {
            if !guest.guest_gone && !guest.reads_no_more {
                guest.input.put(bytes);
            }
        });
    }

    /// The guest gets nothing more, because what it was to get is lost.
    pub fn break_off(&mut self, connection: Connection) {
        self.kernel.change_guest_end(connection, |guest| {
            (guest.input_over, guest.input_broken) = (true, true);
        });
    }

    /// What the guest has written and the host has not taken.
    pub fn received(&self, connection: Connection) -> &[u8] {
        self.kernel.guest_end(connection).map_or(&[], |guest| guest.output.as_slice())
    }

    /// Takes the first bytes of it.
    pub fn take_received(&mut self, connection: Connection, length: usize) {
        if length > 0 {
            self.kernel.change_guest_end(connection, |guest| guest.output.take(length));
        }
    }

    /// Whether the guest will write nothing more.
    pub fn has_ended(&self, connection: Connection) -> bool {
        self.kernel.guest_end(connection).is_none_or(|guest| guest.writes_no_more)
    }

    /// Whether the guest has read any of the request that it was sent.
    pub fn has_read(&self, connection: Connection) -> bool {
        self.kernel.guest_end(connection).is_some_and(|guest| guest.read > 0)
    }

    /// Whether the guest has accepted the connection, or refused it.
    pub fn is_accepted(&self, connection: Connection) -> bool {
        let guest = self.kernel.guest_end(connection);
        guest.is_none_or(|guest| guest.accepted || guest.guest_gone)
    }

    /// Whether the guest has done nothing with the connection but accept it, if that.
    pub fn is_idle(&self, connection: Connection) -> bool {
        self.kernel.guest_end(connection).is_some_and(|guest| {
            let is_closing = guest.writes_no_more || guest.reads_no_more || guest.guest_gone;
            !is_closing && guest.output.is_empty()
        })
    }

    /// Begins another request on a connection. `false` if it cannot have one: something of the one
    /// before is still on its way, or an end is closing.
    pub fn go_on(&mut self, connection: Connection) -> bool {
        let can = self.kernel.guest_end(connection).is_some_and(|guest| {
            let is_closing = guest.writes_no_more || guest.reads_no_more || guest.guest_gone;
            let is_over = guest.input_over || guest.host_gone;
            guest.input.is_empty() && guest.output.is_empty() && !is_closing && !is_over
        });
        if can {
            self.kernel.change_guest_end(connection, |guest| guest.read = 0);
        }
        can
    }

    /// Closes the host's end. Returns what the guest has not read of a request that it has not read
    /// at all. A connection that was not accepted is none any more.
    pub fn hang_up(&mut self, connection: Connection) -> Vec<u8> {
        self.kernel.sent_to = None;
        let (mut unread, mut was_accepted) = (Vec::new(), true);
        self.kernel.change_guest_end(connection, |guest| {
            if guest.read == 0 {
                unread.extend_from_slice(guest.input.as_slice());
            }
            guest.input.clear();
            guest.output.clear();
            (guest.input_over, guest.host_gone) = (true, true);
            was_accepted = guest.accepted;
            guest.guest_gone |= !was_accepted;
        });
        if !was_accepted {
            self.kernel.forget_pending(connection);
        }
        unread
    }

    /// Whether the guest has written to a connection or closed one since the last time this was
    /// asked.
    pub fn take_output(&mut self) -> bool {
        std::mem::take(&mut self.kernel.output)
    }
}
