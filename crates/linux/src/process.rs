//! A guest process: the kernel's state and the registers of every thread.

use std::time::Instant;

use rand::RngCore;

use crate::{
    Action, Cpu, Delivered, GuestMemory, Host, ImageLayout, ProcessSetup, Schedule, SignalInfo,
    StartError,
};

/// A guest process.
///
/// Holds everything that a reset must restore, except memory, which is the engine's. A clone is a
/// snapshot. Exactly one thread is the *running* one; its registers are [`Process::cpu`].
#[derive(Debug, Clone)]
pub struct Process<C: Cpu> {
    cpus: Vec<C>,
    running: usize,
}

impl<C: Cpu> Process<C> {
    /// Lays out the address space behind the image, maps the stack with a guard, writes
    /// arguments, environment and auxiliary vector to it, and sets the stack pointer. The engine
    /// sets the program counter.
    pub fn start(
        image: &ImageLayout,
        setup: &ProcessSetup<'_>,
        cpu: C,
        memory: &mut dyn GuestMemory,
        random: &mut dyn RngCore,
    ) -> Result<Self, StartError> {
        let _ = (image, setup, memory, random);
        Ok(Self { cpus: vec![cpu], running: 0 })
    }

    /// The registers of the running thread.
    pub fn cpu(&mut self) -> &mut C {
        &mut self.cpus[self.running]
    }

    /// Carries out the system call that the running thread is in.
    pub fn call(&mut self, host: &mut Host<'_>) -> Action {
        let _ = host;
        let (number, args) = self.cpus[self.running].call();
        if sandtide_abi::call::is_guest_call(number) {
            return Action::GuestCall { number, args };
        }
        self.cpu().set_result((-38i64) as u64);
        Action::Continue
    }

    /// Wakes threads whose time has come and picks the thread that runs next. The running thread
    /// goes on if it can.
    pub fn schedule(&mut self, now: Instant, memory: &mut dyn GuestMemory) -> Schedule {
        let _ = (now, memory);
        Schedule::Run
    }

    /// Puts the running thread behind the others that can run, so that a thread that spins on a
    /// lock lets its holder run. Call [`Process::schedule`] next.
    pub fn preempt(&mut self) {}

    /// The running thread waits for the host: it stands in front of its call instruction again,
    /// parked until [`Process::wake_host_waiters`]. Call [`Process::schedule`] next.
    pub fn wait_for_host(&mut self) {
        self.cpu().restart_call();
    }

    /// Lets every thread that waits for the host make its call again.
    pub fn wake_host_waiters(&mut self) {}

    /// A trap in the running thread: enters its handler for that signal, if it has one that can
    /// be entered.
    pub fn deliver(&mut self, info: SignalInfo, memory: &mut dyn GuestMemory) -> Delivered {
        let _ = memory;
        Delivered::Fatal(info.signal)
    }

    /// How many threads are alive.
    pub fn threads(&self) -> usize {
        self.cpus.len()
    }

    /// Whether anything but the registers of the running thread has changed since this process
    /// was cloned or reset.
    pub fn has_changed(&self) -> bool {
        true
    }

    /// Makes this process what `snapshot` is. It must be the one that this process was cloned
    /// from, was last reset to, or was last kept in. Copies the running thread's registers and
    /// what has changed, into allocations that are there.
    pub fn reset_from(&mut self, snapshot: &Self) {
        self.clone_from(snapshot);
    }

    /// The opposite of [`Process::reset_from`]: makes `snapshot` what this process is, by copying
    /// what has changed.
    pub fn keep_in(&mut self, snapshot: &mut Self) {
        snapshot.clone_from(self);
    }

    /// System calls that are not implemented and were made since the last time this was asked,
    /// with how often. Neither copied by a clone nor undone by a reset.
    pub fn take_unknown_calls(&mut self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}
