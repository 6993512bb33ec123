//! Pipes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::readiness::{Edges, Readiness, condition};

/// The bytes that a pipe holds.
pub(crate) const PIPE_CAPACITY: usize = 64 << 10;

/// Writes up to this size go into a pipe whole or not at all (`PIPE_BUF`).
const ATOMIC_WRITE: usize = 4096;

/// Bytes between writers and readers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    /// How many descriptions read from it, and write to it.
    pub(crate) readers: u32,
    pub(crate) writers: u32,
    edges: Edges,
}

impl Pipe {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether this can be a pipe: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        self.bytes.len() <= PIPE_CAPACITY
    }

    /// How many of `wanted` bytes can be written now.
    pub(crate) fn room_for(&self, wanted: usize) -> usize {
        let room = PIPE_CAPACITY - self.bytes.len();
        if wanted <= ATOMIC_WRITE && room < wanted { 0 } else { wanted.min(room) }
    }

    /// Puts in bytes for which there is room.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.edges.input += 1;
    }

    /// Fills a buffer that is no longer than what is there.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) {
        let was_full = self.is_full();
        let length = buffer.len();
        for (byte, taken) in buffer.iter_mut().zip(self.bytes.drain(..length)) {
            *byte = taken;
        }
        if was_full && !self.is_full() {
            self.edges.output += 1;
        }
    }

    /// An end was opened or closed.
    pub(crate) fn ends_changed(&mut self) {
        self.edges.both();
    }

    fn is_full(&self) -> bool {
        PIPE_CAPACITY - self.bytes.len() < ATOMIC_WRITE
    }

    /// What a reader can do.
    pub(crate) fn input(&self) -> Readiness {
        let data = if self.bytes.is_empty() { 0 } else { condition::INPUT };
        let end = if self.writers == 0 { condition::HANG_UP } else { 0 };
        Readiness { conditions: data | end, edges: self.edges }
    }

    /// What a writer can do.
    pub(crate) fn output(&self) -> Readiness {
        let room = if self.is_full() { 0 } else { condition::OUTPUT };
        let end = if self.readers == 0 { condition::ERROR | condition::OUTPUT } else { 0 };
        Readiness { conditions: room | end, edges: self.edges }
    }
}
