//! The desk: memory of a guest in which the host lays out answers.
//!
//! ```text
//!     0  the time    sequence │ ticks │ rate │ least │ real │ monotonic │ boot
//!   192  registers   of the program, while the entry answers it
//!   512  a stack     of one word, below
//! ```
//!
//! All are words of 64 bits. The time is a moment on the time-stamp counter and, in nanoseconds, on
//! three clocks; `rate` is nanoseconds a tick, times 2^32, and 0 where the host has to be asked. At
//! least `least` nanoseconds have passed since that moment. The sequence is another one for
//! each time that is laid out: a guest may have been interrupted while it read one.

use std::time::Duration;

use crate::{
    inside::ticks::{Ticks, counter},
    memory::Memory,
    paging::{PAGE, SYSTEM},
};

/// Where it lies.
pub(crate) const DESK: u64 = SYSTEM + 9 * PAGE;

/// How many pages it has.
pub(crate) const DESK_PAGES: usize = 1;

/// Where everything is on it.
pub(super) mod at {
    pub(crate) const SEQUENCE: u64 = 0;
    pub(crate) const TICKS: u64 = 8;
    pub(crate) const RATE: u64 = 16;
    pub(crate) const LEAST: u64 = 24;
    pub(crate) const REAL: u64 = 32;
    pub(crate) const MONOTONIC: u64 = 40;
    pub(crate) const BOOT: u64 = 48;
    /// `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8`, `r9`, `r10`, `rsp`.
    pub(crate) const REGISTERS: u64 = 192;
    pub(crate) const STACK_TOP: u64 = 512;
}

/// What the host knows of it.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    time: Option<Time>,
}

/// The time, as it lies there.
#[derive(Debug, Clone, Copy)]
struct Time {
    ticks: Ticks,
    /// What the program's clocks show then, in nanoseconds: the monotonic one, and that of the time
    /// since the start of the machine.
    own: (u64, u64),
    least: u64,
}

impl Time {
    /// The time since then that a guest is told, if it asks now.
    fn passed(&self) -> u64 {
        self.ticks.since(counter()).max(self.least)
    }
}

impl Desk {
    /// Lays out the time. `clocks` says what the program's own clocks show when the host's monotonic
    /// one shows this.
    pub(crate) fn show_time(
        &mut self,
        memory: &mut Memory,
        ticks: Ticks,
        clocks: impl Fn(Duration) -> (Duration, Duration),
    ) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (monotonic, boot) = clocks(Duration::from_nanos(ticks.monotonic));
        let own = (nanoseconds(monotonic), nanoseconds(boot));
        if self.time.is_some_and(|time| (time.ticks, time.own) == (ticks, own)) {
            return;
        }
        // It must not go back from one way of telling it to the next.
        let least = self
            .time
            .map_or(0, |before| before.own.0.saturating_add(before.passed()).saturating_sub(own.0));
        self.time = Some(Time { ticks, own, least });
        let Ticks { at, real, rate, .. } = ticks;
        let words = [counter(), at, rate, least, real, own.0, own.1];
        let mut bytes = [0; 56];
        for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        memory.write_own(DESK + at::SEQUENCE, &bytes);
    }

    /// The memory has been put back: nothing lies there.
    pub(crate) fn forget(&mut self) {
        self.time = None;
    }

    /// Takes away everything that lies there, for a snapshot.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        memory.write_own(DESK, &[0; PAGE as usize * DESK_PAGES]);
        self.forget();
    }
}
