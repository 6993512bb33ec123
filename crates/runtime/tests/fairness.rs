//! Who gets how much of a thread, with scripted sandboxes and a time that tests make.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod fake;

use std::{
    cell::Cell,
    rc::Rc,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::Poll,
    time::Duration,
};

use bench::{Clock, begin_at, noop};
use fake::{Act, CHUNK, Fake, answer};
use sandtide_runtime::{
    Answer, Begun, Options, Reactor, Reply, Route, Runtime, Serving, Slot, Table, Tenant,
};

const SLICE: Duration = Duration::from_millis(1);

/// Tenants on one reactor, each at an authority of its name.
fn reactor(tenants: &[(&'static str, u32, &Arc<Fake>)]) -> Rc<Reactor> {
    let tenants = tenants.iter().map(|&(name, weight, fake)| {
        let routes = vec![Route::new(name, "/").unwrap()];
        let mut tenant = Tenant::new(name, routes, Answer::Program(Slot::loaded(fake.clone())));
        tenant.admission.weight = weight;
        Arc::new(tenant)
    });
    let runtime = Runtime::new(
        Table::build(tenants).unwrap(),
        Options { slice: SLICE, ..Options::default() },
    );
    runtime.reactor(0, 1, Box::new(Clock::default()))
}

fn serving(reactor: &Rc<Reactor>, uri: &str) -> Serving {
    match begin_at(reactor, uri) {
        Begun::Serving(mut serving) => {
            assert!(serving.poll_head(&mut noop()).is_pending());
            *serving
        }
        Begun::Whole(whole) => panic!("{uri} ended: {whole:?}"),
    }
}

fn is_whole(reactor: &Rc<Reactor>, uri: &str) -> bool {
    matches!(begin_at(reactor, uri), Begun::Whole(_))
}

fn spinner() -> Arc<Fake> {
    Fake::new([("/", vec![Act::Spin]), ("/short", answer("short"))])
}

/// Polls all that are pending, as a host does that was woken.
fn poll(servings: &mut Vec<Serving>) -> usize {
    let before = servings.len();
    servings.retain_mut(|serving| serving.poll_head(&mut noop()).is_pending());
    before - servings.len()
}

#[test]
fn slices_follow_weights() {
    let (heavy, light) = (spinner(), spinner());
    let reactor = reactor(&[("heavy", 300, &heavy), ("light", 100, &light)]);
    let uris = ["http://heavy/", "http://light/", "http://light/", "http://light/"];
    let mut servings: Vec<_> = uris.iter().map(|uri| serving(&reactor, uri)).collect();
    let runs = || [&heavy, &light].map(|fake| fake.stats.runs.load(SeqCst));
    let before = runs();
    for _ in 0..400 {
        reactor.turnstile().release();
        assert_eq!(poll(&mut servings), 0);
    }
    let [heavy_runs, light_runs] = [0, 1].map(|i| runs()[i] - before[i]);
    assert_eq!(heavy_runs + light_runs, 400);
    assert!((298..=302).contains(&heavy_runs), "{heavy_runs} of 400");
}

#[test]
fn nobody_pays_for_what_other_processes_take() {
    let slices = vec![vec![Act::Compute(SLICE / 2), Act::Preempted(SLICE * 50)]; 1000].concat();
    let unlucky = [vec![Act::Slice], slices].concat();
    let (unlucky, lucky) = (Fake::new([("/", unlucky)]), spinner());
    let reactor = reactor(&[("unlucky", 100, &unlucky), ("lucky", 100, &lucky)]);
    let uris = ["http://unlucky/", "http://lucky/"];
    let mut servings: Vec<_> = uris.iter().map(|uri| serving(&reactor, uri)).collect();
    for _ in 0..90 {
        reactor.turnstile().release();
        poll(&mut servings);
    }
    // Half a slice each against a whole one.
    let runs = [&unlucky, &lucky].map(|fake| fake.stats.runs.load(SeqCst));
    assert!((58..=62).contains(&runs[0]), "{runs:?}");
}

/// The event loop finds input after every slice, and answers it for longer than the slice was.
#[test]
fn a_flood_of_short_exchanges_gets_no_more_than_its_share() {
    let work = vec![Act::Compute(SLICE / 20)];
    let flood = Fake::new([("/", [work, answer("x")].concat())]);
    let (spin, quiet) = (spinner(), spinner());
    let reactor = reactor(&[("flood", 100, &flood), ("spin", 100, &spin), ("quiet", 100, &quiet)]);
    let mut spinning = vec![serving(&reactor, "http://spin/")];
    let (mut waiting, mut answered) = (Vec::new(), 0);
    let slices = || spin.stats.runs.load(SeqCst);
    for _ in 0..1000 {
        // Sixty connections, each with a request as soon as the last one is answered.
        while waiting.len() < 60 && answered < 1_000_000 {
            match begin_at(&reactor, "http://flood/") {
                Begun::Whole(_) => answered += 1,
                Begun::Serving(mut serving) => {
                    assert!(serving.poll_head(&mut noop()).is_pending());
                    waiting.push(*serving);
                }
            }
        }
        assert!(is_whole(&reactor, "http://quiet/short"), "who uses little never waits");
        reactor.turnstile().release();
        answered += poll(&mut waiting);
        assert_eq!(poll(&mut spinning), 0);
    }
    let flooded = answered as f64 / 20.0;
    let spun = slices() as f64;
    assert!((0.9..1.1).contains(&(flooded / spun)), "{flooded} slices beside {spun}");
}

#[test]
fn input_ends_a_slice_early_and_the_rest_of_it_comes_first() {
    let (a, b) = (spinner(), spinner());
    let reactor = reactor(&[("a", 100, &a), ("b", 100, &b)]);
    let rings = Rc::new(Cell::new(false));
    let bell = rings.clone();
    reactor.turnstile().set_doorbell(Box::new(move || bell.replace(false)));
    let mut servings = vec![serving(&reactor, "http://a/"), serving(&reactor, "http://b/")];
    let runs = || [&a, &b].map(|fake| fake.stats.runs.load(SeqCst));
    // A turn in which it rings, and how long its slice was.
    let mut turn = |ring: bool| {
        let (before, start) = (runs(), fake::now());
        rings.set(ring);
        reactor.turnstile().release();
        assert_eq!(poll(&mut servings), 0);
        let after = runs();
        (if after[0] > before[0] { "a" } else { "b" }, fake::now() - start)
    };
    assert_eq!(turn(false), ("a", SLICE));
    assert_eq!(turn(true), ("b", CHUNK), "one chunk always runs");
    assert_eq!(turn(true), ("b", CHUNK));
    assert_eq!(turn(false), ("b", SLICE - 2 * CHUNK), "what is left of the slice");
    assert_eq!(turn(false), ("a", SLICE));
    // The host was busy for half a slice: so much of the next one is safe.
    fake::advance(SLICE / 2);
    assert_eq!(turn(true), ("b", SLICE / 2));
}

/// One exchange that computes for 2 ms comes each millisecond.
#[test]
fn at_twice_the_capacity_all_of_it_goes_to_those_who_still_wait() {
    let work = Act::Compute(SLICE * 2);
    let fake = Fake::new([("/", [vec![work], answer("x")].concat())]);
    let reactor = reactor(&[("busy", 100, &fake), ("quiet", 100, &spinner())]);
    let (start, length) = (fake::now(), Duration::from_secs(5));
    let mut due = start;
    let mut running: Vec<(Duration, Serving)> = Vec::new();
    let (mut took, mut refused) = (Vec::new(), 0);
    while fake::now() < start + length {
        while due <= fake::now() {
            match begin_at(&reactor, "http://busy/") {
                Begun::Serving(mut serving) => {
                    assert!(serving.poll_head(&mut noop()).is_pending());
                    running.push((due - start, *serving));
                }
                Begun::Whole(whole) => {
                    assert_eq!(whole.head.status, 503);
                    assert_eq!(whole.head.headers["retry-after"], "1");
                    refused += 1;
                }
            }
            due += SLICE;
        }
        reactor.turnstile().release();
        let before = fake::now();
        running.retain_mut(|(came, serving)| match serving.poll_head(&mut noop()) {
            Poll::Pending => true,
            Poll::Ready(Reply::Whole(whole)) if whole.head.status == 200 => {
                took.push(fake::now() - start - *came);
                false
            }
            Poll::Ready(_) => {
                refused += 1;
                false
            }
        });
        assert!(fake::now() > before, "nothing ran, though more comes than can be served");
        assert!(is_whole(&reactor, "http://quiet/short"));
    }
    took.sort();
    let capacity = (length.as_nanos() / (2 * SLICE).as_nanos()) as usize;
    assert!(took.len() * 100 >= capacity * 98, "{} of {capacity}", took.len());
    assert!(refused * 100 >= capacity * 90, "{refused} of {capacity} were refused");
    let (middle, longest) = (took[took.len() / 2], took[took.len() - 1]);
    assert!(middle < Duration::from_millis(150), "{middle:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

#[test]
fn a_crowd_of_one_tenant_waits_so_that_another_can_begin() {
    let (crowd, other) = (spinner(), spinner());
    let reactor = reactor(&[("crowd", 100, &crowd), ("other", 100, &other)]);
    let mut crowding: Vec<_> = (0..40).map(|_| serving(&reactor, "http://crowd/")).collect();
    for _ in 0..100 {
        reactor.turnstile().release();
        poll(&mut crowding);
    }
    let begun = |fake: &Fake| fake.stats.running.load(SeqCst);
    assert_eq!(begun(&crowd), 16);
    let mut others: Vec<_> = (0..40).map(|_| serving(&reactor, "http://other/")).collect();
    for _ in 0..100 {
        reactor.turnstile().release();
        poll(&mut crowding);
        poll(&mut others);
    }
    assert_eq!(begun(&other), 8, "half of the crowd is its share");
    // As theirs end, they make room for each other.
    crowding.drain(..8);
    poll(&mut crowding);
    assert_eq!(begun(&crowd), 8);
    others.drain(..8);
    for _ in 0..100 {
        reactor.turnstile().release();
        poll(&mut crowding);
        poll(&mut others);
    }
    assert_eq!(begun(&other), 8);
}
