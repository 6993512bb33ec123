//! Lists of robust futexes: locks that are given up when the thread that holds them ends.

use crate::{
    Errno, GuestMemory, Host, guest,
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail},
};

/// The size of `struct robust_list_head`: first entry, offset of the futex, pending entry.
const HEAD_SIZE: u64 = 24;

/// The most entries of a list that are looked at (`ROBUST_LIST_LIMIT`).
const MAX_ENTRIES: usize = 2048;

const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;

pub(crate) fn set_robust_list(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    if args[1] != HEAD_SIZE {
        return fail(Errno::INVAL);
    }
    kernel.threads.change().current_mut().robust_list = args[0];
    DONE
}

pub(crate) fn get_robust_list(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let index = match args[0] as u32 {
        0 => kernel.threads.running(),
        tid => kernel.threads.find(tid).or(kernel.pid.is(tid).then_some(0)).ok_or(Errno::SRCH)?,
    };
    let head = kernel.threads.all()[index].robust_list;
    guest::write_words(host.memory, args[2], &[HEAD_SIZE])?;
    guest::write_words(host.memory, args[1], &[head])?;
    DONE
}

impl Kernel {
    /// Gives up the locks of the running thread, which ends. A list that cannot be read is over.
    pub(super) fn walk_robust_list(&mut self, memory: &mut dyn GuestMemory) -> Result<(), Stop> {
        match self.try_walk(memory) {
            Err(Stop::MemoryLimit) => Err(Stop::MemoryLimit),
            _ => Ok(()),
        }
    }

    fn try_walk(&mut self, memory: &mut dyn GuestMemory) -> Result<(), Stop> {
        // The lowest bit of an entry says that its futex has priority inheritance.
        const POINTER: u64 = !1;
        let head = self.threads.current().robust_list;
        if head == 0 {
            return Ok(());
        }
        let [first, offset, pending] = guest::words(memory, head)?;
        let pending = pending & POINTER;
        let mut entry = first & POINTER;
        for _ in 0..MAX_ENTRIES {
            if entry == head {
                break;
            }
            // Read before the lock is free, and its owner frees the memory.
            let next = guest::read_u64(memory, entry)?;
            if entry != pending {
                self.give_up(memory, entry.wrapping_add(offset))?;
            }
            entry = next & POINTER;
        }
        if pending != 0 {
            self.give_up(memory, pending.wrapping_add(offset))?;
        }
        Ok(())
    }

    fn give_up(&mut self, memory: &mut dyn GuestMemory, address: u64) -> Result<(), Stop> {
        if !address.is_multiple_of(4) {
            return Err(Errno::INVAL.into());
        }
        let word = guest::read_u32(memory, address)?;
        if word & OWNER == self.threads.current().tid {
            guest::write_u32(memory, address, word & WAITERS | OWNER_DIED)?;
            if word & WAITERS != 0 {
                self.wake_futex(address, u32::MAX, 1);
            }
        }
        Ok(())
    }
}
