//! The runtime against scripted sandboxes, polled by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod fake;

use std::{
    future::Future,
    pin::pin,
    rc::Rc,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::Poll,
    time::{Duration, Instant},
};

use bench::{Clock, Woken, begin_at, head, noop, text};
use bytes::Bytes;
use fake::{Act, Fake, Gate, answer, trap};
use http::StatusCode;
use sandtide_engine::{Fault, Frame, Isolation, RequestBody};
use sandtide_runtime::{
    Admission, Answer, Begun, Client, FixedResponse, Options, Rate, Reactor, Reply, Route, Runtime,
    Serving, Slot, Table, Tenant, VerifyResets, Whole,
};

struct Bench {
    fake: Arc<Fake>,
    clock: Clock,
    reactor: Rc<Reactor>,
    runtime: Arc<Runtime>,
}

fn tenant(name: &str, authority: &str, fake: &Arc<Fake>) -> Tenant {
    let routes = vec![Route::new(authority, "/").unwrap()];
    Tenant::new(name, routes, Answer::Program(Slot::loaded(fake.clone())))
}

fn bench(
    scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>,
    change: impl FnOnce(&mut Tenant),
) -> Bench {
    bench_with(Options::default(), scripts, change)
}

fn bench_with(
    options: Options,
    scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>,
    change: impl FnOnce(&mut Tenant),
) -> Bench {
    let fake = Fake::new(scripts);
    let mut tenant = tenant("shop", "*", &fake);
    change(&mut tenant);
    let table = Table::build([Arc::new(tenant)]).unwrap();
    let runtime = Runtime::new(table, options);
    let clock = Clock::default();
    let reactor = runtime.reactor(0, 1, Box::new(clock.clone()));
    Bench { fake, clock, reactor, runtime }
}

impl Bench {
    fn begin(&self, path: &str) -> Begun {
        begin_at(&self.reactor, path)
    }

    fn whole(&self, path: &str) -> Whole {
        match self.begin(path) {
            Begun::Whole(whole) => whole,
            Begun::Serving(_) => panic!("{path} did not end in its first slice"),
        }
    }

    fn serving(&self, path: &str) -> Box<Serving> {
        match self.begin(path) {
            Begun::Serving(serving) => serving,
            Begun::Whole(whole) => panic!("{path} ended: {whole:?}"),
        }
    }

    fn idle_and_busy(&self) -> (usize, usize) {
        self.reactor.sandboxes()
    }
}

fn refused(serving: &mut Serving) -> StatusCode {
    match head(serving) {
        Reply::Whole(whole) => whole.head.status,
        Reply::Streaming(head) => panic!("begun: {head:?}"),
    }
}

#[test]
fn a_whole_answer_returns_its_sandbox_at_once() {
    let bench = bench([("/a", answer("hello"))], |_| {});
    for _ in 0..3 {
        let whole = bench.whole("/a");
        assert_eq!((whole.head.status, text(&whole)), (StatusCode::OK, "hello"));
        assert_eq!(bench.idle_and_busy(), (1, 0));
    }
    let stats = &bench.fake.stats;
    assert_eq!(stats.spawned.load(SeqCst), 1);
    assert_eq!(stats.resets.load(SeqCst), 3);
    assert_eq!(bench.clock.armed.borrow().len(), 0, "the fast path has no timers");
    let totals = bench.reactor.totals();
    assert_eq!((totals.exchanges, totals.instructions, totals.pages_written), (3, 30, 6));
}

#[test]
fn requests_over_the_rate_are_told_when_to_come_again() {
    let rate = Some(Rate { per_second: 1, burst: 2 });
    let bench = bench([("/a", answer("hello"))], |tenant| tenant.admission.rate = rate);
    assert_eq!([bench.whole("/a"), bench.whole("/a")].map(|whole| whole.head.status), [200; 2]);
    let refused = bench.whole("/a");
    assert_eq!(refused.head.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.head.headers["retry-after"], "1");
    let totals = bench.reactor.totals();
    assert_eq!((totals.exchanges, totals.all_refused()), (2, 1));
}

