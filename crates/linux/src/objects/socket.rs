//! Pairs of connected sockets.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::readiness::{Edges, Readiness, condition};

/// The bytes that a socket holds which nobody has read.
pub(crate) const SOCKET_CAPACITY: usize = 64 << 10;

/// The messages that a socket holds which nobody has read.
const MAX_MESSAGES: usize = 256;

/// How bytes are kept together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SocketKind {
    Stream,
    Datagram,
    /// Messages, with an end as a stream has.
    Sequenced,
}

/// One end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Socket {
    pub(crate) kind: SocketKind,
    /// The other end, as long as it is open.
    pub(crate) peer: Option<usize>,
    /// What the peer has sent.
    bytes: VecDeque<u8>,
    /// The lengths of the messages in it.
    messages: VecDeque<usize>,
    /// Nothing comes any more, or nothing can be sent.
    pub(crate) input_closed: bool,
    pub(crate) output_closed: bool,
    /// The peer was closed before it had read everything.
    pub(crate) was_reset: bool,
    edges: Edges,
}

/// What a read of a socket would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Available {
    pub(crate) length: usize,
    /// Bytes of a message that the reader has no room for.
    pub(crate) cut: usize,
}

impl Socket {
    pub(crate) fn new(kind: SocketKind) -> Self {
        Self {
            kind,
            peer: None,
            bytes: VecDeque::new(),
            messages: VecDeque::new(),
            input_closed: false,
            output_closed: false,
            was_reset: false,
            edges: Edges::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether this can be a socket: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let messages = self.messages.iter().try_fold(0, |sum: usize, next| sum.checked_add(*next));
        self.bytes.len() <= SOCKET_CAPACITY
            && self.messages.len() <= MAX_MESSAGES
            && messages == Some(if self.is_stream() { 0 } else { self.bytes.len() })
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.kind == SocketKind::Stream
    }

    /// How many of `wanted` bytes can be put in now; `None`: not even an empty message.
    pub(crate) fn room_for(&self, wanted: usize) -> Option<usize> {
        let room = SOCKET_CAPACITY - self.bytes.len();
        match self.kind {
            SocketKind::Stream => Some(wanted.min(room)).filter(|length| *length > 0),
            _ => Some(wanted).filter(|_| wanted <= room && self.messages.len() < MAX_MESSAGES),
        }
    }

    /// Puts in bytes for which there is room.
    pub(crate) fn put<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let before = self.bytes.len();
        parts.for_each(|part| self.bytes.extend(part));
        if !self.is_stream() {
            self.messages.push_back(self.bytes.len() - before);
        }
        self.edges.input += 1;
    }

    /// What a reader with room for `wanted` bytes gets; `None`: nothing is there.
    pub(crate) fn available(&self, wanted: usize) -> Option<Available> {
        let there = match self.kind {
            SocketKind::Stream => Some(self.bytes.len()).filter(|length| *length > 0)?,
            _ => *self.messages.front()?,
        };
        let length = there.min(wanted);
        let cut = if self.is_stream() { 0 } else { there - length };
        Some(Available { length, cut })
    }

    /// Fills a buffer from what is there, after `skip` bytes.
    pub(crate) fn peek(&self, skip: usize, buffer: &mut [u8]) {
        for (byte, there) in buffer.iter_mut().zip(self.bytes.iter().skip(skip)) {
            *byte = *there;
        }
    }

    /// Takes away what was read.
    pub(crate) fn consume(&mut self, what: Available) {
        self.bytes.drain(..what.length + what.cut);
        if !self.is_stream() {
            self.messages.pop_front();
        }
    }

    /// The peer can send again, or something else is new there.
    pub(crate) fn output_changed(&mut self) {
        self.edges.output += 1;
    }

    pub(crate) fn changed(&mut self) {
        self.edges.both();
    }

    /// Whether so much was sent that a sender is told to wait.
    fn is_full(&self) -> bool {
        self.bytes.len() > SOCKET_CAPACITY / 2 || self.messages.len() >= MAX_MESSAGES
    }

    /// What it can do, given its peer.
    pub(crate) fn readiness(&self, peer: Option<&Self>) -> Readiness {
        let mut conditions = 0;
        if self.available(1).is_some() || self.input_closed {
            conditions |= condition::INPUT;
        }
        if self.input_closed {
            conditions |= condition::READ_HANG_UP;
        }
        if self.input_closed && self.output_closed {
            conditions |= condition::HANG_UP;
        }
        if self.was_reset {
            conditions |= condition::ERROR;
        }
        if self.output_closed || peer.is_none_or(|peer| !peer.is_full()) {
            conditions |= condition::OUTPUT;
        }
        Readiness { conditions, edges: self.edges }
    }
}
