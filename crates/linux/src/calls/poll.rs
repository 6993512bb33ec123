//! ppoll, pselect6 and their kin.

use std::time::{Duration, Instant};

use crate::{
    Errno, GuestMemory, Host,
    calls::futex::{deadline_after, relative},
    files::PIPE_CAPACITY,
    guest,
    kernel::{Args, CallResult, Flow, Kernel, Stop, fail, value},
    threads::{Event, Wait, Wake},
    vfs::Node,
};

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;
const POLLERR: u16 = 8;
const POLLHUP: u16 = 16;
const POLLNVAL: u16 = 32;
/// What is reported without being asked for.
const ALWAYS: u16 = POLLERR | POLLHUP | POLLNVAL;

/// The size of `struct pollfd`, in bytes.
const ENTRY: u64 = 8;

/// The size of `fd_set`, in descriptors.
const SET_DESCRIPTORS: u64 = 1024;

impl Kernel {
    /// What a descriptor can do now.
    fn readiness(&self, fd: u64) -> u16 {
        let Ok(description) = self.files.get(fd) else { return POLLNVAL };
        match &description.node {
            Node::PipeReader(index) => match self.files.pipe(*index) {
                Ok(pipe) => {
                    let data = if pipe.bytes.is_empty() { 0 } else { POLLIN };
                    data | if pipe.writers == 0 { POLLHUP } else { 0 }
                }
                Err(_) => POLLNVAL,
            },
            Node::PipeWriter(index) => match self.files.pipe(*index) {
                Ok(pipe) if pipe.readers == 0 => POLLERR | POLLOUT,
                Ok(pipe) if pipe.bytes.len() < PIPE_CAPACITY => POLLOUT,
                Ok(_) => 0,
                Err(_) => POLLNVAL,
            },
            Node::Console(_) => POLLOUT,
            Node::Stdin => POLLIN,
            _ => POLLIN | POLLOUT,
        }
    }

    /// Parks the thread until something changes or the deadline.
    fn wait_for_change(&mut self, deadline: Option<Instant>) -> CallResult {
        // Made again after a change, the call keeps the deadline that it had at first.
        let deadline = self.threads.current().call_deadline.or(deadline);
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return value(0u32);
        }
        self.threads.change().park(Wait {
            event: Event::Io,
            deadline,
            on_timeout: Wake::Restart,
            restartable: false,
        });
        Ok(Flow::Parked)
    }

    /// Applies the signal mask of a `p` call.
    fn apply_mask(&mut self, memory: &dyn GuestMemory, set: u64, size: u64) -> Result<(), Stop> {
        if set != 0 {
            if size != 8 {
                return Err(Errno::INVAL.into());
            }
            let set = guest::read_u64(memory, set)?;
            self.suspend_mask(set);
        }
        Ok(())
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
            let wanted = u16::from_le_bytes([low, high]);
            let found = match u64::try_from(fd) {
                Ok(fd) => self.readiness(fd) & (wanted | ALWAYS),
                // Negative descriptors are skipped.
                Err(_) => 0,
            };
            entry[6..].copy_from_slice(&found.to_le_bytes());
            ready += u64::from(found != 0);
        }
        Ok(ready)
    }
}

pub(crate) fn ppoll(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fds, count, timeout, mask, mask_size, _] = args;
    let deadline = relative(host.memory, timeout)?;
    let ready = kernel.poll(host.memory, fds, count)?;
    kernel.apply_mask(host.memory, mask, mask_size)?;
    if ready > 0 { value(ready) } else { kernel.wait_for_change(deadline) }
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
    kernel.wait_for_change(deadline)
}

pub(crate) fn pselect6(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [count, read, write, except, timeout, mask] = args;
    let deadline = relative(host.memory, timeout)?;
    let [mask, mask_size] = if mask == 0 { [0, 0] } else { guest::words(host.memory, mask)? };
    let ready = kernel.select(host.memory, count, [read, write, except])?;
    kernel.apply_mask(host.memory, mask, mask_size)?;
    kernel.end_select(host.memory, count, [read, write, except], ready, deadline)
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
    kernel.end_select(host.memory, count, [read, write, except], ready, deadline)
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
        let conditions = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, 0];
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
                    match self.readiness(fd) {
                        POLLNVAL => return Err(Errno::BADF.into()),
                        ready if ready & condition == 0 => set[word] &= !bit,
                        _ => {}
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
        deadline: Option<Instant>,
    ) -> CallResult {
        let found: u32 = ready.iter().flatten().map(|word| word.count_ones()).sum();
        // The sets that were given must stay as they are until the call's last try.
        if found == 0
            && let Flow::Parked = self.wait_for_change(deadline)?
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
