//! How the state of a tenant goes from one version of its program to the next.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod fake;

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use bench::{Clock, begin_at, finish_whole, noop, text};
use fake::{Act, Fake, Gate, RESTORE, SAVE, trap};
use sandtide_engine::{Isolation, Limits};
use sandtide_runtime::{
    Answer, Begun, HandOver, HandOverError, HandedOver, Options, Reactor, Reply, Route, Runtime,
    Slot, Table, Tenant, TenantLog, Version,
};

struct Counter {
    slot: Arc<Slot>,
    runtime: Arc<Runtime>,
    reactor: Rc<Reactor>,
    log: Arc<TenantLog>,
}

fn count(status: u16) -> Vec<Act> {
    vec![Act::Begin(status, vec![]), Act::WriteCount, Act::Finish(vec![])]
}

fn take(status: u16) -> Vec<Act> {
    vec![Act::TakeCount, Act::Begin(status, vec![]), Act::Finish(vec![])]
}

/// A program that counts, with these scripts besides.
fn program(scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>) -> Arc<Fake> {
    let faulty = ("/trap", vec![Act::Fault(trap)]);
    Fake::new([("/", count(200)), faulty].into_iter().chain(scripts))
}

fn counter(old: &Arc<Fake>) -> Counter {
    let slot = Slot::loaded(old.clone());
    let answer = Answer::Program(slot.clone());
    let mut tenant = Tenant::new("counter", vec![Route::everything()], answer);
    tenant.isolation = Isolation::None;
    let log = tenant.log.clone();
    let runtime = Runtime::new(Table::build([Arc::new(tenant)]).unwrap(), Options::default());
    let reactor = runtime.reactor(0, 1, Box::new(Clock::default()));
    Counter { slot, runtime, reactor, log }
}

impl Counter {
    fn get(&self, path: &str) -> String {
        match begin_at(&self.reactor, path) {
            Begun::Whole(whole) => text(&whole).to_owned(),
            Begun::Serving(_) => panic!("{path} did not end in its first slice"),
        }
    }

    /// Counts up to a number.
    fn count_to(&self, number: u64) {
        while self.get("/") != number.to_string() {}
    }

    fn hand_over(&self, new: &Arc<Fake>) -> Result<(Arc<Version>, HandedOver), HandOverError> {
        let limits = Limits::default();
        let patience = Duration::from_secs(30);
        let terms = HandOver { rollback_on_faults: 2, limits: &limits, log: &self.log, patience };
        self.slot.hand_over(new.clone(), &terms)
    }
}

#[test]
fn the_next_version_goes_on_with_the_state() {
    let bench = counter(&program([(SAVE, count(200))]));
    bench.count_to(7);
    let (version, how) = bench.hand_over(&program([(RESTORE, take(200))])).unwrap();
    assert!(matches!(how, HandedOver::State(1)), "{how:?}");
    assert_eq!(version.number(), 2);
    assert_eq!(bench.get("/"), "8");
}

#[test]
fn a_tenant_that_nobody_has_asked_has_no_state() {
    let old = program([(SAVE, count(200))]);
    let bench = counter(&old);
    let (_, how) = bench.hand_over(&program([(RESTORE, take(200))])).unwrap();
    assert!(matches!(how, HandedOver::Nothing), "{how:?}");
    assert_eq!(old.stats.spawned.load(SeqCst), 0);
    assert_eq!(bench.get("/"), "1");
}

#[test]
fn versions_that_do_not_hand_over_start_anew() {
    for (old, new) in [
        (program([]), program([(RESTORE, take(200))])),
        (program([(SAVE, count(200))]), program([])),
    ] {
        let bench = counter(&old);
        bench.count_to(7);
        let (_, how) = bench.hand_over(&new).unwrap();
        assert!(matches!(how, HandedOver::Dropped(_)), "{how:?}");
        assert_eq!(bench.get("/"), "1");
    }
}

#[test]
fn a_fault_while_saving_loses_the_state_as_every_fault_does() {
    let bench = counter(&program([(SAVE, vec![Act::Fault(trap)])]));
    bench.count_to(7);
    let (_, how) = bench.hand_over(&program([(RESTORE, take(200))])).unwrap();
    assert!(matches!(how, HandedOver::Lost(_)), "{how:?}");
    assert_eq!(bench.get("/"), "1");
}

#[test]
fn the_old_version_stays_with_its_state_when_the_new_one_cannot_take_it() {
    let faulty = vec![Act::TakeCount, Act::Fault(trap)];
    let spoilt = [vec![Act::SpoilReset], take(200)].concat();
    for restore in [take(409), faulty, vec![Act::Panic], spoilt] {
        let bench = counter(&program([(SAVE, count(200))]));
        bench.count_to(7);
        let new = program([(RESTORE, restore)]);
        let error = bench.hand_over(&new).unwrap_err();
        let expected = matches!(error, HandOverError::Restore(_) | HandOverError::Refused(_));
        assert!(expected, "{error}");
        assert_eq!(bench.slot.version().unwrap().number(), 1);
        assert_eq!(new.stats.destroyed.load(SeqCst), 1);
        assert_eq!(bench.get("/"), "8");
    }
}