#[test]
fn every_exchange_starts_from_the_snapshot() {
    let script = vec![Act::Begin(200, vec![]), Act::WriteCount, Act::Finish(vec![])];
    let bench = bench([("/n", script)], |_| {});
    assert_eq!(text(&bench.whole("/n")), "1");
    assert_eq!(text(&bench.whole("/n")), "1");
}

#[test]
fn nothing_answers_nowhere() {
    let fake = Fake::new([("/", answer("x"))]);
    let table = Table::build([Arc::new(tenant("shop", "shop.test", &fake))]).unwrap();
    let reactor = Runtime::new(table, Options::default()).reactor(0, 1, Box::new(Clock::default()));
    let Begun::Whole(whole) = begin_at(&reactor, "http://other.test/") else { panic!() };
    assert_eq!(whole.head.status, StatusCode::NOT_FOUND);
    assert_eq!(text(&whole).lines().count(), 1);
    let Begun::Whole(whole) = begin_at(&reactor, "http://SHOP.test:80/") else { panic!() };
    assert_eq!(whole.head.status, StatusCode::OK);
}

#[test]
fn faults_have_statuses_and_tell_nothing() {
    fn exit() -> Fault {
        Fault::Exit { code: 3 }
    }
    fn instructions() -> Fault {
        Fault::Instructions { limit: 1, backtrace: vec![] }
    }
    fn memory() -> Fault {
        Fault::Memory { limit: 1, backtrace: vec![] }
    }
    fn too_large() -> Fault {
        Fault::RequestBody(sandtide_engine::BodyError::TooLarge { limit: 1 })
    }
    let cases = [
        ("/trap", vec![Act::Fault(trap)], 502),
        ("/begun", vec![Act::Begin(200, vec![]), Act::Fault(trap)], 502),
        ("/exit", vec![Act::Fault(exit)], 502),
        ("/instructions", vec![Act::Fault(instructions)], 504),
        ("/memory", vec![Act::Fault(memory)], 502),
        ("/large", vec![Act::Fault(too_large)], 413),
        ("/engine", vec![Act::Engine], 500),
        ("/panic", vec![Act::Panic], 500),
        ("/lie", vec![Act::Begin(200, vec![]), Act::ClaimDone], 500),
    ];
    let bench = bench(cases.iter().map(|(path, acts, _)| (*path, acts.clone())), |_| {});
    let mut ids = std::collections::HashSet::new();
    for (path, _, status) in &cases {
        let whole = bench.whole(path);
        assert_eq!(whole.head.status, *status, "{path}");
        let id = whole.head.headers["x-request-id"].to_str().unwrap().to_owned();
        assert!(text(&whole).contains(&id));
        assert!(!text(&whole).contains("secret") && !text(&whole).contains("0x"));
        assert!(ids.insert(id), "ids are unique");
    }
    let totals = bench.reactor.totals();
    assert_eq!((totals.all_faults(), totals.engine_failures, totals.panics), (6, 3, 1));
    let destroyed = bench.fake.stats.destroyed.load(SeqCst);
    assert_eq!(destroyed, 3, "after a failure of the engine the sandbox is destroyed");
    assert_eq!(bench.idle_and_busy().1, 0, "all permits are back");
}

#[test]
fn a_sandbox_that_cannot_be_reset_is_destroyed() {
    let spoil = |act| {
        let mut script = vec![act];
        script.extend(answer("still answered"));
        script
    };
    let scripts = [
        ("/spoil", spoil(Act::SpoilReset)),
        ("/panic", spoil(Act::PanicInReset)),
        ("/ok", answer("ok")),
    ];
    let bench = bench(scripts, |_| {});
    for (done, path) in ["/spoil", "/panic"].into_iter().enumerate() {
        assert_eq!(text(&bench.whole(path)), "still answered");
        assert_eq!(bench.fake.stats.destroyed.load(SeqCst), done + 1);
        assert_eq!(bench.idle_and_busy(), (0, 0));
        assert_eq!(text(&bench.whole("/ok")), "ok");
    }
    assert_eq!(bench.reactor.totals().failed_resets, 2);
}

