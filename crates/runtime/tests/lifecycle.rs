//! How a tenant's program comes: loaded when it is needed, or not at all.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod fake;

use std::{
    rc::Rc,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};

use bench::{Clock, begin_at, finish_whole, noop, text};
use fake::{Act, Fake, Gate, answer};
use http::StatusCode;
use sandtide_runtime::{
    Answer, Begun, Loader, Options, Reactor, Route, Runtime, Serving, Slot, SlotState, Table,
    Tenant, Version,
};

/// Notes what it is asked for; the test does the loading.
#[derive(Default)]
struct Asked {
    loads: Mutex<Vec<Arc<Slot>>>,
    rolled_back: Mutex<Vec<u64>>,
}

impl Loader for Asked {
    fn load(&self, slot: &Arc<Slot>) {
        self.loads.lock().unwrap().push(slot.clone());
    }

    fn rolled_back(&self, _: &Arc<Slot>, bad: &Version) {
        self.rolled_back.lock().unwrap().push(bad.number());
    }
}

impl Asked {
    fn times(&self) -> usize {
        self.loads.lock().unwrap().len()
    }

    fn rolled_back(&self) -> Vec<u64> {
        self.rolled_back.lock().unwrap().clone()
    }
}

struct Lazy {
    asked: Arc<Asked>,
    slot: Arc<Slot>,
    runtime: Arc<Runtime>,
    reactor: Rc<Reactor>,
    clock: Clock,
}

fn lazy(change: impl FnOnce(&mut Tenant)) -> Lazy {
    let asked = Arc::<Asked>::default();
    let slot = Slot::new(asked.clone());
    let answer = Answer::Program(slot.clone());
    let mut tenant = Tenant::new("shop", vec![Route::everything()], answer);
    change(&mut tenant);
    let runtime = Runtime::new(Table::build([Arc::new(tenant)]).unwrap(), Options::default());
    let clock = Clock::default();
    let reactor = runtime.reactor(0, 1, Box::new(clock.clone()));
    Lazy { asked, slot, runtime, reactor, clock }
}

impl Lazy {
    fn waiting(&self, path: &str) -> Box<Serving> {
        let Begun::Serving(mut serving) = begin_at(&self.reactor, path) else {
            panic!("{path} does not wait")
        };
        assert!(serving.poll_head(&mut noop()).is_pending());
        serving
    }

    fn status(&self, path: &str) -> StatusCode {
        match begin_at(&self.reactor, path) {
            Begun::Whole(whole) => whole.head.status,
            Begun::Serving(_) => panic!("{path} waits"),
        }
    }
}

#[test]
fn the_first_exchange_has_the_program_loaded_and_all_wait_for_it() {
    let bench = lazy(|_| {});
    assert_eq!(bench.slot.status().state, SlotState::Empty);
    let mut first = bench.waiting("/");
    let mut second = bench.waiting("/");
    assert_eq!(bench.slot.status().state, SlotState::Loading);
    assert_eq!(bench.asked.times(), 1, "asked once");
    bench.slot.install(Fake::new([("/", answer("hello"))]), 0);
    for serving in [&mut first, &mut second] {
        assert_eq!(text(&finish_whole(serving)), "hello");
    }
    assert_eq!(bench.status("/"), 200);
    assert_eq!(bench.asked.times(), 1);
    assert_eq!(bench.slot.status().version.unwrap().number(), 1);
}

#[test]
fn who_waits_is_woken_on_its_own_thread() {
    let bench = lazy(|_| {});
    let other = bench.runtime.reactor(1, 2, Box::new(Clock::default()));
    let woken = [bench::Woken::new(), bench::Woken::new()];
    let mut servings = [bench.waiting("/"), {
        let Begun::Serving(serving) = begin_at(&other, "/") else { panic!() };
        serving
    }];
    for (serving, woken) in servings.iter_mut().zip(&woken) {
        assert!(serving.poll_head(&mut woken.context()).is_pending());
    }
    bench.slot.install(Fake::new([("/", answer("x"))]), 0);
    assert!(woken.iter().all(|woken| woken.times() == 1));
}

#[test]
fn as_many_wait_as_may_be_served_or_queued_later() {
    let gate = Gate::new();
    let bench = lazy(|tenant| {
        tenant.admission.concurrency = 1;
        tenant.admission.queue = 2;
    });
    let mut servings: Vec<_> = ["/1", "/2", "/3"].map(|path| bench.waiting(path)).into();
    assert_eq!(bench.status("/4"), 503, "one more than can be admitted");
    servings.pop();
    servings.push(bench.waiting("/4"));
    let wait = [vec![Act::Wait(gate.clone())], answer("1")].concat();
    bench.slot.install(Fake::new([("/1", wait), ("/2", answer("2")), ("/4", answer("4"))]), 0);
    assert!(servings.iter_mut().all(|serving| serving.poll_head(&mut noop()).is_pending()));
    gate.open();
    for (serving, expected) in servings.iter_mut().zip(["1", "2", "4"]) {
        assert_eq!(text(&finish_whole(serving)), expected);
    }
}

