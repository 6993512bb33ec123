//! Exchanges of all reactors that wait for a slot to change.

use std::{
    collections::BTreeMap,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::slot::Slot;

/// Their wakers, in the order in which they came. Empty after each change.
#[derive(Default)]
pub(crate) struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Waiting {
    pub(crate) fn wake(self) {
        self.wakers.into_values().for_each(Waker::wake);
    }
}

/// Waits for what a reactor knows of a slot to change. Dropping it gives up.
pub(crate) struct Awaited {
    slot: Arc<Slot>,
    /// What the reactor knows.
    generation: u64,
    /// Among the wakers.
    ticket: Option<u64>,
}

impl Awaited {
    /// Has the slot filled, and waits for it to be of another generation.
    pub(crate) fn new(slot: &Arc<Slot>, generation: u64) -> Self {
        slot.want();
        Self { slot: slot.clone(), generation, ticket: None }
    }

    /// Ready when the slot is not as it was.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (slot, generation) = (&self.slot, self.generation);
        let ticket = &mut self.ticket;
        slot.waiting(|waiting| {
            // Looked at with the lock held: a change comes before this, or wakes who is in there.
            if slot.generation() != generation {
                return Poll::Ready(());
            }
            let ticket = *ticket.get_or_insert_with(|| {
                waiting.next += 1;
                waiting.next
            });
            waiting.wakers.insert(ticket, cx.waker().clone());
            Poll::Pending
        })
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.slot.waiting(|waiting| {
            // After a change it is not in there, and the number may be another's.
            if self.slot.generation() == self.generation {
                waiting.wakers.remove(&ticket);
            }
        });
    }
}
