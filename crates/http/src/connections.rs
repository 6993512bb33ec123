//! The open connections of one reactor: how many there may be, how long each has been doing what
//! it does, and the end of those that take too long.
//!
//! There is no timer for a connection. It notes what it does and since when, by a clock that
//! stands still between two sweeps; a sweep every quarter of a second, or sooner if a timeout is
//! short, tells those to end whose time is up.

use std::{
    cell::{Cell, RefCell},
    collections::hash_map::{Entry as MapEntry, HashMap},
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{options::Options, patience::Patience};

/// How often connections are looked at, at the most and at the least.
const PERIOD: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// How long a connection may take to close, once it was told to.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// From this age on, a connection that has not said anything counts as idle.
const SILENT: Duration = Duration::from_secs(1);

/// What a connection that has no exchange does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has just been accepted; not a byte of a request has come.
    Fresh,
    /// The head of a request is coming.
    Head,
    /// It waits for the next request.
    Idle,
    /// It was told to end.
    Closing,
}

/// What a connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// To end with the exchanges it has.
    Close,
    /// That the head of a request takes too long.
    HeadTimeout,
    /// To end at once.
    Cut,
}

/// One open connection, as the list has it.
pub(crate) struct Entry {
    clock: Rc<Clock>,
    phase: Cell<Phase>,
    /// Milliseconds of the clock.
    since: Cell<u64>,
    exchanges: Cell<u32>,
    /// Whether heads come in streams, so that bytes do not begin one.
    has_streams: Cell<bool>,
    /// Whether the client does not take what is there for it.
    is_stalled: Cell<bool>,
    order: Cell<Option<Order>>,
    waker: RefCell<Waker>,
    /// For the exchanges of an HTTP/1 connection.
    pub(crate) patience: Patience,
}

/// Time as of the last sweep.
struct Clock {
    start: Instant,
    period: Duration,
    now: Cell<u64>,
}

impl Clock {
    /// A time that has not passed yet: nothing that is counted from it ends early.
    fn stamp(&self) -> u64 {
        self.now.get() + self.period.as_millis() as u64
    }
}

impl Entry {
    fn new(clock: Rc<Clock>, order: Option<Order>) -> Self {
        Self {
            phase: Cell::new(Phase::Fresh),
            since: Cell::new(clock.stamp()),
            clock,
            exchanges: Cell::new(0),
            has_streams: Cell::new(false),
            is_stalled: Cell::new(false),
            order: Cell::new(order),
            waker: RefCell::new(Waker::noop().clone()),
            patience: Patience::default(),
        }
    }