#[test]
fn nobody_waits_for_ever() {
    let bench = lazy(|_| {});
    let mut serving = bench.waiting("/");
    assert_eq!(bench.clock.fire_all(), 1, "boot_time and queue_time");
    let whole = finish_whole(&mut serving);
    assert_eq!(whole.head.status, 503);
    assert!(whole.head.headers.contains_key("retry-after"));
    drop(serving);
    // It is still being loaded, and who comes later may be in time.
    let mut later = bench.waiting("/");
    bench.slot.install(Fake::new([("/", answer("hello"))]), 0);
    assert_eq!(text(&finish_whole(&mut later)), "hello");
    assert_eq!(bench.asked.times(), 1);
}

#[test]
fn a_program_that_cannot_be_loaded_is_not_tried_again_at_once() {
    let bench = lazy(|_| {});
    let mut serving = bench.waiting("/");
    bench.slot.fail("it is broken");
    let whole = finish_whole(&mut serving);
    assert_eq!(whole.head.status, 503);
    assert_eq!(whole.head.headers["retry-after"], "5");
    assert!(!text(&whole).contains("broken"));
    assert_eq!(bench.status("/"), 503);
    assert_eq!(bench.asked.times(), 1);
    let status = bench.slot.status();
    assert_eq!(status.state, SlotState::Failed);
    assert_eq!(status.failure.as_deref(), Some("it is broken"));
    // As the control plane does when the file has changed.
    bench.slot.begin_loading();
    let mut serving = bench.waiting("/");
    assert_eq!(bench.asked.times(), 1, "it is being loaded already");
    bench.slot.install(Fake::new([("/", answer("hello"))]), 0);
    assert_eq!(text(&finish_whole(&mut serving)), "hello");
    assert!(bench.slot.status().failure.is_none());
}

#[test]
fn a_failure_leaves_the_version_that_works() {
    let bench = lazy(|_| {});
    bench.slot.install(Fake::new([("/", answer("1"))]), 0);
    bench.slot.fail("the second is broken");
    assert_eq!(bench.status("/"), 200);
    let status = bench.slot.status();
    assert_eq!(status.state, SlotState::Loaded);
    assert_eq!(status.failure.as_deref(), Some("the second is broken"));
}

#[test]
fn the_next_version_serves_new_exchanges_and_the_old_one_those_that_have_begun() {
    let gate = Gate::new();
    let bench = lazy(|_| {});
    let script = [vec![Act::Wait(gate.clone())], answer("old")].concat();
    let old = Fake::new([("/", script), ("/quick", answer("old"))]);
    let new = Fake::new([("/", answer("new")), ("/quick", answer("new"))]);
    bench.slot.install(old.clone(), 0);
    assert_eq!(bench.status("/quick"), 200);
    let Begun::Serving(mut in_flight) = begin_at(&bench.reactor, "/") else { panic!() };
    drop(bench.waiting("/"));
    assert_eq!(bench.reactor.sandboxes(), (1, 1));
    bench.slot.install(new.clone(), 0);
    let Begun::Whole(whole) = begin_at(&bench.reactor, "/") else { panic!() };
    assert_eq!(text(&whole), "new");
    assert_eq!(old.stats.destroyed.load(SeqCst), 1, "the idle one is gone");
    gate.open();
    assert_eq!(text(&finish_whole(&mut in_flight)), "old");
    assert_eq!(old.stats.destroyed.load(SeqCst), 2, "and the one in use does not come back");
    assert_eq!(new.stats.spawned.load(SeqCst), 1);
}

#[test]
fn idle_sandboxes_of_an_old_version_go_without_an_exchange() {
    let bench = lazy(|_| {});
    let old = Fake::new([("/", answer("old"))]);
    bench.slot.install(old.clone(), 0);
    assert_eq!(bench.status("/"), 200);
    bench.slot.install(Fake::new([]), 0);
    assert_eq!(old.stats.destroyed.load(SeqCst), 0);
    bench.reactor.tick();
    assert_eq!(old.stats.destroyed.load(SeqCst), 1);
    assert_eq!(bench.reactor.sandboxes(), (0, 0));
}

#[test]
fn a_tenant_that_stays_keeps_its_sandboxes_when_the_table_is_swapped() {
    let bench = lazy(|_| {});
    let fake = Fake::new([("/", answer("x"))]);
    bench.slot.install(fake.clone(), 0);
    assert_eq!(bench.status("/"), 200);
    let same = bench.runtime.table().tenants()[0].clone();
    let fixed = Answer::Fixed(sandtide_runtime::FixedResponse::text("new"));
    let new = Tenant::new("new", vec![Route::new("new.test", "/").unwrap()], fixed);
    bench.runtime.replace(Table::build([Arc::new(new), same]).unwrap());
    assert_eq!(bench.status("/"), 200);
    assert_eq!(bench.status("http://new.test/"), 200);
    assert_eq!(fake.stats.spawned.load(SeqCst), 1);
}

