//! HTTP/2 with scripted guests, in frames.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
#[path = "../../runtime/tests/fake/mod.rs"]
mod fake;
#[allow(dead_code, reason = "every test binary uses a part of it")]
#[path = "../../../tests/src/h2.rs"]
mod h2;

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use bytes::Bytes;
use client::{TestServer, serve};
use fake::{Act, Gate, answer, trap};
use h2::{Connection, End, Frame, code, flag, kind, request};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// The setting of a stream's first window.
const WINDOW: u16 = 4;

fn get(stream: u32, path: &str) -> Frame {
    Frame::headers(stream, flag::END_STREAM, &h2::get("shop.test", path))
}

fn open(server: &TestServer) -> Connection {
    Connection::open(server.address)
}

fn wait(gate: &Gate) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(gate.opened());
}

#[test]
fn streams_are_answered_as_they_end() {
    let gate = Gate::new();
    let late = [vec![Act::Wait(gate.clone())], answer("late")].concat();
    let trailing =
        vec![Act::Begin(200, vec![]), Act::Write("x".into()), Act::Finish(vec![("x-sum", "7")])];
    let scripts = [("/late", late), ("/now", answer("now")), ("/trailing", trailing)];
    let server = serve(scripts, |_, _| {});
    let mut connection = open(&server);
    connection.frame(&get(1, "/late"));
    assert_eq!(
        connection.get(3, "shop.test", "/now"),
        End::Response { status: 200, body: b"now".to_vec() }
    );
    gate.open();
    assert_eq!(connection.end_of(1), End::Response { status: 200, body: b"late".to_vec() });
    connection.frame(&get(5, "/trailing"));
    let data = connection.until(|frame| frame.kind == kind::DATA).unwrap();
    assert!(!data.is_last());
    let trailers = connection.receive().unwrap();
    assert!(trailers.kind == kind::HEADERS && trailers.is_last(), "{trailers:?}");
}

#[test]
fn a_head_has_a_length_and_no_body() {
    let server = serve([("/a", answer("hello"))], |_, _| {});
    let mut connection = open(&server);
    connection.frame(&Frame::headers(1, flag::END_STREAM, &request("HEAD", "shop.test", "/a")));
    let head = connection.until(|frame| frame.stream == 1).unwrap();
    assert_eq!((head.status(), head.is_last()), (Some(200), true));
    assert_eq!(connection.get(3, "shop.test", "/a").status(), Some(200));
}

#[test]
fn bodies_and_trailers_reach_the_guest() {
    let script = vec![Act::Begin(200, vec![]), Act::Echo, Act::WriteRequest, Act::Finish(vec![])];
    let server = serve([("/e", script)], |_, _| {});
    let mut connection = open(&server);
    connection.frame(&Frame::headers(1, 0, &request("PUT", "shop.test", "/e")));
    connection.frame(&Frame::new(kind::DATA, 0, 1, "hello"));
    connection.frame(&Frame::headers(1, flag::END_STREAM, &[("x-sum", "7")]));
    let End::Response { status: 200, body } = connection.end_of(1) else { panic!("no response") };
    let body = String::from_utf8(body).unwrap();
    assert_eq!(body, "helloPUT /e shop.test [(\"x-sum\", \"7\")]");
}

#[test]
fn large_bodies_arrive_whole() {
    let body: Bytes = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let whole = vec![Act::Begin(200, vec![]), Act::Write(body.clone()), Act::Finish(vec![])];
    let streamed =
        vec![Act::Begin(200, vec![]), Act::Slice, Act::Write(body.clone()), Act::Finish(vec![])];
    let server = serve([("/whole", whole), ("/streamed", streamed)], |_, _| {});
    let mut connection = open(&server);
    for (stream, path) in [(1, "/whole"), (3, "/streamed")] {
        let end = connection.get(stream, "shop.test", path);
        assert!(end == End::Response { status: 200, body: body.to_vec() }, "{path}");
    }
}

#[test]
fn a_response_that_breaks_off_resets_its_stream_alone() {
    let broken =
        vec![Act::Begin(200, vec![]), Act::Write("part".into()), Act::Slice, Act::Fault(trap)];
    let server = serve([("/broken", broken), ("/ok", answer("ok"))], |_, _| {});
    let mut connection = open(&server);
    assert!(matches!(connection.get(1, "shop.test", "/broken"), End::Reset(_)));
    assert_eq!(connection.get(3, "shop.test", "/ok").status(), Some(200));
}

