//! ppoll, pselect6 and their kin.

use std::time::{Duration, Instant};

use crate::{
    Errno, GuestMemory, Host,
    calls::futex::{deadline_after, relative},
    guest,
    kernel::{Args, CallResult, Flow, Kernel, Stop, fail, value},
    readiness::condition,
};

/// The size of `struct pollfd`, in bytes.
const ENTRY: u64 = 8;

/// The size of `fd_set`, in descriptors.
const SET_DESCRIPTORS: u64 = 1024;

impl Kernel {
    /// The signal mask that a `p` call has while it waits.
    pub(super) fn waiting_mask(
        memory: &dyn GuestMemory,
        set: u64,
        size: u64,
    ) -> Result<Option<u64>, Stop> {
        match (set, size) {
            (0, _) => Ok(None),
            (set, 8) => Ok(Some(guest::read_u64(memory, set)?)),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Waits for anything to change, with a signal mask.
    pub(super) fn wait_with_mask(
        &mut self,
        mask: Option<u64>,
        deadline: Option<Instant>,
    ) -> CallResult {
        if let Some(mask) = mask {
            self.suspend_mask(mask);
        }
        self.wait_for_any(deadline)
    }

    fn poll(&mut self, memory: &mut dyn GuestMemory, fds: u64, count: u64) -> Result<u64, Stop> {
        if count > u64::from(self.fixed.limits.descriptors) {
            return Err(Errno::INVAL.into());
        }
        if count == 0 {
            return Ok(0);
        }
        let entries = memory.view_mut(fds, count * ENTRY)?;
        let mut ready = 0;
        for entry in entries.as_chunks_mut::<8>().0 {
            let [a, b, c, d, low, high, ..] = *entry;
            let fd = i32::from_le_bytes([a, b, c, d]);
            let wanted = u32::from(u16::from_le_bytes([low, high])) | condition::ALWAYS;
            let found = match u64::try_from(fd) {
                Ok(fd) => match self.readiness_of(fd) {
                    Some(readiness) => readiness.conditions & wanted,
                    None => condition::INVALID,
                },
                // Negative descriptors are skipped.
                Err(_) => 0,
            };
            entry[6..].copy_from_slice(&(found as u16).to_le_bytes());
            ready += u64::from(found != 0);
        }
        Ok(ready)
    }
}

pub(crate) fn ppoll(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fds, count, timeout, mask, mask_size, _] = args;
    let deadline = relative(host.memory, timeout)?;
    let ready = kernel.poll(host.memory, fds, count)?;
    let mask = Kernel::waiting_mask(host.memory, mask, mask_size)?;
    if ready > 0 { value(ready) } else { kernel.wait_with_mask(mask, deadline) }
}

/// `poll` of x86-64.
pub(crate) fn poll(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let ready = kernel.poll(host.memory, args[0], args[1])?;
    if ready > 0 {
        return value(ready);
    }
    let deadline = match u64::try_from(args[2] as i32) {
        Ok(milliseconds) => deadline_after(Duration::from_millis(milliseconds)),
        Err(_) => None,
    };
    kernel.wait_for_any(deadline)
}

pub(crate) fn pselect6(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [count, read, write, except, timeout, mask] = args;
    let deadline = relative(host.memory, timeout)?;
    let [mask, mask_size] = if mask == 0 { [0, 0] } else { guest::words(host.memory, mask)? };
    let ready = kernel.select(host.memory, count, [read, write, except])?;
    let mask = Kernel::waiting_mask(host.memory, mask, mask_size)?;
    kernel.end_select(host.memory, count, [read, write, except], ready, (mask, deadline))
}

/// `select` of x86-64.
pub(crate) fn select(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [count, read, write, except, timeout, _] = args;
    let deadline = match timeout {
        0 => None,
        address => {
            let [seconds, microseconds] = guest::words(host.memory, address)?;
            if seconds > i64::MAX as u64 || microseconds >= 1_000_000 {
                return fail(Errno::INVAL);
            }
            deadline_after(Duration::new(seconds, microseconds as u32 * 1000))
        }
    };
    let ready = kernel.select(host.memory, count, [read, write, except])?;
    kernel.end_select(host.memory, count, [read, write, except], ready, (None, deadline))
}

/// The words of three sets of descriptors: read, write, except.
type Sets = [Vec<u64>; 3];

/// How many words a set of `count` descriptors has.
fn set_words(count: u64) -> u64 {
    count.div_ceil(64)
}

impl Kernel {
    /// Which of the descriptors in three sets are ready.
    fn select(
        &self,
        memory: &dyn GuestMemory,
        count: u64,
        addresses: [u64; 3],
    ) -> Result<Sets, Stop> {
        if count > SET_DESCRIPTORS {
            return Err(Errno::INVAL.into());
        }
        let mut sets = Sets::default();
        // Nothing here has exceptional conditions.
        use condition::{ERROR, HANG_UP, IN, OUT};
        let conditions = [IN | HANG_UP | ERROR, OUT | ERROR, 0];
        for ((set, address), condition) in sets.iter_mut().zip(addresses).zip(conditions) {
            set.resize(set_words(count) as usize, 0);
            if address == 0 || count == 0 {
                continue;
            }
            let bytes = memory.view(address, 8 * set_words(count))?;
            for (word, bytes) in set.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            for fd in 0..count {
                let (word, bit) = (fd as usize / 64, 1 << (fd % 64));
                if set[word] & bit != 0 {
                    let readiness = self.readiness_of(fd).ok_or(Errno::BADF)?;
                    if readiness.conditions & condition == 0 {
                        set[word] &= !bit;
                    }
                }
            }
            if !count.is_multiple_of(64)
                && let Some(last) = set.last_mut()
            {
                *last &= (1 << (count % 64)) - 1;
            }
        }
        Ok(sets)
    }

    /// Answers with the ready descriptors, or waits.
    fn end_select(
        &mut self,
        memory: &mut dyn GuestMemory,
        count: u64,
        addresses: [u64; 3],
        ready: Sets,
        (mask, deadline): (Option<u64>, Option<Instant>),
    ) -> CallResult {
        let found: u32 = ready.iter().flatten().map(|word| word.count_ones()).sum();
        // The sets that were given must stay as they are until the call's last try.
        if found == 0
            && let Flow::Parked = self.wait_with_mask(mask, deadline)?
        {
            return Ok(Flow::Parked);
        }
        for (set, address) in ready.iter().zip(addresses) {
            if address != 0 && count > 0 {
                guest::write_words(memory, address, set)?;
            }
        }
        value(found)
    }
}