#[test]
fn a_program_that_is_not_used_is_let_go_of() {
    let bench = lazy(|_| {});
    let fake = Fake::new([("/", answer("x"))]);
    bench.slot.install(fake.clone(), 0);
    assert_eq!(bench.status("/"), 200);
    assert!(!bench.slot.retire(Duration::from_secs(3600)), "it was used a moment ago");
    assert!(bench.slot.retire(Duration::ZERO));
    assert_eq!(bench.slot.status().state, SlotState::Empty);
    bench.reactor.tick();
    assert_eq!(fake.stats.destroyed.load(SeqCst), 1);
    assert_eq!(Arc::strong_count(&fake), 2, "the slot has it until it is tidied up");
    assert!(bench.slot.has_versions());
    bench.slot.tidy();
    assert_eq!(Arc::strong_count(&fake), 1);
    assert!(!bench.slot.has_versions());
    let mut serving = bench.waiting("/");
    assert_eq!(bench.asked.times(), 1);
    bench.slot.install(fake, 0);
    assert_eq!(text(&finish_whole(&mut serving)), "x");
    assert_eq!(bench.slot.status().version.unwrap().number(), 2);
}

#[test]
fn a_table_goes_when_the_last_reactor_has_left_it() {
    let bench = lazy(|_| {});
    let tenant = Arc::downgrade(&bench.runtime.table().tenants()[0]);
    bench.runtime.replace(Table::default());
    bench.runtime.tidy();
    assert!(tenant.upgrade().is_some(), "the reactor has not looked");
    bench.reactor.tick();
    assert!(tenant.upgrade().is_some(), "and does not have to free it");
    bench.runtime.tidy();
    assert!(tenant.upgrade().is_none());
}

/// A slot with a good version, and a bad one that is on probation.
fn on_probation(bench: &Lazy, faults: u32) -> (Arc<Fake>, Arc<Fake>) {
    let fault = || vec![Act::Fault(fake::trap)];
    let slow = vec![Act::Begin(200, vec![]), Act::WaitForever(None)];
    let good = Fake::new([("/", answer("old")), ("/bad", answer("old"))]);
    let bad = Fake::new([("/", answer("new")), ("/bad", fault()), ("/slow", slow)]);
    bench.slot.install(good.clone(), faults);
    assert!(!bench.slot.version().unwrap().is_on_probation(), "there is none to come back to");
    bench.slot.install(bad.clone(), faults);
    (good, bad)
}

#[test]
fn faults_bring_the_version_before_back() {
    let bench = lazy(|_| {});
    let (good, bad) = on_probation(&bench, 3);
    let statuses = ["/", "/bad", "/", "/bad", "/bad", "/bad", "/"].map(|path| bench.status(path));
    assert_eq!(statuses.map(|status| status.as_u16()), [200, 502, 200, 502, 502, 200, 200]);
    let status = bench.slot.status();
    let rollback = status.rollback.unwrap();
    assert_eq!((rollback.from, rollback.to, rollback.faults), (2, 1, 3));
    assert_eq!(status.version.unwrap().number(), 1);
    assert_eq!(bench.asked.rolled_back(), [2], "the control plane learns of it");
    bench.slot.tidy();
    assert_eq!(Arc::strong_count(&bad), 1);
    assert_eq!(Arc::strong_count(&good), 2);
}

#[test]
fn a_version_that_has_proved_itself_stays() {
    let bench = lazy(|_| {});
    let (good, _bad) = on_probation(&bench, 3);
    assert_eq!(bench.status("/bad"), 502);
    for _ in 0..99 {
        assert_eq!(bench.status("/"), 200);
    }
    bench.slot.tidy();
    assert_eq!(Arc::strong_count(&good), 1, "nobody comes back to it");
    for _ in 0..10 {
        assert_eq!(bench.status("/bad"), 502);
    }
    assert!(bench.slot.status().rollback.is_none());
}

#[test]
fn clients_cannot_bring_a_version_back() {
    let bench = lazy(|tenant| tenant.limits.wall_time = Duration::ZERO);
    let (_good, _bad) = on_probation(&bench, 1);
    let Begun::Serving(slow) = begin_at(&bench.reactor, "/slow") else { panic!() };
    // Past its deadline, without having been polled.
    drop(slow);
    assert_eq!(bench.reactor.totals().all_faults(), 1);
    assert!(bench.slot.status().rollback.is_none());
}
