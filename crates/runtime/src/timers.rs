//! Time, from the host's event loop.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

/// A future that is ready at its time.
pub type Sleep = Pin<Box<dyn Future<Output = ()>>>;

/// How the runtime waits for a time. Only exchanges that wait or run for long have a timer.
pub trait Timers {
    /// A future that is ready at this time, or a little later; never before.
    fn sleep_until(&self, at: Instant) -> Sleep;

    /// How long this thread has run, from any start. Other processes may have run meanwhile.
    fn cpu_time(&self) -> Duration;

    /// The time. Tests have one of their own.
    fn now(&self) -> Instant {
        Instant::now()
    }
}
