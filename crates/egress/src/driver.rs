//! The threads that work for guests where no reactor does: an event loop for programs that are being
//! loaded, and a few that wait for the host's resolver, which blocks.

use std::{future::pending, io, sync::OnceLock, thread};

use tokio::runtime::{Builder, Handle};

/// Names that are looked up at a time, in the whole server.
const LOOKUPS: usize = 16;

static DRIVER: OnceLock<Option<Handle>> = OnceLock::new();

/// Made when the first guest needs it, and kept. `None` if the operating system has no threads left.
pub(crate) fn driver() -> Option<&'static Handle> {
    DRIVER.get_or_init(|| start().ok()).as_ref()
}

fn start() -> io::Result<Handle> {
    let mut builder = Builder::new_current_thread();
    let event_loop = builder.enable_all().max_blocking_threads(LOOKUPS).build()?;
    let handle = event_loop.handle().clone();
    let run = move || event_loop.block_on(pending::<()>());
    thread::Builder::new().name("egress".to_owned()).spawn(run)?;
    Ok(handle)
}

/// The event loop of this thread, or else the one for all.
pub(crate) fn event_loop() -> Option<Handle> {
    Handle::try_current().ok().or_else(|| driver().cloned())
}
