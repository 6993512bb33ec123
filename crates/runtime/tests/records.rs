//! Every request leaves one record, and moves the counters exactly as it went.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bench;
mod fake;

use std::{rc::Rc, sync::Arc, task::Poll, time::Duration};

use bench::{Clock, noop};
use bytes::Bytes;
use fake::{Act, Fake, Gate, answer, trap};
use sandtide_engine::{Frame, Isolation, RequestBody};
use sandtide_runtime::{
    Admission, Answer, Begun, Client, Ending, FixedResponse, Options, Reactor, Record, Refused,
    Reply, Route, Runtime, Serving, Slot, Table, Tenant,
};

fn runtime(
    scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>,
    change: impl FnOnce(&mut Tenant),
) -> Arc<Runtime> {
    let answer = Answer::Program(Slot::loaded(Fake::new(scripts)));
    let mut shop = Tenant::new("shop", vec![Route::new("shop.test", "/").unwrap()], answer);
    change(&mut shop);
    let fixed = Answer::Fixed(FixedResponse::text("x"));
    let fixed = Tenant::new("fixed", vec![Route::new("fixed.test", "/").unwrap()], fixed);
    let broken = Answer::Program(Slot::failed("of the test"));
    let broken = Tenant::new("broken", vec![Route::new("broken.test", "/").unwrap()], broken);
    let table = Table::build([shop, fixed, broken].map(Arc::new)).unwrap();
    Runtime::new(table, Options { records: true, ..Options::default() })
}

fn reactor(runtime: &Runtime) -> Rc<Reactor> {
    runtime.reactor(0, 1, Box::new(Clock::default()))
}

fn begin(reactor: &Rc<Reactor>, uri: &str, body: &'static str) -> Begun {
    let (parts, ()) = http::Request::post(uri).body(()).unwrap().into_parts();
    reactor.begin(&mut noop(), &Client::new(), parts, |_, _| {
        RequestBody::whole(Bytes::from_static(body.as_bytes()))
    })
}

fn whole(begun: Begun) -> Box<Record> {
    let Begun::Whole(whole) = begun else { panic!("it goes on") };
    let record = whole.record.unwrap();
    assert_eq!(record.status, Some(whole.head.status));
    record
}

fn serving(begun: Begun) -> Box<Serving> {
    let Begun::Serving(serving) = begun else { panic!("it has ended") };
    serving
}

#[test]
fn an_answer_has_a_record_with_what_it_used() {
    let script = vec![Act::Begin(201, vec![]), Act::Echo, Act::Finish(vec![])];
    let runtime = runtime([("/a", script)], |_| {});
    let reactor = reactor(&runtime);
    let record = whole(begin(&reactor, "http://shop.test/a?b=c", "twelve bytes"));
    assert_eq!(record.tenant.as_deref(), Some("shop"));
    assert_eq!((record.ending, record.ending.name()), (Ending::Done, "done"));
    assert_eq!(record.request.uri, "http://shop.test/a?b=c");
    assert_eq!((record.spent.bytes_in, record.spent.bytes_out), (12, 12));
    assert_eq!((record.spent.usage.instructions, record.spent.usage.pages_written), (10, 2));
    assert_eq!((record.spent.queued, record.spent.ran), (Duration::ZERO, record.spent.cpu));

    let totals = reactor.totals();
    assert_eq!((totals.exchanges, totals.statuses), (1, [1, 0, 0, 0]));
    assert_eq!((totals.bytes_in, totals.bytes_out, totals.calls), (12, 12, 1));
    assert_eq!((totals.instructions, totals.pages_written), (10, 2));
    assert_eq!(totals.durations.iter().sum::<u64>(), 1);
    assert_eq!(u128::from(totals.cpu_ns), record.spent.cpu.as_nanos());
    let [(name, own)] = &runtime.tenant_totals()[..] else { panic!("only used tenants count") };
    assert_eq!((&**name, *own), ("shop", totals));
}

