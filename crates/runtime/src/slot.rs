//! A tenant's program as it comes and goes.
//!
//! ```text
//!            first exchange                 install
//!   Empty ───────────────────▶ Loading ───────────────▶ Loaded ──┐ install: the next version
//!     ▲                        ▲  │                      │  ▲────┘
//!     │       the pause is over│  │fail                  │
//!     │                        │  ▼                      │
//!     │                        Failed ◀── (never) ───────┤ a failure leaves the version that works
//!     └──────────────────────────────────────────────────┘ retire: unused for long
//! ```
//!
//! Reactors keep a copy of what they need of it and a look at [`Slot::generation`] tells them
//! whether it is still right; the lock is for changes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use sandtide_engine::Program;

use crate::{
    loader::{Loader, Nobody},
    stateful::Stateful,
    version::Version,
};

/// How long exchanges are turned away after a program could not be loaded for the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The pause doubles with each failure up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The place of a tenant's program. It stays the same when the tenant's entry in the routing
/// table is replaced.
pub struct Slot {
    loader: Arc<dyn Loader>,
    /// Changes with everything that reactors keep a copy of.
    generation: AtomicU64,
    inner: Mutex<Inner>,
    pub(crate) stateful: Stateful,
}

struct Inner {
    state: State,
    /// How many versions there were.
    versions: u64,
    /// The pause after the last failure, and zero after a success.
    pause: Duration,
    /// Why the last attempt to load failed, if it did.
    failure: Option<Arc<str>>,
    next_ticket: u64,
    waiting: BTreeMap<u64, Waker>,
}

enum State {
    Empty,
    Loading,
    Loaded(Arc<Version>),
    Failed { retry_at: Instant },
}

/// What a reactor keeps of a slot.
pub(crate) enum Known {
    /// Nothing yet: somebody has to ask for it.
    Absent,
    Loaded(Arc<Version>),
    Failed(Failure),
}

/// A program that could not be loaded, and is not tried again before some time.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) reason: Arc<str>,
    pub(crate) retry_at: Instant,
}

/// A slot's state, for people.
#[derive(Debug, Clone)]
pub struct SlotStatus {
    /// What it is in.
    pub state: SlotState,
    /// The version that serves, if one does.
    pub version: Option<Arc<Version>>,
    /// Why the last attempt to load a version failed, if it did. With a version that serves, it
    /// was the attempt to replace it.
    pub failure: Option<Arc<str>>,
}

/// Where a slot is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing is loaded, since nobody needs it.
    Empty,
    /// The first version is being loaded; exchanges wait.
    Loading,
    /// A version serves.
    Loaded,
    /// No version could be loaded; exchanges are answered 503.
    Failed,
}