#[test]
fn a_client_that_resets_its_stream_gives_its_sandbox_back() {
    let (entered, never) = (Gate::new(), Gate::new());
    let stuck = vec![Act::Open(entered.clone()), Act::Wait(never)];
    let server = serve([("/stuck", stuck), ("/ok", answer("ok"))], |tenant, _| {
        tenant.admission.concurrency = 1;
    });
    let mut connection = open(&server);
    connection.frame(&get(1, "/stuck"));
    wait(&entered);
    connection.frame(&Frame::new(kind::RST_STREAM, 0, 1, code::CANCEL.to_be_bytes()));
    // With room for one exchange, this waits until the other one is gone.
    assert_eq!(connection.get(3, "shop.test", "/ok").status(), Some(200));
    assert_eq!(server.stop().clients_gone, 1);
}

#[test]
fn a_client_without_a_window_loses_its_sandbox_at_the_deadline() {
    let piece = Act::Write(Bytes::from(vec![b'x'; 64 << 10]));
    let flood = [vec![Act::Begin(200, vec![])], vec![piece; 4000], vec![Act::Finish(vec![])]];
    let server = serve([("/flood", flood.concat()), ("/ok", answer("ok"))], |tenant, _| {
        tenant.admission.concurrency = 1;
        tenant.limits.response_body = u64::MAX;
        tenant.limits.wall_time = Duration::from_millis(100);
    });
    for window in [0, 1, 100_000] {
        let mut connection = Connection::with(server.address, &[(WINDOW, window)]);
        connection.frame(&get(1, "/flood"));
        connection.until(|frame| frame.status() == Some(200)).unwrap();
        let end = connection.until(|frame| frame.kind == kind::RST_STREAM).unwrap();
        assert_eq!(end.code(), Some(code::CANCEL));
        // What it was sent has used up the window of the connection, too.
        connection.frame(&Frame::new(kind::WINDOW_UPDATE, 0, 0, 65_535u32.to_be_bytes()));
        connection.frame(&Frame::settings(&[(WINDOW, 65_535)]));
        assert_eq!(connection.get(3, "shop.test", "/ok").status(), Some(200));
    }
    assert_eq!(server.stop().all_faults(), 3, "deadlines");
}

#[test]
fn a_response_that_nobody_takes_is_let_go_of() {
    let big = vec![
        Act::Begin(200, vec![]),
        Act::Write(Bytes::from(vec![b'x'; 1 << 20])),
        Act::Finish(vec![]),
    ];
    let server = serve([("/big", big)], |tenant, _| {
        tenant.limits.response_time = Duration::from_millis(50);
    });
    let mut connection = Connection::with(server.address, &[(WINDOW, 10)]);
    connection.frame(&get(1, "/big"));
    let end = connection.until(|frame| frame.kind == kind::RST_STREAM).unwrap();
    assert_eq!((end.stream, end.code()), (1, Some(code::CANCEL)));
}

#[test]
fn whom_a_request_is_for_is_said_once() {
    let server = serve([("/", answer("x"))], |_, _| {});
    let mut connection = open(&server);
    let head = |authority: &'static [&'static str], hosts: &'static [&'static str]| {
        let mut head = vec![(":method", "GET"), (":scheme", "http"), (":path", "/")];
        head.extend(authority.iter().map(|name| (":authority", *name)));
        head.extend(hosts.iter().map(|name| ("host", *name)));
        head
    };
    let cases = [
        (head(&["shop.test"], &[]), 200),
        (head(&[], &["shop.test"]), 200),
        (head(&["shop.test"], &["SHOP.test"]), 200),
        (head(&["shop.test"], &["other.test"]), 400),
        (head(&["shop.test"], &["shop.test", "shop.test"]), 400),
        (head(&[], &[]), 400),
        (head(&["me@shop.test"], &[]), 400),
        (head(&[], &["shop.test, other.test"]), 400),
    ];
    for (stream, (head, status)) in (1..).step_by(2).zip(cases) {
        connection.frame(&Frame::headers(stream, flag::END_STREAM, &head));
        assert_eq!(connection.end_of(stream).status(), Some(status), "{head:?}");
    }
}

