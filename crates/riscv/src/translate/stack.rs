//! How much of its thread's stack host code may use: guest calls are host calls.
#![allow(unsafe_code, reason = "asks the C library where the stack of a thread is")]

use std::{cell::Cell, mem::MaybeUninit, ptr};

/// Host code may use so much in any case, besides what its last function needs.
const LEAST: u64 = 256 << 10;

/// And never more than this, so that guests that recurse do not take memory without end.
const MOST: u64 = 4 << 20;

/// What stays free at the end of the stack: for the last function, helpers, and handlers of signals.
const RESERVE: u64 = 256 << 10;

thread_local! {
    /// The lowest address of this thread's stack, or the highest of all if that is not known.
    static LOWEST: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Host functions that call others leave when the stack pointer is below this.
pub(super) fn limit() -> u64 {
    let marker = 0u8;
    let here = &raw const marker as u64;
    let lowest = LOWEST.get().unwrap_or_else(|| {
        let lowest = lowest().unwrap_or(u64::MAX - RESERVE);
        LOWEST.set(Some(lowest));
        lowest
    });
    (lowest + RESERVE).max(here.saturating_sub(MOST)).min(here.saturating_sub(LEAST))
}

fn lowest() -> Option<u64> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut address, mut size) = (ptr::null_mut(), 0);
    // SAFETY: fills in the attributes, of this thread, or fails.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the attributes are filled in, and both places are ours.
    let result =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &mut address, &mut size) };
    // SAFETY: they were filled in, and nobody uses them any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    (result == 0).then_some(address as u64)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// How much there is on a new thread.
    fn room(stack: usize) -> u64 {
        let room = || {
            let marker = 0u8;
            &raw const marker as u64 - limit()
        };
        thread::Builder::new().stack_size(stack).spawn(room).unwrap().join().unwrap()
    }

    #[test]
    fn a_thread_with_more_stack_lets_guests_call_deeper() {
        assert!((LEAST..2 * LEAST).contains(&room(512 << 10)));
        assert!(((1 << 20)..(2 << 20)).contains(&room(2 << 20)));
        assert!((MOST - 4096..MOST + LEAST).contains(&room(16 << 20)));
    }
}