impl Slot {
    /// An empty slot.
    pub fn new(loader: Arc<dyn Loader>) -> Arc<Self> {
        Arc::new(Self {
            loader,
            generation: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                state: State::Empty,
                versions: 0,
                pause: Duration::ZERO,
                failure: None,
                next_ticket: 0,
                waiting: BTreeMap::new(),
            }),
            stateful: Stateful::default(),
        })
    }

    /// A slot that has its program, for good.
    pub fn loaded(program: Arc<dyn Program>) -> Arc<Self> {
        let slot = Self::new(Arc::new(Nobody("nothing loads it again".to_owned())));
        slot.install(program);
        slot
    }

    /// A slot whose program cannot be loaded. The reason is for the log only.
    pub fn failed(reason: impl Into<String>) -> Arc<Self> {
        let reason = reason.into();
        let slot = Self::new(Arc::new(Nobody(reason.clone())));
        slot.fail(&reason);
        slot
    }

    /// Serves new exchanges with this program. Exchanges that have begun end with theirs.
    pub fn install(&self, program: Arc<dyn Program>) -> Arc<Version> {
        let mut inner = self.inner();
        inner.versions += 1;
        let version = Arc::new(Version::new(program, inner.versions));
        let before = inner.replace(State::Loaded(version.clone()));
        inner.pause = Duration::ZERO;
        inner.failure = None;
        self.announce(inner);
        drop(before);
        version
    }

    /// Says that a program could not be loaded, and why. A version that serves goes on serving.
    pub fn fail(&self, reason: &str) {
        let mut inner = self.inner();
        inner.failure = Some(reason.into());
        if let State::Loaded(_) = inner.state {
            return;
        }
        inner.pause = (inner.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        let retry_at = Instant::now() + inner.pause;
        inner.state = State::Failed { retry_at };
        self.announce(inner);
    }

    /// Lets exchanges wait for a program that is being loaded without having been asked for.
    /// Whoever calls this owes an [`Slot::install`] or a [`Slot::fail`].
    pub fn begin_loading(&self) {
        let mut inner = self.inner();
        if let State::Empty | State::Failed { .. } = inner.state {
            inner.state = State::Loading;
            self.announce(inner);
        }
    }

    /// What is in it, for people.
    pub fn status(&self) -> SlotStatus {
        let inner = self.inner();
        let (state, version) = match &inner.state {
            State::Empty => (SlotState::Empty, None),
            State::Loading => (SlotState::Loading, None),
            State::Loaded(version) => (SlotState::Loaded, Some(version.clone())),
            State::Failed { .. } => (SlotState::Failed, None),
        };
        SlotStatus { state, version, failure: inner.failure.clone() }
    }

    /// The version that serves.
    pub fn version(&self) -> Option<Arc<Version>> {
        match &self.inner().state {
            State::Loaded(version) => Some(version.clone()),
            _ => None,
        }
    }

    /// Whether a copy of [`Self::known`] is still right. Reads memory that nobody writes as long
    /// as it is.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What a reactor keeps, and the generation that it is of.
    pub(crate) fn known(&self) -> (u64, Known) {
        let inner = self.inner();
        let known = match &inner.state {
            State::Empty | State::Loading => Known::Absent,
            State::Loaded(version) => Known::Loaded(version.clone()),
            State::Failed { retry_at } => {
                let reason = inner.failure.clone().unwrap_or_default();
                Known::Failed(Failure { reason, retry_at: *retry_at })
            }
        };
        (self.generation(), known)
    }

    /// Joins those who wait for a program. The first of them has the loader asked for it.
    pub(crate) fn want(self: &Arc<Self>, generation: u64) -> Awaited {
        let mut inner = self.inner();
        let ticket = inner.next_ticket;
        inner.next_ticket += 1;
        inner.waiting.insert(ticket, Waker::noop().clone());
        let is_due = match inner.state {
            State::Empty => true,
            State::Failed { retry_at } => retry_at <= Instant::now(),
            State::Loading | State::Loaded(_) => false,
        };
        if is_due {
            inner.state = State::Loading;
        }
        drop(inner);
        let awaited = Awaited { slot: self.clone(), generation, ticket };
        if is_due {
            self.loader.load(self);
        }
        awaited
    }

    /// Tells all who have a copy that it is not right any more, and wakes who waits.
    fn announce(&self, mut inner: MutexGuard<'_, Inner>) {
        self.generation.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_values().for_each(Waker::wake);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Drop what comes back without the lock: it may be the end of a program.
    #[must_use]
    fn replace(&mut self, state: State) -> State {
        std::mem::replace(&mut self.state, state)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotStatus { state, version, .. } = self.status();
        write!(f, "Slot({state:?} {version:?})")
    }
}

/// Waits for what a reactor knows of a slot to change.
pub(crate) struct Awaited {
    slot: Arc<Slot>,
    generation: u64,
    ticket: u64,
}

impl Awaited {
    /// Ready when the slot is not as it was.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.slot.generation() != self.generation {
            return Poll::Ready(());
        }
        let mut inner = self.slot.inner();
        // It may have changed before the lock was taken.
        if self.slot.generation() != self.generation {
            return Poll::Ready(());
        }
        inner
            .waiting
            .entry(self.ticket)
            .or_insert_with(|| cx.waker().clone())
            .clone_from(cx.waker());
        Poll::Pending
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.slot.inner().waiting.remove(&self.ticket);
    }
}