#[test]
fn a_sandbox_that_is_not_what_its_snapshot_is_is_destroyed() {
    let leave = |act| [vec![act], answer("answered")].concat();
    let scripts = [
        ("/leave", leave(Act::LeaveSomething)),
        ("/panic", leave(Act::PanicInVerify)),
        ("/ok", answer("ok")),
    ];
    let options = Options { verify_resets: VerifyResets::Always, ..Options::default() };
    let bench = bench_with(options, scripts, |_| {});
    for (done, path) in ["/leave", "/panic"].into_iter().enumerate() {
        assert_eq!(text(&bench.whole(path)), "answered");
        assert_eq!(bench.fake.stats.destroyed.load(SeqCst), done + 1);
        assert_eq!(bench.idle_and_busy(), (0, 0));
        assert_eq!(text(&bench.whole("/ok")), "ok");
        assert_eq!(bench.idle_and_busy(), (1, 0));
    }
    let totals = bench.reactor.totals();
    assert_eq!((totals.verified_resets, totals.reset_mismatches), (4, 2));
    assert_eq!(totals.failed_resets, 0);
}

#[test]
fn a_tick_has_one_reset_verified_and_the_state_of_a_tenant_is_not_compared() {
    let bench = bench([("/ok", answer("ok"))], |_| {});
    for verified in [0, 1] {
        for _ in 0..10 {
            assert_eq!(text(&bench.whole("/ok")), "ok");
        }
        assert_eq!(bench.fake.stats.verified.load(SeqCst), verified);
        bench.reactor.tick();
    }
    let always = Options { verify_resets: VerifyResets::Always, ..Options::default() };
    let bench =
        bench_with(always, [("/ok", answer("ok"))], |tenant| tenant.isolation = Isolation::None);
    assert_eq!(text(&bench.whole("/ok")), "ok");
    assert_eq!(bench.fake.stats.keeps.load(SeqCst), 1);
    assert_eq!(bench.fake.stats.verified.load(SeqCst), 0);
}

#[test]
fn a_response_streams_and_its_guest_runs_only_when_polled() {
    let gate = Gate::new();
    let script = vec![
        Act::Begin(201, vec![]),
        Act::Write("one".into()),
        Act::Wait(gate.clone()),
        Act::Write("two".into()),
        Act::Finish(vec![("x-sum", "6")]),
    ];
    let bench = bench([("/s", script)], |_| {});
    let mut serving = bench.serving("/s");
    let Reply::Streaming(head) = head(&mut serving) else { panic!("streams") };
    assert_eq!(head.status, 201);
    let woken = Woken::new();
    let mut cx = woken.context();
    let Poll::Ready(Some(Ok(Frame::Data(data)))) = serving.poll_frame(&mut cx) else { panic!() };
    assert_eq!(data, "one");
    assert!(serving.poll_frame(&mut cx).is_pending());
    assert_eq!(bench.clock.armed.borrow().len(), 1, "the deadline");
    let runs = bench.fake.stats.runs.load(SeqCst);
    gate.open();
    assert!(woken.times() > 0, "the gate wakes the host");
    assert_eq!(bench.fake.stats.runs.load(SeqCst), runs, "and does not run the guest");
    let Poll::Ready(Some(Ok(Frame::Data(data)))) = serving.poll_frame(&mut cx) else { panic!() };
    assert_eq!(data, "two");
    assert!(serving.is_over());
    assert_eq!(bench.idle_and_busy(), (1, 0), "the sandbox is back before the end was taken");
    let Poll::Ready(Some(Ok(Frame::Trailers(map)))) = serving.poll_frame(&mut cx) else { panic!() };
    assert_eq!(map["x-sum"], "6");
    assert!(matches!(serving.poll_frame(&mut cx), Poll::Ready(None)));
}

