//! The threads of a process, of which one runs at a time, and what the others wait for.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{Errno, kernel::negated, readiness::Source};

/// What a parked thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A wake of the futex at this address, with a bit in common.
    Futex { address: u64, bits: u32 },
    /// Only the time.
    Time,
    /// The engine.
    Host,
    /// A change of this object.
    Change(Source),
    /// A change of any object.
    AnyChange,
    /// A signal.
    Signal,
}

/// A parked thread's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wait {
    pub(crate) event: Event,
    #[serde(with = "crate::saved::moment")]
    pub(crate) deadline: Option<Instant>,
    /// What happens once the deadline has passed.
    pub(crate) on_timeout: Wake,
    /// Whether the call may be made again after a signal handler with `SA_RESTART`.
    pub(crate) restartable: bool,
}

/// Whether a thread can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Running,
    /// In the queue.
    Ready,
    Parked(Wait),
}

/// What happens to the registers of a thread when it runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wake {
    /// They are as they should be.
    AsIs,
    /// The call has this result.
    Result(u64),
    /// The guest makes the call again.
    Restart,
    /// The call is made again without the guest.
    Retry,
}

/// `struct sigaltstack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AlternateStack {
    pub(crate) start: u64,
    /// 0: there is none.
    pub(crate) size: u64,
}

impl AlternateStack {
    /// Whether a stack pointer is on it.
    pub(crate) fn contains(&self, sp: u64) -> bool {
        sp.wrapping_sub(self.start).wrapping_sub(1) < self.size
    }
}

/// A thread, but for its registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) state: State,
    pub(crate) wake: Wake,
    /// Grows with every wait, so that the one who waits longest is woken first.
    order: u64,
    /// The deadline of a call that is being made again.
    #[serde(with = "crate::saved::moment")]
    pub(crate) call_deadline: Option<Instant>,
    /// Its deadline is a time of day, which no pause postpones.
    pub(crate) waits_for_day: bool,
    /// That deadline has passed.
    pub(crate) timed_out: bool,
    /// Where to write 0 and wake a futex when the thread ends; 0 for nowhere.
    pub(crate) clear_child_tid: u64,
    /// The head of its list of robust futexes; 0 for none.
    pub(crate) robust_list: u64,
    /// The blocked signals, signal 1 in bit 0.
    pub(crate) mask: u64,
    /// The mask to restore after `rt_sigsuspend`.
    pub(crate) suspended_mask: Option<u64>,
    /// The signals sent to this thread and not delivered.
    pub(crate) pending: u64,
    pub(crate) alternate_stack: AlternateStack,
    pub(crate) name: [u8; 16],
}

impl Thread {
    fn new(tid: u32, name: [u8; 16]) -> Self {
        Self {
            tid,
            state: State::Running,
            wake: Wake::AsIs,
            order: 0,
            call_deadline: None,
            waits_for_day: false,
            timed_out: false,
            clear_child_tid: 0,
            robust_list: 0,
            mask: 0,
            suspended_mask: None,
            pending: 0,
            alternate_stack: AlternateStack::default(),
            name,
        }
    }

    /// The deadline of its wait.
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Parked(wait) => wait.deadline,
            _ => None,
        }
    }
}

/// The threads of a process. `running` is the one whose registers the engine uses, even while it
/// is parked and no other can run.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Threads {
    list: Vec<Thread>,
    running: usize,
    ready: VecDeque<u32>,
    next_tid: u32,
    next_order: u64,
}

impl Clone for Threads {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
            running: self.running,
            ready: self.ready.clone(),
            next_tid: self.next_tid,
            next_order: self.next_order,
        }
    }

    /// Into the allocations that are there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { list, running, ready, next_tid, next_order } = source;
        self.list.clone_from(list);
        self.ready.clone_from(ready);
        self.running = *running;
        self.next_tid = *next_tid;
        self.next_order = *next_order;
    }
}

