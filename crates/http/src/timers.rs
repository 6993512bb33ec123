//! Tokio's timers, for the runtime.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sandtide_runtime::{Sleep, Timers};

pub(crate) struct TokioTimers;

impl Timers for TokioTimers {
    fn sleep_until(&self, at: Instant) -> Sleep {
        Box::pin(tokio::time::sleep_until(at.into()))
    }

    fn cpu_time(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
}
