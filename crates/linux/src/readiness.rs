//! What descriptions can do now, and how those who wait learn of a change.
//!
//! ```text
//! a call changes an object ─▶ its `Edges` count up
//!                          └▶ Kernel::notify(source) ─▶ threads parked for it, or for anything
//!                                                       (poll, select, epoll), are ready to retry
//! Process::schedule         ─▶ makes the call of such a thread again, on the host's side
//! ```
//!
//! Nothing is queued for those who look: [`Kernel::readiness`] is computed from the objects
//! whenever somebody asks. So a clone of the objects is all that a snapshot needs.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{
    kernel::{CallResult, Flow, Kernel, value},
    threads::{Event, Wait, Wake},
    vfs::Node,
};

/// Conditions, in the numbers of poll and epoll.
pub(crate) mod condition {
    pub(crate) const IN: u32 = 0x1;
    pub(crate) const OUT: u32 = 0x4;
    pub(crate) const ERROR: u32 = 0x8;
    pub(crate) const HANG_UP: u32 = 0x10;
    pub(crate) const INVALID: u32 = 0x20;
    pub(crate) const READ_HANG_UP: u32 = 0x2000;
    /// What a description with input reports: `IN` and `RDNORM`.
    pub(crate) const INPUT: u32 = IN | 0x40;
    /// What a description with room reports: `OUT` and `WRNORM`.
    pub(crate) const OUTPUT: u32 = OUT | 0x100;
    /// What is reported without being asked for.
    pub(crate) const ALWAYS: u32 = ERROR | HANG_UP | INVALID;
}

/// How often a description has become able to do something. Grows only: who remembers a value
/// knows whether there was something new since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Edges {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Edges {
    /// Everybody is to look again.
    pub(crate) fn both(&mut self) {
        self.input += 1;
        self.output += 1;
    }
}

/// What a description can do, and how often it has become able to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Readiness {
    /// Bits of [`condition`].
    pub(crate) conditions: u32,
    pub(crate) edges: Edges,
}

impl Readiness {
    /// What never changes has no edges.
    fn constant(conditions: u32) -> Self {
        Self { conditions, edges: Edges::default() }
    }
}

/// What a thread can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Source {
    Pipe(usize),
    Counter(usize),
    Timer(usize),
    Socket(usize),
    Endpoint(usize),
    /// The signals that are pending.
    Signals,
}

impl Kernel {
    /// What a description of this kind can do now.
    pub(crate) fn readiness(&self, node: &Node) -> Readiness {
        let objects = &self.objects;
        let gone = Readiness::constant(condition::INVALID);
        match node {
            Node::PipeReader(index) => objects.pipes.get(*index).map_or(gone, |pipe| pipe.input()),
            Node::PipeWriter(index) => objects.pipes.get(*index).map_or(gone, |pipe| pipe.output()),
            Node::Counter(index) => {
                objects.counters.get(*index).map_or(gone, |counter| counter.readiness())
            }
            Node::Timer(index) => {
                objects.timers.get(*index).map_or(gone, |timer| timer.readiness(Instant::now()))
            }
            Node::Socket(index) => objects.sockets.get(*index).map_or(gone, |socket| {
                socket.readiness(socket.peer.and_then(|peer| objects.sockets.get(peer).ok()))
            }),
            Node::Endpoint(index) => objects
                .endpoints
                .get(*index)
                .map_or(gone, |endpoint| endpoint.readiness(self.own_peer(endpoint))),
            Node::Signals(mask) => self.signals_readiness(*mask),
            Node::Epoll(index) => self.epoll_readiness(*index),
            Node::Console(_) => Readiness::constant(condition::OUTPUT),
            Node::Stdin => Readiness::constant(condition::INPUT),
            Node::Device(_)
            | Node::Exchange(_)
            | Node::Text(_)
            | Node::Host(_)
            | Node::Scratch(_)
            | Node::MountDirectory => Readiness::constant(condition::INPUT | condition::OUTPUT),
        }
    }

    /// Something about an object has changed: those who wait for it, or for one of many, look
    /// again.
    pub(crate) fn notify(&mut self, source: Source) {
        let concerns = |event| event == Event::Change(source) || event == Event::AnyChange;
        let waiting = self.threads.waiting(concerns);
        if !waiting.is_empty() {
            let threads = self.threads.change();
            waiting.into_iter().for_each(|index| threads.wake(index, Wake::Retry));
        }
    }

    /// When a timer that somebody may wait for happens.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let due = self.objects.timers.iter().filter_map(|(_, timer)| timer.due()).min()?;
        let waits = |event| matches!(event, Event::Change(_) | Event::AnyChange);
        (!self.threads.waiting(waits).is_empty()).then_some(due)
    }

    /// Tells those who wait of the timers that have happened.
    pub(crate) fn tell_timers(&mut self, now: Instant) {
        let timers = self.objects.timers.iter();
        let due: Vec<usize> = timers
            .filter(|(_, timer)| timer.due().is_some_and(|due| due <= now))
            .map(|(index, _)| index)
            .collect();
        for index in due {
            if let Ok(timer) = self.objects.timers.change(index) {
                timer.tell();
                self.notify(Source::Timer(index));
            }
        }
    }

    /// What is waited for has changed: those who wait for one of many look again.
    pub(crate) fn notify_all(&mut self) {
        let waiting = self.threads.waiting(|event| event == Event::AnyChange);
        if !waiting.is_empty() {
            let threads = self.threads.change();
            waiting.into_iter().for_each(|index| threads.wake(index, Wake::Retry));
        }
    }

    /// Parks the thread until an object changes; the call is then made again.
    pub(crate) fn wait_for(&mut self, source: Source) -> Flow {
        self.park_for(source, None);
        Flow::Parked
    }

    /// As [`Self::wait_for`], but no longer than this from the call's first wait on: `None` when that
    /// time is over.
    pub(crate) fn wait_at_most(&mut self, source: Source, limit: Option<Duration>) -> Option<Flow> {
        // Made again after a change, the call keeps the deadline that it had at first.
        let thread = self.threads.current();
        let begins = || Instant::now().checked_add(limit?);
        let deadline = limit.and(thread.call_deadline.or_else(begins));
        if thread.timed_out || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return None;
        }
        self.park_for(source, deadline);
        Some(Flow::Parked)
    }

    fn park_for(&mut self, source: Source, deadline: Option<Instant>) {
        self.threads.change().park(Wait {
            event: Event::Change(source),
            deadline,
            on_timeout: Wake::Retry,
            // As on Linux, calls with a time-out end with a signal.
            restartable: deadline.is_none(),
        });
    }

    /// Parks the thread until anything changes, or the deadline; the call is then made again.
    /// Past the deadline, the result is 0.
    pub(crate) fn wait_for_any(&mut self, deadline: Option<Instant>) -> CallResult {
        // Made again after a change, the call keeps the deadline that it had at first.
        let thread = self.threads.current();
        let deadline = thread.call_deadline.or(deadline);
        if thread.timed_out || deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return value(0u32);
        }
        self.threads.change().park(Wait {
            event: Event::AnyChange,
            deadline,
            on_timeout: Wake::Retry,
            restartable: false,
        });
        Ok(Flow::Parked)
    }
}