#[test]
fn refusals_have_records_and_reasons() {
    let runtime = runtime([("/a", answer("x"))], |shop| shop.limits.request_body = 3);
    let reactor = reactor(&runtime);
    let cases = [
        ("http://nobody.test/", None, Refused::NoTenant, 404),
        ("http://broken.test/", Some("broken"), Refused::Unavailable, 503),
        ("http://shop.test/a", Some("shop"), Refused::RequestBody, 413),
    ];
    for (uri, tenant, why, status) in cases {
        let record = whole(begin(&reactor, uri, "long"));
        assert_eq!((record.tenant.as_deref(), record.ending), (tenant, Ending::Refused(why)));
        assert_eq!(
            (record.status.unwrap().as_u16(), record.request.uri.to_string()),
            (status, uri.to_owned())
        );
        assert_eq!(reactor.totals().refused[why as usize], 1, "{why:?}");
    }
    let totals = reactor.totals();
    assert_eq!((totals.all_refused(), totals.exchanges, totals.statuses), (3, 0, [0, 0, 2, 1]));
    assert_eq!(runtime.other_totals().all_refused(), 1, "nobody's request");
}

#[test]
fn fixed_answers_have_records() {
    let runtime = runtime([], |_| {});
    let record = whole(begin(&reactor(&runtime), "http://fixed.test/", ""));
    assert_eq!((record.tenant.as_deref(), record.ending), (Some("fixed"), Ending::Done));
    assert_eq!(runtime.tenant_totals()[0].1.fixed, 1);
}

#[test]
fn faults_and_failures_have_records() {
    let cases = [
        ("/trap", Act::Fault(trap), Ending::Fault("trap")),
        ("/engine", Act::Engine, Ending::EngineFailure),
        ("/panic", Act::Panic, Ending::EngineFailure),
    ];
    let runtime = runtime(cases.clone().map(|(path, act, _)| (path, vec![act])), |_| {});
    let reactor = reactor(&runtime);
    for (path, _, ending) in cases {
        let record = whole(begin(&reactor, &format!("http://shop.test{path}"), ""));
        assert_eq!(record.ending, ending, "{path}");
    }
    let totals = reactor.totals();
    assert_eq!((totals.exchanges, totals.statuses), (3, [0, 0, 0, 3]));
    assert_eq!((totals.faults[0], totals.engine_failures, totals.panics), (1, 2, 1));
}

#[test]
fn a_stream_has_a_record_when_it_is_over() {
    let gate = Gate::new();
    let script = vec![
        Act::Begin(200, vec![]),
        Act::Write(Bytes::from_static(b"four")),
        Act::Wait(gate.clone()),
        Act::Fault(trap),
    ];
    let runtime = runtime([("/a", script)], |_| {});
    let reactor = reactor(&runtime);
    let mut serving = serving(begin(&reactor, "http://shop.test/a", ""));
    assert!(matches!(serving.poll_head(&mut noop()), Poll::Ready(Reply::Streaming(_))));
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Ok(Frame::Data(_))))));
    gate.open();
    assert!(matches!(serving.poll_frame(&mut noop()), Poll::Ready(Some(Err(_)))));
    let record = serving.leave().unwrap();
    assert_eq!((record.ending, record.status.unwrap().as_u16()), (Ending::Fault("trap"), 200));
    assert_eq!(record.spent.bytes_out, 4);
    assert!(record.spent.cpu <= record.spent.ran);
    assert!(serving.leave().is_none(), "one record for an exchange");
    drop(serving);
    assert_eq!(reactor.totals().statuses, [1, 0, 0, 0], "the client has seen a 200");
    assert_eq!(reactor.totals().exchanges, 1);
}

