//! A program being executed: a virtual machine, its threads, and the loop that runs them.

use std::{
    io::{self, Read},
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{RngCore as _, rngs::StdRng};
use sandtide_engine::{
    Console, EngineError, Fault, Limits, Mismatch, Scrutiny, Trap, TrapCause, Turn,
};
use sandtide_linux::{
    Action, Cpu as _, CpuTime, Delivered, Host, Process, Schedule, SignalInfo,
    serve::{self, Parts},
};
use sandtide_memory::Difference;

use crate::{
    exception,
    inside::{self, Desk, Ticks},
    memory::{AfterReset, Memory},
    paging::{PAGE, USER_END},
    place,
    registers::Registers,
    stubs::{CALL_PORT, CallEntry, ENTRY, EXCEPTION_PORT, EXCEPTIONS, Frame, VECTORS_AREA},
    symbols::Symbols,
    vcpu::{Leave, Vcpu},
    vectors,
    vm::Vm,
};

/// How many pages a guest can write, at the least, until it stops to have them counted.
const FEWEST_PAGES: usize = 16;

/// Where the processor stands while it does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stand {
    /// It has the registers of no thread.
    Nowhere,
    /// In the program of the running thread.
    Program,
    /// Behind a call of the running thread: it goes on with the result by itself.
    Call,
    /// In the stubs, on its way: it can only go on.
    Stubs,
    /// Behind an exception.
    Exception,
}

/// The state of a program in execution.
pub(crate) struct Machine {
    pub(crate) vcpu: Vcpu,
    vm: Vm,
    entry: CallEntry,
    desk: Desk,
    /// The guest can tell the time by what lies on the desk.
    clocks: bool,
    pub(crate) memory: Memory,
    pub(crate) process: Process<Registers>,
    /// No part of any snapshot: no value comes twice.
    pub(crate) random: StdRng,
    stand: Stand,
    /// System calls and guest calls since [`Machine::clear_counts`].
    pub(crate) calls: u64,
    /// How often the guest has come out of its virtual machine since then.
    pub(crate) exits: u64,
    /// Time that the guest has run since then.
    cpu_time: Duration,
    /// The guest did what no guest can do whose stubs are in order.
    astray: bool,
    /// The vector registers that lie in [`VECTORS_AREA`].
    prepared: Option<Arc<kvm_bindings::kvm_xsave>>,
}

/// So long a turn is not interrupted: an exchange that is over soon is not worth a switch to another
/// virtual machine, which costs as much as some system calls.
const FIRST_CHUNK: Duration = Duration::from_micros(250);

/// What a turn of running may use. Made once for a turn: guest calls in between do not renew it.
pub(crate) struct Bounds<'a> {
    /// Until when there must be an end.
    deadline: Instant,
    /// How long to run until others get their turn.
    slice: Duration,
    start: Instant,
    /// The last look at the clock.
    now: Instant,
    /// Whether the slice is to end early.
    interrupt: &'a dyn Fn() -> bool,
    /// The guest has made a guest call since the last look at the clock.
    has_called: bool,
}

impl<'a> Bounds<'a> {
    pub(crate) fn new(now: Instant, deadline: Instant, slice: Duration) -> Self {
        Self { deadline, slice, start: now, now, interrupt: &|| false, has_called: false }
    }

    pub(crate) fn of(turn: &Turn<'a, '_>) -> Self {
        let bounds = Self::new(turn.now, turn.deadline, turn.slice.0);
        Self { interrupt: turn.interrupt, ..bounds }
    }

    /// Begins another slice.
    pub(crate) fn renew(&mut self) {
        self.now = Instant::now();
        self.start = self.now;
    }

    fn check(&mut self) -> Option<Stop> {
        self.has_called = false;
        self.now = Instant::now();
        if self.now >= self.deadline {
            return Some(Stop::Over(End::Deadline));
        }
        let spent = self.now - self.start;
        let is_over = spent >= self.slice || spent >= FIRST_CHUNK && (self.interrupt)();
        is_over.then_some(Stop::Sliced)
    }
}

/// Why [`Machine::run`] came back.
pub(crate) type Stop = serve::Stop<End>;

/// What follows a call.
enum Next {
    /// The same thread, if there is time.
    GoOn,
    /// Perhaps another thread.
    Resched,
    /// The engine has something to do.
    Stop(Stop),
}

/// How a process ends badly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Trap {
        cause: TrapCause,
        address: u64,
    },
    Signal(u8),
    Deadline,
    Memory,
    Stalled,
    /// The machine did what only a broken one does.
    Astray(&'static str),
}

pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> EngineError {
    move |source| EngineError::System { what, source }
}

impl Machine {
    pub(crate) fn new(
        host: &place::Host,
        memory: Memory,
        process: Process<Registers>,
        random: StdRng,
    ) -> Result<Self, EngineError> {
        let place::Host { kvm, entry, clocks, .. } = host;
        let vm = Vm::new(kvm, &memory).map_err(system("cannot create a virtual machine"))?;
        let vcpu = vm.processor(kvm, *entry).map_err(system("cannot set up a processor"))?;
        Ok(Self {
            vcpu,
            vm,
            entry: *entry,
            desk: Desk::default(),
            clocks: *clocks,
            memory,
            process,
            random,
            stand: Stand::Nowhere,
            calls: 0,
            exits: 0,
            cpu_time: Duration::ZERO,
            astray: false,
            prepared: None,
        })
    }

    /// Puts the vector registers of the running thread, which has been saved, where a thread finds
    /// them that starts from the snapshot.
    pub(crate) fn prepare_vectors(&mut self) {
        if let Some(extended) = &self.process.cpu().extended {
            let area = vectors::area(extended);
            self.memory.write_own(VECTORS_AREA, &area);
        }
    }

    /// Takes note that they lie there: the memory is made from a snapshot of this process.
    pub(crate) fn use_prepared_vectors(&mut self) {
        self.prepared.clone_from(&self.process.cpu().extended);
    }

    /// Takes away what lies on the desk: it is no part of a snapshot.
    pub(crate) fn clear_desk(&mut self) {
        self.desk.clear(&mut self.memory);
    }

    pub(crate) fn clear_counts(&mut self) {
        (self.calls, self.exits, self.cpu_time) = (0, 0, Duration::ZERO);
    }

    /// Puts memory and registers back to a snapshot.
    pub(crate) fn reset(&mut self, process: &Process<Registers>) -> Result<(), EngineError> {
        if self.astray {
            return Err(EngineError::Invariant("a virtual machine went astray"));
        }
        if self.memory.reset().map_err(system("cannot reset memory"))? == AfterReset::Watch {
            self.watch(usize::MAX)?;
        }
        self.process.reset_from(process);
        self.desk.forget();
        self.stand = Stand::Nowhere;
        Ok(())
    }

    /// Compares what was reset with a snapshot. The registers of its threads are set when they go
    /// on.
    pub(crate) fn verify(
        &mut self,
        process: &Process<Registers>,
        scrutiny: Scrutiny,
    ) -> Result<(), Mismatch> {
        if self.stand != Stand::Nowhere {
            return Err(Mismatch::Part("place of the running thread"));
        }
        let part = match self.process.differs_from(process) {
            Some(part) => Some(part),
            None => self.vcpu.differs().map_err(system("cannot read registers"))?,
        };
        if let Some(part) = part {
            return Err(Mismatch::Part(part));
        }
        let found = match scrutiny {
            Scrutiny::Everything => self.memory.verify(),
            Scrutiny::Sample => self.memory.verify_sample(self.random.next_u64()),
        };
        match found.map_err(system("cannot look at memory"))? {
            None => Ok(()),
            Some(Difference::Bytes(address)) => Err(Mismatch::Bytes(address)),
            Some(Difference::Access(address)) => Err(Mismatch::Access(address)),
            Some(Difference::LastingCode) => Err(Mismatch::Part("note of changed code")),
        }
    }

    /// Has KVM notice the next write to pages that the guest has written, at most so many.
    fn watch(&mut self, pages: usize) -> Result<(), EngineError> {
        self.vcpu.free_ring(pages);
        self.vm.reset_ring().map_err(system("cannot watch a virtual machine's writes"))
    }

