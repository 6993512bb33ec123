//! The host over real sockets, with scripted guests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
#[path = "../../runtime/tests/fake/mod.rs"]
mod fake;

use std::{io::ErrorKind, sync::atomic::Ordering::SeqCst, time::Duration};

use bytes::Bytes;
use client::{get, serve};
use fake::{Act, Gate, answer, trap};
use sandtide_engine::Isolation;
use sandtide_http::{Address, BindError, Options, Server};

fn streamed(gate: &std::sync::Arc<Gate>) -> Vec<Act> {
    vec![
        Act::Begin(200, vec![("trailer", "x-sum")]),
        Act::Write("one ".into()),
        Act::Wait(gate.clone()),
        Act::Write("two".into()),
        Act::Finish(vec![("x-sum", "7"), ("x-unannounced", "1")]),
    ]
}

#[test]
fn responses_on_one_connection() {
    let server = serve([("/a", answer("hello")), ("/b", answer("there"))], |_, _| {});
    let mut client = server.connect();
    for (path, text) in [("/a", "hello"), ("/b", "there"), ("/a", "hello")] {
        client.send(get(path));
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, text));
        assert_eq!(response.header("content-type"), Some("text/plain"));
        assert_eq!(response.header("content-length"), Some("5"));
        assert!(response.header("date").is_some());
        assert_eq!(response.header("transfer-encoding"), None);
    }
    drop(client);
    let totals = server.stop();
    assert_eq!((totals.exchanges, totals.spawned), (3, 1));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let gate = Gate::new();
    gate.open();
    let server = serve([("/a", answer("hello")), ("/s", streamed(&gate))], |_, _| {});
    let mut client = server.connect();
    let batch = [get("/a"), get("/s"), get("/a")].concat();
    client.send(batch.repeat(20));
    for _ in 0..20 {
        assert_eq!(client.response().text(), "hello");
        assert_eq!(client.response().text(), "one two");
        assert_eq!(client.response().text(), "hello");
    }
}