#[test]
fn interim_responses_come_before_what_follows_them() {
    let gate = Gate::new();
    let hints = || Act::Inform(103, vec![("link", "</a>")]);
    let begin = Act::Begin(200, vec![]);
    let script = vec![hints(), Act::Wait(gate.clone()), hints(), begin, Act::Wait(Gate::new())];
    let bench =
        bench([("/at-once", [vec![hints()], answer("text")].concat()), ("/s", script)], |_| {});
    // A guest that has ended in its first slice.
    let mut serving = bench.serving("/at-once");
    assert!(serving.is_over());
    assert_eq!(bench.idle_and_busy(), (1, 0), "nothing holds a sandbox for it");
    let Reply::Whole(whole) = head(&mut serving) else { panic!("whole") };
    let interim = serving.take_interim();
    assert_eq!(interim.len(), 1);
    assert_eq!(
        (interim[0].status.as_u16(), &interim[0].headers["link"]),
        (103, &"</a>".parse().unwrap())
    );
    assert_eq!(text(&whole), "text");
    // One that waits meanwhile, and then begins.
    let mut serving = bench.serving("/s");
    assert!(serving.poll_head(&mut noop()).is_pending());
    assert_eq!(serving.take_interim().len(), 1);
    assert!(serving.poll_head(&mut noop()).is_pending());
    assert_eq!(serving.take_interim().len(), 0);
    gate.open();
    assert!(matches!(head(&mut serving), Reply::Streaming(_)));
    assert_eq!(serving.take_interim().len(), 1);
}

#[test]
fn a_client_that_does_not_read_stops_the_guest() {
    let piece = Act::Write(Bytes::from(vec![b'x'; 64 << 10]));
    let script = [vec![Act::Begin(200, vec![])], vec![piece; 100], vec![Act::Finish(vec![])]];
    let bench = bench([("/flood", script.concat())], |_| {});
    let mut serving = bench.serving("/flood");
    assert!(matches!(head(&mut serving), Reply::Streaming(_)));
    let runs = bench.fake.stats.runs.load(SeqCst);
    let mut taken = 0;
    while let Poll::Ready(Some(frame)) = serving.poll_frame(&mut noop()) {
        let Frame::Data(data) = frame.unwrap() else { panic!() };
        assert!(data.len() <= 64 << 10, "no more than the high-water mark waits");
        taken += data.len();
    }
    assert_eq!(taken, 100 * (64 << 10));
    assert!(bench.fake.stats.runs.load(SeqCst) - runs >= 98);
}

#[test]
fn a_fault_after_the_head_breaks_the_response() {
    let script =
        vec![Act::Begin(200, vec![]), Act::Write("part".into()), Act::Slice, Act::Fault(trap)];
    let bench = bench([("/b", script)], |_| {});
    let mut serving = bench.serving("/b");
    assert!(matches!(head(&mut serving), Reply::Streaming(_)));
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Ok(Frame::Data(_))))));
    assert!(serving.poll_frame(&mut noop()).is_pending(), "it stands in line");
    bench.reactor.turnstile().release();
    for _ in 0..2 {
        let frame = serving.poll_frame(&mut noop());
        assert!(matches!(frame, Poll::Ready(Some(Err(_)))), "never an end: {frame:?}");
    }
}

#[test]
fn who_drops_the_serving_leaves_nothing_behind() {
    let scripts = [
        ("/wait", vec![Act::Begin(200, vec![]), Act::WaitForever(None)]),
        ("/spin", vec![Act::Spin]),
    ];
    let bench = bench(scripts, |_| {});
    for path in ["/wait", "/spin"] {
        let mut serving = bench.serving(path);
        let _ = serving.poll_head(&mut noop());
        assert_eq!(bench.idle_and_busy(), (0, 1));
        drop(serving);
        assert_eq!(bench.idle_and_busy(), (1, 0));
    }
    assert_eq!(bench.reactor.totals().clients_gone, 2);
    assert_eq!(bench.fake.stats.spawned.load(SeqCst), 1);
    assert!(pin!(bench.reactor.turnstile().queued()).poll(&mut noop()).is_pending());
}

