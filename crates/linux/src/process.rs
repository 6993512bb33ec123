//! A guest process: the kernel's state and the registers of every thread.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rand::RngCore;

use crate::{
    Action, Cpu, Delivered, Errno, GuestMemory, Host, ImageLayout, ProcessSetup, Schedule,
    SignalInfo, StartError, guest,
    kernel::{CallResult, Flow, Kernel, NewThread, Stop, fail, negated},
    start, table,
    threads::{Event, State, Wait, Wake},
};

/// A guest process.
///
/// Holds everything that a reset must restore, except memory, which is the engine's. A clone is a
/// snapshot, without connections to the outside. Exactly one thread is the *running* one; its registers are [`Process::cpu`].
#[derive(Debug)]
pub struct Process<C: Cpu> {
    pub(crate) kernel: Kernel,
    /// The registers of each thread, in the order of the kernel's threads.
    pub(crate) cpus: Vec<C>,
    /// For the log, so no part of a snapshot.
    pub(crate) unknown: BTreeMap<&'static str, u64>,
}

impl<C: Cpu> Clone for Process<C> {
    fn clone(&self) -> Self {
        let mut kernel = self.kernel.clone();
        kernel.forget_links();
        Self { kernel, cpus: self.cpus.clone(), unknown: BTreeMap::new() }
    }
}

impl<C: Cpu> Process<C> {
    /// Lays out the address space behind the image, maps the stack with a guard, writes
    /// arguments, environment and auxiliary vector to it, and sets the stack pointer. The engine
    /// sets the program counter.
    pub fn start(
        image: &ImageLayout,
        setup: &ProcessSetup<'_>,
        mut cpu: C,
        memory: &mut dyn GuestMemory,
        random: &mut dyn RngCore,
    ) -> Result<Self, StartError> {
        let (kernel, sp) = start::start(C::ARCHITECTURE, image, setup, memory, random)?;
        cpu.set_sp(sp);
        Ok(Self { kernel, cpus: vec![cpu], unknown: BTreeMap::new() })
    }

    /// A process of these parts.
    pub(crate) fn of(kernel: Kernel, cpus: Vec<C>) -> Self {
        Self { kernel, cpus, unknown: BTreeMap::new() }
    }

    /// The registers of the running thread.
    pub fn cpu(&mut self) -> &mut C {
        &mut self.cpus[self.kernel.threads.running()]
    }

    /// Carries out the system call that the running thread is in.
    pub fn call(&mut self, host: &mut Host<'_>) -> Action {
        let (number, args) = self.cpu().call();
        if sandtide_abi::call::is_guest_call(number) {
            return Action::GuestCall { number, args };
        }
        let result = match table::find(C::ARCHITECTURE, number) {
            Some(entry) => (entry.handler)(&mut self.kernel, host, args),
            None => {
                *self.unknown.entry(table::name(C::ARCHITECTURE, number)).or_default() += 1;
                fail(Errno::NOSYS)
            }
        };
        self.finish(result, host.memory)
    }

    /// Does what a call's outcome asks for.
    fn finish(&mut self, result: CallResult, memory: &mut dyn GuestMemory) -> Action {
        match result {
            Ok(Flow::Value(value)) => self.cpu().set_result(value),
            Err(Stop::Errno(errno)) => self.cpu().set_result(negated(errno)),
            Err(Stop::MemoryLimit) => return Action::MemoryLimit,
            Ok(Flow::Parked) => {
                self.kernel.heed_pending();
                return Action::Resched;
            }
            Ok(Flow::Yield) => {
                self.cpu().set_result(0);
                self.preempt();
                return Action::Resched;
            }
            Ok(Flow::Clone(new)) => self.clone_thread(&new),
            Ok(Flow::SignalReturn) => match self.cpu().leave_signal(memory) {
                Ok(mask) => self.kernel.set_mask(mask),
                Err(_) => return Action::Killed(crate::signals::SIGSEGV),
            },
            Ok(Flow::GetThreadPointer(address)) => {
                let pointer = self.cpu().thread_pointer();
                let result = guest::write_words(memory, address, &[pointer]);
                return self.finish(result.map(|()| Flow::Value(0)).map_err(Stop::from), memory);
            }
            Ok(Flow::SetThreadPointer(value)) => {
                self.cpu().set_thread_pointer(value);
                self.cpu().set_result(0);
            }
            Ok(Flow::ThreadExit(code)) => {
                let Some(index) = self.kernel.threads.change().remove_current() else {
                    return Action::Exit(code);
                };
                self.cpus.remove(index);
                return Action::Resched;
            }
            Ok(Flow::Exit(code)) => return Action::Exit(code),
            Ok(Flow::GuestCall { number, args }) => return Action::GuestCall { number, args },
        }
        let thread = self.kernel.threads.current();
        if thread.call_deadline.is_some() || thread.timed_out {
            let thread = self.kernel.threads.change().current_mut();
            (thread.call_deadline, thread.timed_out) = (None, false);
        }
        // A handler's frame has all registers, of which an engine may not have all at hand.
        if self.kernel.has_handler_to_enter() {
            return Action::Resched;
        }
        match self.deliver_pending(memory) {
            Delivered::Handler => Action::Continue,
            Delivered::Fatal(signal) => Action::Killed(signal),
            Delivered::MemoryLimit => Action::MemoryLimit,
        }
    }

