//! Exchanges whose client has gone, and that have to come to their end all the same.
//!
//! A sandbox that keeps its state cannot be put back in the middle of an exchange without losing
//! what earlier exchanges have left in it. So that no client can do that to a tenant, such an
//! exchange goes on without its client, within its deadline; its response goes nowhere.

use std::{
    cell::{Cell, RefCell},
    task::{Context, Poll, Waker},
};

use crate::serving::Serving;

/// The abandoned exchanges of one reactor.
#[derive(Default)]
pub(crate) struct Abandoned {
    servings: RefCell<Vec<Serving>>,
    driver: Cell<Option<Waker>>,
}

impl Abandoned {
    pub(crate) fn add(&self, serving: Serving) {
        self.servings.borrow_mut().push(serving);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Lets each of them go on. Never ready.
    pub(crate) fn poll<T>(&self, cx: &mut Context<'_>) -> Poll<T> {
        self.driver.set(Some(cx.waker().clone()));
        // Whatever is abandoned meanwhile must not find the list borrowed.
        let mut servings = self.servings.take();
        servings.retain_mut(|serving| serving.poll_end(cx).is_pending());
        self.servings.borrow_mut().append(&mut servings);
        Poll::Pending
    }
}
