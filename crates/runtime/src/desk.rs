//! What one reactor has of a tenant's program: a copy of what its slot says, and the sandboxes.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    pool::Pool,
    slot::{Failure, Known, Slot},
};

/// Sandboxes that nobody has needed for so long are destroyed.
const IDLE: Duration = Duration::from_secs(60);

/// The pool of the version that serves, and the way to the next one.
pub(crate) struct Desk {
    pub(crate) slot: Arc<Slot>,
    /// Of the slot when `state` was made.
    generation: Cell<u64>,
    state: RefCell<State>,
    /// How many sandboxes a pool keeps at least.
    idle_sandboxes: u32,
    /// Whether somebody asked for the pool since the last look.
    used: Cell<bool>,
    /// When somebody did, as far as is known.
    last_used: Cell<Instant>,
}

enum State {
    Absent,
    Ready(Rc<Pool>),
    Failed(Failure),
}

/// Why there is no pool.
pub(crate) enum Closed {
    /// The program is not loaded, and could be.
    Absent,
    /// It could not be loaded, and is not tried again before some time.
    Failed(Failure),
}

impl Desk {
    pub(crate) fn new(slot: Arc<Slot>, idle_sandboxes: u32) -> Self {
        let desk = Self {
            slot,
            generation: Cell::new(0),
            state: RefCell::new(State::Absent),
            idle_sandboxes,
            used: Cell::new(true),
            last_used: Cell::new(Instant::now()),
        };
        desk.refresh();
        desk
    }

    /// The pool of the version that serves now.
    pub(crate) fn pool(&self) -> Option<Rc<Pool>> {
        if self.slot.generation() != self.generation.get() {
            self.refresh();
        }
        self.used.set(true);
        self.current()
    }

    /// The same, for who does not need it.
    pub(crate) fn current(&self) -> Option<Rc<Pool>> {
        match &*self.state.borrow() {
            State::Ready(pool) => Some(pool.clone()),
            State::Absent | State::Failed(_) => None,
        }
    }

    /// Why there is no pool, when there is none.
    #[cold]
    pub(crate) fn closed(&self) -> Closed {
        match &*self.state.borrow() {
            State::Failed(failure) if Instant::now() < failure.retry_at => {
                Closed::Failed(failure.clone())
            }
            _ => Closed::Absent,
        }
    }

    /// The generation that this reactor knows.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Looks at the slot again. Sandboxes of a version that serves no more are destroyed.
    #[cold]
    fn refresh(&self) {
        let (generation, known) = self.slot.known();
        self.generation.set(generation);
        let mut state = self.state.borrow_mut();
        let next = match (known, &*state) {
            (Known::Loaded(version), State::Ready(pool))
                if Arc::ptr_eq(&version, &pool.version) =>
            {
                State::Ready(pool.clone())
            }
            (Known::Loaded(version), _) => {
                State::Ready(Rc::new(Pool::new(version, self.idle_sandboxes)))
            }
            (Known::Absent, _) => State::Absent,
            (Known::Failed(failure), _) => State::Failed(failure),
        };
        let before = std::mem::replace(&mut *state, next);
        let kept = match &*state {
            State::Ready(pool) => Some(pool.clone()),
            _ => None,
        };
        drop(state);
        if let State::Ready(pool) = before
            && !kept.is_some_and(|kept| Rc::ptr_eq(&kept, &pool))
        {
            pool.close();
        }
    }

    /// What is due now and then, when no exchange may have come for long.
    pub(crate) fn tidy(&self, is_busy: bool) {
        if self.slot.generation() != self.generation.get() {
            self.refresh();
        }
        let is_used = self.used.take() || is_busy;
        if is_used {
            self.last_used.set(Instant::now());
            self.slot.touch();
        }
        if let State::Ready(pool) = &*self.state.borrow()
            && pool.len() > 0
        {
            if is_used || self.last_used.get().elapsed() < IDLE {
                pool.trim();
            } else {
                pool.empty();
            }
        }
    }

    /// Bytes of memory that only the idle sandboxes hold.
    pub(crate) fn resident_bytes(&self) -> u64 {
        match &*self.state.borrow() {
            State::Ready(pool) => pool.resident_bytes(),
            State::Absent | State::Failed(_) => 0,
        }
    }

    /// How many sandboxes are idle.
    pub(crate) fn idle(&self) -> usize {
        match &*self.state.borrow() {
            State::Ready(pool) => pool.len(),
            State::Absent | State::Failed(_) => 0,
        }
    }
}