#[test]
fn spinning_guests_share_and_one_runs_in_each_turn() {
    let work = Act::Compute(Duration::from_micros(100));
    let long = [vec![Act::Slice; 4], vec![work], answer("done")].concat();
    let bench = bench([("/1", long.clone()), ("/2", long.clone()), ("/3", long)], |_| {});
    let mut servings: Vec<_> =
        ["/1", "/2", "/3"].into_iter().map(|path| (path, bench.serving(path))).collect();
    for (_, serving) in &mut servings {
        assert!(serving.poll_head(&mut noop()).is_pending());
    }
    // Only the first ran at once: while its tenant has somebody in line, the others join it.
    let mut runs = bench.fake.stats.runs.load(SeqCst);
    let mut done = Vec::new();
    while !servings.is_empty() {
        bench.reactor.turnstile().release();
        servings.retain_mut(|(path, serving)| match serving.poll_head(&mut noop()) {
            Poll::Pending => true,
            Poll::Ready(Reply::Whole(whole)) => {
                assert_eq!(whole.head.status, 200);
                done.push(*path);
                false
            }
            Poll::Ready(Reply::Streaming(_)) => panic!(),
        });
        let now = bench.fake.stats.runs.load(SeqCst);
        assert_eq!(now - runs, 1, "one slice a turn");
        runs = now;
    }
    assert_eq!(done, ["/1", "/2", "/3"]);
}

#[test]
fn a_quiet_tenant_is_not_behind_one_that_spins() {
    let spinner = Fake::new([("/", vec![Act::Spin])]);
    let quiet = Fake::new([("/", answer("quick"))]);
    let tenants = [tenant("spin", "spin", &spinner), tenant("quiet", "quiet", &quiet)];
    let table = Table::build(tenants.map(Arc::new)).unwrap();
    let reactor = Runtime::new(table, Options::default()).reactor(0, 1, Box::new(Clock::default()));
    let mut spinning = Vec::new();
    for _ in 0..20 {
        let Begun::Serving(mut serving) = begin_at(&reactor, "http://spin/") else { panic!() };
        assert!(serving.poll_head(&mut noop()).is_pending());
        spinning.push(serving);
    }
    assert_eq!(spinner.stats.runs.load(SeqCst), 1, "the first slice of all twenty is one slice");
    for turn in 1..10 {
        reactor.turnstile().release();
        spinning
            .iter_mut()
            .for_each(|serving| assert!(serving.poll_head(&mut noop()).is_pending()));
        assert_eq!(spinner.stats.runs.load(SeqCst), 1 + turn);
        assert!(matches!(begin_at(&reactor, "http://quiet/"), Begun::Whole(_)));
    }
}

#[test]
fn a_wait_ends_at_its_time_or_at_the_deadline() {
    let soon = fake::now();
    let scripts = [
        ("/soon", vec![Act::Begin(200, vec![]), Act::WaitForever(Some(soon))]),
        ("/never", vec![Act::WaitForever(None)]),
    ];
    let bench = bench(scripts, |tenant| tenant.limits.wall_time = Duration::ZERO);
    let mut serving = bench.serving("/never");
    assert_eq!(refused(&mut serving), 504, "even if the engine does not notice");
    let mut serving = bench.serving("/soon");
    assert!(matches!(head(&mut serving), Reply::Streaming(_)));
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Err(_)))));
    assert_eq!(bench.idle_and_busy(), (1, 0));
}

#[test]
fn a_timer_runs_the_guest_again() {
    let gate = Gate::new();
    let script = [vec![Act::Wait(gate.clone())], answer("late")].concat();
    let bench = bench([("/t", script)], |_| {});
    let mut serving = bench.serving("/t");
    assert!(serving.poll_head(&mut noop()).is_pending());
    let runs = bench.fake.stats.runs.load(SeqCst);
    gate.open();
    assert_eq!(bench.clock.fire_all(), 1);
    let Reply::Whole(whole) = head(&mut serving) else { panic!() };
    assert_eq!(text(&whole), "late");
    assert_eq!(bench.fake.stats.runs.load(SeqCst), runs + 1);
}

