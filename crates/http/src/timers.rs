//! Tokio's timers, for the runtime.

use std::time::Instant;

use sandtide_runtime::{Sleep, Timers};

pub(crate) struct TokioTimers;

impl Timers for TokioTimers {
    fn sleep_until(&self, at: Instant) -> Sleep {
        Box::pin(tokio::time::sleep_until(at.into()))
    }
}
