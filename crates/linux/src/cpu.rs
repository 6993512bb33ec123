//! The registers of a guest thread, as the system calls see them. One implementation for each
//! instruction set.

use serde::{Deserialize, Serialize};

use crate::memory::{GuestMemory, MemoryError};

/// The instruction sets whose Linux this crate implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Architecture {
    /// RV64, with Linux's generic system-call numbers.
    Riscv64,
    /// x86-64, with numbers of its own.
    X86_64,
}

impl Architecture {
    /// What `uname` and `AT_PLATFORM` call it.
    pub(crate) fn machine(self) -> &'static str {
        match self {
            Self::Riscv64 => "riscv64",
            Self::X86_64 => "x86_64",
        }
    }
}

/// What a signal handler is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalInfo {
    /// The signal number.
    pub signal: u8,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`, or 0.
    pub address: u64,
}

/// What to push for a signal handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalEntry {
    /// What happened.
    pub info: SignalInfo,
    /// The handler's address.
    pub handler: u64,
    /// `sa_restorer`, where the instruction set has one; 0 otherwise.
    pub restorer: u64,
    /// The top of the alternate stack, if the handler runs on it.
    pub alternate_stack_top: Option<u64>,
    /// The signal mask to restore when the handler returns.
    pub saved_mask: u64,
}

/// The registers of one guest thread.
pub trait Cpu: Clone + Send + 'static {
    /// The instruction set.
    const ARCHITECTURE: Architecture;

    /// The number and the arguments of the system call that the thread is in.
    fn call(&self) -> (u64, [u64; 6]);

    /// Sets the result of the system call. The thread goes on behind it.
    fn set_result(&mut self, value: u64);

    /// Puts the thread back in front of its system-call instruction, to make the call again with
    /// the same arguments.
    fn restart_call(&mut self);

    /// The address of the next instruction.
    fn pc(&self) -> u64;

    /// The stack pointer.
    fn sp(&self) -> u64;

    /// Sets the stack pointer.
    fn set_sp(&mut self, sp: u64);

    /// The thread pointer (`tp`, `fs` base).
    fn thread_pointer(&self) -> u64;

    /// Sets the thread pointer.
    fn set_thread_pointer(&mut self, value: u64);

    /// Writes a signal frame with all registers to the guest's stack and enters the handler.
    fn enter_signal(
        &mut self,
        memory: &mut dyn GuestMemory,
        entry: &SignalEntry,
    ) -> Result<(), MemoryError>;

    /// Undoes [`Self::enter_signal`] from the frame at the stack pointer, and returns the signal
    /// mask to restore. Every value of the frame is the guest's and may be anything.
    fn leave_signal(&mut self, memory: &dyn GuestMemory) -> Result<u64, MemoryError>;
}