#[test]
fn admission_is_bounded_and_first_come_first_served() {
    let gate = Gate::new();
    let wait = [vec![Act::Wait(gate.clone())], answer("x")].concat();
    let scripts =
        [("/wait", wait.clone()), ("/1", answer("1")), ("/2", answer("2")), ("/3", answer("3"))];
    let bench = bench(scripts, |tenant| {
        tenant.admission = Admission { concurrency: 1, queue: 2, ..Admission::default() };
    });
    let mut holder = bench.serving("/wait");
    assert!(holder.poll_head(&mut noop()).is_pending());
    let mut first = bench.serving("/1");
    let mut second = bench.serving("/2");
    assert!(first.poll_head(&mut noop()).is_pending());
    assert!(second.poll_head(&mut noop()).is_pending());
    let whole = bench.whole("/3");
    assert_eq!(whole.head.status, 503);
    assert!(whole.head.headers.contains_key("retry-after"));
    gate.open();
    assert!(matches!(head(&mut holder), Reply::Whole(_)));
    assert!(second.poll_head(&mut noop()).is_pending(), "the first one is before it");
    drop(first);
    let Reply::Whole(whole) = head(&mut second) else { panic!() };
    assert_eq!(text(&whole), "2", "who leaves hands on its place");
    assert_eq!(bench.idle_and_busy(), (1, 0));
    assert_eq!(text(&bench.whole("/3")), "3");
}

#[test]
fn who_waits_too_long_for_admission_is_refused() {
    let scripts = [("/wait", vec![Act::WaitForever(None)]), ("/1", answer("1"))];
    let bench = bench(scripts, |tenant| tenant.admission.concurrency = 1);
    let _holder = bench.serving("/wait");
    let mut waiting = bench.serving("/1");
    assert!(waiting.poll_head(&mut noop()).is_pending());
    assert_eq!(bench.clock.fire_all(), 1);
    assert_eq!(refused(&mut waiting), 503);
    let mut later = bench.serving("/1");
    assert!(later.poll_head(&mut noop()).is_pending(), "its place was given up");
}

#[test]
fn who_is_too_late_for_a_state_holds_nobody_up() {
    let gate = Gate::new();
    let wait = [vec![Act::Wait(gate.clone())], answer("x")].concat();
    let bench = bench([("/wait", wait), ("/1", answer("1"))], |tenant| {
        tenant.isolation = Isolation::None;
        tenant.admission.queue_time = Duration::from_nanos(1);
    });
    let mut holder = bench.serving("/wait");
    let mut late = bench.serving("/1");
    assert!(late.poll_head(&mut noop()).is_pending());
    gate.open();
    assert!(matches!(head(&mut holder), Reply::Whole(_)));
    assert_eq!(text(&bench.whole("/1")), "1", "before the host has polled the late one");
    bench.clock.fire_all();
    assert_eq!(refused(&mut late), 503);
}

#[test]
fn a_body_over_the_limit_never_reaches_the_guest() {
    let bench = bench([("/", answer("x"))], |tenant| tenant.limits.request_body = 3);
    let (parts, ()) = http::Request::post("/").body(()).unwrap().into_parts();
    let begun = bench.reactor.begin(&mut noop(), &Client::new(), parts, |_, limit| {
        assert_eq!(limit, 3);
        RequestBody::whole(Bytes::from_static(b"four"))
    });
    let Begun::Whole(whole) = begun else { panic!() };
    assert_eq!(whole.head.status, 413);
    assert_eq!(bench.fake.stats.runs.load(SeqCst), 0);
}

