//! The threads that load.

use std::{io, sync::Arc, thread};

use sandtide_engine::Isolation;

use crate::{
    entry::Entry,
    reload::reload,
    shared::{Event, Shared},
};

/// Starts as many as there are cores, and two at least: one program must not wait for another.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let loaders = thread::available_parallelism().map_or(1, usize::from).max(2);
    for index in 0..loaders {
        let shared = shared.clone();
        let name = format!("loader-{index}");
        thread::Builder::new().name(name).spawn(move || run_jobs(&shared))?;
    }
    Ok(())
}

/// What a loader thread does.
fn run_jobs(shared: &Arc<Shared>) {
    while let Some(entry) = shared.queue.pop() {
        shared.room.take();
        let keeps_state = entry.order().tenant.isolation == Isolation::None;
        let has_state = keeps_state && entry.slot.version().is_some();
        if has_state {
            // A hand-over waits for an exchange to end. No other tenant waits with it.
            let (name, entry, shared) =
                (format!("hand-over {}", entry.name), entry.clone(), shared.clone());
            let job = move || run_job(&entry, &shared);
            if thread::Builder::new().name(name).spawn(job).is_ok() {
                continue;
            }
        }
        run_job(&entry, shared);
    }
}

fn run_job(entry: &Entry, shared: &Shared) {
    loop {
        reload(entry, &shared.engines, &shared.tally);
        if entry.has_files() {
            // The control thread may be gone.
            let _ = shared.events.send(Event::Loaded);
        }
        if !entry.end() {
            break;
        }
    }
}