    fn clone_thread(&mut self, new: &NewThread) {
        let mut child = self.cpu().clone();
        child.set_result(0);
        if new.stack_pointer != 0 {
            child.set_sp(new.stack_pointer);
        }
        if let Some(pointer) = new.thread_pointer {
            child.set_thread_pointer(pointer);
        }
        self.cpus.push(child);
        self.cpu().set_result(u64::from(new.tid));
    }

    /// Wakes threads whose time has come and picks the thread that runs next. The running thread
    /// goes on if it can. A call that waited for something that has happened is carried out here.
    pub fn schedule(&mut self, now: Instant, host: &mut Host<'_>) -> Schedule {
        self.kernel.go_on(now);
        loop {
            let deadline = self.kernel.threads.next_deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                self.kernel.threads.change().expire(now);
            }
            let timer = self.kernel.next_timer();
            if timer.is_some_and(|due| due <= now) {
                self.kernel.tell_timers(now);
            }
            if self.kernel.threads.current().state != State::Running {
                if !self.kernel.threads.has_ready() {
                    // None of the deadlines has passed, or a thread would be ready.
                    let alarm = self.kernel.signals.alarm.next();
                    let deadline = [deadline, timer, alarm].into_iter().flatten().min();
                    let is_heard = || self.kernel.may_hear_from_host();
                    let may_go_on = self.kernel.threads.any_waits_for_host() || is_heard();
                    return if deadline.is_some() || may_go_on {
                        Schedule::Idle { until: deadline }
                    } else {
                        Schedule::Stalled
                    };
                }
                match self.kernel.threads.change().pick() {
                    Some(Wake::Result(value)) => self.cpu().set_result(value),
                    Some(Wake::Restart) => self.cpu().restart_call(),
                    Some(Wake::Retry) => match self.call(host) {
                        // Perhaps somebody else was faster.
                        Action::Resched => continue,
                        Action::Killed(signal) => return Schedule::Killed(signal),
                        Action::MemoryLimit => return Schedule::MemoryLimit,
                        // No call that waits is a guest call, or ends the process.
                        Action::Continue | Action::GuestCall { .. } | Action::Exit(_) => {}
                    },
                    Some(Wake::AsIs) | None => {}
                }
            }
            return match self.deliver_pending(host.memory) {
                Delivered::Handler => Schedule::Run,
                Delivered::Fatal(signal) => Schedule::Killed(signal),
                Delivered::MemoryLimit => Schedule::MemoryLimit,
            };
        }
    }

    /// Whether [`Process::ring`] has something to do.
    pub fn has_due_alarm(&self, now: Instant) -> bool {
        self.kernel.signals.alarm.next().is_some_and(|next| next <= now)
    }

    /// Sends the signal of an alarm whose time has come. [`Process::cpu`] must have the registers
    /// of the running thread, which may enter its handler in [`Process::schedule`].
    pub fn ring(&mut self, now: Instant) {
        if self.has_due_alarm(now) {
            self.kernel.signals.change().alarm.take(now);
            self.kernel.send_signal(None, crate::signals::SIGALRM);
        }
    }

    /// Puts the running thread behind the others that can run, so that a thread that spins on a
    /// lock lets its holder run. Call [`Process::schedule`] next.
    pub fn preempt(&mut self) {
        if self.kernel.threads.has_ready() {
            self.kernel.threads.change().requeue_current();
        }
    }

    /// The running thread waits for the host: it stands in front of its call instruction again,
    /// parked until [`Process::wake_host_waiters`]. Call [`Process::schedule`] next.
    pub fn wait_for_host(&mut self) {
        self.cpu().restart_call();
        self.kernel.threads.change().park(Wait {
            event: Event::Host,
            deadline: None,
            on_timeout: Wake::Result(0),
            restartable: true,
        });
    }

    /// Lets every thread that waits for the host make its call again.
    pub fn wake_host_waiters(&mut self) {
        if self.kernel.threads.any_waits_for_host() {
            let threads = self.kernel.threads.change();
            for index in threads.waiting(|event| event == Event::Host) {
                threads.wake(index, Wake::AsIs);
            }
        }
    }

    /// What the guest's `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME` show when the host's
    /// `CLOCK_MONOTONIC` shows this. They go at its pace as long as the process runs.
    pub fn clocks(&self, host: Duration) -> (Duration, Duration) {
        (self.kernel.pause.monotonic(host), self.kernel.pause.boot(host))
    }

    /// How many threads are alive.
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }

    /// Whether anything but the registers of the running thread has changed since this process
    /// was cloned or reset.
    pub fn has_changed(&self) -> bool {
        self.kernel.has_changed()
    }

    /// Makes this process what `snapshot` is. It must be the one that this process was cloned
    /// from or was last reset to. Copies the running thread's registers and
    /// what has changed, into allocations that are there.
    pub fn reset_from(&mut self, snapshot: &Self) {
        if self.kernel.reset_from(&snapshot.kernel) {
            self.cpus.clone_from(&snapshot.cpus);
        } else {
            let running = self.kernel.threads.running();
            self.cpus[running].clone_from(&snapshot.cpus[running]);
        }
    }

    /// Whether [`Process::take_unknown_calls`] has something to say.
    pub fn has_unknown_calls(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// System calls that are not implemented and were made since the last time this was asked,
    /// with how often. Neither copied by a clone nor undone by a reset.
    pub fn take_unknown_calls(&mut self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut self.unknown).into_iter().collect()
    }

    /// A trap in the running thread: enters its handler for that signal, if it has one that can
    /// be entered.
    pub fn deliver(&mut self, info: SignalInfo, memory: &mut dyn GuestMemory) -> Delivered {
        self.deliver_trap(info, memory)
    }
}