#[test]
fn tables_are_swapped_and_running_exchanges_end_by_the_old_one() {
    let gate = Gate::new();
    let wait = [vec![Act::Wait(gate.clone())], answer("old")].concat();
    let bench = bench([("/", wait)], |_| {});
    let mut old = bench.serving("/");
    let fixed = Answer::Fixed(FixedResponse::text("new"));
    let tenant = Tenant::new("new", vec![Route::everything()], fixed);
    bench.runtime.replace(Table::build([Arc::new(tenant)]).unwrap());
    assert_eq!(text(&bench.whole("/")), "new");
    gate.open();
    let Reply::Whole(whole) = head(&mut old) else { panic!() };
    assert_eq!(text(&whole), "old");
    drop(old);
    assert_eq!(bench.fake.stats.destroyed.load(SeqCst), 1, "the old tenant's pool is gone");
    let down = Answer::Program(Slot::failed("it has a secret"));
    let tenant = Tenant::new("down", vec![Route::everything()], down);
    bench.runtime.replace(Table::build([Arc::new(tenant)]).unwrap());
    let whole = bench.whole("/");
    assert_eq!(whole.head.status, 503);
    assert!(whole.head.headers.contains_key("retry-after"));
    assert!(!text(&whole).contains("secret"));
}

#[test]
fn sandboxes_are_kept_while_so_many_are_used_at_once() {
    let gate = Gate::new();
    let wait = [vec![Act::Wait(gate.clone())], answer("x")].concat();
    let bench = bench([("/", wait)], |tenant| tenant.admission.idle_sandboxes = 2);
    let mut servings: Vec<_> = (0..5).map(|_| bench.serving("/")).collect();
    assert_eq!(bench.idle_and_busy(), (0, 5));
    gate.open();
    for serving in &mut servings {
        assert!(matches!(head(serving), Reply::Whole(_)));
    }
    drop(servings);
    assert_eq!(bench.idle_and_busy(), (5, 0));
    bench.reactor.tick();
    assert_eq!(bench.idle_and_busy(), (5, 0), "all were in use since the tick before");
    for left in [4, 3, 2, 2] {
        bench.whole("/");
        bench.reactor.tick();
        assert_eq!(bench.idle_and_busy(), (left, 0), "one would have been enough, two are kept");
    }
    assert_eq!(bench.fake.stats.destroyed.load(SeqCst), 3);
}

#[test]
fn a_stream_of_short_runs_stands_in_line_too() {
    let piece =
        [Act::Compute(Duration::from_nanos(1)), Act::Write(Bytes::from(vec![b'x'; 64 << 10]))];
    let pieces = vec![piece; 2000].concat();
    let script = [vec![Act::Begin(200, vec![])], pieces, vec![Act::Finish(vec![])]].concat();
    let fake = Fake::new([("/", script)]);
    let mut tenant = tenant("shop", "*", &fake);
    tenant.limits.response_body = u64::MAX;
    let table = Table::build([Arc::new(tenant)]).unwrap();
    let options = Options { slice: Duration::from_nanos(1), ..Options::default() };
    let reactor = Runtime::new(table, options).reactor(0, 1, Box::new(Clock::default()));
    let Begun::Serving(mut serving) = begin_at(&reactor, "/") else { panic!() };
    assert!(matches!(head(&mut serving), Reply::Streaming(_)));
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Ok(_)))));
    assert!(serving.poll_frame(&mut noop()).is_pending(), "its slice is used up");
    reactor.turnstile().release();
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Ok(_)))));
}