#[test]
fn a_stream_is_sent_as_it_comes_even_before_a_pipelined_request() {
    let gate = Gate::new();
    let server = serve([("/s", streamed(&gate)), ("/a", answer("hello"))], |_, _| {});
    let mut client = server.connect();
    client.send(get("/s") + &get("/a"));
    // The head and the first piece come although the guest waits, and another request does.
    let seen = client.take_until("one \r\n");
    assert!(seen.contains("transfer-encoding: chunked"));
    gate.open();
    let rest = client.take(b"3\r\ntwo\r\n0\r\n\r\n".len()).unwrap();
    assert_eq!(rest, b"3\r\ntwo\r\n0\r\n\r\n", "no trailers without `te`");
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn trailers_reach_who_accepts_them() {
    let gate = Gate::new();
    gate.open();
    let whole = vec![
        Act::Begin(200, vec![]),
        Act::Write("x".into()),
        Act::Finish(vec![("x-sum", "7"), ("content-length", "99")]),
    ];
    let server = serve([("/s", streamed(&gate)), ("/w", whole)], |_, _| {});
    let mut client = server.connect();
    for path in ["/s", "/w"] {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\nte: trailers\r\n\r\n"));
        let response = client.response();
        assert!(response.trailers.contains(&("x-sum".into(), "7".into())), "{response:?}");
        let forged = response.trailers.iter().any(|(name, _)| name == "content-length");
        assert!(!forged);
        client.send(get(path));
        assert!(client.response().trailers.is_empty());
    }
}

#[test]
fn chunked_requests_with_trailers_reach_the_guest() {
    let script = vec![Act::Begin(200, vec![]), Act::Echo, Act::WriteRequest, Act::Finish(vec![])];
    let server = serve([("/e?q=1", vec![]), ("/e", script)], |_, _| {});
    let mut client = server.connect();
    client.send(
        "PUT /e?q=1 HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\
         trailer: x-sum\r\n\r\n5\r\nhello\r\n",
    );
    client.send("1\r\n \r\n0\r\nx-sum: 7\r\n\r\n");
    let response = client.response();
    assert_eq!(response.text(), "hello PUT /e?q=1 shop.test [(\"x-sum\", \"7\")]");
    client.send("POST /e HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 3\r\n\r\nabc");
    assert!(client.response().text().starts_with("abcPOST /e"));
}

#[test]
fn bodies_over_the_limit_get_413() {
    let script = vec![Act::Begin(200, vec![]), Act::Echo, Act::Finish(vec![])];
    let late = vec![Act::Echo, Act::Begin(200, vec![]), Act::Finish(vec![])];
    let server = serve([("/e", script), ("/late", late)], |tenant, _| {
        tenant.limits.request_body = 4;
    });
    let mut client = server.connect();
    client.send("POST /e HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 5\r\n\r\nabcde");
    assert_eq!(client.response().status, 413);
    assert_eq!(server.fake.stats.runs.load(SeqCst), 0, "an announced length needs no guest");
    let mut client = server.connect();
    client.send(
        "POST /e HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n",
    );
    let status = client.try_response(true).map(|response| response.status);
    assert!(matches!(status, Ok(413) | Err(_)), "never a complete 200: {status:?}");
}

#[test]
fn heads_have_no_body_and_run_the_guest_to_its_end() {
    let gate = Gate::new();
    gate.open();
    let claimed = vec![Act::Begin(200, vec![("content-length", "12")]), Act::Finish(vec![])];
    let scripts = [
        ("/a", answer("hello")),
        ("/s", streamed(&gate)),
        ("/c", claimed),
        ("/204", vec![Act::Begin(204, vec![]), Act::Write("x".into()), Act::Finish(vec![])]),
        (
            "/304",
            vec![
                Act::Begin(304, vec![("etag", "\"x\""), ("content-length", "5")]),
                Act::Slice,
                Act::Write("hello".into()),
                Act::Finish(vec![]),
            ],
        ),
    ];
    let server = serve(scripts, |tenant, _| tenant.isolation = Isolation::None);
    let mut client = server.connect();
    let head = |path: &str| format!("HEAD {path} HTTP/1.1\r\nhost: shop.test\r\n\r\n");
    client.send(head("/a"));
    assert_eq!(client.head_response().header("content-length"), Some("5"));
    client.send(head("/s"));
    assert_eq!(client.head_response().status, 200);
    client.send(head("/c"));
    assert_eq!(client.head_response().header("content-length"), Some("12"));
    for (path, status) in [("/204", 204), ("/304", 304)] {
        client.send(get(path));
        assert_eq!(client.response().status, status);
    }
    client.send(get("/a"));
    assert_eq!(client.response().text(), "hello", "the connection is in step");
    drop(client);
    let stats = &server.fake.stats;
    assert_eq!((stats.keeps.load(SeqCst), stats.resets.load(SeqCst)), (6, 0), "no state was lost");
}

#[test]
fn a_fault_before_the_head_is_an_error_page() {
    let scripts = [
        ("/trap", vec![Act::Fault(trap)]),
        ("/panic", vec![Act::Panic]),
        ("/engine", vec![Act::Engine]),
        ("/spin", vec![Act::Spin]),
        ("/never", vec![Act::WaitForever(None)]),
        ("/ok", answer("ok")),
    ];
    let server = serve(scripts, |tenant, _| tenant.limits.wall_time = Duration::from_millis(30));
    let mut client = server.connect();
    let cases =
        [("/trap", 502), ("/panic", 500), ("/engine", 500), ("/spin", 504), ("/never", 504)];
    for (path, status) in cases {
        client.send(get(path));
        let response = client.response();
        assert_eq!(response.status, status, "{path}");
        let id = response.header("x-request-id").unwrap();
        assert_eq!(id.len(), 16);
        assert!(response.text().contains(id) && !response.text().contains("secret"));
        client.send(get("/ok"));
        assert_eq!(client.response().text(), "ok", "the connection lives on");
    }
    for (host, status) in [("down.test", 503), ("nobody.test", 404), ("FIXED.test:80", 200)] {
        client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        let response = client.response();
        assert_eq!(response.status, status);
        assert!(!response.text().contains("secret"));
    }
}

#[test]
fn a_fault_after_the_head_breaks_the_connection() {
    let broken = |headers| {
        vec![Act::Begin(200, headers), Act::Write("part".into()), Act::Slice, Act::Fault(trap)]
    };
    let scripts = [
        ("/chunked", broken(vec![])),
        ("/length", broken(vec![("content-length", "100")])),
        (
            "/short",
            vec![
                Act::Begin(200, vec![("content-length", "100")]),
                Act::Slice,
                Act::Write("part".into()),
                Act::Finish(vec![]),
            ],
        ),
        (
            "/long",
            vec![
                Act::Begin(200, vec![("content-length", "3")]),
                Act::Slice,
                Act::Write("parts".into()),
                Act::Finish(vec![]),
            ],
        ),
    ];
    let server = serve(scripts, |_, _| {});
    for path in ["/chunked", "/length", "/short", "/long"] {
        let mut client = server.connect();
        client.send(get(path));
        let result = client.try_response(true);
        assert!(result.is_err(), "{path} must not look complete: {result:?}");
    }
    // HTTP/1.0 without a length ends with the connection: only a reset can say that it broke.
    let mut client = server.connect();
    client.send("GET /chunked HTTP/1.0\r\nhost: shop.test\r\n\r\n");
    let mut received = Vec::new();
    let error = std::io::Read::read_to_end(&mut client.stream, &mut received).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn guests_do_not_own_the_framing() {
    let hostile = vec![
        Act::Begin(
            200,
            vec![
                ("content-length", "1"),
                ("content-length", "2"),
                ("transfer-encoding", "gzip, chunked"),
                ("connection", "close, x-hop"),
                ("x-hop", "1"),
                ("keep-alive", "timeout=1"),
                ("upgrade", "h2c"),
                ("x-kept", "1"),
            ],
        ),
        Act::Write("hello".into()),
        Act::Finish(vec![]),
    ];
    let streamed = [vec![hostile[0].clone(), Act::Slice], hostile[1..].to_vec()].concat();
    let server = serve([("/w", hostile), ("/s", streamed)], |_, _| {});
    let mut client = server.connect();
    for path in ["/w", "/s", "/w"] {
        client.send(get(path));
        let response = client.response();
        assert_eq!(response.text(), "hello");
        assert_eq!(response.header("x-kept"), Some("1"));
        for name in ["connection", "x-hop", "keep-alive", "upgrade"] {
            assert_eq!(response.header(name), None, "{path}: {name}");
        }
    }
}

#[test]
fn requests_that_are_no_http_are_refused() {
    let server = serve([("/", answer("x")), ("/a", answer("x"))], |_, _| {});
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: shop.test\r\nhost: other.test\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: shop\u{e9}.test\r\n\r\n",
        "CONNECT shop.test:80 HTTP/1.1\r\nhost: shop.test\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST / HTTP/1.1\r\nhost: shop.test\r\ntransfer-encoding: gzip\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: shop.test\r\nx y: z\r\n\r\n",
        "nonsense\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(request);
        assert_eq!(client.response().status, 400, "{request:?}");
    }
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nhost: shop.test\r\nx: {}\r\n\r\n", "y".repeat(70_000)));
    assert_eq!(client.response().status, 431);
    assert_eq!(server.fake.stats.runs.load(SeqCst), 0);
    let mut client = server.connect();
    client.send("GET http://shop.test/a HTTP/1.1\r\nhost: other.test\r\n\r\n");
    assert_eq!(client.response().status, 200, "the target's authority counts");
    let mut client = server.connect();
    client.send("GET / HTTP/1.0\r\nhost: shop.test\r\n\r\n");
    assert_eq!(client.response().text(), "x");
    client.end().unwrap();
}

#[test]
fn a_client_that_leaves_gives_its_sandbox_back() {
    let (entered, never) = (Gate::new(), Gate::new());
    let stuck = vec![Act::Open(entered.clone()), Act::Wait(never)];
    let body = vec![Act::Begin(200, vec![]), Act::Echo, Act::Finish(vec![])];
    let scripts = [("/stuck", stuck), ("/body", body), ("/ok", answer("ok"))];
    let server = serve(scripts, |tenant, _| tenant.admission.concurrency = 1);
    let wait = |gate: &Gate| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(gate.opened());
    };
    let mut client = server.connect();
    client.send(get("/stuck"));
    wait(&entered);
    drop(client);
    // With room for one exchange, this waits until the other one is gone.
    assert_eq!(server.get("/ok").text(), "ok");
    let mut client = server.connect();
    client.send("POST /body HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 9\r\n\r\npart");
    drop(client);
    assert_eq!(server.get("/ok").text(), "ok");
    let stats = server.fake.stats.clone();
    let totals = server.stop();
    assert_eq!(stats.spawned.load(SeqCst), 1);
    assert!(totals.clients_gone >= 1);
}

