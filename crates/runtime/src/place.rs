//! A place in a queue of one thread.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Poll, Waker},
};

/// Shared by the queue and by whoever stands in it.
#[derive(Default)]
pub(crate) struct Place {
    state: Cell<State>,
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Waiting,
    Granted,
    Expired,
}

impl Place {
    /// Ready once it was granted, or has expired.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.state.get() != State::Waiting {
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
        self.settle(State::Granted);
    }

    /// It stands in no queue any more.
    pub(crate) fn expire(&self) {
        self.settle(State::Expired);
    }

    fn settle(&self, state: State) {
        self.state.set(state);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.state.get() == State::Granted
    }
}