    /// Whom to wake when there is an order. A task's waker stays the same, so that once is enough.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        self.waker.borrow_mut().clone_from(cx.waker());
    }

    /// What the connection is told, once.
    pub(crate) fn take_order(&self) -> Option<Order> {
        self.order.take()
    }

    /// What it is told, still to be taken.
    pub(crate) fn order(&self) -> Option<Order> {
        self.order.get()
    }

    /// Bytes of a request have come.
    pub(crate) fn received(&self) {
        match self.phase.get() {
            _ if self.has_streams.get() => {}
            Phase::Fresh => self.phase.set(Phase::Head),
            Phase::Idle if self.exchanges.get() == 0 => self.enter(Phase::Head),
            _ => {}
        }
    }

    /// The connection speaks HTTP/2. Its first request has to come in the time for a head; how
    /// long those after it take does not matter, since they hold up nothing.
    pub(crate) fn set_streams(&self) {
        self.has_streams.set(true);
        if self.phase.get() == Phase::Head {
            self.phase.set(Phase::Fresh);
        }
    }

    /// Whether it speaks HTTP/2.
    pub(crate) fn has_streams(&self) -> bool {
        self.has_streams.get()
    }

    /// Whether the head of a request has begun and not ended.
    pub(crate) fn is_in_head(&self) -> bool {
        self.phase.get() == Phase::Head && self.exchanges.get() == 0
    }

    /// Whether it still owes the head of a request.
    pub(crate) fn awaits_head(&self) -> bool {
        matches!(self.phase.get(), Phase::Fresh | Phase::Head) && self.exchanges.get() == 0
    }

    pub(crate) fn begin_exchange(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        if self.phase.get() != Phase::Closing {
            self.phase.set(Phase::Idle);
        }
    }

    pub(crate) fn end_exchange(&self) {
        self.exchanges.set(self.exchanges.get() - 1);
        self.since.set(self.clock.stamp());
    }

    pub(crate) fn has_exchanges(&self) -> bool {
        self.exchanges.get() > 0
    }

    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        self.is_stalled.set(is_stalled);
    }

    /// From here on it may take a moment to close.
    pub(crate) fn begin_close(&self) {
        if self.phase.get() != Phase::Closing {
            self.enter(Phase::Closing);
        }
    }

    fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.stamp());
    }

    pub(crate) fn tell(&self, order: Order) {
        self.order.set(Some(order));
        self.waker.borrow().wake_by_ref();
    }

    fn age(&self) -> Duration {
        Duration::from_millis(self.clock.now.get().saturating_sub(self.since.get()))
    }

    /// What its time is up for.
    fn due(&self, now: Instant, options: &Options) -> Option<Order> {
        if self.patience.response().is_some_and(|until| until <= now) {
            return Some(Order::Cut);
        }
        if self.has_exchanges() {
            return None;
        }
        let (time, order) = match self.phase.get() {
            // There is something to be sent, which has a time of its own.
            Phase::Closing if self.is_stalled.get() => return None,
            Phase::Fresh | Phase::Head => (options.head_timeout, Order::HeadTimeout),
            Phase::Idle => (options.idle_timeout, Order::Close),
            Phase::Closing => (CLOSE_TIME, Order::Cut),
        };
        (self.age() > time).then_some(order)
    }

    /// For how long it could have been closed without loss.
    fn idle_for(&self) -> Option<Duration> {
        if self.has_exchanges() || self.is_stalled.get() {
            return None;
        }
        let age = self.age();
        match self.phase.get() {
            Phase::Idle => Some(age),
            Phase::Fresh => (age > SILENT).then_some(age),
            Phase::Head | Phase::Closing => None,
        }
    }
}

/// The connections of one reactor.
pub(crate) struct Connections {
    clock: Rc<Clock>,
    options: Options,
    /// How many there may be.
    capacity: usize,
    is_draining: Cell<bool>,
    next_key: Cell<u64>,
    open: RefCell<HashMap<u64, Rc<Entry>>>,
    /// Whether a connection waits for room that was not there when it came.
    is_full: Cell<bool>,
    /// Waits for one to end.
    waiting: RefCell<Vec<Waker>>,
}

/// A place in the list, and the way out of it.
pub(crate) struct Listed {
    connections: Rc<Connections>,
    key: u64,
    pub(crate) entry: Rc<Entry>,
}

