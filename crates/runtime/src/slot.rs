//! A tenant's program as it comes and goes.
//!
//! ```text
//!            first exchange                 install
//!   Empty ───────────────────▶ Loading ───────────────▶ Loaded ──┐ install: the next version
//!     ▲                        ▲  │                      │  ▲    │ roll_back: the one before
//!     │       the pause is over│  │fail                  │  └────┘
//!     │                        │  ▼                      │    fail: the version that works stays
//!     │                        Failed                    │
//!     └──────────────────────────────────────────────────┘ retire: unused for long
//! ```
//!
//! Reactors keep a copy of what they need of it, and a look at [`Slot::generation`] tells them
//! whether it is still right; the lock is for changes.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sandtide_engine::Program;

use crate::{
    loader::{Loader, Nobody},
    stateful::Stateful,
    version::Version,
    waiting::Waiting,
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
    made: Instant,
    /// When reactors last had exchanges for it: milliseconds since `made`.
    used: AtomicU64,
    /// Whether there is something in it to look after.
    has_versions: AtomicBool,
    inner: Mutex<Inner>,
    pub(crate) stateful: Stateful,
}

struct Inner {
    state: State,
    /// What a version on probation may be replaced by.
    previous: Option<Arc<Version>>,
    /// Served before and may still be in use; dropped by [`Slot::tidy`].
    retired: Vec<Arc<Version>>,
    /// How many versions there were.
    versions: u64,
    /// The pause after the last failure, and zero after a success.
    pause: Duration,
    failure: Option<Arc<str>>,
    rollback: Option<Rollback>,
    waiting: Waiting,
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
    /// Where it is in its life.
    pub state: SlotState,
    /// The version that serves, if one does.
    pub version: Option<Arc<Version>>,
    /// Why the last attempt to load a version failed, if it did. With a version that serves, it
    /// was the attempt to replace it.
    pub failure: Option<Arc<str>>,
    /// The last time that the version before was brought back.
    pub rollback: Option<Rollback>,
    /// Versions that serve no more, and whose last exchanges may not have ended.
    pub ending: usize,
    /// Exchanges that wait for the sandbox of a tenant that keeps state, and whoever waits to hand
    /// it over.
    pub in_line: usize,
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

impl SlotState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Loading => "loading",
            Self::Loaded => "loaded",
            Self::Failed => "failed",
        }
    }
}

/// A version was replaced by the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollback {
    /// The version that had too many faults.
    pub from: u64,
    /// The one that is back.
    pub to: u64,
    /// How many faults it had.
    pub faults: u32,
    /// When.
    pub at: Instant,
}

