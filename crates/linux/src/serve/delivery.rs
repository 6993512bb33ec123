//! How the sandboxes of a program get their requests: one of two ways.

use sandtide_engine::{Console, EngineError, Next, Turn};
use serde::{Deserialize, Serialize};

use super::{Direct, Machine, Parts, Served, Sockets};
use crate::{Connection, Cpu, Listener, Process};

/// How a program waits for its first request, where its snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// In a guest call for a request.
    Direct {
        /// [`call::NEXT_REQUEST`](sandtide_abi::call::NEXT_REQUEST), or
        /// [`call::RECEIVE`](sandtide_abi::call::RECEIVE).
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
    },
    /// For a connection.
    Sockets {
        /// Where it waits.
        listener: Listener,
        /// A connection on which it waits for a request already.
        connection: Option<Connection>,
    },
}

impl Ready {
    /// Whether a process can wait like this: for what was read from a file.
    pub fn is_of<C: Cpu>(&self, process: &Process<C>) -> bool {
        match self {
            Self::Direct { number, .. } => sandtide_abi::call::is_guest_call(*number),
            Self::Sockets { listener, connection } => {
                process.has_listener(*listener)
                    && connection.is_none_or(|connection| process.is_idle(connection))
            }
        }
    }
}

/// Brings the requests of one sandbox to its guest, and the answers back.
#[derive(Debug)]
pub enum Delivery {
    /// By guest calls.
    Direct(Direct),
    /// By a connection of the guest's.
    Sockets(Box<Sockets>),
}

impl Delivery {
    /// For a sandbox that is at the snapshot.
    pub fn new(ready: &Ready) -> Self {
        match ready {
            Ready::Direct { number, arguments } => Self::Direct(Direct::new((*number, *arguments))),
            Ready::Sockets { listener, connection } => {
                Self::Sockets(Box::new(Sockets::new(*listener, *connection)))
            }
        }
    }

    /// Runs an exchange for at most a turn.
    pub fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        bounds: &mut M::Bounds<'_>,
        console: &dyn Console,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Served<M::End>, EngineError> {
        let Parts { process, memory, random } = machine.parts();
        if process.refresh(memory, random).is_err() {
            return Ok(Served::Over(M::MEMORY));
        }
        match self {
            Self::Direct(direct) => direct.run(machine, bounds, console, turn),
            Self::Sockets(sockets) => sockets.run(machine, bounds, console, turn),
        }
    }

    /// The sandbox is at the snapshot again.
    pub fn reset(&mut self, ready: &Ready) {
        match (self, ready) {
            (Self::Sockets(sockets), Ready::Sockets { listener, connection }) => {
                sockets.reset(*listener, *connection);
            }
            (delivery, ready) => *delivery = Self::new(ready),
        }
    }

    /// Whether this is as [`Self::reset`] leaves it.
    pub fn is_reset(&self, ready: &Ready) -> bool {
        match (self, ready) {
            (Self::Direct(direct), Ready::Direct { number, arguments }) => {
                *direct == Direct::new((*number, *arguments))
            }
            (Self::Sockets(sockets), Ready::Sockets { listener, connection }) => {
                sockets.is_reset(*listener, *connection)
            }
            _ => false,
        }
    }

    /// The sandbox keeps its state: the next exchange goes on where this one has ended.
    pub fn keep<M: Machine>(&mut self, machine: &mut M, next: Next) {
        match self {
            Self::Direct(direct) => direct.keep(),
            Self::Sockets(sockets) => sockets.keep(machine.parts().process, next),
        }
    }
}
