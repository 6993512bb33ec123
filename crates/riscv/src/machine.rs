//! A program being executed: memory, threads, and the loop that runs them.

use std::{
    io::Read,
    sync::Arc,
    time::{Duration, Instant},
};

use rand::rngs::StdRng;
use sandtide_engine::{Console, EngineError, Fault, Limits, Location, Trap, TrapCause, Turn};
use sandtide_linux::{
    Action, Cpu as _, CpuTime, Delivered, Host, Process, Schedule, SignalInfo,
    serve::{self, Parts},
};

use crate::{
    isa::{Code, Cpu, Exit},
    memory::Memory,
    profiler::Profiler,
    registers::SIGNAL_RETURN,
    symbols::Symbols,
    translate::run_some,
    translator::HostCode,
};

/// Instructions between two looks at the clock, and at whether somebody else needs the thread:
/// about 20 us in the interpreter. The first chunk of a turn always runs.
const CHUNK: u64 = 10_000;

/// As many as chunks grow to while they take less than [`CHUNK_TIME`]: each that ends costs host code
/// its stack, and about 200 instructions that are interpreted.
const LARGEST_CHUNK: u64 = 8 * CHUNK;

/// A chunk ends with the system call that makes it longer than this.
const CHUNK_TIME: Duration = Duration::from_micros(20);

/// What a system call takes from the chunk, so that a guest that only makes calls is sliced too.
const CALL_COST: u64 = 200;

/// What the first write to a page takes from the chunk: at worst the host has a page fault.
const WRITE_COST: u64 = 64;

/// Instructions after which another thread of the same guest gets its turn.
const QUANTUM: u64 = 20_000;

/// The state of a program in execution.
pub(crate) struct Machine {
    pub(crate) memory: Memory,
    pub(crate) process: Process<Cpu>,
    pub(crate) code: Arc<Code>,
    /// What of the code runs as host code.
    pub(crate) host_code: Arc<HostCode>,
    /// No part of any snapshot: no value comes twice.
    pub(crate) random: StdRng,
    /// Instructions since [`Machine::clear_counts`].
    pub(crate) instructions: u64,
    /// System calls and guest calls since then.
    pub(crate) calls: u64,
    /// Time that the guest has run since then.
    cpu_time: Duration,
    /// Instructions until another thread gets its turn.
    quantum: u64,
    /// Looks where the program is, if somebody wants to know.
    pub(crate) profiler: Option<Box<Profiler>>,
    /// For tests: what each run of the guest has come to.
    #[cfg(test)]
    pub(crate) trace: Option<crate::translate::Trace>,
}

/// What a turn of running may use. Made once for a turn: guest calls in between do not renew it.
pub(crate) struct Bounds<'a> {
    /// Instructions in total since the counts were cleared.
    instructions: u64,
    /// Until when there must be an end.
    deadline: Instant,
    /// How long to run until others get their turn.
    slice: Duration,
    start: Instant,
    /// The last look at the clock.
    now: Instant,
    /// Instructions until the next one.
    chunk: u64,
    /// Instructions of the chunk as a whole.
    size: u64,
    /// Whether the slice is to end early.
    interrupt: &'a dyn Fn() -> bool,
}

impl<'a> Bounds<'a> {
    pub(crate) fn new(instructions: u64, now: Instant, deadline: Instant, slice: Duration) -> Self {
        let interrupt = &|| false;
        Self {
            instructions,
            deadline,
            slice,
            start: now,
            now,
            chunk: CHUNK,
            size: CHUNK,
            interrupt,
        }
    }

    pub(crate) fn of(turn: &Turn<'a, '_>, instructions: u64) -> Self {
        let bounds = Self::new(instructions, turn.now, turn.deadline, turn.slice.0);
        Self { interrupt: turn.interrupt, ..bounds }
    }

    /// Begins another slice.
    pub(crate) fn renew(&mut self) {
        let interrupt = self.interrupt;
        let next = Self::new(self.instructions, Instant::now(), self.deadline, self.slice);
        *self = Self { interrupt, ..next };
    }

    fn spend(&mut self, instructions: u64) {
        self.chunk = self.chunk.saturating_sub(instructions);
    }

    /// Looks at the clock, and whether there is an interrupt, if it is time to. `Some` if the
    /// turn is over.
    fn check(&mut self) -> Option<Stop> {
        let chunk_is_over = self.chunk == 0;
        if chunk_is_over {
            let before = self.now;
            self.now = Instant::now();
            let is_fast = self.now - before < CHUNK_TIME / 2;
            self.size = if is_fast { (2 * self.size).min(LARGEST_CHUNK) } else { CHUNK };
            self.chunk = self.size;
        }
        if self.now >= self.deadline {
            return Some(Stop::Over(End::Deadline));
        }
        let is_over = self.now - self.start >= self.slice || chunk_is_over && (self.interrupt)();
        is_over.then_some(Stop::Sliced)
    }
}

/// Why [`Machine::run`] came back.
pub(crate) type Stop = serve::Stop<End>;