#[test]
fn the_old_version_may_decline() {
    let bench = counter(&program([(SAVE, count(503))]));
    bench.count_to(7);
    let error = bench.hand_over(&program([(RESTORE, take(200))])).unwrap_err();
    assert!(matches!(error, HandOverError::Declined(_)), "{error}");
    assert_eq!(bench.get("/"), "8");
}

#[test]
fn who_waits_goes_on_with_the_new_version() {
    let gate = Gate::new();
    let slow = [vec![Act::Wait(gate.clone())], count(200)].concat();
    let bench = counter(&program([(SAVE, count(200)), ("/slow", slow)]));
    bench.count_to(7);
    let Begun::Serving(mut in_flight) = begin_at(&bench.reactor, "/slow") else { panic!() };
    assert!(in_flight.poll_head(&mut noop()).is_pending());
    let (slot, log) = (bench.slot.clone(), bench.log.clone());
    let new = program([(RESTORE, take(200))]);
    let hand_over = thread::spawn(move || {
        let limits = Limits::default();
        let patience = Duration::from_secs(30);
        let terms = HandOver { rollback_on_faults: 0, limits: &limits, log: &log, patience };
        slot.hand_over(new, &terms).map(|(version, _)| version.number())
    });
    while bench.slot.status().in_line == 0 {
        thread::yield_now();
    }
    let Begun::Serving(mut waits) = begin_at(&bench.reactor, "/") else { panic!() };
    assert!(waits.poll_head(&mut noop()).is_pending());
    gate.open();
    assert_eq!(text(&finish_whole(&mut in_flight)), "8");
    assert_eq!(hand_over.join().unwrap().unwrap(), 2);
    assert_eq!(text(&finish_whole(&mut waits)), "9");
}

#[test]
fn an_exchange_that_does_not_end_keeps_its_version() {
    let bench = counter(&program([(SAVE, count(200)), ("/slow", vec![Act::WaitForever(None)])]));
    bench.count_to(7);
    let Begun::Serving(mut in_flight) = begin_at(&bench.reactor, "/slow") else { panic!() };
    assert!(in_flight.poll_head(&mut noop()).is_pending());
    let limits = Limits::default();
    let patience = Duration::from_millis(1);
    let terms = HandOver { rollback_on_faults: 0, limits: &limits, log: &bench.log, patience };
    let new = program([(RESTORE, take(200))]);
    assert!(matches!(bench.slot.hand_over(new, &terms), Err(HandOverError::Busy(_))));
    assert_eq!(bench.slot.version().unwrap().number(), 1);
    let Begun::Serving(mut waits) = begin_at(&bench.reactor, "/") else { panic!() };
    assert!(waits.poll_head(&mut noop()).is_pending(), "the line is as it was");
}

#[test]
fn a_rollback_takes_the_state_of_the_hand_over_back() {
    let bench = counter(&program([(SAVE, count(200))]));
    bench.count_to(7);
    bench.hand_over(&program([(RESTORE, take(200))])).unwrap();
    bench.count_to(9);
    bench.get("/trap");
    assert_eq!(bench.get("/"), "1", "a fault loses the state of the version that serves");
    bench.get("/trap");
    assert_eq!(bench.slot.status().rollback.unwrap().to, 1);
    assert_eq!(bench.get("/"), "8", "as it was when it was handed over");
}

#[test]
fn a_rollback_goes_back_to_the_last_version_that_has_proved_itself() {
    let next = || program([(SAVE, count(200)), (RESTORE, take(200))]);
    let bench = counter(&next());
    bench.count_to(7);
    bench.hand_over(&next()).unwrap();
    bench.count_to(9);
    // The second has not proved itself yet.
    bench.hand_over(&next()).unwrap();
    assert_eq!(bench.get("/"), "10");
    bench.get("/trap");
    bench.get("/trap");
    let rollback = bench.slot.status().rollback.unwrap();
    assert_eq!((rollback.from, rollback.to), (3, 1));
    assert_eq!(bench.get("/"), "8", "as it was when the first handed it over");
}

#[test]
fn reactors_of_many_threads_lose_nothing_while_versions_change() {
    const THREADS: usize = 3;
    const EACH: usize = 300;
    let next = || program([(SAVE, count(200)), (RESTORE, take(200))]);
    let bench = counter(&next());
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let runtime = bench.runtime.clone();
            thread::spawn(move || {
                let reactor = runtime.reactor(index, THREADS, Box::new(Clock::default()));
                (0..EACH).map(|_| finish(&reactor, "/")).collect::<Vec<u64>>()
            })
        })
        .collect();
    let mut hand_overs = 0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        bench.hand_over(&next()).unwrap();
        hand_overs += 1;
    }
    let mut seen: Vec<_> = threads.into_iter().flat_map(|t| t.join().unwrap()).collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=(THREADS * EACH) as u64).collect::<Vec<_>>(), "{hand_overs} hand-overs");
}

/// One exchange, as a host with a thread would serve it.
fn finish(reactor: &Rc<Reactor>, path: &str) -> u64 {
    let whole = match begin_at(reactor, path) {
        Begun::Whole(whole) => whole,
        Begun::Serving(mut serving) => {
            let reply = bench::block_on(|cx| {
                let reply = serving.poll_head(cx);
                reactor.turnstile().release();
                reply
            });
            match reply {
                Reply::Whole(whole) => whole,
                Reply::Streaming(head) => panic!("streams: {head:?}"),
            }
        }
    };
    text(&whole).parse().unwrap()
}