#[test]
fn who_leaves_before_the_answer_has_no_status() {
    let script = vec![Act::Begin(200, vec![]), Act::Slice];
    let runtime = runtime([("/a", script)], |shop| shop.admission.concurrency = 1);
    let reactor = reactor(&runtime);
    let mut running = serving(begin(&reactor, "http://shop.test/a", ""));
    let mut queued = serving(begin(&reactor, "http://shop.test/a", ""));
    fake::advance(Duration::from_millis(3));
    for serving in [&mut queued, &mut running] {
        let record = serving.leave().unwrap();
        assert_eq!((record.ending, record.status), (Ending::ClientGone, None));
    }
    let totals = reactor.totals();
    assert_eq!((totals.clients_gone, totals.exchanges, totals.statuses), (2, 1, [0; 4]));
    assert_eq!(totals.queue_ns, 3_000_000);
}

#[test]
fn a_state_keeping_exchange_has_one_record_when_its_client_leaves() {
    let gate = Gate::new();
    let mut script = vec![Act::Wait(gate.clone())];
    script.extend(answer("x"));
    let runtime = runtime([("/a", script)], |shop| shop.isolation = Isolation::None);
    let reactor = reactor(&runtime);
    let mut serving = serving(begin(&reactor, "http://shop.test/a", ""));
    assert_eq!(serving.leave().unwrap().ending, Ending::ClientGone);
    drop(serving);
    gate.open();
    assert!(reactor.poll_abandoned::<()>(&mut noop()).is_pending());
    let totals = reactor.totals();
    assert_eq!((totals.exchanges, totals.instructions, totals.statuses), (1, 10, [0; 4]));
}

#[test]
fn waiting_is_told_apart_from_running() {
    let runtime = runtime([("/a", vec![Act::Slice])], |shop| {
        shop.admission = Admission { concurrency: 1, queue: 1, ..Admission::default() };
    });
    let clock = Clock::default();
    let reactor = runtime.reactor(0, 1, Box::new(clock.clone()));
    let _running = serving(begin(&reactor, "http://shop.test/a", ""));
    let mut queued = serving(begin(&reactor, "http://shop.test/a", ""));
    let full = whole(begin(&reactor, "http://shop.test/a", ""));
    assert_eq!(full.ending, Ending::Refused(Refused::QueueFull));
    assert!(queued.poll_head(&mut noop()).is_pending());
    assert_eq!(clock.fire_all(), 1);
    let Poll::Ready(Reply::Whole(answer)) = queued.poll_head(&mut noop()) else { panic!() };
    let late = answer.record.unwrap();
    assert_eq!(late.ending, Ending::Refused(Refused::QueueTime));
    assert_eq!((late.spent.queued, late.spent.ran), (Duration::from_secs(1), Duration::ZERO));
    assert_eq!(answer.head.headers["retry-after"], "1");
    let told = answer.head.headers["proxy-status"].to_str().unwrap();
    assert_eq!(told, "sandtide; error=connection_limit_reached; details=\"queue_time\"");
}

#[test]
fn records_are_made_only_for_those_who_want_them() {
    let tenant = Tenant::new(
        "shop",
        vec![Route::everything()],
        Answer::Program(Slot::loaded(Fake::new([("/", answer("x"))]))),
    );
    let runtime = Runtime::new(Table::build([Arc::new(tenant)]).unwrap(), Options::default());
    let Begun::Whole(whole) = begin(&reactor(&runtime), "http://shop.test/", "") else { panic!() };
    assert!(whole.record.is_none());
}

#[test]
fn what_there_is_is_shown_each_second() {
    let scripts = [("/a", answer("x")), ("/slice", vec![Act::Slice])];
    let runtime = runtime(scripts, |shop| shop.admission.concurrency = 2);
    let reactor = reactor(&runtime);
    let _slow = serving(begin(&reactor, "http://shop.test/slice", ""));
    whole(begin(&reactor, "http://shop.test/a", ""));
    reactor.tick();
    let totals = reactor.totals();
    assert_eq!((totals.idle, totals.busy, totals.waiting), (1, 1, 0));
    let [(0, silence)] = runtime.silences()[..] else { panic!("one reactor") };
    assert!(silence < Duration::from_secs(60));
}