/// How a process ends badly, before anybody looks for where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Trap { cause: TrapCause, address: u64 },
    Signal(u8),
    Deadline,
    Instructions,
    Memory,
    Stalled,
}

impl Machine {
    pub(crate) fn new(
        memory: Memory,
        process: Process<Cpu>,
        code: Arc<Code>,
        host_code: Arc<HostCode>,
        random: StdRng,
    ) -> Self {
        Self {
            memory,
            process,
            code,
            host_code,
            random,
            instructions: 0,
            calls: 0,
            cpu_time: Duration::ZERO,
            quantum: QUANTUM,
            profiler: None,
            #[cfg(test)]
            trace: None,
        }
    }

    pub(crate) fn clear_counts(&mut self) {
        (self.instructions, self.calls, self.cpu_time) = (0, 0, Duration::ZERO);
        self.quantum = QUANTUM;
    }

    /// Runs the guest's threads until something needs the engine.
    pub(crate) fn run(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        mut stdin: Option<&mut (dyn Read + Send)>,
    ) -> Stop {
        loop {
            if let Some(stop) = bounds.check() {
                self.cpu_time += bounds.now - bounds.start;
                return stop;
            }
            self.process.ring(bounds.now);
            let mut host = Host {
                memory: &mut self.memory,
                console,
                stdin: stdin.as_deref_mut().map(|stdin| stdin as _),
                random: &mut self.random,
                cpu_time: CpuTime { before: self.cpu_time, since: bounds.start },
            };
            let next = self.process.schedule(bounds.now, &mut host);
            match next {
                Schedule::Run | Schedule::Idle { .. } | Schedule::Stalled
                    if self.process.take_output() =>
                {
                    return Stop::Output;
                }
                Schedule::Run => {}
                Schedule::Idle { until } => {
                    self.cpu_time += bounds.start.elapsed();
                    return Stop::Idle { until };
                }
                Schedule::Stalled => return Stop::Over(End::Stalled),
                Schedule::Killed(signal) => return Stop::Over(End::Signal(signal)),
                Schedule::MemoryLimit => return Stop::Over(End::Memory),
            }
            if let Some(stop) = self.run_thread(bounds, console, &mut stdin) {
                return stop;
            }
        }
    }

    /// Runs one thread until it waits, its quantum is over, or it is time to look at the clock.
    fn run_thread(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: &mut Option<&mut (dyn Read + Send)>,
    ) -> Option<Stop> {
        // Another thread may have written what this one has reserved. A store-conditional may
        // fail at any time (RISC-V Unprivileged ISA, "Load-Reserved/Store-Conditional").
        self.process.cpu().reservation = None;
        while bounds.chunk > 0 {
            let left = bounds.instructions.saturating_sub(self.instructions);
            if left == 0 {
                return Some(Stop::Over(End::Instructions));
            }
            let has_others = self.process.threads() > 1;
            if self.quantum == 0 {
                self.quantum = QUANTUM;
                if has_others {
                    self.process.preempt();
                    return None;
                }
            }
            let quantum = if has_others { self.quantum } else { u64::MAX };
            let to_sample = self.profiler.as_ref().map_or(u64::MAX, |profiler| profiler.left());
            let granted = left.min(bounds.chunk).min(quantum).min(to_sample);
            #[cfg(test)]
            let granted = self.trace.as_mut().map_or(granted, |trace| trace.piece(granted));
            let mut budget = granted;
            let written = self.memory.0.written_pages();
            let (cpu, space) = (self.process.cpu(), &mut self.memory.0);
            let exit = run_some(self.host_code.get(), cpu, space, &self.code, &mut budget);
            #[cfg(test)]
            if let Some(trace) = &mut self.trace {
                trace.note(exit, cpu, space);
            }
            let used = granted - budget;
            self.instructions += used;
            if let Some(profiler) = &mut self.profiler {
                let cpu = self.process.cpu();
                profiler.ran(used, std::mem::take(&mut cpu.translated), cpu, &self.memory);
            }
            self.quantum = self.quantum.saturating_sub(used);
            let written = self.memory.0.written_pages() - written;
            // What is traced is cut in the same places, in however many pieces it runs.
            #[cfg(test)]
            let written = if self.trace.is_some() { 0 } else { written };
            bounds.spend(used + written as u64 * WRITE_COST);
            match exit {
                Exit::Budget | Exit::Entry => continue,
                Exit::MemoryLimit => return Some(Stop::Over(End::Memory)),
                Exit::Trap { cause: TrapCause::Fetch, address: SIGNAL_RETURN } => {
                    self.process.cpu().begin_signal_return();
                }
                Exit::Trap { cause, address } => {
                    bounds.spend(CALL_COST);
                    match self.process.deliver(signal_of(cause, address), &mut self.memory) {
                        Delivered::Handler => continue,
                        Delivered::Fatal(_) => {
                            return Some(Stop::Over(End::Trap { cause, address }));
                        }
                        Delivered::MemoryLimit => return Some(Stop::Over(End::Memory)),
                    }
                }
                Exit::Call => {}
            }
            self.calls += 1;
            bounds.spend(CALL_COST);
            match self.call(bounds, console, stdin) {
                Action::Continue | Action::Resched if self.process.take_output() => {
                    return Some(Stop::Output);
                }
                Action::Continue => {}
                Action::Resched => {
                    self.quantum = QUANTUM;
                    return None;
                }
                Action::GuestCall { number, args } => {
                    return Some(Stop::GuestCall { number, arguments: args });
                }
                Action::Exit(code) => return Some(Stop::Exit(code)),
                Action::Killed(signal) => return Some(Stop::Over(End::Signal(signal))),
                Action::MemoryLimit => return Some(Stop::Over(End::Memory)),
            }
        }
        None
    }