impl Connections {
    pub(crate) fn new(options: &Options, capacity: usize) -> Self {
        let shortest = options.head_timeout.min(options.idle_timeout) / 4;
        let period = shortest.clamp(PERIOD.0, PERIOD.1);
        Self {
            clock: Rc::new(Clock { start: Instant::now(), period, now: Cell::new(0) }),
            options: options.clone(),
            capacity,
            is_draining: Cell::new(false),
            next_key: Cell::new(0),
            is_full: Cell::new(false),
            open: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// A connection that has been accepted.
    pub(crate) fn add(self: &Rc<Self>) -> Listed {
        let key = self.next_key.get();
        self.next_key.set(key + 1);
        let order = self.is_draining.get().then_some(Order::Close);
        let entry = Rc::new(Entry::new(self.clock.clone(), order));
        self.open.borrow_mut().insert(key, entry.clone());
        Listed { connections: self.clone(), key, entry }
    }

    /// Ready when there is room for one more.
    pub(crate) fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        let room = self.poll_below(cx, self.capacity);
        self.is_full.set(room.is_pending());
        room
    }

    /// Ready when none is open.
    pub(crate) fn poll_drained(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll_below(cx, 1)
    }

    fn poll_below(&self, cx: &Context<'_>, count: usize) -> Poll<()> {
        if self.len() < count {
            return Poll::Ready(());
        }
        self.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.open.borrow().len()
    }

    /// Closes the connection that has been idle longest, for one that wants in.
    pub(crate) fn close_one(&self) {
        let open = self.open.borrow();
        let idle = open.values().filter_map(|entry| Some((entry.idle_for()?, entry)));
        if let Some((_, entry)) = idle.max_by_key(|(age, _)| *age) {
            // It is not the longest idle one again.
            entry.begin_close();
            entry.tell(Order::Close);
        }
    }

    /// Whether there will be room without closing another.
    fn is_one_closing(&self) -> bool {
        self.open.borrow().values().any(|entry| entry.phase.get() == Phase::Closing)
    }

    /// Tells all connections, and those to come, to end with the exchanges they are in.
    pub(crate) fn drain(&self) {
        self.is_draining.set(true);
        self.open.borrow().values().for_each(|entry| entry.tell(Order::Close));
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.open.borrow().values().for_each(|entry| entry.tell(Order::Cut));
    }

    /// How often to sweep.
    pub(crate) fn period(&self) -> Duration {
        self.clock.period
    }

    /// Tells those to end whose time is up, and one that has become idle if another waits for room.
    pub(crate) fn sweep(&self) {
        let now = Instant::now();
        self.clock.now.set((now - self.clock.start).as_millis() as u64);
        for entry in self.open.borrow().values() {
            if let Some(order) = entry.due(now, &self.options) {
                entry.tell(order);
            }
        }
        if self.is_full.get() && self.len() >= self.capacity && !self.is_one_closing() {
            self.close_one();
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let MapEntry::Occupied(entry) = self.connections.open.borrow_mut().entry(self.key) {
            entry.remove();
        }
        for waker in self.connections.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(capacity: usize) -> Rc<Connections> {
        let options = Options {
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            ..Options::default()
        };
        Rc::new(Connections::new(&options, capacity))
    }

    fn pass(connections: &Connections, seconds: u64) {
        let clock = &connections.clock;
        clock.now.set(clock.now.get() + seconds * 1000);
    }

    fn due(connections: &Connections, listed: &Listed) -> Option<Order> {
        listed.entry.due(Instant::now(), &connections.options)
    }

    #[test]
    fn times_are_counted_from_where_they_begin() {
        let connections = connections(9);
        let listed = connections.add();
        pass(&connections, 9);
        // The head begins with the connection, however slowly it comes.
        listed.entry.received();
        assert_eq!(due(&connections, &listed), None);
        pass(&connections, 2);
        assert!(listed.entry.is_in_head());
        assert_eq!(due(&connections, &listed), Some(Order::HeadTimeout));
        listed.entry.begin_exchange();
        pass(&connections, 1000);
        listed.entry.received();
        assert_eq!(due(&connections, &listed), None, "an exchange has its own limits");
        listed.entry.end_exchange();
        pass(&connections, 59);
        assert_eq!(due(&connections, &listed), None);
        pass(&connections, 2);
        assert_eq!(due(&connections, &listed), Some(Order::Close));
        listed.entry.received();
        assert_eq!(due(&connections, &listed), None);
        pass(&connections, 11);
        assert_eq!(due(&connections, &listed), Some(Order::HeadTimeout));
    }

    #[test]
    fn the_longest_idle_one_makes_room() {
        let connections = connections(3);
        let [busy, old, young] = std::array::from_fn(|_| connections.add());
        for listed in [&busy, &old, &young] {
            listed.entry.begin_exchange();
        }
        old.entry.end_exchange();
        pass(&connections, 5);
        young.entry.end_exchange();
        pass(&connections, 5);
        let orders = || [&busy, &old, &young].map(|listed| listed.entry.take_order());
        connections.close_one();
        assert_eq!(orders(), [None, Some(Order::Close), None]);
        connections.close_one();
        assert_eq!(orders(), [None, None, Some(Order::Close)]);
        connections.close_one();
        assert_eq!(orders(), [None; 3]);
        let cx = Context::from_waker(Waker::noop());
        assert!(connections.poll_room(&cx).is_pending());
        drop(old);
        assert!(connections.poll_room(&cx).is_ready());
    }

    /// None was idle when it came; one is later.
    #[test]
    fn one_that_waits_for_room_gets_it_from_who_becomes_idle() {
        let connections = connections(1);
        let busy = connections.add();
        busy.entry.begin_exchange();
        let cx = Context::from_waker(Waker::noop());
        assert!(connections.poll_room(&cx).is_pending());
        connections.close_one();
        connections.sweep();
        assert_eq!(busy.entry.take_order(), None);
        busy.entry.end_exchange();
        connections.sweep();
        assert_eq!(busy.entry.take_order(), Some(Order::Close));
    }
}
