//! Sandboxes that last as long as the connection of a client.
#![allow(clippy::unwrap_used)]

mod bench;
mod fake;

use std::{
    rc::Rc,
    sync::{Arc, atomic::Ordering::SeqCst},
    task::Poll,
    time::Duration,
};

use bench::{Clock, finish_whole, noop, text};
use fake::{Act, Fake, Gate, trap};
use sandtide_engine::{Isolation, RequestBody};
use sandtide_runtime::{
    Answer, Begun, Client, Options, Reactor, Route, Runtime, Serving, Slot, Table, Tenant,
};

struct Bench {
    fake: Arc<Fake>,
    slot: Arc<Slot>,
    clock: Clock,
    reactor: Rc<Reactor>,
    runtime: Arc<Runtime>,
}

fn count(before: Vec<Act>) -> Vec<Act> {
    [before, vec![Act::Begin(200, vec![]), Act::WriteCount, Act::Finish(vec![])]].concat()
}

fn bench(gate: &Arc<Gate>, change: impl FnOnce(&mut Tenant)) -> Bench {
    let fake = Fake::new([
        ("/count", count(vec![])),
        ("/waits", count(vec![Act::Wait(gate.clone())])),
        ("/trap", vec![Act::Fault(trap)]),
        ("/spoil", count(vec![Act::SpoilReset])),
    ]);
    let slot = Slot::loaded(fake.clone());
    let answer = Answer::Program(slot.clone());
    let mut tenant = Tenant::new("shop", vec![Route::new("*", "/").unwrap()], answer);
    tenant.isolation = Isolation::Connection;
    change(&mut tenant);
    let runtime = Runtime::new(Table::build([Arc::new(tenant)]).unwrap(), Options::default());
    let clock = Clock::default();
    let reactor = runtime.reactor(0, 1, Box::new(clock.clone()));
    Bench { fake, slot, clock, reactor, runtime }
}

impl Bench {
    fn begin(&self, client: &Client, path: &str) -> Begun {
        let (parts, ()) = http::Request::get(path).body(()).unwrap().into_parts();
        self.reactor.begin(&mut noop(), client, parts, |_, _| RequestBody::empty())
    }

    fn ask(&self, client: &Client, path: &str) -> String {
        match self.begin(client, path) {
            Begun::Whole(whole) => text(&whole).to_owned(),
            Begun::Serving(_) => panic!("{path} did not end in its first slice"),
        }
    }

    fn serving(&self, client: &Client, path: &str) -> Box<Serving> {
        match self.begin(client, path) {
            Begun::Serving(serving) => serving,
            Begun::Whole(whole) => panic!("{path} ended: {whole:?}"),
        }
    }

    fn held(&self) -> u64 {
        self.reactor.tick();
        self.reactor.totals().held
    }

    fn resets(&self) -> usize {
        self.fake.stats.resets.load(SeqCst)
    }
}

#[test]
fn each_connection_has_a_state_of_its_own_until_it_ends() {
    let bench = bench(&Arc::default(), |_| {});
    let (one, two) = (Client::new(), Client::new());
    for number in ["1", "2", "3"] {
        assert_eq!(bench.ask(&one, "/count"), number);
        assert_eq!(bench.ask(&two, "/count"), number);
    }
    assert_eq!((bench.held(), bench.resets()), (2, 0));
    assert_eq!(bench.reactor.sandboxes(), (0, 0), "none is idle, none in use");
    drop(one);
    assert_eq!((bench.held(), bench.resets()), (1, 1));
    assert_eq!(bench.reactor.sandboxes(), (1, 0), "it is back in the pool");
    assert_eq!(bench.ask(&Client::new(), "/count"), "1");
    assert_eq!(bench.ask(&two, "/count"), "4");
    assert_eq!(bench.fake.stats.spawned.load(SeqCst), 2);
}

#[test]
fn requests_of_one_connection_take_turns() {
    let gate = Arc::<Gate>::default();
    let bench = bench(&gate, |_| {});
    let (client, other) = (Client::new(), Client::new());
    let mut first = bench.serving(&client, "/waits");
    let mut second = bench.serving(&client, "/count");
    let left = bench.serving(&client, "/count");
    let mut last = bench.serving(&client, "/count");
    assert_eq!(bench.ask(&other, "/count"), "1", "others do not wait for it");
    assert!(second.poll_head(&mut noop()).is_pending());
    drop(left);
    gate.open();
    assert_eq!(text(&finish_whole(&mut first)), "1");
    assert!(last.poll_head(&mut noop()).is_pending(), "it is not its turn");
    assert_eq!(text(&finish_whole(&mut second)), "2");
    assert_eq!(text(&finish_whole(&mut last)), "3");
    assert_eq!(bench.ask(&client, "/count"), "4");
    assert_eq!(bench.fake.stats.spawned.load(SeqCst), 2);
}

