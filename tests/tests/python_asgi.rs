//! ASGI applications in process: docs/python.md. Each path of `tests/apps/sink.py` is one thing to see.

use serde_json::{Value, json};

use sandtide_tests::{Curl, Request, Server, has_tools};

fn sink() -> Server {
    Server::application("sink:app", &[])
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn an_application_is_told_what_was_asked() {
    let server = sink();
    let target = "/scope/a%20b%2Fc%C3%A4?x=1&y=%20";
    let request = Request::get("shop", target).header("X-Twice", "1").header("X-Twice", "2");
    let scope = json(server.ask(&request).text());
    assert_eq!(scope["type"], "http");
    assert_eq!(scope["asgi"]["version"], "3.0");
    assert_eq!(scope["http_version"], "1.1");
    assert_eq!(scope["method"], "GET");
    assert_eq!(scope["scheme"], "http");
    assert_eq!(scope["path"], "/scope/a b/cä");
    assert_eq!(scope["raw_path"], "/scope/a%20b%2Fc%C3%A4");
    assert_eq!(scope["query_string"], "x=1&y=%20");
    assert_eq!(scope["root_path"], "");
    assert_eq!(scope["client"][0], "127.0.0.1");
    assert_eq!(scope["server"], json!(["127.0.0.1", server.address().port()]));
    assert_eq!(scope["state"], json!({ "started": true }));
    let headers = scope["headers"].as_array().expect("an array");
    let twice: Vec<_> = headers.iter().filter(|pair| pair[0] == "x-twice").collect();
    assert_eq!(twice, [&json!(["x-twice", "1"]), &json!(["x-twice", "2"])]);
}

#[test]
fn requests_of_a_connection_follow_one_another() {
    let server = sink();
    let mut client = server.connect();
    for _ in 0..100 {
        let answer = client.ask(&Request::get("x", "/hello"));
        assert_eq!((answer.status(), answer.text()), (200, "Hello, World!\n"));
        assert_eq!(answer.header("content-type"), Some("text/plain"));
    }
    assert_eq!(client.ask(&Request::get("x", "/nowhere")).status(), 404);
}

#[test]
fn bodies_stream_both_ways() {
    let server = sink();
    let body: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    for path in ["/echo", "/through"] {
        let mut client = server.connect();
        for length in [0, 1, 70_000, body.len()] {
            let post = Request::new("POST", "x", path).body(&body[..length]);
            assert_eq!(client.ask(&post).body, &body[..length], "{path} {length}");
        }
    }
    assert_eq!(server.get("x", "/stream").text(), "0\n1\n2\n3\n4\n");
    // A piece is answered before the next is sent.
    let mut client = server.connect();
    client
        .send(b"POST /through HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    client.try_head("POST").expect("a head");
    assert_eq!(client.try_piece().expect("a piece"), b"a");
    client.send(b"1\r\nb\r\n");
    assert_eq!(client.try_piece().expect("a piece"), b"b");
    client.send(b"0\r\n\r\n");
    assert_eq!(client.try_piece().expect("the end"), b"");
}

#[test]
fn who_does_not_read_makes_the_application_wait() {
    let server = sink();
    let mut client = server.connect();
    client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    client.try_head("GET").expect("a head");
    // Whoever asks in between sees that it does not go on without end.
    let sent = |server: &Server| server.get("x", "/sent").text().parse::<u32>().expect("a number");
    let mut before = sent(&server);
    loop {
        let after = sent(&server);
        if after == before {
            break;
        }
        before = after;
    }
    assert!(before < 512, "{before} of 1024 pieces were sent to nobody");
    drop(client);
    let whole = server.get("x", "/large");
    assert_eq!(whole.body.len(), 64 << 20);
}

#[test]
fn responses_have_trailers_files_and_hints() {
    let server = sink();
    let request = Request::get("x", "/trailers").header("TE", "trailers");
    let answer = server.ask(&request);
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("body", Some("42")));
    let source = include_str!("../apps/sink.py");
    assert_eq!(server.get("x", "/file").text(), source);
    if has_tools(&["curl"]) {
        let address = server.address().to_string();
        let got = Curl::new(&address, "http://x/hint").arg("-i").get();
        assert!(got.text().starts_with("HTTP/1.1 103 "), "{}", got.text());
        assert!(got.text().contains("link: </style.css>; rel=preload"), "{}", got.text());
        assert!(got.text().ends_with("\r\n\r\nhinted"), "{}", got.text());
    }
}

#[test]
fn a_task_answers_and_asyncio_knows_it() {
    let server = sink();
    let found = json(server.get("x", "/task").text());
    let expected = json!({ "task": true, "same": true, "both": ["a", "set"], "all": true });
    assert_eq!(found, expected);
    // What one request sets in its context, no other sees.
    assert_eq!(server.get("x", "/context").text(), "unset");
    assert_eq!(server.get("x", "/children").text(), "empty");
    assert_eq!(server.get("x", "/subprocess").text(), "from a child\n");
    assert_eq!(server.get("x", "/fetch").text(), "Hello, World!\n");
}

#[test]
fn exceptions_are_answered_and_shown() {
    let server = sink();
    let mut client = server.connect();
    let answer = client.ask(&Request::get("x", "/raise"));
    assert_eq!(answer.status(), 500);
    assert!(!answer.text().contains("on purpose"), "{}", answer.text());
    server.log.wait("the traceback", |line| line == "ValueError: on purpose");
    let report = server.log.report(answer.id());
    assert!(report.contains("ValueError: on purpose"), "{report}");
    assert_eq!(client.ask(&Request::get("x", "/silent")).status(), 500);
    let twice = client.ask(&Request::get("x", "/twice"));
    assert_eq!(twice.text(), "the response has been started already");
    // What has begun cannot be taken back: it is cut off.
    client.send(b"POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n");
    client.try_head("POST").expect("a head");
    assert_eq!(client.try_piece().expect("a piece"), b"half");
    client.send(b"x");
    assert!(client.try_piece().is_err());
    assert_eq!(server.get("x", "/hello").status(), 200);
}

#[test]
fn an_application_learns_that_its_client_has_gone() {
    let server = sink();
    let mut client = server.connect();
    client.send(b"GET /disconnect HTTP/1.1\r\nHost: x\r\n\r\n");
    // It waits by now, since what it is asked later has been answered.
    assert_eq!(server.get("x", "/hello").status(), 200);
    drop(client);
    server.log.wait("the application has noticed", |line| line == "gone");
    assert_eq!(server.get("x", "/after").text(), "answered");
    server.log.wait("the end is told", |line| line == "after: http.disconnect");
}

#[test]
fn work_goes_on_behind_the_answer() {
    let server = sink();
    assert_eq!(server.get("x", "/background").text(), "answered");
    while server.get("x", "/sent").text() != "1" {}
}

#[test]
fn http2_is_served_alike() {
    let server = sink();
    if !has_tools(&["curl"]) {
        return;
    }
    let got = Curl::new(&server.address().to_string(), "http://shop.test/scope").h2c().get();
    let scope = json(got.text());
    assert_eq!(scope["http_version"], "2");
    let headers = scope["headers"].as_array().expect("an array");
    let host = headers.iter().find(|pair| pair[0] == "host").expect("a host");
    assert_eq!(host[1], "shop.test");
}

#[test]
fn the_end_is_announced() {
    let mut server = sink();
    assert_eq!(server.get("x", "/hello").status(), 200);
    server.terminate();
    assert!(server.wait().success());
    assert!(server.log.since(0).iter().any(|line| line == "lifespan: shut down"));
}

#[test]
fn what_cannot_be_imported_is_shown_as_python_shows_it() {
    for (target, last) in [
        ("nowhere:app", "ModuleNotFoundError: No module named 'nowhere'"),
        ("sink:nothing", "AttributeError: module 'sink' has no attribute 'nothing'"),
        ("broken:app", "ZeroDivisionError: division by zero"),
        ("failing:app", "LifespanFailed: no database"),
    ] {
        let mut server = Server::begin_application(target, &[]);
        let status = server.wait();
        assert!(!status.success(), "{target}");
        let lines = server.log.since(0);
        assert!(
            lines.iter().any(|line| line == last || line.ends_with(&format!(".{last}"))),
            "{target}: {lines:#?}"
        );
    }
}
