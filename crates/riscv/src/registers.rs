//! The registers of this engine, as the Linux layer sees them.

use sandtide_linux::{Architecture, Cpu as LinuxCpu, GuestMemory, MemoryError, SignalEntry};

use crate::isa::Cpu;

/// Register numbers of the calling convention (RISC-V ELF psABI, "Integer Register Convention").
mod x {
    pub(super) const RA: usize = 1;
    pub(super) const SP: usize = 2;
    pub(super) const TP: usize = 4;
    pub(super) const A0: usize = 10;
    pub(super) const A7: usize = 17;
}

/// Where a signal handler returns to. On Linux that is code of the kernel's; here it is an address
/// that no code can have, and a jump to it means `rt_sigreturn`.
pub(crate) const SIGNAL_RETURN: u64 = 0xffff_ffff_ffff_f000;

/// The number of `rt_sigreturn` in Linux's generic table.
const RT_SIGRETURN: u64 = 139;

/// The length of `ecall`.
const CALL_LENGTH: u64 = 4;

/// The frame that Linux for RISC-V pushes for a handler (`struct rt_sigframe`):
///
/// ```text
///    0  siginfo_t   si_signo, si_errno, si_code, -, si_addr
///  128  ucontext_t  uc_flags, uc_link, uc_stack
///  168    uc_sigmask
///  304    uc_mcontext  pc, x1 … x31
///  560      f0 … f31, fcsr
/// ```
mod frame {
    pub(super) const SIGNAL: usize = 0;
    pub(super) const CODE: usize = 8;
    pub(super) const ADDRESS: usize = 16;
    pub(super) const CONTEXT: usize = 128;
    pub(super) const MASK: usize = 168;
    pub(super) const PC: usize = 304;
    pub(super) const FLOATS: usize = 560;
    pub(super) const FCSR: usize = 816;
    pub(super) const SIZE: usize = 1088;
}

impl Cpu {
    /// Turns a return from a signal handler into the system call that it stands for.
    pub(crate) fn begin_signal_return(&mut self) {
        self.x[x::A7] = RT_SIGRETURN;
    }

    /// `x0` to `x31`.
    pub(crate) fn integers(&self) -> [u64; 32] {
        std::array::from_fn(|number| self.x[number])
    }
}

impl LinuxCpu for Cpu {
    const ARCHITECTURE: Architecture = Architecture::Riscv64;

    fn call(&self) -> (u64, [u64; 6]) {
        (self.x[x::A7], std::array::from_fn(|index| self.x[x::A0 + index]))
    }

    fn set_result(&mut self, value: u64) {
        self.x[x::A0] = value;
    }

    fn restart_call(&mut self) {
        self.pc = self.pc.wrapping_sub(CALL_LENGTH);
    }

    fn pc(&self) -> u64 {
        self.pc
    }

    fn sp(&self) -> u64 {
        self.x[x::SP]
    }

    fn set_sp(&mut self, sp: u64) {
        self.x[x::SP] = sp;
    }

    fn thread_pointer(&self) -> u64 {
        self.x[x::TP]
    }

    fn set_thread_pointer(&mut self, value: u64) {
        self.x[x::TP] = value;
    }

    fn enter_signal(
        &mut self,
        memory: &mut dyn GuestMemory,
        entry: &SignalEntry,
    ) -> Result<(), MemoryError> {
        let top = entry.alternate_stack_top.unwrap_or(self.x[x::SP]);
        let at = top.wrapping_sub(frame::SIZE as u64) & !15;
        let bytes = memory.view_mut(at, frame::SIZE as u64)?;
        bytes.fill(0);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(frame::SIGNAL, &u32::from(entry.info.signal).to_le_bytes());
        put(frame::CODE, &entry.info.code.to_le_bytes());
        put(frame::ADDRESS, &entry.info.address.to_le_bytes());
        put(frame::MASK, &entry.saved_mask.to_le_bytes());
        put(frame::PC, &self.pc.to_le_bytes());
        for number in 1..32 {
            put(frame::PC + 8 * number, &self.x[number].to_le_bytes());
        }
        for (number, value) in self.f.iter().enumerate() {
            put(frame::FLOATS + 8 * number, &value.to_le_bytes());
        }
        put(frame::FCSR, &self.fcsr().to_le_bytes());
        self.x[x::A0] = u64::from(entry.info.signal);
        self.x[x::A0 + 1] = at;
        self.x[x::A0 + 2] = at + frame::CONTEXT as u64;
        self.x[x::SP] = at;
        self.x[x::RA] = SIGNAL_RETURN;
        self.pc = entry.handler;
        self.reservation = None;
        Ok(())
    }

    fn leave_signal(&mut self, memory: &dyn GuestMemory) -> Result<u64, MemoryError> {
        let bytes = memory.view(self.x[x::SP], frame::SIZE as u64)?;
        let word = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        self.pc = word(frame::PC);
        for number in 1..32 {
            self.x[number] = word(frame::PC + 8 * number);
        }
        for number in 0..32 {
            self.f[number] = word(frame::FLOATS + 8 * number);
        }
        self.set_fcsr(word(frame::FCSR) as u32);
        self.reservation = None;
        Ok(word(frame::MASK))
    }
}
