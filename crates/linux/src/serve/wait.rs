//! Waiting for a guest off the reactors: while its program is loaded, or runs to its end.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::Instant,
};

use super::Machine;

/// Ends the wait of a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// What ends the next [`wait`] of this thread.
pub(super) fn waker() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// Waits for a guest that waits for a timer, or for what wakes this thread.
pub(super) fn wait<M: Machine>(until: Option<Instant>, bounds: &mut M::Bounds<'_>) {
    let deadline = M::deadline(bounds);
    let until = until.map_or(deadline, |until| until.min(deadline));
    thread::park_timeout(until.saturating_duration_since(Instant::now()));
    M::renew(bounds);
}

/// Moves what can be moved between a program that is loaded and the outside. Whether it has
/// something new.
pub(super) fn exchange<M: Machine>(machine: &mut M, waker: &Waker) -> bool {
    machine.parts().process.exchange_outside(&mut Context::from_waker(waker))
}