#[test]
fn a_client_that_does_not_read_loses_its_sandbox_at_the_deadline() {
    let piece = Act::Write(Bytes::from(vec![b'x'; 64 << 10]));
    let flood = [vec![Act::Begin(200, vec![])], vec![piece; 4000], vec![Act::Finish(vec![])]];
    let server = serve([("/flood", flood.concat()), ("/ok", answer("ok"))], |tenant, _| {
        tenant.admission.concurrency = 1;
        tenant.limits.response_body = u64::MAX;
        tenant.limits.wall_time = Duration::from_millis(100);
    });
    let mut client = server.connect();
    client.send(get("/flood"));
    // Its first bytes are here, so that it holds the sandbox; no more of it is read.
    assert_eq!(client.take(12).unwrap(), b"HTTP/1.1 200");
    assert_eq!(server.get("/ok").text(), "ok");
    let result = loop {
        if let Err(error) = client.take(1 << 20) {
            break error;
        }
    };
    assert_eq!(result, ErrorKind::ConnectionReset);
    assert_eq!(server.stop().all_faults(), 1, "a deadline");
}

#[test]
fn large_bodies_arrive_whole() {
    let body: Bytes = (0..5_000_000u32).map(|i| (i % 251) as u8).collect();
    let whole = vec![Act::Begin(200, vec![]), Act::Write(body.clone()), Act::Finish(vec![])];
    let echo = vec![Act::Begin(200, vec![]), Act::Echo, Act::Finish(vec![])];
    let server = serve([("/whole", whole), ("/echo", echo)], |_, _| {});
    let mut client = server.connect();
    client.send(get("/whole").repeat(3));
    for _ in 0..3 {
        assert!(client.response().body == body);
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sent = body.clone();
    let thread = std::thread::spawn(move || {
        use std::io::Write as _;
        let head = format!(
            "POST /echo HTTP/1.1\r\nhost: shop.test\r\ncontent-length: {}\r\n\r\n",
            sent.len()
        );
        sender.write_all(head.as_bytes()).unwrap();
        sender.write_all(&sent).unwrap();
    });
    assert!(client.response().body == body);
    thread.join().unwrap();
}

#[test]
fn a_spinning_tenant_does_not_stop_the_others() {
    let server = serve([("/spin", vec![Act::Spin]), ("/ok", answer("ok"))], |tenant, _| {
        tenant.limits.wall_time = Duration::from_millis(500);
    });
    let mut spinning: Vec<_> = (0..8).map(|_| server.connect()).collect();
    spinning.iter_mut().for_each(|client| client.send(get("/spin")));
    let mut quiet = server.connect();
    for _ in 0..100 {
        quiet.send("GET / HTTP/1.1\r\nhost: fixed.test\r\n\r\n");
        assert_eq!(quiet.response().text(), "fixed");
    }
    for mut client in spinning {
        assert_eq!(client.response().status, 504);
    }
}

#[test]
fn a_shutdown_ends_what_has_begun_and_nothing_else_begins() {
    let (entered, gate) = (Gate::new(), Gate::new());
    let script =
        [vec![Act::Open(entered.clone()), Act::Wait(gate.clone())], answer("late")].concat();
    let mut server = serve([("/late", script), ("/ok", answer("ok"))], |_, _| {});
    let mut idle = server.connect();
    idle.send(get("/ok"));
    idle.response();
    let mut busy = server.connect();
    busy.send(get("/late"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(entered.opened());
    server.begin_stop();
    idle.end().unwrap();
    gate.open();
    assert_eq!(busy.response().text(), "late");
    busy.end().unwrap();
    assert_eq!(server.stop().exchanges, 2);
}

#[test]
fn a_shutdown_cuts_off_what_does_not_end() {
    let never = Gate::new();
    let entered = Gate::new();
    let script = vec![Act::Open(entered.clone()), Act::Wait(never)];
    let mut server = serve([("/stuck", script)], |_, options| {
        options.drain = Duration::from_millis(20);
    });
    let mut client = server.connect();
    client.send(get("/stuck"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(entered.opened());
    server.begin_stop();
    assert!(client.try_response(true).is_err());
    server.stop();
}

#[test]
fn an_address_in_use_is_said_to_be() {
    let server = serve([("/", answer("x"))], |_, _| {});
    let error = Server::bind(&[server.address.into()], None, Options::default()).unwrap_err();
    assert!(matches!(error, BindError::InUse(Address::Tcp(address)) if address == server.address));
    assert!(error.to_string().contains("in use"));
    assert!(error.hint().unwrap().contains(&server.address.port().to_string()));
}

#[test]
fn all_threads_serve() {
    let server = serve([("/", answer("x"))], |_, options| options.threads = 4);
    for _ in 0..50 {
        assert_eq!(server.get("/").status, 200);
    }
    let totals = server.stop();
    assert_eq!(totals.exchanges, 50);
    assert!(totals.spawned > 1, "each thread has a pool of its own");
}