    /// Runs the guest's threads until something needs the engine.
    pub(crate) fn run(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        mut stdin: Option<&mut (dyn Read + Send)>,
    ) -> Result<Stop, EngineError> {
        if bounds.has_called
            && let Some(stop) = self.check(bounds)
        {
            return Ok(stop);
        }
        loop {
            if self.process.has_due_alarm(bounds.now) && self.stand != Stand::Stubs {
                self.save()?;
                self.process.ring(bounds.now);
            }
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
                    return Ok(Stop::Output);
                }
                Schedule::Run => {}
                Schedule::Idle { until } => {
                    self.cpu_time += bounds.start.elapsed();
                    return Ok(Stop::Idle { until });
                }
                Schedule::Stalled => return Ok(Stop::Over(End::Stalled)),
                Schedule::Killed(signal) => return Ok(Stop::Over(End::Signal(signal))),
                Schedule::MemoryLimit => return Ok(Stop::Over(End::Memory)),
            }
            loop {
                let leave = self.enter()?;
                if matches!(leave, Leave::Kicked | Leave::RingFull) {
                    self.interrupted();
                }
                if self.stand != Stand::Stubs {
                    self.take_in();
                }
                if self.memory.is_over_limit() {
                    return Ok(Stop::Over(End::Memory));
                }
                let mut next = Next::GoOn;
                match leave {
                    Leave::Port(CALL_PORT) => next = self.call(bounds, console, &mut stdin)?,
                    Leave::Port(port)
                        if (EXCEPTION_PORT..EXCEPTION_PORT + EXCEPTIONS).contains(&port) =>
                    {
                        let vector = port - EXCEPTION_PORT;
                        next = self.exception(vector, bounds, console, &mut stdin)?;
                    }
                    Leave::Port(_) => return Ok(self.go_astray("write to a port")),
                    Leave::Astray(what) => return Ok(self.go_astray(what)),
                    Leave::RingFull => {
                        // It stops again before it has written more than it may.
                        let pages = self.memory.available() / PAGE;
                        self.watch((pages as usize).max(FEWEST_PAGES))?;
                    }
                    Leave::Kicked => {}
                }
                let mut resched = match next {
                    Next::GoOn => false,
                    Next::Resched => true,
                    Next::Stop(stop) => return Ok(stop),
                };
                if let Some(stop) = self.check(bounds) {
                    return Ok(stop);
                }
                if matches!(leave, Leave::Kicked) && self.process.threads() > 1 {
                    self.preempt()?;
                    resched = true;
                }
                if resched {
                    break;
                }
            }
        }
    }

    /// Looks at the clock, and whether there is an interrupt. `Some` if the turn is over.
    fn check(&mut self, bounds: &mut Bounds<'_>) -> Option<Stop> {
        let stop = bounds.check();
        if stop.is_some() {
            self.cpu_time += bounds.now - bounds.start;
        }
        stop
    }

    fn go_astray(&mut self, what: &'static str) -> Stop {
        self.astray = true;
        Stop::Over(End::Astray(what))
    }

    /// Gives the processor what it does not have of the running thread, and lets it run.
    fn enter(&mut self) -> Result<Leave, EngineError> {
        self.vm
            .attach(self.memory.chunks())
            .map_err(system("cannot give memory to a virtual machine"))?;
        if self.stand != Stand::Stubs {
            let answers = self.process.answers(&mut self.random);
            self.desk.answer(&mut self.memory, &answers);
        }
        let cpu = self.process.cpu();
        match self.stand {
            Stand::Program | Stand::Stubs => {}
            Stand::Call if !cpu.moved => {
                // Where it stands is its own business: only the result is new.
                let mut registers = self.vcpu.registers();
                registers.rax = cpu.general.rax;
                if self.entry == CallEntry::Ring3 {
                    // Ring 0 gives the program its flags by itself.
                    registers.rflags = cpu.loadable_flags();
                }
                self.vcpu.set_registers(&registers);
            }
            Stand::Call | Stand::Exception => {
                let now = self.vcpu.system().map_err(system("cannot read registers"))?;
                let fs = if cpu.new_fs { cpu.loadable_fs() } else { now.fs };
                self.vcpu.set_system(fs, now.gs);
                self.vcpu.set_registers(&cpu.loadable());
                load_extended(&self.vcpu, cpu)?;
            }
            Stand::Nowhere => {
                self.vcpu.set_system(cpu.loadable_fs(), cpu.gs);
                self.vcpu.forget_exceptions();
                let prepared = self.prepared.as_ref();
                if cpu.in_call
                    && cpu.extended.as_ref().zip(prepared).is_some_and(|(a, b)| Arc::ptr_eq(a, b))
                {
                    cpu.extended = None;
                    self.vcpu.set_registers(&cpu.loadable_by_restore());
                } else {
                    self.vcpu.set_registers(&cpu.loadable());
                    load_extended(&self.vcpu, cpu)?;
                }
            }
        }
        (cpu.moved, cpu.new_fs) = (false, false);
        self.stand = Stand::Program;
        if self.clocks
            && let Some(ticks) = Ticks::now()
        {
            let process = &self.process;
            self.desk.show_time(&mut self.memory, ticks, |host| process.clocks(host));
        }
        self.exits += 1;
        self.vcpu
            .run(&mut self.memory, self.vm.slots())
            .map_err(system("cannot run a virtual machine"))
    }

    /// Takes note of the calls that were answered inside the guest.
    fn take_in(&mut self) {
        let (calls, input) = self.desk.used(&self.memory);
        self.calls += calls;
        if let Some((connection, length)) = input {
            self.process.take_in(connection, length);
        }
        for (futex, count) in self.desk.woken(&mut self.memory) {
            self.process.wake_futex(futex, count);
        }
    }

    /// The guest was interrupted, anywhere.
    fn interrupted(&mut self) {
        let rip = self.vcpu.registers().rip;
        let is_program = rip < USER_END || inside::is_function(rip);
        self.stand = if is_program { Stand::Program } else { Stand::Stubs };
    }

    /// Takes the registers of the running thread from the processor, which another thread is to
    /// have.
    pub(crate) fn save(&mut self) -> Result<(), EngineError> {
        if self.stand == Stand::Nowhere || self.stand == Stand::Stubs {
            return Ok(());
        }
        let extended = match self.process.cpu().extended.take() {
            Some(extended) => extended,
            None => self.extended()?,
        };
        let cpu = self.process.cpu();
        cpu.extended = Some(extended);
        if self.stand == Stand::Program {
            cpu.general = self.vcpu.registers();
            cpu.in_call = false;
        }
        let now = self.vcpu.system().map_err(system("cannot read registers"))?;
        if !cpu.new_fs {
            cpu.fs = now.fs;
        }
        cpu.gs = now.gs;
        self.stand = Stand::Nowhere;
        Ok(())
    }

    fn extended(&self) -> Result<Arc<kvm_bindings::kvm_xsave>, EngineError> {
        self.vcpu.extended().map(Arc::from).map_err(system("cannot read vector registers"))
    }

    /// Another thread gets its turn, if there is one that can run.
    fn preempt(&mut self) -> Result<(), EngineError> {
        if self.stand != Stand::Stubs {
            self.save()?;
            self.process.preempt();
        }
        Ok(())
    }

    /// Carries out the call that the running thread is in.
    fn call(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: &mut Option<&mut (dyn Read + Send)>,
    ) -> Result<Next, EngineError> {
        let registers = self.vcpu.registers();
        if registers.rip.wrapping_sub(ENTRY) > inside::LEAVE_LENGTH {
            // The program wrote to the port itself.
            let cpu = self.process.cpu();
            (cpu.general, cpu.moved, cpu.in_call) = (registers, true, false);
            self.stand = Stand::Exception;
            return self.deliver(exception::PRIVILEGED, 0);
        }
        self.process.cpu().begin_call(&registers);
        self.carry_out(bounds, console, stdin)
    }

    /// Carries out the call that the running thread has begun.
    fn carry_out(
        &mut self,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: &mut Option<&mut (dyn Read + Send)>,
    ) -> Result<Next, EngineError> {
        self.calls += 1;
        self.stand = Stand::Call;
        let cpu = self.process.cpu();
        let (number, args) = cpu.call();
        if sandtide_abi::call::is_guest_call(number) {
            // The hot path needs no clock: the one call of a turn is the answer.
            bounds.has_called = true;
            return Ok(Next::Stop(Stop::GuestCall { number, arguments: args }));
        }
        if exception::needs_vectors(number) {
            let extended = self.extended()?;
            self.process.cpu().extended = Some(extended);
        }
        if exception::needs_thread_pointer(number) {
            let now = self.vcpu.system().map_err(system("cannot read registers"))?;
            self.process.cpu().fs = now.fs;
        }
        let threads = self.process.threads();
        let action = self.process.call(&mut Host {
            memory: &mut self.memory,
            console,
            stdin: stdin.as_deref_mut().map(|stdin| stdin as _),
            random: &mut self.random,
            cpu_time: CpuTime { before: self.cpu_time, since: bounds.start },
        });
        if action == Action::Resched {
            // A thread that has ended leaves nothing to save.
            if self.process.threads() < threads {
                self.stand = Stand::Nowhere;
            } else {
                self.save()?;
            }
        } else if !self.process.cpu().moved {
            // The processor has them.
            self.process.cpu().extended = None;
        }
        Ok(match action {
            Action::Continue | Action::Resched if self.process.take_output() => {
                // As for the hot path of guest calls: this may be the answer.
                bounds.has_called = true;
                Next::Stop(Stop::Output)
            }
            Action::Continue => Next::GoOn,
            Action::Resched => Next::Resched,
            Action::GuestCall { number, args } => {
                Next::Stop(Stop::GuestCall { number, arguments: args })
            }
            Action::Exit(code) => Next::Stop(Stop::Exit(code)),
            Action::Killed(signal) => Next::Stop(Stop::Over(End::Signal(signal))),
            Action::MemoryLimit => Next::Stop(Stop::Over(End::Memory)),
        })
    }

    /// The running thread has taken an exception.
    fn exception(
        &mut self,
        vector: u16,
        bounds: &mut Bounds<'_>,
        console: &dyn Console,
        stdin: &mut Option<&mut (dyn Read + Send)>,
    ) -> Result<Next, EngineError> {
        let frame = Frame::read(&self.memory.system(Frame::ADDRESS));
        let registers = self.vcpu.registers();
        if exception::is_of_memory(vector)
            && let Some(call) =
                inside::interrupted_call(self.entry, &frame, &registers, &self.memory)
        {
            self.process.cpu().begin_interrupted_call(&call);
            return self.carry_out(bounds, console, stdin);
        }
        if !frame.is_users() {
            return Ok(Next::Stop(self.go_astray("exception in the stubs")));
        }
        let now = self.vcpu.system().map_err(system("cannot read registers"))?;
        let cpu = self.process.cpu();
        cpu.begin_exception(&registers, &frame);
        self.stand = Stand::Exception;
        if exception::is_page_fault(vector) && self.memory.resolve(now.fault, frame.error) {
            return Ok(Next::GoOn);
        }
        self.deliver(
            exception::of(vector, frame.error),
            exception::address(vector, now.fault, &frame),
        )
    }

    /// Enters the handler of the signal for an exception, if there is one.
    fn deliver(&mut self, what: exception::Exception, address: u64) -> Result<Next, EngineError> {
        let extended = self.extended()?;
        self.process.cpu().extended = Some(extended);
        let info = SignalInfo { signal: what.signal, code: what.code, address };
        Ok(match self.process.deliver(info, &mut self.memory) {
            Delivered::Handler => Next::GoOn,
            Delivered::Fatal(_) => Next::Stop(Stop::Over(End::Trap { cause: what.cause, address })),
            Delivered::MemoryLimit => Next::Stop(Stop::Over(End::Memory)),
        })
    }

    /// The fault for an end, with the place in the guest's code.
    pub(crate) fn fault(&mut self, end: End, limits: &Limits, symbols: &Symbols) -> Fault {
        if matches!(self.stand, Stand::Program) {
            let rip = self.vcpu.registers().rip;
            self.process.cpu().general.rip = rip;
        }
        let backtrace = vec![symbols.locate(self.process.cpu().pc())];
        match end {
            End::Trap { cause, address } => Fault::Trap(Trap { cause, address, backtrace }),
            End::Signal(signal) => Fault::Signal { signal, backtrace },
            End::Deadline => Fault::Deadline { limit: limits.wall_time, backtrace },
            End::Memory => Fault::Memory { limit: limits.memory, backtrace },
            End::Stalled => Fault::Stalled { backtrace },
            End::Astray(what) => {
                Fault::Protocol(format!("the virtual machine went astray: {what}"))
            }
        }
    }
}

impl serve::Machine for Machine {
    type Cpu = Registers;
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
        self.run(bounds, console, stdin)
    }

    fn deadline(bounds: &Bounds<'_>) -> Instant {
        bounds.deadline
    }

    fn renew(bounds: &mut Bounds<'_>) {
        bounds.renew();
    }

    fn parts(&mut self) -> Parts<'_, Registers, Memory> {
        let Self { process, memory, random, .. } = self;
        Parts { process, memory, random }
    }

    fn wait_for_host(&mut self) -> Result<(), EngineError> {
        if self.process.threads() > 1 {
            self.save()?;
        }
        self.process.wait_for_host();
        Ok(())
    }
}

/// Gives the processor the vector registers of a thread.
fn load_extended(vcpu: &Vcpu, cpu: &mut Registers) -> Result<(), EngineError> {
    match cpu.extended.take() {
        Some(extended) => match vcpu.set_extended(&extended) {
            Ok(()) => Ok(()),
            // A signal handler has put something there that is none: it loses them.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            Err(error) => Err(system("cannot set vector registers")(error)),
        },
        None => Ok(()),
    }
}
