//! Registers for system calls, without instructions.

use sandtide_linux::{Architecture, Cpu, GuestMemory, MemoryError, SignalEntry};
use serde::{Deserialize, Serialize};

/// Registers, as far as the system knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FakeCpu<const X86: bool> {
    number: u64,
    args: [u64; 6],
    result: Option<u64>,
    pc: u64,
    sp: u64,
    thread_pointer: u64,
    /// The call is to be made again.
    restarts: bool,
}

/// The bytes of a signal frame.
const FRAME: u64 = 128;

impl<const X86: bool> Cpu for FakeCpu<X86> {
    const ARCHITECTURE: Architecture =
        if X86 { Architecture::X86_64 } else { Architecture::Riscv64 };

    fn call(&self) -> (u64, [u64; 6]) {
        (self.number, self.args)
    }

    fn set_result(&mut self, value: u64) {
        self.result = Some(value);
        self.restarts = false;
    }

    fn restart_call(&mut self) {
        self.restarts = true;
        self.pc = self.pc.wrapping_sub(4);
    }

    fn pc(&self) -> u64 {
        self.pc
    }

    fn sp(&self) -> u64 {
        self.sp
    }

    fn set_sp(&mut self, sp: u64) {
        self.sp = sp;
    }

    fn thread_pointer(&self) -> u64 {
        self.thread_pointer
    }

    fn set_thread_pointer(&mut self, value: u64) {
        self.thread_pointer = value;
    }

    fn enter_signal(
        &mut self,
        memory: &mut dyn GuestMemory,
        entry: &SignalEntry,
    ) -> Result<(), MemoryError> {
        let at = entry.alternate_stack_top.unwrap_or(self.sp).wrapping_sub(FRAME) & !15;
        let frame = memory.view_mut(at, FRAME)?;
        for (place, value) in [self.pc, self.sp, entry.saved_mask].into_iter().enumerate() {
            frame[8 * place..][..8].copy_from_slice(&value.to_le_bytes());
        }
        (self.pc, self.sp) = (entry.handler, at);
        Ok(())
    }

    fn leave_signal(&mut self, memory: &dyn GuestMemory) -> Result<u64, MemoryError> {
        let frame = memory.view(self.sp, FRAME)?;
        let word = |place: usize| {
            u64::from_le_bytes(std::array::from_fn(|index| frame[8 * place + index]))
        };
        (self.pc, self.sp) = (word(0), word(1));
        Ok(word(2))
    }
}

/// How calls are put into registers.
pub(crate) trait Calling: Cpu + PartialEq + std::fmt::Debug + Default {
    fn begin(&mut self, number: u64, args: [u64; 6]);
    fn restarts(&self) -> bool;
    fn result(&self) -> Option<u64>;
}

impl<const X86: bool> Calling for FakeCpu<X86> {
    fn begin(&mut self, number: u64, args: [u64; 6]) {
        (self.number, self.args, self.result, self.restarts) = (number, args, None, false);
        self.pc = self.pc.wrapping_add(4);
    }

    fn restarts(&self) -> bool {
        self.restarts
    }

    fn result(&self) -> Option<u64> {
        self.result
    }
}
