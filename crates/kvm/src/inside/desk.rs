//! The desk: memory of a guest in which the host lays out answers.
//!
//! ```text
//!     0  the time    sequence │ ticks │ rate │ least │ real │ monotonic │ boot
//!    64  used        how many calls were answered │ how many bytes of the input were read
//!    80  answers     process │ thread │ is it alone? │ are those all who wait for a futex?
//!   112  the input   its descriptor │ how many bytes │ is a read behind them EAGAIN?
//!   136  wakes       how many futexes were woken
//!   192  registers   of the program, while the entry answers it
//!   288  a stack     of one word, below
//!        waiters     16 times a futex │ how many wait for it
//!   544  woken       16 times a futex │ how many were woken
//!  1024  the bytes of the input
//! ```
//!
//! All but the last are words of 64 bits, and 0 where the host has to be asked. The time is a moment on the time-stamp counter and, in nanoseconds, on
//! three clocks; `rate` is nanoseconds a tick, times 2^32, and 0 where the host has to be asked. At
//! least `least` nanoseconds have passed since that moment. The sequence is another one for
//! each time that is laid out: a guest may have been interrupted while it read one.

use std::time::Duration;

use sandtide_linux::{Answers, Input, Waiters};

use crate::{
    inside::ticks::{Ticks, counter},
    memory::Memory,
    paging::{PAGE, SYSTEM},
};

/// Where it lies.
pub(crate) const DESK: u64 = SYSTEM + 9 * PAGE;

/// How many pages it has.
pub(crate) const DESK_PAGES: usize = 5;

/// Where everything is on it.
pub(super) mod at {
    pub(crate) const SEQUENCE: u64 = 0;
    pub(crate) const TICKS: u64 = 8;
    pub(crate) const RATE: u64 = 16;
    pub(crate) const LEAST: u64 = 24;
    pub(crate) const REAL: u64 = 32;
    pub(crate) const MONOTONIC: u64 = 40;
    pub(crate) const BOOT: u64 = 48;
    pub(crate) const CALLS: u64 = 64;
    pub(crate) const READ: u64 = 72;
    pub(crate) const PROCESS: u64 = 80;
    pub(crate) const THREAD: u64 = 88;
    pub(crate) const ALONE: u64 = 96;
    pub(crate) const KNOWS_WAITERS: u64 = 104;
    pub(crate) const FD: u64 = 112;
    pub(crate) const LENGTH: u64 = 120;
    pub(crate) const IS_NONBLOCKING: u64 = 128;
    pub(crate) const WAKES: u64 = 136;
    /// `rax`, `rcx`, `rdx`, `rsi`, `rdi`, `r8`, `r9`, `r10`, `rsp`.
    pub(crate) const REGISTERS: u64 = 192;
    pub(crate) const STACK_TOP: u64 = 288;
    pub(crate) const WAITERS: u64 = 288;
    pub(crate) const WOKEN: u64 = 544;
    pub(crate) const BYTES: u64 = 1024;
}

/// What the host knows of it.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    time: Option<Time>,
    /// The words of the answers, and who waits.
    answers: Option<([u64; 4], Waiters)>,
    input: Option<Lying>,
    /// What the guest has used, as of the last look.
    used: Used,
}

/// What a guest says that it has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Used {
    calls: u64,
    read: u64,
}

/// The input that lies there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lying {
    connection: usize,
    fd: u64,
    /// Where it begins and ends, counted from the first byte of its connection.
    start: u64,
    end: u64,
    is_nonblocking: bool,
}

/// The most bytes that are laid out; of what is longer, none are.
const MOST_INPUT: usize = DESK_PAGES * PAGE as usize - at::BYTES as usize;

/// The most calls that are believed between two exits.
const MOST_CALLS: u64 = 1 << 32;

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

impl Lying {
    /// Whether this is what lies there, behind the bytes that were read.
    fn is(&self, input: &Input<'_>, read: u64) -> bool {
        let Input { connection, fd, start, bytes, is_nonblocking } = *input;
        (self.connection, self.fd, self.is_nonblocking) == (connection, fd, is_nonblocking)
            && self.start + read == start
            && self.end == start + bytes.len() as u64
    }
}

