//! Who loads programs. The control plane is one; tests are others.

use std::sync::Arc;

use crate::{slot::Slot, version::Version};

/// Fills slots. Called on reactor threads, so that nothing in it may block or take long: it
/// leaves the work to threads of its own.
pub trait Loader: Send + Sync {
    /// An exchange waits for the slot's program. Sooner or later there has to be a
    /// [`Slot::install`] or a [`Slot::fail`]; it is not asked again before.
    fn load(&self, slot: &Arc<Slot>);

    /// `bad` has faulted too often to be kept, and the version before it is back.
    fn rolled_back(&self, slot: &Arc<Slot>, bad: &Version) {
        let _ = (slot, bad);
    }
}

/// For slots that were filled when they were made.
pub(crate) struct Nobody(pub(crate) String);

impl Loader for Nobody {
    fn load(&self, slot: &Arc<Slot>) {
        slot.fail(&self.0);
    }
}
