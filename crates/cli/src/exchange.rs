//! One exchange on this thread, without a host: the guest runs until it has answered.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use sandtide_engine::{Exchange, Outcome, Progress, Sandbox, Slice, Turn};

/// Nobody else waits for this thread, so turns may be long.
const SLICE: Slice = Slice(Duration::from_millis(100));

/// Serves the exchange. `take` is called whenever there may be something of the response to take.
pub fn serve(
    sandbox: &mut dyn Sandbox,
    exchange: &mut Exchange,
    wall_time: Duration,
    mut take: impl FnMut(&mut Exchange) -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let deadline = Instant::now() + wall_time;
    loop {
        let was_full = exchange.response.is_full();
        let turn = &mut Turn {
            cx: &mut cx,
            exchange,
            now: Instant::now(),
            slice: SLICE,
            deadline,
            interrupt: &|| false,
        };
        let progress = sandbox.run(turn);
        take(exchange)?;
        match progress {
            Progress::Ended(outcome) => return Ok(outcome),
            Progress::Sliced => {}
            // It may have waited for the room that there is now.
            Progress::Waiting { .. } if was_full => {}
            Progress::Waiting { until } => {
                let until = until.map_or(deadline, |until| until.min(deadline));
                thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
        }
    }
}

/// Wakes the thread that serves.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
