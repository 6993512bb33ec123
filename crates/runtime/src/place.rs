//! A place in a queue of one thread.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Poll, Waker},
};

/// Shared by the queue and by whoever stands in it.
#[derive(Default)]
pub(crate) struct Place {
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Place {
    /// Ready once it was granted.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.granted.get() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    pub(crate) fn grant(&self) {
        self.granted.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.granted.get()
    }
}
