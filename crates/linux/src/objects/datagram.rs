//! Sockets for datagrams, whose one correspondent is the resolver.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::readiness::condition;

/// The answers that a socket keeps which nobody has read. What comes then is lost, as datagrams are.
const MOST_ANSWERS: usize = 32;

/// A socket for datagrams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Datagram {
    /// Tells it from a later socket in the same place.
    pub(crate) id: u64,
    answers: VecDeque<Vec<u8>>,
}

impl Datagram {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, answers: VecDeque::new() }
    }

    /// The message that is read next.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.answers.front().map(Vec::as_slice)
    }

    pub(crate) fn take_first(&mut self) {
        self.answers.pop_front();
    }

    pub(crate) fn put(&mut self, answer: Vec<u8>) {
        if self.answers.len() < MOST_ANSWERS {
            self.answers.push_back(answer);
        }
    }

    pub(crate) fn conditions(&self) -> u32 {
        let input = if self.answers.is_empty() { 0 } else { condition::INPUT };
        input | condition::OUTPUT
    }
}