#[test]
fn floods_end_the_connection() {
    let server = serve([("/", answer("x"))], |_, options| options.max_head = 16 << 10);
    // Streams that are reset before they are looked at.
    let mut connection = open(&server);
    for stream in (1..2001).step_by(2) {
        let reset = Frame::new(kind::RST_STREAM, 0, stream, code::CANCEL.to_be_bytes());
        if !connection.send(&[get(stream, "/").bytes(), reset.bytes()].concat()) {
            break;
        }
    }
    assert!(matches!(connection.closed(), None | Some(code::ENHANCE_YOUR_CALM)));
    // Heads that never end.
    let mut connection = open(&server);
    let begin = Frame::new(kind::HEADERS, 0, 1, h2::block(&h2::get("shop.test", "/")));
    connection.frame(&begin);
    let more = Frame::new(kind::CONTINUATION, 0, 1, h2::block(&[("x", &"y".repeat(8000))]));
    while connection.frame(&more) {}
    connection.closed();
    assert_eq!(open(&server).get(1, "shop.test", "/").status(), Some(200));
}

#[test]
fn many_streams_given_up_one_by_one_end_the_connection() {
    let (entered, never) = (Gate::new(), Gate::new());
    let stuck = vec![Act::Open(entered.clone()), Act::Wait(never)];
    let server = serve([("/stuck", stuck)], |_, _| {});
    let mut connection = open(&server);
    for stream in (1..1001).step_by(2) {
        connection.frame(&get(stream, "/stuck"));
        let reset = Frame::new(kind::RST_STREAM, 0, stream, code::CANCEL.to_be_bytes());
        connection.frame(&reset);
        // Its answer says that all before it was looked at.
        connection.frame(&Frame::new(kind::PING, 0, 0, [0; 8]));
        if connection.until(|frame| frame.kind == kind::PING).is_none() {
            assert!(stream > 200);
            return;
        }
    }
    panic!("nobody minds");
}

#[test]
fn too_much_of_a_head_is_431() {
    let server = serve([("/", answer("x"))], |_, options| {
        (options.max_head, options.max_headers) = (8 << 10, 10);
    });
    let mut connection = open(&server);
    let names: Vec<_> = (0..20).map(|i| format!("x-{i}")).collect();
    let mut head = h2::get("shop.test", "/").to_vec();
    head.extend(names.iter().map(|name| (name.as_str(), "1")));
    connection.frame(&Frame::headers(1, flag::END_STREAM, &head));
    assert_eq!(connection.end_of(1).status(), Some(431));
    let long = "y".repeat(9 << 10);
    let head = [&h2::get("shop.test", "/")[..], &[("x", &long)]].concat();
    connection.frame(&Frame::headers(3, flag::END_STREAM, &head));
    assert_eq!(connection.end_of(3).status(), Some(431));
    assert_eq!(server.fake.stats.runs.load(SeqCst), 0);
}

#[test]
fn who_does_not_finish_the_preface_is_sent_away() {
    let server = serve([("/", answer("x"))], |_, options| {
        options.head_timeout = Duration::from_millis(50);
    });
    for length in [1, 10, h2::PREFACE.len() - 1] {
        let mut connection = Connection::bare(server.address);
        connection.send(&h2::PREFACE[..length]);
        assert_eq!(connection.closed(), None);
    }
    // Nor does a connection stay that has no request.
    assert_eq!(open(&server).closed(), Some(code::NO_ERROR));
}

#[test]
fn a_shutdown_says_goodbye_and_ends_what_has_begun() {
    let (entered, gate) = (Gate::new(), Gate::new());
    let script =
        [vec![Act::Open(entered.clone()), Act::Wait(gate.clone())], answer("late")].concat();
    let mut server = serve([("/late", script)], |_, _| {});
    let mut connection = open(&server);
    connection.frame(&get(1, "/late"));
    wait(&entered);
    server.begin_stop();
    connection.until(|frame| frame.kind == kind::GOAWAY).unwrap();
    gate.open();
    assert_eq!(connection.end_of(1), End::Response { status: 200, body: b"late".to_vec() });
    assert_eq!(connection.closed(), Some(code::NO_ERROR));
    server.stop();
}
