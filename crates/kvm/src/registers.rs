//! The registers of a thread, as the Linux layer sees them.

use std::sync::Arc;

use kvm_bindings::{kvm_regs, kvm_xsave};
use sandtide_linux::{Architecture, Cpu, GuestMemory, MemoryError, SignalEntry};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    paging::USER_END,
    stubs::{Frame, RESTORE},
};

/// The length of `syscall`.
const CALL_LENGTH: u64 = 2;

/// Bytes below the stack pointer that belong to the function that runs (System V ABI, "red zone").
const RED_ZONE: u64 = 128;

/// The flags that a program may have: carry to overflow without interrupts, and alignment check,
/// identification.
const USER_FLAGS: u64 = 0x24_0dd5;

/// The flag that is always set.
const FIXED_FLAGS: u64 = 2;

/// The size of the area for extended state, in bytes.
const EXTENDED: u64 = 4096;

/// The smallest stack that a signal handler can have: its frame, and some to work with.
pub(crate) const SIGNAL_STACK: u64 = EXTENDED + frame::SIZE as u64 + RED_ZONE + 1024;

/// An address that no program can have: where a thread goes that jumps to an impossible one.
const NOWHERE: u64 = 0x7fff_ffff_f000;

/// The frame that Linux for x86-64 pushes for a handler (`struct rt_sigframe`):
///
/// ```text
///    0  pretcode: where the handler returns to
///    8  ucontext_t  uc_flags, uc_link, uc_stack
///   48    uc_mcontext  r8 … r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, …, fpstate
///  304    uc_sigmask
///  312  siginfo_t   si_signo, si_errno, si_code, -, si_addr
/// ```
mod frame {
    pub(super) const CONTEXT: u64 = 8;
    pub(super) const REGISTERS: usize = 48;
    pub(super) const SEGMENTS: usize = 192;
    pub(super) const ADDRESS: usize = 224;
    pub(super) const EXTENDED: usize = 232;
    pub(super) const MASK: usize = 304;
    pub(super) const INFO: usize = 312;
    pub(super) const SIZE: usize = 440;
}

/// The registers of one thread.
///
/// While a thread runs, the processor has them; here they are as of its last exit.
#[derive(Clone, Default)]
pub(crate) struct Registers {
    pub(crate) general: kvm_regs,
    pub(crate) fs: u64,
    pub(crate) gs: u64,
    /// Floating-point and vector registers, while the processor does not have them.
    pub(crate) extended: Option<Arc<kvm_xsave>>,
    /// The number of the call that the thread is in; its result takes its place in `rax`.
    number: u64,
    /// More than the result of a call has changed since the last exit.
    pub(crate) moved: bool,
    /// `fs` is another than the processor has.
    pub(crate) new_fs: bool,
    /// The thread is in a call, or in front of one: `rcx` and `r11` may change.
    pub(crate) in_call: bool,
}

impl std::fmt::Debug for Registers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registers").field("general", &self.general).finish_non_exhaustive()
    }
}

/// The registers of a thread on disk.
#[derive(Serialize, Deserialize)]
struct Saved {
    general: [u64; 18],
    fs: u64,
    gs: u64,
    /// Without the zeros at its end.
    extended: Option<Vec<u32>>,
    number: u64,
    in_call: bool,
}

impl Serialize for Registers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let general = self.clone().in_frame().map(|register| *register);
        let extended = self.extended.as_ref().map(|extended| {
            let length = extended.region.iter().rposition(|word| *word != 0);
            extended.region[..length.map_or(0, |last| last + 1)].to_vec()
        });
        let Self { fs, gs, number, in_call, .. } = *self;
        Saved { general, fs, gs, extended, number, in_call }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Registers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let saved = Saved::deserialize(deserializer)?;
        let extended = saved.extended.map(|words| {
            let mut extended = kvm_xsave::default();
            let region = extended.region.get_mut(..words.len());
            region.ok_or(de::Error::custom("too many vector registers"))?.copy_from_slice(&words);
            Ok(Arc::new(extended))
        });
        let mut this = Self { extended: extended.transpose()?, ..Self::default() };
        for (register, value) in this.in_frame().into_iter().zip(saved.general) {
            *register = value;
        }
        // No processor takes others.
        let is_canonical = |address: u64| (address as i64) << 16 >> 16 == address as i64;
        if !is_canonical(saved.gs) {
            return Err(de::Error::custom("a base of `gs` that no processor takes"));
        }
        (this.fs, this.gs) = (saved.fs, saved.gs);
        (this.number, this.in_call) = (saved.number, saved.in_call);
        (this.moved, this.new_fs) = (true, true);
        Ok(this)
    }
}

/// Vector registers are the same if their bytes are.
impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        let Self { general, fs, gs, extended, number, moved, new_fs, in_call } = self;
        let region = |extended: &Option<Arc<kvm_xsave>>| extended.as_ref().map(|area| area.region);
        (general, fs, gs, number) == (&other.general, &other.fs, &other.gs, &other.number)
            && (moved, new_fs, in_call) == (&other.moved, &other.new_fs, &other.in_call)
            && region(extended) == region(&other.extended)
    }
}

