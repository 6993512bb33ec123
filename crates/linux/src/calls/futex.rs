//! futex.

use std::time::{Duration, Instant};

use crate::{
    Errno, GuestMemory, Host,
    calls::time::Clock,
    guest,
    kernel::{Args, CallResult, Flow, Kernel, Stop, fail, negated, value},
    threads::{Event, Wait, Wake},
};

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const PRIVATE: u32 = 128;
const CLOCK_REALTIME: u32 = 256;

const ANY: u32 = u32::MAX;

pub(crate) fn futex(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [address, operation, number, timeout, second, third] = args;
    let operation = operation as u32;
    let count = number as u32;
    if !address.is_multiple_of(4) {
        return fail(Errno::INVAL);
    }
    // One address space: private and shared futexes are the same.
    match operation & !(PRIVATE | CLOCK_REALTIME) {
        WAIT => wait(kernel, host.memory, address, count, ANY, relative(host.memory, timeout)?),
        WAIT_BITSET => {
            let clock =
                if operation & CLOCK_REALTIME != 0 { Clock::Real } else { Clock::Monotonic };
            let deadline = match timeout {
                0 => None,
                at => kernel.deadline_at(guest::duration(host.memory, at)?, clock),
            };
            let flow = wait(kernel, host.memory, address, count, third as u32, deadline)?;
            if clock == Clock::Real {
                kernel.threads.change().current_mut().waits_for_day = true;
            }
            Ok(flow)
        }
        // The address need not be mapped: libcs wake waiters of memory that is gone.
        WAKE => value(kernel.wake_futex(address, ANY, count)),
        WAKE_BITSET if third as u32 == 0 => fail(Errno::INVAL),
        WAKE_BITSET => value(kernel.wake_futex(address, third as u32, count)),
        operation @ (REQUEUE | CMP_REQUEUE) => {
            let current = guest::read_u32(host.memory, address)?;
            guest::read_u32(host.memory, second)?;
            if !second.is_multiple_of(4) || (count | timeout as u32) > i32::MAX as u32 {
                return fail(Errno::INVAL);
            }
            if operation == CMP_REQUEUE && current != third as u32 {
                return fail(Errno::AGAIN);
            }
            let (woken, moved) = kernel.requeue_futex(address, count, second, timeout as u32);
            value(if operation == CMP_REQUEUE { woken + moved } else { woken })
        }
        WAKE_OP => wake_op(kernel, host.memory, args),
        _ => fail(Errno::NOSYS),
    }
}

/// The deadline that a length of time at `address` gives; none at 0.
pub(super) fn relative(memory: &dyn GuestMemory, address: u64) -> Result<Option<Instant>, Stop> {
    if address == 0 {
        return Ok(None);
    }
    Ok(deadline_after(guest::duration(memory, address)?))
}

/// A deadline so far away that an `Instant` cannot hold it is none.
pub(super) fn deadline_after(duration: Duration) -> Option<Instant> {
    Instant::now().checked_add(duration)
}

fn wait(
    kernel: &mut Kernel,
    memory: &dyn GuestMemory,
    address: u64,
    expected: u32,
    bits: u32,
    deadline: Option<Instant>,
) -> CallResult {
    if bits == 0 {
        return fail(Errno::INVAL);
    }
    if guest::read_u32(memory, address)? != expected {
        return fail(Errno::AGAIN);
    }
    kernel.threads.change().park(Wait {
        event: Event::Futex { address, bits },
        deadline,
        on_timeout: Wake::Result(negated(Errno::TIMEDOUT)),
        restartable: deadline.is_none(),
    });
    Ok(Flow::Parked)
}

/// Changes a word, wakes waiters of one futex, and of a second one if the word was as described.
fn wake_op(kernel: &mut Kernel, memory: &mut dyn GuestMemory, args: Args) -> CallResult {
    let [address, _, count, second_count, second, encoded] = args;
    let encoded = encoded as u32;
    if !second.is_multiple_of(4) {
        return fail(Errno::INVAL);
    }
    let sign_extended = |bits: u32| ((bits << 20) as i32) >> 20;
    let operand = sign_extended(encoded >> 12 & 0xfff);
    let compared = sign_extended(encoded & 0xfff);
    let operand = if encoded >> 31 != 0 { 1i32.wrapping_shl(operand as u32) } else { operand };
    let old = guest::read_u32(memory, second)? as i32;
    let new = match encoded >> 28 & 7 {
        0 => operand,
        1 => old.wrapping_add(operand),
        2 => old | operand,
        3 => old & !operand,
        4 => old ^ operand,
        _ => return fail(Errno::NOSYS),
    };
    let holds = match encoded >> 24 & 0xf {
        0 => old == compared,
        1 => old != compared,
        2 => old < compared,
        3 => old <= compared,
        4 => old > compared,
        5 => old >= compared,
        _ => return fail(Errno::NOSYS),
    };
    guest::write_u32(memory, second, new as u32)?;
    let mut woken = kernel.wake_futex(address, ANY, count as u32);
    if holds {
        woken += kernel.wake_futex(second, ANY, second_count as u32);
    }
    value(woken)
}

impl Kernel {
    /// Wakes up to `count` waiters that have a bit in common. Returns how many.
    pub(crate) fn wake_futex(&mut self, address: u64, bits: u32, count: u32) -> u32 {
        let waiting = self.threads.waiting(|event| {
            matches!(event, Event::Futex { address: at, bits: set } if at == address && set & bits != 0)
        });
        let mut woken = 0;
        for index in waiting.into_iter().take(count as usize) {
            self.threads.change().wake(index, Wake::Result(0));
            woken += 1;
        }
        woken
    }

    /// Wakes up to `count` waiters and makes up to `moves` more wait at `to`. Returns how many of
    /// each.
    fn requeue_futex(&mut self, from: u64, count: u32, to: u64, moves: u32) -> (u32, u32) {
        let woken = self.wake_futex(from, ANY, count);
        let waiting = self
            .threads
            .waiting(|event| matches!(event, Event::Futex { address, .. } if address == from));
        let mut moved = 0;
        for index in waiting.into_iter().take(moves as usize) {
            self.threads.change().move_waiter(index, to);
            moved += 1;
        }
        (woken, moved)
    }
}