impl Threads {
    pub(crate) fn new(tid: u32, name: [u8; 16]) -> Self {
        Self {
            list: vec![Thread::new(tid, name)],
            running: 0,
            ready: VecDeque::new(),
            next_tid: tid + 1,
            next_order: 0,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn current(&self) -> &Thread {
        &self.list[self.running]
    }

    pub(crate) fn current_mut(&mut self) -> &mut Thread {
        &mut self.list[self.running]
    }

    pub(crate) fn all(&self) -> &[Thread] {
        &self.list
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Thread {
        &mut self.list[index]
    }

    pub(crate) fn find(&self, tid: u32) -> Option<usize> {
        self.list.iter().position(|thread| thread.tid == tid)
    }

    /// Whether another thread could run now.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Adds a thread that can run, a copy of the running one. Its index is the last.
    pub(crate) fn add(&mut self, clear_child_tid: u64) -> u32 {
        let tid = self.next_tid;
        // Never back to a number that is in use: that takes 4 billion threads in one exchange.
        self.next_tid = self.next_tid.checked_add(1).unwrap_or(self.list[0].tid + 1);
        let maker = self.current();
        let mut thread = Thread::new(tid, maker.name);
        thread.mask = maker.mask;
        thread.clear_child_tid = clear_child_tid;
        thread.state = State::Ready;
        self.list.push(thread);
        self.ready.push_back(tid);
        tid
    }

    /// Takes the running thread away, unless it is the last one. Returns its index.
    pub(crate) fn remove_current(&mut self) -> Option<usize> {
        if self.list.len() == 1 {
            return None;
        }
        let index = self.running;
        self.list.remove(index);
        // Nobody runs until the next `pick`; the engine may look at the registers all the same.
        self.running = 0;
        Some(index)
    }

    /// Parks the running thread.
    pub(crate) fn park(&mut self, wait: Wait) {
        let order = self.next_order;
        self.next_order += 1;
        let thread = self.current_mut();
        thread.state = State::Parked(wait);
        thread.order = order;
        thread.call_deadline = wait.deadline;
        thread.waits_for_day = false;
    }

    /// Puts the running thread at the end of the queue.
    pub(crate) fn requeue_current(&mut self) {
        let thread = self.current_mut();
        if thread.state == State::Running {
            thread.state = State::Ready;
            thread.wake = Wake::AsIs;
            let tid = thread.tid;
            self.ready.push_back(tid);
        }
    }

    /// Makes a parked thread ready.
    pub(crate) fn wake(&mut self, index: usize, wake: Wake) {
        let thread = &mut self.list[index];
        if let State::Parked(_) = thread.state {
            thread.state = State::Ready;
            thread.wake = wake;
            if wake != Wake::Retry {
                thread.call_deadline = None;
            }
            let tid = thread.tid;
            self.ready.push_back(tid);
        }
    }

    /// The indices of the threads that wait for an event, the longest wait first.
    pub(crate) fn waiting(&self, matches: impl Fn(Event) -> bool) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.list.len())
            .filter(|index| {
                matches!(self.list[*index].state, State::Parked(wait) if matches(wait.event))
            })
            .collect();
        found.sort_unstable_by_key(|index| self.list[*index].order);
        found
    }

    /// Makes a futex waiter wait at another address, behind those who wait there.
    pub(crate) fn move_waiter(&mut self, index: usize, to: u64) {
        let order = self.next_order;
        self.next_order += 1;
        let thread = &mut self.list[index];
        if let State::Parked(Wait { event: Event::Futex { address, .. }, .. }) = &mut thread.state {
            *address = to;
            thread.order = order;
        }
    }

    /// Whether anything waits for the engine.
    pub(crate) fn any_waits_for_host(&self) -> bool {
        self.list
            .iter()
            .any(|thread| matches!(thread.state, State::Parked(wait) if wait.event == Event::Host))
    }

    /// The addresses of the futexes that threads wait for, once for each thread.
    pub(crate) fn futexes(&self) -> impl Iterator<Item = u64> {
        self.list.iter().filter_map(|thread| match thread.state {
            State::Parked(Wait { event: Event::Futex { address, .. }, .. }) => Some(address),
            _ => None,
        })
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.list.iter().filter_map(Thread::deadline).min()
    }

    /// Moves deadlines by the time in which the process has not run.
    pub(crate) fn postpone(&mut self, pause: Duration) {
        for thread in self.list.iter_mut().filter(|thread| !thread.waits_for_day) {
            let later = |at: Instant| at.checked_add(pause);
            thread.call_deadline = thread.call_deadline.and_then(later);
            if let State::Parked(wait) = &mut thread.state {
                wait.deadline = wait.deadline.and_then(later);
            }
        }
    }

    /// Moves deadlines that are times of day.
    pub(crate) fn pass_days(&mut self, earlier: impl Fn(Instant) -> Option<Instant>) {
        for thread in self.list.iter_mut().filter(|thread| thread.waits_for_day) {
            thread.call_deadline = thread.call_deadline.and_then(&earlier);
            if let State::Parked(wait) = &mut thread.state {
                wait.deadline = wait.deadline.and_then(&earlier);
            }
        }
    }

    /// Whether these can be threads: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut tids: Vec<u32> = self.list.iter().map(|thread| thread.tid).collect();
        tids.sort_unstable();
        let is_ready =
            |tid: &u32| self.find(*tid).is_some_and(|at| self.list[at].state == State::Ready);
        let ready = self.list.iter().filter(|thread| thread.state == State::Ready).count();
        self.running < self.list.len()
            && tids.windows(2).all(|pair| pair[0] < pair[1])
            && tids.last().is_some_and(|last| *last < self.next_tid)
            && self.ready.len() == ready
            && self.ready.iter().all(is_ready)
            && self.list.iter().all(|thread| thread.order <= self.next_order)
            && self.next_order < u64::MAX / 2
    }

    /// Wakes every thread whose deadline has passed, the earliest first.
    pub(crate) fn expire(&mut self, now: Instant) {
        let mut due: Vec<(Instant, usize)> = (0..self.list.len())
            .filter_map(|index| Some((self.list[index].deadline()?, index)))
            .filter(|(deadline, _)| *deadline <= now)
            .collect();
        due.sort_unstable();
        for (_, index) in due {
            if let State::Parked(wait) = self.list[index].state {
                self.list[index].timed_out = wait.on_timeout == Wake::Retry;
                self.wake(index, wait.on_timeout);
            }
        }
    }

    /// Makes the thread that is ready longest the running one. Returns what its registers need.
    pub(crate) fn pick(&mut self) -> Option<Wake> {
        let tid = self.ready.pop_front()?;
        self.running = self.find(tid)?;
        let thread = self.current_mut();
        thread.state = State::Running;
        Some(std::mem::replace(&mut thread.wake, Wake::AsIs))
    }

    /// Ends a parked thread's wait for a signal handler.
    pub(crate) fn interrupt(&mut self, index: usize, restart: bool) {
        let State::Parked(wait) = self.list[index].state else { return };
        let wake = match wait.event {
            // Stands in front of its call already.
            Event::Host => Wake::AsIs,
            _ if restart && wait.restartable => Wake::Restart,
            _ => Wake::Result(negated(Errno::INTR)),
        };
        self.wake(index, wake);
    }
}