impl Registers {
    /// A thread that starts at an address.
    pub(crate) fn new(entry: u64) -> Self {
        let general = kvm_regs { rip: entry, rflags: FIXED_FLAGS, ..kvm_regs::default() };
        Self { general, ..Self::default() }
    }

    /// The thread has made a system call: these are the processor's registers.
    #[inline]
    pub(crate) fn begin_call(&mut self, registers: &kvm_regs) {
        self.general = *registers;
        self.number = registers.rax;
        // Where `syscall` has put them, and where it returns to.
        (self.general.rip, self.general.rflags) = (registers.rcx, registers.r11);
        (self.moved, self.in_call) = (false, true);
    }

    /// The thread has made a system call that ended in an exception: these are its registers.
    pub(crate) fn begin_interrupted_call(&mut self, registers: &kvm_regs) {
        self.begin_call(registers);
        self.moved = true;
    }

    /// The thread has taken an exception.
    pub(crate) fn begin_exception(&mut self, registers: &kvm_regs, frame: &Frame) {
        self.general = *registers;
        (self.general.rip, self.general.rsp) = (frame.rip, frame.rsp);
        self.general.rflags = frame.rflags;
        (self.moved, self.in_call) = (true, false);
    }

    /// The flags, fit for a processor in ring 3.
    pub(crate) fn loadable_flags(&self) -> u64 {
        self.general.rflags & USER_FLAGS | FIXED_FLAGS
    }

    /// The general registers, fit for a processor in ring 3.
    pub(crate) fn loadable(&self) -> kvm_regs {
        let mut general = self.general;
        general.rflags = self.loadable_flags();
        if general.rip >= 1 << 47 {
            general.rip = NOWHERE;
        }
        general
    }

    /// The same, for a thread that is in a call and goes on by way of [`crate::stubs::RESTORE`].
    pub(crate) fn loadable_by_restore(&self) -> kvm_regs {
        let general = self.loadable();
        kvm_regs { rcx: general.rip, r11: general.rax, rip: RESTORE, ..general }
    }

    /// The base of `fs`, fit for a processor.
    pub(crate) fn loadable_fs(&self) -> u64 {
        if self.fs < USER_END { self.fs } else { 0 }
    }

    /// In the order of a signal frame.
    fn in_frame(&mut self) -> [&mut u64; 18] {
        let general = &mut self.general;
        [
            &mut general.r8,
            &mut general.r9,
            &mut general.r10,
            &mut general.r11,
            &mut general.r12,
            &mut general.r13,
            &mut general.r14,
            &mut general.r15,
            &mut general.rdi,
            &mut general.rsi,
            &mut general.rbp,
            &mut general.rbx,
            &mut general.rdx,
            &mut general.rax,
            &mut general.rcx,
            &mut general.rsp,
            &mut general.rip,
            &mut general.rflags,
        ]
    }
}

impl Cpu for Registers {
    const ARCHITECTURE: Architecture = Architecture::X86_64;

    fn call(&self) -> (u64, [u64; 6]) {
        let kvm_regs { rdi, rsi, rdx, r10, r8, r9, .. } = self.general;
        (self.number, [rdi, rsi, rdx, r10, r8, r9])
    }

    fn set_result(&mut self, value: u64) {
        self.general.rax = value;
    }

    fn restart_call(&mut self) {
        self.general.rip = self.general.rip.wrapping_sub(CALL_LENGTH);
        self.general.rax = self.number;
        self.moved = true;
    }

    fn pc(&self) -> u64 {
        self.general.rip
    }

    fn sp(&self) -> u64 {
        self.general.rsp
    }

    fn set_sp(&mut self, sp: u64) {
        self.general.rsp = sp;
        self.moved = true;
    }

    fn thread_pointer(&self) -> u64 {
        self.fs
    }

    fn set_thread_pointer(&mut self, value: u64) {
        self.fs = value;
        self.new_fs = true;
        self.moved = true;
    }

