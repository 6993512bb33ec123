//! A host that is driven by hand.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread,
    time::{Duration, Instant},
};

use super::fake;
use sandtide_engine::RequestBody;
use sandtide_runtime::{Begun, Client, Reactor, Reply, Serving, Sleep, Timers, Whole};

/// When a timer would go off, and whether it has.
type Armed = (Instant, Rc<Cell<bool>>);

/// Timers that go off when the test says so.
#[derive(Clone, Default)]
pub struct Clock {
    pub armed: Rc<RefCell<Vec<Armed>>>,
}

impl Timers for Clock {
    fn sleep_until(&self, at: Instant) -> Sleep {
        let fired = Rc::new(Cell::new(false));
        self.armed.borrow_mut().push((at, fired.clone()));
        Box::pin(poll_fn(move |_| if fired.get() { Poll::Ready(()) } else { Poll::Pending }))
    }

    fn now(&self) -> Instant {
        fake::now()
    }

    fn cpu_time(&self) -> Duration {
        fake::cpu_time()
    }
}

impl Clock {
    /// Lets time go on until all timers have gone off that there are.
    pub fn fire_all(&self) -> usize {
        let armed = self.armed.take();
        for (at, fired) in &armed {
            fake::advance(at.saturating_duration_since(fake::now()));
            fired.set(true);
        }
        armed.len()
    }
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Counts wake-ups.
pub struct Woken(Arc<Count>, Waker);

impl Woken {
    pub fn new() -> Self {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        Self(count.clone(), Waker::from(count))
    }

    pub fn context(&self) -> Context<'_> {
        Context::from_waker(&self.1)
    }

    pub fn times(&self) -> usize {
        self.0.0.load(SeqCst)
    }
}

pub fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

pub fn begin_at(reactor: &Rc<Reactor>, uri: &str) -> Begun {
    let (parts, ()) = http::Request::get(uri).body(()).unwrap().into_parts();
    reactor.begin(&mut noop(), &Client::new(), parts, |_, _| RequestBody::empty())
}

pub fn text(whole: &Whole) -> &str {
    std::str::from_utf8(&whole.body).unwrap()
}

pub fn head(serving: &mut Serving) -> Reply {
    match serving.poll_head(&mut noop()) {
        Poll::Ready(reply) => reply,
        Poll::Pending => panic!("the head is pending"),
    }
}

/// Polls until it is ready, as a host with a thread would.
pub fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        thread::park();
    }
}

/// The answer of an exchange that can end at once.
pub fn finish_whole(serving: &mut Serving) -> Whole {
    match head(serving) {
        Reply::Whole(whole) => whole,
        Reply::Streaming(head) => panic!("streams: {head:?}"),
    }
}
