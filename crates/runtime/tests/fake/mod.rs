//! An engine without guests: its sandboxes follow a script, chosen by the request's path, and
//! check that they are used as they may be.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use sandtide_engine::{
    BodyError, Console, EngineError, Events, Fault, Mismatch, Next, Outcome, Program, ProgramId,
    Progress, Purpose, ResetError, Sandbox, Scrutiny, SpawnError, Stream, Traffic, Translation,
    Trap, TrapCause, Turn, Usage,
};

/// The script of a guest that saves its state.
pub const SAVE: &str = "@save";
/// The script of a guest that takes a state over.
pub const RESTORE: &str = "@restore";
thread_local! {
    static NOW: Cell<Instant> = Cell::new(Instant::now());
    static CPU_TIME: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The time of the test's thread. It stands still unless a guest runs or the test says otherwise.
pub fn now() -> Instant {
    NOW.get()
}

/// Lets time go on, while the thread runs.
pub fn advance(time: Duration) {
    NOW.set(NOW.get() + time);
    CPU_TIME.set(CPU_TIME.get() + time);
}

/// How long the thread has run.
pub fn cpu_time() -> Duration {
    CPU_TIME.get()
}

/// How often a guest that computes asks for interrupts.
pub const CHUNK: Duration = Duration::from_micros(100);

/// One thing that a fake guest does.
#[derive(Clone)]
pub enum Act {
    /// Sends status and headers.
    Begin(u16, Vec<(&'static str, &'static str)>),
    /// Sends an interim response.
    Inform(u16, Vec<(&'static str, &'static str)>),
    /// Sends a piece of body; waits first while the response is full.
    Write(Bytes),
    /// Sends the number of exchanges that this state has seen.
    WriteCount,
    /// Sends the request's method, target, host and trailers, after its body was read.
    WriteRequest,
    /// Sends the request's body as it comes.
    Echo,
    /// Reads the request's body as the number of exchanges that this state has seen.
    TakeCount,
    /// Reads the request's body to its end.
    ReadBody,
    /// Ends the response.
    Finish(Vec<(&'static str, &'static str)>),
    /// Uses up its slice once.
    Slice,
    /// Uses up its slices until the deadline.
    Spin,
    /// The thread does not run for this time.
    Preempted(Duration),
    /// Computes for this time, in chunks.
    Compute(Duration),
    /// Waits until the gate opens.
    Wait(Arc<Gate>),
    /// Says that it waits until then, whenever it is run.
    WaitForever(Option<Instant>),
    /// Opens a gate for others.
    Open(Arc<Gate>),
    /// Writes to standard output.
    Print(&'static str),
    Fault(fn() -> Fault),
    Engine,
    Panic,
    /// Ends as if it had answered.
    ClaimDone,
    /// The next reset fails.
    SpoilReset,
    /// The next reset panics.
    PanicInReset,
    /// The next verification finds something.
    LeaveSomething,
    /// The next verification panics.
    PanicInVerify,
}

pub fn answer(text: &'static str) -> Vec<Act> {
    vec![
        Act::Begin(200, vec![("content-type", "text/plain")]),
        Act::Write(Bytes::from_static(text.as_bytes())),
        Act::Finish(vec![]),
    ]
}

pub fn trap() -> Fault {
    let backtrace =
        vec![sandtide_engine::Location { pc: 0x1234, symbol: Some(("secret".into(), 4)) }];
    Fault::Trap(Trap { cause: TrapCause::Load, address: 0xdead, backtrace })
}

/// Something that guests wait for and tests open, and the other way round.
#[derive(Default)]
pub struct Gate {
    is_open: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        self.is_open.store(true, SeqCst);
        for waker in self.wakers.lock().unwrap().drain(..) {
            waker.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> bool {
        self.wakers.lock().unwrap().push(waker.clone());
        self.is_open.load(SeqCst)
    }

    pub async fn opened(&self) {
        std::future::poll_fn(
            |cx| {
                if self.poll(cx.waker()) { Poll::Ready(()) } else { Poll::Pending }
            },
        )
        .await;
    }
}

/// What happened to the sandboxes of a program.
#[derive(Default)]
pub struct Stats {
    pub spawned: AtomicUsize,
    pub destroyed: AtomicUsize,
    pub resets: AtomicUsize,
    pub verified: AtomicUsize,
    pub keeps: AtomicUsize,
    pub runs: AtomicUsize,
    /// The paths of the exchanges in the order in which they ran, once for each run.
    pub order: Mutex<Vec<String>>,
    /// Exchanges in sandboxes at a time, now and at most.
    pub running: AtomicUsize,
    pub most_running: AtomicUsize,
}

pub struct Fake {
    scripts: HashMap<String, Vec<Act>>,
    pub stats: Arc<Stats>,
}

impl Fake {
    pub fn new(scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>) -> Arc<Self> {
        let scripts = scripts.into_iter().map(|(path, acts)| (path.to_owned(), acts)).collect();
        Arc::new(Self { scripts, stats: Arc::default() })
    }
}

impl Program for Fake {
    fn id(&self) -> ProgramId {
        ProgramId([7; 32])
    }

    /// Those that it has a script for.
    fn events(&self) -> Events {
        let has = |script| self.scripts.contains_key(script);
        Events { save: has(SAVE), restore: has(RESTORE) }
    }

    fn translation(&self) -> Option<Translation> {
        Some(Translation { bytes: 4096, ..Translation::default() })
    }

    fn spawn(&self, console: Arc<dyn Console>) -> Result<Box<dyn Sandbox>, SpawnError> {
        self.stats.spawned.fetch_add(1, SeqCst);
        Ok(Box::new(FakeSandbox {
            scripts: self.scripts.clone(),
            stats: self.stats.clone(),
            console,
            script: None,
            step: 0,
            computed: Duration::ZERO,
            count: 0,
            is_over: false,
            spoilt: None,
            differs: None,
        }))
    }
}

struct FakeSandbox {
    scripts: HashMap<String, Vec<Act>>,
    stats: Arc<Stats>,
    console: Arc<dyn Console>,
    /// `None` at the snapshot.
    script: Option<Vec<Act>>,
    step: usize,
    /// How much of the present step it has computed.
    computed: Duration,
    /// The guest's state.
    count: u64,
    is_over: bool,
    spoilt: Option<bool>,
    differs: Option<bool>,
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        self.stats.destroyed.fetch_add(1, SeqCst);
        if self.script.is_some() && !self.is_over {
            self.stats.running.fetch_sub(1, SeqCst);
        }
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in pairs {
        map.append(HeaderName::from_static(name), value.parse().unwrap());
    }
    map
}

impl FakeSandbox {
    fn act(&mut self, act: &Act, turn: &mut Turn<'_, '_>) -> Option<Progress> {
        let response = &mut turn.exchange.response;
        match act {
            Act::Begin(status, fields) => response.begin(*status, headers(fields)).unwrap(),
            Act::Inform(status, fields) => response.inform(*status, headers(fields)).unwrap(),
            Act::Write(_) if response.is_full() => {
                return Some(Progress::Waiting { until: None });
            }
            Act::Write(bytes) => response.write(bytes).unwrap(),
            Act::WriteCount => response.write(self.count.to_string().as_bytes()).unwrap(),
            Act::WriteRequest => {
                let request = &turn.exchange.request;
                let text =
                    format!("{} {} {}", request.method, request.uri, turn.exchange.authority());
                let trailers: Vec<_> =
                    turn.exchange.body.trailers().into_iter().flatten().collect();
                turn.exchange.response.write(format!("{text} {trailers:?}").as_bytes()).unwrap();
            }
            Act::Echo => loop {
                if turn.exchange.response.is_full() {
                    return Some(Progress::Waiting { until: None });
                }
                match turn.exchange.body.poll_data(turn.cx) {
                    Poll::Pending => return Some(Progress::Waiting { until: None }),
                    Poll::Ready(Err(BodyError::Aborted)) => {
                        return Some(Progress::Ended(Outcome::ClientGone));
                    }
                    Poll::Ready(Err(error)) => {
                        return Some(Progress::Ended(Outcome::Fault(Fault::RequestBody(error))));
                    }
                    Poll::Ready(Ok([])) => return None,
                    Poll::Ready(Ok(data)) => {
                        let length = data.len();
                        turn.exchange.response.write(data).unwrap();
                        turn.exchange.body.consume(length);
                    }
                }
            },
            Act::TakeCount => match turn.exchange.body.poll_data(turn.cx) {
                Poll::Ready(Ok(data)) => {
                    self.count = std::str::from_utf8(data).unwrap().parse().unwrap();
                }
                other => panic!("a state is all there: {other:?}"),
            },
            Act::ReadBody => loop {
                match turn.exchange.body.poll_data(turn.cx) {
                    Poll::Pending => return Some(Progress::Waiting { until: None }),
                    Poll::Ready(Err(BodyError::Aborted)) => {
                        return Some(Progress::Ended(Outcome::ClientGone));
                    }
                    Poll::Ready(Err(error)) => {
                        return Some(Progress::Ended(Outcome::Fault(Fault::RequestBody(error))));
                    }
                    Poll::Ready(Ok([])) => return None,
                    Poll::Ready(Ok(data)) => {
                        let length = data.len();
                        turn.exchange.body.consume(length);
                    }
                }
            },
            Act::Finish(trailers) => {
                let trailers = (!trailers.is_empty()).then(|| headers(trailers));
                response.finish(trailers).unwrap();
                return Some(Progress::Ended(Outcome::Done));
            }
            Act::Slice => {
                self.step += 1;
                advance(turn.slice.0);
                return Some(Progress::Sliced);
            }
            Act::Spin => {
                if self.compute(turn, Duration::MAX) {
                    return Some(Progress::Sliced);
                }
            }
            Act::Preempted(time) => NOW.set(NOW.get() + *time),
            Act::Compute(time) => {
                if self.compute(turn, *time) {
                    return Some(Progress::Sliced);
                }
                self.computed = Duration::ZERO;
            }
            Act::Wait(gate) => {
                if !gate.poll(turn.cx.waker()) {
                    return Some(Progress::Waiting { until: None });
                }
            }
            Act::WaitForever(until) => return Some(Progress::Waiting { until: *until }),
            Act::Open(gate) => gate.open(),
            Act::Print(text) => self.console.write(Stream::Stdout, text.as_bytes()),
            Act::Fault(fault) => return Some(Progress::Ended(Outcome::Fault(fault()))),
            Act::Engine => {
                let error = EngineError::Invariant("of the test");
                return Some(Progress::Ended(Outcome::Engine(error)));
            }
            Act::Panic => panic!("of the test"),
            Act::ClaimDone => return Some(Progress::Ended(Outcome::Done)),
            Act::SpoilReset => self.spoilt = Some(false),
            Act::LeaveSomething => self.differs = Some(false),
            Act::PanicInVerify => self.differs = Some(true),
            Act::PanicInReset => self.spoilt = Some(true),
        }
        None
    }

    /// Whether its slice was over before it had computed for this time.
    fn compute(&mut self, turn: &Turn<'_, '_>, time: Duration) -> bool {
        let end = turn.now + turn.slice.0;
        while self.computed < time {
            if now() >= end || now() > turn.now && (turn.interrupt)() {
                return true;
            }
            let step = CHUNK.min(time - self.computed).min(end - now());
            self.computed += step;
            advance(step);
        }
        false
    }

    fn renewed(&mut self) -> Result<(), ResetError> {
        let was_running = self.script.is_some() && !self.is_over;
        if was_running {
            self.stats.running.fetch_sub(1, SeqCst);
        }
        self.script = None;
        self.step = 0;
        self.computed = Duration::ZERO;
        self.is_over = false;
        match self.spoilt {
            None => Ok(()),
            Some(true) => panic!("in the reset of the test"),
            Some(false) => Err(ResetError(EngineError::Invariant("of the test"))),
        }
    }
}

impl Sandbox for FakeSandbox {
    fn run(&mut self, turn: &mut Turn<'_, '_>) -> Progress {
        assert!(!self.is_over, "run again after the end, without a reset");
        assert!(turn.slice.0 > Duration::ZERO);
        self.stats.runs.fetch_add(1, SeqCst);
        let path = match turn.exchange.purpose {
            Purpose::Request => turn.exchange.request.uri.path().to_owned(),
            Purpose::Save => SAVE.to_owned(),
            Purpose::Restore => RESTORE.to_owned(),
        };
        self.stats.order.lock().unwrap().push(path.clone());
        if self.script.is_none() {
            let script = self.scripts.get(&path).unwrap_or_else(|| panic!("no script for {path}"));
            self.script = Some(script.clone());
            self.count += u64::from(turn.exchange.purpose == Purpose::Request);
            let running = self.stats.running.fetch_add(1, SeqCst) + 1;
            self.stats.most_running.fetch_max(running, SeqCst);
        }
        let script = self.script.clone().unwrap();
        let progress = loop {
            let act = script.get(self.step).expect("a script ends the exchange");
            if matches!(act, Act::Slice | Act::Spin) && now() >= turn.deadline {
                let fault = Fault::Deadline { limit: Duration::ZERO, backtrace: vec![] };
                break Progress::Ended(Outcome::Fault(fault));
            }
            match self.act(act, turn) {
                None => self.step += 1,
                Some(progress) => break progress,
            }
        };
        if let Progress::Ended(_) = progress {
            self.is_over = true;
            self.stats.running.fetch_sub(1, SeqCst);
        }
        progress
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.stats.resets.fetch_add(1, SeqCst);
        self.count = 0;
        self.renewed()
    }

    fn verify(&mut self, _: Scrutiny) -> Result<(), Mismatch> {
        self.stats.verified.fetch_add(1, SeqCst);
        match self.differs.take() {
            None => Ok(()),
            Some(true) => panic!("in the verification of the test"),
            Some(false) => Err(Mismatch::Bytes(0x1000)),
        }
    }

    fn keep(&mut self, _: Next) -> Result<(), ResetError> {
        assert!(self.is_over, "kept before the end");
        self.stats.keeps.fetch_add(1, SeqCst);
        self.renewed()
    }

    fn usage(&self) -> Usage {
        let traffic = Traffic { connections: 1, denied: 1, sent: 3, received: 4 };
        Usage { instructions: 10, pages_written: 2, calls: 1, exits: 1, traffic }
    }

    fn resident_bytes(&self) -> u64 {
        4096
    }
}