    fn enter_signal(
        &mut self,
        memory: &mut dyn GuestMemory,
        entry: &SignalEntry,
    ) -> Result<(), MemoryError> {
        let own = self.general.rsp.wrapping_sub(RED_ZONE);
        let mut top = entry.alternate_stack_top.unwrap_or(own);
        let extended = self.extended.take();
        if let Some(extended) = &extended {
            top = top.wrapping_sub(EXTENDED) & !63;
            let area = memory.view_mut(top, EXTENDED)?;
            for (bytes, word) in area.as_chunks_mut::<4>().0.iter_mut().zip(extended.region) {
                *bytes = word.to_le_bytes();
            }
        }
        // As after a call: 8 above a multiple of 16.
        let at = (top.wrapping_sub(frame::SIZE as u64) & !15).wrapping_sub(8);
        let bytes = memory.view_mut(at, frame::SIZE as u64)?;
        bytes.fill(0);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &entry.restorer.to_le_bytes());
        for (index, value) in self.in_frame().into_iter().enumerate() {
            put(frame::REGISTERS + 8 * index, &value.to_le_bytes());
        }
        put(frame::SEGMENTS, &crate::stubs::selector::USER_CODE.to_le_bytes());
        put(frame::SEGMENTS + 6, &crate::stubs::selector::USER_DATA.to_le_bytes());
        put(frame::ADDRESS, &entry.info.address.to_le_bytes());
        put(frame::EXTENDED, &if extended.is_some() { top } else { 0 }.to_le_bytes());
        put(frame::MASK, &entry.saved_mask.to_le_bytes());
        put(frame::INFO, &u32::from(entry.info.signal).to_le_bytes());
        put(frame::INFO + 8, &entry.info.code.to_le_bytes());
        put(frame::INFO + 16, &entry.info.address.to_le_bytes());
        let general = &mut self.general;
        general.rdi = u64::from(entry.info.signal);
        general.rsi = at.wrapping_add(frame::INFO as u64);
        general.rdx = at.wrapping_add(frame::CONTEXT);
        (general.rax, general.rsp, general.rip) = (0, at, entry.handler);
        general.rflags = FIXED_FLAGS;
        (self.moved, self.in_call) = (true, false);
        Ok(())
    }

    fn leave_signal(&mut self, memory: &dyn GuestMemory) -> Result<u64, MemoryError> {
        // The handler's return has taken `pretcode` off.
        let at = self.general.rsp.wrapping_sub(8);
        let bytes = memory.view(at, frame::SIZE as u64)?;
        let word = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        let (mask, area) = (word(frame::MASK), word(frame::EXTENDED));
        self.extended = match area {
            0 => None,
            area => {
                let bytes = memory.view(area, EXTENDED)?;
                let mut extended = kvm_xsave::default();
                for (word, bytes) in extended.region.iter_mut().zip(bytes.as_chunks::<4>().0) {
                    *word = u32::from_le_bytes(*bytes);
                }
                Some(Arc::new(extended))
            }
        };
        let values: [u64; 18] = std::array::from_fn(|index| word(frame::REGISTERS + 8 * index));
        for (register, value) in self.in_frame().into_iter().zip(values) {
            *register = value;
        }
        (self.moved, self.in_call) = (true, false);
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sandtide_linux::{Protection, SignalInfo};

    use super::*;
    use crate::{memory::Memory, stubs::CallEntry};

    const STACK: u64 = 0x10_0000;
    const LENGTH: u64 = 0x4000;

    fn memory() -> Memory {
        let mut memory = Memory::new(1 << 20, CallEntry::Ring3).unwrap();
        memory.map(STACK, LENGTH, Protection { read: true, write: true, execute: false });
        memory
    }

    fn entry() -> SignalEntry {
        SignalEntry {
            info: SignalInfo { signal: 11, code: 1, address: 0x10 },
            handler: 0x40_1000,
            restorer: 0x40_2000,
            alternate_stack_top: None,
            saved_mask: 0b101,
        }
    }

    #[test]
    fn a_handler_returns_to_what_it_interrupted() {
        let mut memory = memory();
        let mut registers = Registers::new(0x40_0000);
        registers.general.rsp = STACK + LENGTH;
        registers.general.r15 = 15;
        registers.general.rax = 1;
        let mut extended = kvm_xsave::default();
        extended.region[40] = 0x1234;
        registers.extended = Some(Arc::new(extended));
        let before = registers.clone();
        registers.enter_signal(&mut memory, &entry()).unwrap();
        let general = registers.general;
        assert_eq!((general.rip, general.rdi, general.rsp % 16), (0x40_1000, 11, 8));
        assert!(general.rsp < STACK + LENGTH - RED_ZONE);
        registers.general = kvm_regs { rsp: general.rsp + 8, ..kvm_regs::default() };
        assert_eq!(registers.leave_signal(&memory), Ok(0b101));
        assert_eq!(registers.general, before.general);
        assert_eq!(registers.extended.unwrap().region[40], 0x1234);
    }

    proptest! {
        #[test]
        fn a_forged_frame_gives_numbers_that_a_processor_takes(
            bytes in prop::collection::vec(any::<u8>(), LENGTH as usize),
            area in prop_oneof![Just(0), STACK..STACK + LENGTH, any::<u64>()],
            sp in prop_oneof![STACK..STACK + LENGTH + 16, any::<u64>()],
        ) {
            let mut memory = memory();
            memory.view_mut(STACK, LENGTH).unwrap().copy_from_slice(&bytes);
            let at = sp.wrapping_sub(8).wrapping_add(frame::EXTENDED as u64);
            if let Ok(pointer) = memory.view_mut(at, 8) {
                pointer.copy_from_slice(&area.to_le_bytes());
            }
            let mut registers = Registers::new(0);
            registers.general.rsp = sp;
            if registers.leave_signal(&memory).is_ok() {
                let general = registers.loadable();
                prop_assert!(general.rip < 1 << 47);
                prop_assert_eq!(general.rflags & !(USER_FLAGS | FIXED_FLAGS), 0);
            }
            registers.fs = sp;
            prop_assert!(registers.loadable_fs() < USER_END);
        }
    }
}