#[test]
fn who_waits_too_long_for_its_turn_is_turned_away_and_the_next_goes_on() {
    let gate = Arc::<Gate>::default();
    let bench = bench(&gate, |tenant| {
        tenant.admission.queue = 1;
        tenant.admission.queue_time = Duration::from_secs(1);
        tenant.limits.wall_time = Duration::from_secs(3600);
    });
    let client = Client::new();
    let mut first = bench.serving(&client, "/waits");
    let mut late = bench.serving(&client, "/count");
    let Begun::Whole(full) = bench.begin(&client, "/count") else { panic!("the line is full") };
    assert_eq!(full.head.status, 503);
    assert!(late.poll_head(&mut noop()).is_pending());
    fake::advance(Duration::from_secs(2));
    bench.clock.armed.borrow().iter().for_each(|(_, fired)| fired.set(true));
    assert_eq!(finish_whole(&mut late).head.status, 503);
    gate.open();
    assert_eq!(text(&finish_whole(&mut first)), "1");
    assert_eq!(bench.ask(&client, "/count"), "2");
}

#[test]
fn a_fault_or_a_client_that_leaves_resets_it() {
    let gate = Arc::<Gate>::default();
    let bench = bench(&gate, |_| {});
    let (client, other) = (Client::new(), Client::new());
    assert_eq!(bench.ask(&other, "/count"), "1");
    assert_eq!(bench.ask(&client, "/count"), "1");
    bench.ask(&client, "/trap");
    assert_eq!(bench.ask(&client, "/count"), "1");
    drop(bench.serving(&client, "/waits"));
    assert_eq!(bench.ask(&client, "/count"), "1");
    // One that cannot be reset is destroyed, and costs its connection no more than its state.
    bench.ask(&client, "/spoil");
    drop(client);
    assert_eq!(bench.reactor.totals().failed_resets, 1);
    assert_eq!(bench.ask(&other, "/count"), "2", "nobody else has lost anything");
}

#[test]
fn no_more_are_held_than_there_may_be_exchanges() {
    let bench = bench(&Arc::default(), |tenant| tenant.admission.concurrency = 3);
    let clients: Vec<_> = (0..4).map(|_| Client::new()).collect();
    for client in &clients {
        assert_eq!(bench.ask(client, "/count"), "1");
    }
    assert_eq!(bench.held(), 3);
    // The one that was idle for longest has begun anew, and then the one behind it.
    assert_eq!(bench.ask(&clients[3], "/count"), "2");
    assert_eq!(bench.ask(&clients[0], "/count"), "1");
    assert_eq!(bench.ask(&clients[2], "/count"), "2");
    assert_eq!(bench.ask(&clients[1], "/count"), "1");
    drop(clients);
    assert_eq!(bench.held(), 0);
}

#[test]
fn another_version_begins_anew() {
    let bench = bench(&Arc::default(), |_| {});
    let (client, idle) = (Client::new(), Client::new());
    for number in ["1", "2"] {
        assert_eq!(bench.ask(&client, "/count"), number);
        assert_eq!(bench.ask(&idle, "/count"), number);
    }
    let next = Fake::new([("/count", count(vec![]))]);
    bench.slot.install(next.clone(), 0);
    assert_eq!(bench.ask(&client, "/count"), "1");
    assert_eq!(bench.ask(&client, "/count"), "2");
    // Who does not come back must not keep the old version.
    assert_eq!(bench.held(), 1);
    assert_eq!(next.stats.spawned.load(SeqCst), 1);
    assert_eq!(bench.ask(&idle, "/count"), "1");
}

#[test]
fn another_configuration_begins_anew() {
    let bench = bench(&Arc::default(), |_| {});
    let client = Client::new();
    assert_eq!(bench.ask(&client, "/count"), "1");
    let answer = Answer::Program(bench.slot.clone());
    let mut tenant = Tenant::new("shop", vec![Route::new("*", "/").unwrap()], answer);
    tenant.isolation = Isolation::Connection;
    bench.runtime.replace(Table::build([Arc::new(tenant)]).unwrap());
    assert_eq!(bench.ask(&client, "/count"), "1");
    assert_eq!(bench.ask(&client, "/count"), "2");
    assert_eq!(bench.held(), 1);
}

#[test]
fn a_request_that_is_served_ends_with_its_connection() {
    let gate = Arc::<Gate>::default();
    let bench = bench(&gate, |_| {});
    let client = Client::new();
    let mut serving = bench.serving(&client, "/waits");
    drop(client);
    gate.open();
    assert!(matches!(serving.poll_head(&mut noop()), Poll::Ready(_)));
    drop(serving);
    assert_eq!((bench.held(), bench.resets()), (0, 1));
}
