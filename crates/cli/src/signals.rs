//! SIGINT, SIGTERM and SIGHUP.

use std::{future::Future, io, thread};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

/// The exit code of a server that was told to stop a second time: 128 and SIGINT.
const IMPATIENT: i32 = 130;

/// Ready when the first SIGINT or SIGTERM arrives. The second one ends the process at once, for
/// those who do not want to wait until all exchanges have ended. Calls `hangup` on each SIGHUP.
pub fn stop(hangup: impl Fn() + Send + 'static) -> io::Result<impl Future<Output = ()>> {
    let (first, stopped) = oneshot::channel();
    let event_loop = runtime::Builder::new_current_thread().enable_io().build()?;
    // Registered here, so that no signal is lost before the thread runs.
    let (mut interrupt, mut terminate, mut hung_up) = {
        let _context = event_loop.enter();
        let signal = |kind: fn() -> SignalKind| signal(kind());
        (
            signal(SignalKind::interrupt)?,
            signal(SignalKind::terminate)?,
            signal(SignalKind::hangup)?,
        )
    };
    let wait = async move {
        let mut first = Some(first);
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
                _ = hung_up.recv() => {
                    hangup();
                    continue;
                }
            };
            let Some(first) = first.take() else { std::process::exit(IMPATIENT) };
            tracing::info!("{name}: exchanges may end; once more stops at once");
            // Nobody waits any more if the server ended by itself.
            let _ = first.send(());
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(move || event_loop.block_on(wait))?;
    Ok(async move {
        // An error would mean that the thread is gone, which is as good as a signal.
        let _ = stopped.await;
    })
}
