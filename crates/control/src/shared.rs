//! What the threads of the control plane share, and how the runtime asks for programs.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc::Sender},
};

use sandtide_engine::Engine;
use sandtide_runtime::{Loader, Slot, Version};

use crate::{
    configure::{Known, Tenants},
    entry::Entry,
    queue::Queue,
    room::Room,
    tally::Tally,
};

/// What the threads of the control plane share.
pub(crate) struct Shared {
    pub(crate) engines: Vec<Arc<dyn Engine>>,
    pub(crate) queue: Queue,
    /// Those whose programs may be asked for.
    entries: Mutex<HashMap<Arc<str>, Arc<Entry>>>,
    pub(crate) events: Sender<Event>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) room: Room,
    /// For the slots, which must not keep all of this alive.
    this: Weak<Self>,
}

/// What the control thread waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something has happened to these files or directories.
    Touched(Vec<PathBuf>),
    /// Something has happened, and nobody knows to what.
    Rescan,
    /// The operator wants everything looked at.
    Hangup,
    /// A program was loaded that has read files.
    Loaded,
    /// A version has failed on probation.
    RolledBack(Arc<str>, u64),
    Stop,
}

/// Has a tenant's program loaded when its slot wants it.
struct Ask {
    name: Arc<str>,
    shared: Weak<Shared>,
}

impl Loader for Ask {
    fn load(&self, slot: &Arc<Slot>) {
        let entry = self.shared.upgrade().and_then(|shared| {
            let entry = shared.entries().get(&self.name).cloned()?;
            shared.queue.push(&entry);
            Some(())
        });
        if entry.is_none() {
            slot.fail("the tenant is gone");
        }
    }

    fn rolled_back(&self, _: &Arc<Slot>, bad: &Version) {
        if let Some(shared) = self.shared.upgrade() {
            // The control thread may be gone.
            let _ = shared.events.send(Event::RolledBack(self.name.clone(), bad.number()));
        }
    }
}

impl Shared {
    pub(crate) fn new(engines: Vec<Arc<dyn Engine>>, events: Sender<Event>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            engines,
            queue: Queue::default(),
            entries: Mutex::default(),
            events,
            tally: Arc::default(),
            room: Room::new(),
            this: this.clone(),
        })
    }

    /// What asks for the program of this tenant.
    pub(crate) fn loader(&self, name: &str) -> Arc<dyn Loader> {
        Arc::new(Ask { name: name.into(), shared: self.this.clone() })
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Arc<str>, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, these are the tenants whose programs may be asked for.
    pub(crate) fn publish(&self, tenants: &Tenants) {
        let entry = |known: &Known| Some((known.served.name.clone(), known.entry.clone()?));
        *self.entries() = tenants.values().filter_map(entry).collect();
    }
}
