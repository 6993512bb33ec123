//! What the parts of a process are kept and read by. Serde hands nothing down to them, so it lies
//! with the thread for as long as that takes.

use std::{cell::RefCell, sync::Arc, time::Instant};

use crate::kernel::Fixed;

#[derive(Default)]
struct Context {
    stopped: Option<Instant>,
    fixed: Option<Arc<Fixed>>,
}

thread_local! {
    static CONTEXT: RefCell<Context> = RefCell::default();
}

/// Does something with a process that has stopped then.
pub(super) fn with<R>(stopped: Instant, fixed: &Arc<Fixed>, work: impl FnOnce() -> R) -> R {
    let context = Context { stopped: Some(stopped), fixed: Some(Arc::clone(fixed)) };
    CONTEXT.replace(context);
    let result = work();
    CONTEXT.take();
    result
}

/// When the process has stopped.
pub(super) fn stopped() -> Option<Instant> {
    CONTEXT.with_borrow(|context| context.stopped)
}

/// What never changes in the process.
pub(super) fn fixed() -> Option<Arc<Fixed>> {
    CONTEXT.with_borrow(|context| context.fixed.clone())
}
