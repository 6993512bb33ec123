//! A flat memory and a processor without instructions, for tests.

use std::{collections::HashMap, sync::Mutex};

use sandtide_engine::{Console, Stream};
use serde::{Deserialize, Serialize};

use crate::{Architecture, Cpu, GuestMemory, MemoryError, PAGE, Protection, SignalEntry, guest};

/// Guest memory in one vector.
#[derive(Clone)]
pub(crate) struct FlatMemory {
    bytes: Vec<u8>,
    /// `None`: not mapped.
    pages: Vec<Option<Protection>>,
    pub(crate) available: u64,
}

impl FlatMemory {
    pub(crate) fn new(size: u64) -> Self {
        let pages = vec![None; (size / PAGE) as usize];
        Self { bytes: vec![0; size as usize], pages, available: size }
    }

    fn range(&self, address: u64, length: u64, write: bool) -> Result<(), MemoryError> {
        let end = address.checked_add(length).ok_or(MemoryError::Denied)?;
        if end > self.end() {
            return Err(MemoryError::Denied);
        }
        for page in address / PAGE..end.div_ceil(PAGE) {
            match self.pages[page as usize] {
                Some(protection) if protection.read && (protection.write || !write) => {}
                _ => return Err(MemoryError::Denied),
            }
        }
        Ok(())
    }

    fn set(&mut self, start: u64, length: u64, protection: Option<Protection>) {
        assert!(start.is_multiple_of(PAGE) && length.is_multiple_of(PAGE));
        assert!(start + length <= self.end());
        let (first, last) = (start / PAGE, (start + length) / PAGE);
        self.pages[first as usize..last as usize].fill(protection);
    }

    pub(crate) fn protection(&self, address: u64) -> Option<Protection> {
        self.pages[(address / PAGE) as usize]
    }
}

impl GuestMemory for FlatMemory {
    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        self.range(address, length, false)?;
        Ok(&self.bytes[address as usize..(address + length) as usize])
    }

    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        self.range(address, length, true)?;
        Ok(&mut self.bytes[address as usize..(address + length) as usize])
    }

    fn map(&mut self, start: u64, length: u64, protection: Protection) {
        self.set(start, length, Some(protection));
        self.bytes[start as usize..(start + length) as usize].fill(0);
    }

    fn unmap(&mut self, start: u64, length: u64) {
        self.set(start, length, None);
        self.bytes[start as usize..(start + length) as usize].fill(0xaa);
    }

    fn protect(&mut self, start: u64, length: u64, protection: Protection) {
        let (first, last) = (start / PAGE, (start + length) / PAGE);
        assert!(self.pages[first as usize..last as usize].iter().all(Option::is_some));
        self.set(start, length, Some(protection));
    }

    fn available(&self) -> u64 {
        self.available
    }
}

/// Registers of a thread that is always in a system call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FakeCpu<const X86: bool = false> {
    pub(crate) number: u64,
    pub(crate) args: [u64; 6],
    pub(crate) result: Option<u64>,
    pub(crate) restarted: bool,
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) thread_pointer: u64,
}

impl<const X86: bool> Cpu for FakeCpu<X86> {
    const ARCHITECTURE: Architecture =
        if X86 { Architecture::X86_64 } else { Architecture::Riscv64 };

    fn call(&self) -> (u64, [u64; 6]) {
        (self.number, self.args)
    }

    fn set_result(&mut self, value: u64) {
        self.result = Some(value);
        self.restarted = false;
    }

    fn restart_call(&mut self) {
        self.restarted = true;
        self.result = None;
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

    /// The frame: pc, sp, mask, signal number.
    fn enter_signal(
        &mut self,
        memory: &mut dyn GuestMemory,
        entry: &SignalEntry,
    ) -> Result<(), MemoryError> {
        let top = entry.alternate_stack_top.unwrap_or(self.sp);
        let sp = top.wrapping_sub(32);
        let signal = u64::from(entry.info.signal);
        guest::write_words(memory, sp, &[self.pc, self.sp, entry.saved_mask, signal])?;
        self.sp = sp;
        self.pc = entry.handler;
        Ok(())
    }

    fn leave_signal(&mut self, memory: &dyn GuestMemory) -> Result<u64, MemoryError> {
        let [pc, sp, mask, _] = guest::words(memory, self.sp)?;
        self.pc = pc;
        self.sp = sp;
        Ok(mask)
    }
}

/// Keeps what was written.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<HashMap<Stream, Vec<u8>>>);

impl Recorder {
    pub(crate) fn text(&self, stream: Stream) -> String {
        let streams = self.0.lock().unwrap();
        String::from_utf8_lossy(streams.get(&stream).map_or(&[], Vec::as_slice)).into_owned()
    }
}

impl Console for Recorder {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().entry(stream).or_default().extend(bytes);
    }
}