impl Slot {
    /// An empty slot.
    pub fn new(loader: Arc<dyn Loader>) -> Arc<Self> {
        Arc::new(Self {
            loader,
            generation: AtomicU64::new(0),
            made: Instant::now(),
            used: AtomicU64::new(0),
            has_versions: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                state: State::Empty,
                previous: None,
                retired: Vec::new(),
                versions: 0,
                pause: Duration::ZERO,
                failure: None,
                rollback: None,
                waiting: Waiting::default(),
            }),
            stateful: Stateful::default(),
        })
    }

    /// A slot that has its program, for good.
    pub fn loaded(program: Arc<dyn Program>) -> Arc<Self> {
        let slot = Self::new(Arc::new(Nobody("nothing loads it again".to_owned())));
        slot.install(program, 0);
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
    ///
    /// With `rollback_on_faults` other than zero, so many faults among its first exchanges bring
    /// back the version that serves now. A tenant that keeps state loses it: see
    /// [`Slot::hand_over`].
    pub fn install(&self, program: Arc<dyn Program>, rollback_on_faults: u32) -> Arc<Version> {
        let mut inner = self.inner();
        inner.versions += 1;
        let before = match std::mem::replace(&mut inner.state, State::Empty) {
            State::Loaded(version) => Some(version),
            State::Empty | State::Loading | State::Failed { .. } => None,
        };
        let proven = match before {
            // What is on probation itself is nothing to come back to.
            Some(before) if before.is_on_probation() => {
                inner.retired.push(before);
                inner.previous.take()
            }
            before => {
                let older = inner.previous.take();
                inner.retired.extend(older);
                before
            }
        };
        let faults = if proven.is_some() { rollback_on_faults } else { 0 };
        if faults > 0 {
            inner.previous = proven;
        } else {
            inner.retired.extend(proven);
        }
        let version = Arc::new(Version::new(program, inner.versions, faults));
        inner.state = State::Loaded(version.clone());
        self.has_versions.store(true, Ordering::Relaxed);
        inner.pause = Duration::ZERO;
        inner.failure = None;
        self.touch();
        self.announce(inner);
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

    /// Lets go of the program if it has not been used for so long. Never of a sandbox that has a
    /// tenant's state in it.
    pub fn retire(&self, unused_for: Duration) -> bool {
        let used = self.made + Duration::from_millis(self.used.load(Ordering::Relaxed));
        if used.elapsed() < unused_for || !self.stateful.is_free() {
            return false;
        }
        let mut inner = self.inner();
        let State::Loaded(_) = inner.state else { return false };
        if let State::Loaded(version) = std::mem::replace(&mut inner.state, State::Empty) {
            inner.retired.push(version);
        }
        let previous = inner.previous.take();
        inner.retired.extend(previous);
        self.announce(inner);
        true
    }

    /// Whether it has a version, or had one that is not gone yet. If not, [`Self::retire`] and
    /// [`Self::tidy`] have nothing to do.
    pub fn has_versions(&self) -> bool {
        self.has_versions.load(Ordering::Relaxed)
    }

    /// Forgets the state of a tenant that keeps none any more.
    pub fn forget_state(&self) {
        self.stateful.forget();
    }

    /// Lets go of versions that nobody uses any more. The control plane calls it now and then, so
    /// that a program ends on its thread and not on a reactor's.
    pub fn tidy(&self) {
        let mut inner = self.inner();
        let is_proven =
            matches!(&inner.state, State::Loaded(version) if !version.is_on_probation());
        if is_proven {
            let previous = inner.previous.take();
            inner.retired.extend(previous);
        }
        let (unused, in_use) =
            inner.retired.drain(..).partition(|version| Arc::strong_count(version) == 1);
        inner.retired = in_use;
        let serves = matches!(inner.state, State::Loaded(_));
        self.has_versions.store(serves || !inner.retired.is_empty(), Ordering::Relaxed);
        drop(inner);
        let unused: Vec<Arc<Version>> = unused;
        drop(unused);
        if is_proven {
            self.stateful.let_go_of_kept();
        }
    }

    /// Brings back the version before `bad`, if there is one and `bad` serves.
    pub(crate) fn roll_back(self: &Arc<Self>, bad: &Arc<Version>) {
        let mut inner = self.inner();
        let serves = matches!(&inner.state, State::Loaded(version) if Arc::ptr_eq(version, bad));
        if !serves {
            return;
        }
        let Some(previous) = inner.previous.take() else { return };
        inner.rollback = Some(Rollback {
            from: bad.number(),
            to: previous.number(),
            faults: bad.faults(),
            at: Instant::now(),
        });
        inner.failure = Some(format!("version {} had too many faults", bad.number()).into());
        inner.retired.push(bad.clone());
        inner.state = State::Loaded(previous);
        self.announce(inner);
        self.stateful.bring_back_kept();
        self.loader.rolled_back(self, bad);
    }

    /// Whether a rollback would bring this version back.
    pub(crate) fn falls_back_to(&self, version: &Arc<Version>) -> bool {
        self.inner().previous.as_ref().is_some_and(|previous| Arc::ptr_eq(previous, version))
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
        SlotStatus {
            state,
            version,
            failure: inner.failure.clone(),
            rollback: inner.rollback,
            ending: inner.retired.len(),
            in_line: self.stateful.in_line(),
        }
    }

    /// The version that serves.
    pub fn version(&self) -> Option<Arc<Version>> {
        match &self.inner().state {
            State::Loaded(version) => Some(version.clone()),
            _ => None,
        }
    }

    /// Notes that it is in use. For now and then, not for each exchange.
    pub(crate) fn touch(&self) {
        let now = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
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

    /// Has the loader asked for the program, unless it is there or on its way.
    pub(crate) fn want(self: &Arc<Self>) {
        let mut inner = self.inner();
        let is_due = match inner.state {
            State::Empty => true,
            State::Failed { retry_at } => retry_at <= Instant::now(),
            State::Loading | State::Loaded(_) => false,
        };
        if is_due {
            inner.state = State::Loading;
            drop(inner);
            self.loader.load(self);
        }
    }

    /// Access to those who wait for a change.
    pub(crate) fn waiting<T>(&self, work: impl FnOnce(&mut Waiting) -> T) -> T {
        work(&mut self.inner().waiting)
    }

    /// Tells all who have a copy that it is not right any more, and wakes who waits.
    fn announce(&self, mut inner: MutexGuard<'_, Inner>) {
        self.generation.fetch_add(1, Ordering::Release);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.wake();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SlotStatus { state, version, .. } = self.status();
        write!(f, "Slot({state:?} {version:?})")
    }
}
