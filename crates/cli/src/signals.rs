//! SIGINT, SIGTERM and SIGHUP.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// The exit code of a server that was told to stop a second time: 128 and SIGINT.
const IMPATIENT: i32 = 130;

/// SIGHUP is taken note of; the other two still end the process.
pub struct Signals {
    event_loop: Runtime,
    hung_up: Signal,
}

impl Signals {
    /// From here on, no SIGHUP is lost.
    pub fn register() -> io::Result<Self> {
        let event_loop = Builder::new_current_thread().enable_io().build()?;
        let hung_up = {
            let _context = event_loop.enter();
            signal(SignalKind::hangup())?
        };
        Ok(Self { event_loop, hung_up })
    }

    /// Ready when the first SIGINT or SIGTERM arrives. The second one ends the process at once,
    /// for those who do not want to wait until all exchanges have ended. Calls `hangup` on each
    /// SIGHUP, and at once if there has been one.
    pub fn serve(self, hangup: impl Fn() + Send + 'static) -> io::Result<impl Future<Output = ()>> {
        let Self { event_loop, mut hung_up } = self;
        let (first, stopped) = oneshot::channel();
        // Registered here, so that no signal is lost before the thread runs.
        let (mut interrupt, mut terminate) = {
            let _context = event_loop.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
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
        let run = move || event_loop.block_on(wait);
        thread::Builder::new().name("signals".to_owned()).spawn(run)?;
        Ok(async move {
            // An error would mean that the thread is gone, which is as good as a signal.
            let _ = stopped.await;
        })
    }
}
