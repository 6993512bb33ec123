//! How programs get their requests, for every engine: from their start to the point where they
//! wait for one, and through an exchange.
//!
//! ```text
//!   boot ─┬ NEXT_REQUEST ────────────▶ Ready::Direct     guest calls: protocol
//!         └ waits for a connection ──▶ Ready::Sockets    an emulated socket: http1
//!                                           │
//!   Delivery::new ─▶ run, run, … ─▶ Served ─▶ reset, or keep
//! ```
//!
//! An engine brings a [`Machine`] and turns ends of its own into faults.

mod boot;
mod delivery;
mod direct;
mod pace;
mod sockets;
mod wait;
mod warmup;

use std::{io::Read, time::Instant};

use rand::RngCore;
use sandtide_engine::{Console, EngineError, Fault, Progress};

use crate::{Cpu, GuestMemory, Process};

pub use boot::{Booted, Unready, boot, execute};
pub use delivery::{Delivery, Ready};
pub use direct::Direct;
pub use sockets::Sockets;

/// A program in execution, as an engine runs it.
pub trait Machine {
    /// The registers of its threads.
    type Cpu: Cpu;
    /// Its memory.
    type Memory: GuestMemory;
    /// What a turn of running may use.
    type Bounds<'a>;
    /// How its process ends badly.
    type End;

    /// The end of a process of which every thread waits for what cannot happen.
    const STALLED: Self::End;

    /// The end of a process that is over its memory limit.
    const MEMORY: Self::End;

    /// Runs the guest's threads until something needs the engine.
    fn run(
        &mut self,
        bounds: &mut Self::Bounds<'_>,
        console: &dyn Console,
        stdin: Option<&mut (dyn Read + Send)>,
    ) -> Result<Stop<Self::End>, EngineError>;

    /// Until when there must be an end.
    fn deadline(bounds: &Self::Bounds<'_>) -> Instant;

    /// Begins another slice.
    fn renew(bounds: &mut Self::Bounds<'_>);

    /// What guest calls and connections work on.
    fn parts(&mut self) -> Parts<'_, Self::Cpu, Self::Memory>;

    /// The running thread makes its call again when the host has something new.
    fn wait_for_host(&mut self) -> Result<(), EngineError>;
}

/// The parts of a [`Machine`].
pub struct Parts<'a, C: Cpu, M> {
    /// The process.
    pub process: &'a mut Process<C>,
    /// Its memory.
    pub memory: &'a mut M,
    /// The sandbox's own generator.
    pub random: &'a mut dyn RngCore,
}

/// Why [`Machine::run`] came back.
#[derive(Debug)]
pub enum Stop<E> {
    /// The running thread has made a guest call.
    GuestCall {
        /// The number.
        number: u64,
        /// The arguments.
        arguments: [u64; 6],
    },
    /// The guest has done something to a connection that the host is to see
    /// ([`Process::take_output`]).
    Output,
    /// The slice is used up.
    Sliced,
    /// Every thread waits.
    Idle {
        /// When a timer wakes one.
        until: Option<Instant>,
    },
    /// The process has left.
    Exit(u8),
    /// The process cannot go on.
    Over(E),
}

/// What a turn of an exchange came to.
#[derive(Debug)]
pub enum Served<E> {
    /// What the seam is told.
    Progress(Progress),
    /// The process cannot go on.
    Over(E),
}

/// A guest call that a program may not make here.
fn misplaced(number: u64, why: &str) -> Fault {
    let name = sandtide_abi::call::name(number).unwrap_or("?");
    Fault::Protocol(format!("guest call `{name}`: {why}"))
}
