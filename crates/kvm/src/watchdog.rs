//! One thread that interrupts guests which run for long, so that nobody needs a timer of his own.
//!
//! A processor says that it runs by a number of its own; the watchdog looks at these numbers once a
//! [`TICK`]. Where one has not changed since its last look, it sends a signal to the thread that
//! runs the guest. The signal's handler tells KVM not to enter the guest, for the case that it
//! comes just before; if the guest runs already, the signal ends that by itself.
//!
//! On the way of a request this costs two stores. The watchdog sleeps while nothing runs.
#![allow(unsafe_code, reason = "installs a signal handler and sends the signal")]

use std::{
    cell::Cell,
    io,
    marker::PhantomData,
    ptr,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use kvm_bindings::kvm_run;

/// How long a guest runs without being interrupted: between one and two of these.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Ticks without a running guest after which the watchdog sleeps.
const PATIENCE: u32 = 100;

thread_local! {
    /// What the guest that runs on this thread shares with KVM.
    static RUNNING: Cell<*mut kvm_run> = const { Cell::new(ptr::null_mut()) };
}

/// What the watchdog sees of a processor.
#[derive(Default)]
struct State {
    /// Odd while it runs.
    runs: AtomicU64,
    /// The thread that runs it.
    thread: AtomicI32,
}

/// A processor's side.
pub(crate) struct Mark {
    state: Arc<State>,
}

/// A guest is running while this lives.
pub(crate) struct Running<'a> {
    state: &'a State,
    /// Stays on its thread.
    thread: PhantomData<*mut ()>,
}

/// The watchdog.
pub(crate) struct Watchdog {
    marks: Mutex<Vec<Weak<State>>>,
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

static WATCHDOG: LazyLock<Watchdog> = LazyLock::new(|| Watchdog {
    marks: Mutex::default(),
    asleep: AtomicBool::new(false),
    thread: Mutex::default(),
});

/// The signal: one that nobody else in this process uses.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 3
}

extern "C" fn handle(_: libc::c_int) {
    let run = RUNNING.get();
    if !run.is_null() {
        // SAFETY: not null only between `enter` and the drop of `Running`, on this very thread,
        // while `enter`'s borrow keeps the mapping alive.
        unsafe { (&raw mut (*run).immediate_exit).write_volatile(1) };
    }
}

impl Watchdog {
    /// A mark for a new processor.
    pub(crate) fn mark() -> Mark {
        let state = Arc::new(State::default());
        locked(&WATCHDOG.marks).push(Arc::downgrade(&state));
        Mark { state }
    }

    /// Starts the watchdog, if it does not run yet.
    pub(crate) fn start() -> io::Result<()> {
        let mut thread = locked(&WATCHDOG.thread);
        if thread.is_none() {
            // SAFETY: a `sigaction` of zeros is valid, and the handler only touches a
            // thread-local cell without a destructor and the byte it points to.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as extern "C" fn(libc::c_int) as usize;
                action.sa_flags = libc::SA_RESTART;
                if libc::sigaction(signal(), &action, ptr::null_mut()) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            let handle = thread::Builder::new()
                .name("kvm-watchdog".to_owned())
                .spawn(|| WATCHDOG.watch())?;
            *thread = Some(handle.thread().clone());
        }
        Ok(())
    }

    fn watch(&self) {
        let mut seen: Vec<(Weak<State>, u64)> = Vec::new();
        let mut quiet = 0;
        loop {
            let before = std::mem::take(&mut seen);
            let marks = locked(&self.marks).clone();
            let mut gone = false;
            for mark in marks {
                let Some(state) = mark.upgrade() else {
                    gone = true;
                    continue;
                };
                let runs = state.runs.load(Ordering::Acquire);
                if runs % 2 == 1 {
                    let was = |(other, at): &(Weak<State>, u64)| *at == runs && other.ptr_eq(&mark);
                    if before.iter().any(was) {
                        kick(state.thread.load(Ordering::Relaxed));
                    }
                    seen.push((mark, runs));
                }
            }
            if gone {
                locked(&self.marks).retain(|mark| mark.strong_count() > 0);
            }
            quiet = if seen.is_empty() { quiet + 1 } else { 0 };
            if quiet < PATIENCE {
                thread::sleep(TICK);
                continue;
            }
            // Whoever begins to run after this wakes us, and whoever began before it is seen.
            self.asleep.store(true, Ordering::SeqCst);
            let runs = |mark: &Weak<State>| {
                mark.upgrade().is_some_and(|state| state.runs.load(Ordering::SeqCst) % 2 == 1)
            };
            if !locked(&self.marks).iter().any(runs) {
                while self.asleep.load(Ordering::SeqCst) {
                    thread::park();
                }
            }
            self.asleep.store(false, Ordering::SeqCst);
            quiet = 0;
        }
    }

    #[cold]
    fn wake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
        if let Some(thread) = &*locked(&self.thread) {
            thread.unpark();
        }
    }
}

impl Mark {
    /// The guest is about to run on this thread. `run` is what it shares with KVM.
    pub(crate) fn enter(&self, run: &mut kvm_run) -> Running<'_> {
        RUNNING.set(run);
        self.state.thread.store(own_thread(), Ordering::Relaxed);
        self.state.runs.fetch_add(1, Ordering::SeqCst);
        if WATCHDOG.asleep.load(Ordering::SeqCst) {
            WATCHDOG.wake();
        }
        Running { state: &self.state, thread: PhantomData }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.state.runs.fetch_add(1, Ordering::Release);
        RUNNING.set(ptr::null_mut());
    }
}

/// The kernel's number for this thread.
fn own_thread() -> i32 {
    thread_local! {
        static OWN: i32 = rustix::thread::gettid().as_raw_nonzero().get();
    }
    OWN.with(|own| *own)
}

/// Interrupts what a thread of ours does. One that is gone by now is not found, which is fine.
fn kick(thread: i32) {
    // SAFETY: sending a signal touches no memory; ours has a handler that does no harm at any
    // time.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