    /// Carries out the call that the running thread is in.
    fn call(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: &mut Option<&mut (dyn Read + Send)>,
    ) -> Action {
        let (number, args) = self.process.cpu().call();
        if sandtide_abi::call::is_guest_call(number) {
            // The hot path needs no clock.
            return Action::GuestCall { number, args };
        }
        let action = self.process.call(&mut Host {
            memory: &mut self.memory,
            console,
            stdin: stdin.as_deref_mut().map(|stdin| stdin as _),
            random: &mut self.random,
            cpu_time: CpuTime { before: self.cpu_time, since: bounds.start },
        });
        // What is traced is the same however busy the machine is.
        #[cfg(test)]
        if self.trace.is_some() {
            return action;
        }
        // One call can make the host look at a million pages, or copy a megabyte.
        if bounds.now.elapsed() >= CHUNK_TIME.min(bounds.slice) {
            bounds.chunk = 0;
        }
        action
    }

    /// The fault for an end, with the place in the guest's code.
    pub(crate) fn fault(&mut self, end: End, limits: &Limits, symbols: &Symbols) -> Fault {
        let backtrace = self.backtrace(symbols);
        match end {
            End::Trap { cause, address } => Fault::Trap(Trap { cause, address, backtrace }),
            End::Signal(signal) => Fault::Signal { signal, backtrace },
            End::Deadline => Fault::Deadline { limit: limits.wall_time, backtrace },
            End::Instructions => Fault::Instructions { limit: limits.instructions, backtrace },
            End::Memory => Fault::Memory { limit: limits.memory, backtrace },
            End::Stalled => Fault::Stalled { backtrace },
        }
    }

    fn backtrace(&mut self, symbols: &Symbols) -> Vec<Location> {
        symbols.backtrace(self.process.cpu(), &self.memory)
    }
}

impl serve::Machine for Machine {
    type Cpu = Cpu;
    type Memory = Memory;
    type Bounds<'a> = Bounds<'a>;
    type End = End;

    const STALLED: End = End::Stalled;
    const MEMORY: End = End::Memory;

    fn run(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: Option<&mut (dyn Read + Send)>,
    ) -> Result<Stop, EngineError> {
        Ok(self.run(bounds, console, stdin))
    }

    fn deadline(bounds: &Bounds<'_>) -> Instant {
        bounds.deadline
    }

    fn renew(bounds: &mut Bounds<'_>) {
        bounds.renew();
    }

    fn parts(&mut self) -> Parts<'_, Cpu, Memory> {
        let Self { process, memory, random, .. } = self;
        Parts { process, memory, random }
    }

    fn wait_for_host(&mut self) -> Result<(), EngineError> {
        self.process.wait_for_host();
        Ok(())
    }
}

/// The signal that Linux sends for a trap (`SIGILL`, `SIGTRAP`, `SIGBUS`, `SIGSEGV`).
fn signal_of(cause: TrapCause, address: u64) -> SignalInfo {
    let (signal, code) = match cause {
        TrapCause::IllegalInstruction => (4, 1),
        TrapCause::Breakpoint => (5, 1),
        TrapCause::MisalignedFetch | TrapCause::MisalignedAtomic => (7, 1),
        TrapCause::Load | TrapCause::Store | TrapCause::Fetch => (11, 1),
        // No instruction of RISC-V traps so.
        TrapCause::Arithmetic => (8, 1),
        TrapCause::Protection => (11, 128),
    };
    SignalInfo { signal, code, address }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn the_first_chunk_of_a_turn_does_not_ask_for_interrupts() {
        let (asked, answer) = (Cell::new(0), Cell::new(false));
        let interrupt = || {
            asked.set(asked.get() + 1);
            answer.get()
        };
        let (now, day) = (Instant::now(), Duration::from_secs(86_400));
        let mut bounds =
            Bounds { interrupt: &interrupt, ..Bounds::new(u64::MAX, now, now + day, day) };
        bounds.spend(CHUNK - 1);
        assert!(bounds.check().is_none());
        assert_eq!(asked.get(), 0);
        bounds.spend(1);
        assert!(bounds.check().is_none() && bounds.check().is_none());
        assert_eq!(asked.get(), 1, "once for each chunk");
        answer.set(true);
        bounds.spend(LARGEST_CHUNK);
        assert!(matches!(bounds.check(), Some(Stop::Sliced)));
        bounds.renew();
        assert!(bounds.check().is_none(), "another turn begins with a chunk");
    }
}
