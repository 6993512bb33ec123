//! Programs of the same file share one translation, however many tenants have it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use super::{host_code::Ready, key::Key};

/// The translations that programs run.
#[derive(Default)]
pub(super) struct Shared(Mutex<HashMap<Key, Weak<Ready>>>);

impl Shared {
    /// The one with this key, if a program has it.
    pub(super) fn find(&self, key: &Key) -> Option<Arc<Ready>> {
        self.map().get(key)?.upgrade()
    }

    /// Lets other programs have one, as long as one does.
    pub(super) fn offer(&self, key: Key, ready: &Arc<Ready>) {
        let mut map = self.map();
        // Whoever comes here has just spent milliseconds.
        map.retain(|_, ready| ready.strong_count() > 0);
        map.insert(key, Arc::downgrade(ready));
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Weak<Ready>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