/// Writes words.
fn put(memory: &mut Memory, at: u64, words: &[u64]) {
    for (index, word) in (0..).zip(words) {
        memory.write_own(DESK + at + 8 * index, &word.to_le_bytes());
    }
}

/// Reads two words.
fn words(memory: &Memory, at: u64) -> [u64; 2] {
    let bytes = memory.system::<16>(DESK + at);
    let mut words = [0; 2];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
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
        put(memory, at::SEQUENCE, &[counter(), at, rate, least, real, own.0, own.1]);
    }

    /// Lays out answers to calls. The guest must not be in the middle of one.
    pub(crate) fn answer(&mut self, memory: &mut Memory, answers: &Answers<'_>) {
        let Answers { process, thread, is_alone, waiters, input } = *answers;
        let words =
            [process.into(), thread.into(), u64::from(is_alone), u64::from(waiters.is_some())];
        let waiters = waiters.unwrap_or_default();
        if self.answers != Some((words, waiters)) {
            let same = self.answers.is_some_and(|(_, lying)| lying == waiters);
            // Nobody waits where nothing lies.
            if !same && (self.answers.is_some() || waiters != Waiters::default()) {
                put(memory, at::WAITERS, waiters.map(<[u64; 2]>::from).as_flattened());
            }
            self.answers = Some((words, waiters));
            put(memory, at::PROCESS, &words);
        }
        let input = input.filter(|input| input.bytes.len() <= MOST_INPUT);
        match (input, self.input) {
            (Some(input), Some(lying)) if lying.is(&input, self.used.read) => {}
            (Some(input), _) => self.lay_input(memory, &input),
            (None, Some(_)) => {
                self.input = None;
                put(memory, at::FD, &[0; 3]);
            }
            (None, None) => {}
        }
    }

    fn lay_input(&mut self, memory: &mut Memory, input: &Input<'_>) {
        let Input { connection, fd, start, bytes, is_nonblocking } = *input;
        let length = bytes.len() as u64;
        self.input = Some(Lying { connection, fd, start, end: start + length, is_nonblocking });
        self.used.read = 0;
        put(memory, at::READ, &[0]);
        put(memory, at::FD, &[fd, length, u64::from(is_nonblocking)]);
        memory.write_own(DESK + at::BYTES, bytes);
    }

    /// What the guest has used since the last look: how many calls were answered, and what it has read
    /// of which connection. It must not be in the middle of a call.
    ///
    /// It could have written anything: it can read no more than there is, and unread nothing.
    pub(crate) fn used(&mut self, memory: &Memory) -> (u64, Option<(usize, usize)>) {
        let [calls, read] = words(memory, at::CALLS);
        let new = calls.wrapping_sub(self.used.calls);
        self.used.calls = calls;
        let length = self.input.map_or(0, |lying| lying.end - lying.start);
        let read = read.clamp(self.used.read, length.max(self.used.read));
        let more = (read - self.used.read) as usize;
        self.used.read = read;
        let input = self.input.filter(|_| more > 0).map(|lying| (lying.connection, more));
        (if new < MOST_CALLS { new } else { 0 }, input)
    }

    /// The futexes that the guest has woken since the last look, with how many of those who waited.
    /// It must not be in the middle of a call.
    ///
    /// What it says here it could as well have asked for.
    pub(crate) fn woken(&mut self, memory: &mut Memory) -> impl Iterator<Item = (u64, u32)> {
        let [wakes, _] = words(memory, at::WAKES);
        let mut woken = Waiters::default();
        let count = usize::try_from(wakes).unwrap_or(usize::MAX).min(woken.len());
        for (index, woken) in (0..).zip(&mut woken[..count]) {
            *woken = words(memory, at::WOKEN + 16 * index).into();
        }
        if wakes != 0 {
            // What lies there does not say any more who waits.
            self.answers = None;
            put(memory, at::WAKES, &[0]);
            put(memory, at::WAITERS, Waiters::default().map(<[u64; 2]>::from).as_flattened());
        }
        woken.into_iter().take(count).map(|(address, count)| (address, count as u32))
    }

    /// The memory has been put back: nothing lies there.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Takes away everything that lies there, for a snapshot.
    pub(crate) fn clear(&mut self, memory: &mut Memory) {
        memory.write_own(DESK, &[0; PAGE as usize * DESK_PAGES]);
        self.forget();
    }
}