#[test]
fn state_is_kept_across_threads_without_losing_an_exchange() {
    const THREADS: usize = 4;
    const EACH: usize = 200;
    let script = vec![Act::Slice, Act::Begin(200, vec![]), Act::WriteCount, Act::Finish(vec![])];
    let fake = Fake::new([("/", script)]);
    let mut tenant = tenant("counter", "*", &fake);
    tenant.isolation = Isolation::None;
    let runtime = Runtime::new(Table::build([Arc::new(tenant)]).unwrap(), Options::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                let reactor = runtime.reactor(index, THREADS, Box::new(Clock::default()));
                let mut seen = Vec::new();
                for round in 0..EACH {
                    // Some give up while they wait.
                    let gave_up = (round % 5 == 0).then(|| begin_at(&reactor, "/"));
                    let is_queued = matches!(&gave_up, Some(Begun::Serving(serving)) if {
                        serving.deadline() > Instant::now() + Duration::from_secs(11)
                    });
                    if is_queued {
                        drop(gave_up);
                    } else if let Some(begun) = gave_up {
                        seen.push(finish(&reactor, begun));
                    }
                    seen.push(finish(&reactor, begin_at(&reactor, "/")));
                }
                seen
            })
        })
        .collect();
    let mut seen: Vec<u64> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    seen.sort_unstable();
    let expected: Vec<u64> = (1..=seen.len() as u64).collect();
    assert_eq!(seen, expected, "1, 2, 3, … with none lost and none twice");
    assert_eq!(fake.stats.spawned.load(SeqCst), 1);
    assert_eq!(fake.stats.most_running.load(SeqCst), 1);
    assert_eq!(fake.stats.resets.load(SeqCst), 0);
}

fn finish(reactor: &Rc<Reactor>, begun: Begun) -> u64 {
    let whole = match begun {
        Begun::Whole(whole) => whole,
        Begun::Serving(mut serving) => {
            let reply = bench::block_on(|cx| {
                let reply = serving.poll_head(cx);
                // This host's event loop turns whenever it polls.
                reactor.turnstile().release();
                reply
            });
            match reply {
                Reply::Whole(whole) => whole,
                Reply::Streaming(_) => panic!("streams"),
            }
        }
    };
    text(&whole).parse().unwrap()
}

#[test]
fn state_is_lost_by_faults_and_only_by_them() {
    let count = vec![Act::Begin(200, vec![]), Act::WriteCount, Act::Finish(vec![])];
    let scripts = [
        ("/count", count),
        ("/trap", vec![Act::Fault(trap)]),
        ("/panic", vec![Act::Panic]),
        ("/404", [vec![Act::Begin(404, vec![])], vec![Act::Finish(vec![])]].concat()),
    ];
    let bench = bench(scripts, |tenant| tenant.isolation = Isolation::None);
    let count = || text(&bench.whole("/count")).to_owned();
    assert_eq!((count(), count()), ("1".into(), "2".into()));
    assert_eq!(bench.whole("/404").head.status, 404);
    assert_eq!(count(), "4");
    assert_eq!(bench.whole("/trap").head.status, 502);
    assert_eq!(count(), "1");
    assert_eq!(bench.whole("/panic").head.status, 500);
    assert_eq!(count(), "1");
    assert_eq!(bench.fake.stats.spawned.load(SeqCst), 2);
}

#[test]
fn a_client_that_leaves_costs_a_tenant_nothing_of_its_state() {
    let count = |before: Vec<Act>| {
        [before, vec![Act::Begin(200, vec![]), Act::WriteCount, Act::Finish(vec![])]].concat()
    };
    let gate = Arc::<Gate>::default();
    let scripts = [
        ("/count", count(vec![])),
        ("/slices", count(vec![Act::Slice])),
        ("/waits", count(vec![Act::Wait(gate.clone())])),
    ];
    let bench = bench(scripts, |tenant| tenant.isolation = Isolation::None);
    let go_on = || {
        assert!(bench.reactor.poll_abandoned::<()>(&mut noop()).is_pending());
        bench.reactor.turnstile().release();
        assert!(bench.reactor.poll_abandoned::<()>(&mut noop()).is_pending());
    };
    assert_eq!(text(&bench.whole("/count")), "1");
    for path in ["/slices", "/waits"] {
        drop(bench.serving(path));
    }
    // The first is at work without its client, and the second left the line.
    go_on();
    assert_eq!(text(&bench.whole("/count")), "3");
    drop(bench.serving("/waits"));
    go_on();
    assert!(matches!(bench.begin("/count"), Begun::Serving(_)), "the sandbox is in use");
    gate.open();
    go_on();
    assert_eq!(text(&bench.whole("/count")), "5");
    assert_eq!(bench.fake.stats.resets.load(SeqCst), 0);
}
