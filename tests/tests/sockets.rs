//! Ordinary HTTP servers as programs: docs/sockets.md. Each test runs on each engine that is here.
//!
//! The guest is `tests/guests/suite_sockets.c`.

use std::{path::PathBuf, time::Duration};

use sandtide_tests::{
    Client, Request, Response, Server, binary::top, guest, guest::native, h2, log::field,
};

/// The guest for each engine that is here.
fn programs() -> Vec<(&'static str, PathBuf)> {
    let source = top().join("tests/guests/suite_sockets.c");
    let engines = [("riscv", guest("suite_sockets.c")), ("kvm", native(&source))];
    engines.into_iter().filter_map(|(engine, program)| Some((engine, program?))).collect()
}

fn tenant(name: &str, program: &PathBuf, env: &str, lines: &str) -> String {
    format!(
        "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
         env = {{ {env} }}\n{lines}\n"
    )
}

/// Does the same on each engine, with a server of the tenant `guest` in this mode.
fn on_each(mode: &str, lines: &str, test: impl Fn(&Server)) {
    for (engine, program) in programs() {
        eprintln!("engine {engine}, mode {mode}");
        let env = format!("MODE = \"{mode}\"");
        test(&Server::start(&tenant("guest", &program, &env, lines)));
    }
}

fn get(target: &str) -> Request {
    Request::get("guest", target)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

fn text(server: &Server, target: &str) -> String {
    let response = server.get("guest", target);
    assert_eq!(response.status(), 200, "{target}: {response:?}");
    response.text().to_owned()
}

/// The status, and what the log says of the exchange.
fn failure(server: &Server, target: &str) -> (u16, String) {
    let mark = server.log.mark();
    let response = server.get("guest", target);
    let line = server.log.wait_since(mark, target, |line| {
        line.contains("sandtide::exchange") && line.contains(&format!("path=\"{target}\""))
    });
    (response.status(), line)
}

#[test]
fn each_request_is_the_first_however_the_server_waits() {
    for (engine, program) in programs() {
        let modes = ["blocking", "poll", "epoll", "threads"];
        let tenants: String =
            modes.map(|mode| tenant(mode, &program, &format!("MODE = \"{mode}\""), "")).concat();
        let server = Server::start(&tenants);
        for mode in modes {
            let mut client = server.connect();
            for _ in 0..20 {
                let answer = client.ask(&Request::get(mode, "/count"));
                assert_eq!((answer.status(), answer.text()), (200, "1"), "{engine}, {mode}");
            }
            // The connection on which it waits was accepted before the snapshot.
            let answer = client.ask(&Request::get(mode, "/connections"));
            assert_eq!(answer.text(), "1", "{engine}, {mode}");
        }
    }
}

#[test]
fn streams_of_http2_are_exchanges_of_their_own() {
    on_each("epoll", "", |server| {
        let mut connection = h2::Connection::open(server.address());
        let streams = [1, 3, 5, 7, 9];
        for stream in streams {
            connection.frame(&h2::Frame::headers(stream, 0x5, &h2::get("guest.test", "/count")));
        }
        let mut answers = Vec::new();
        while answers.len() < streams.len() {
            let frame = connection.receive().expect("answers");
            if frame.kind == h2::kind::DATA && !frame.payload.is_empty() {
                answers.push(frame.payload);
            }
        }
        assert_eq!(answers, [b"1"; 5]);
    });
}

#[test]
fn a_server_listens_where_it_likes() {
    for (engine, program) in programs() {
        let places = [
            ("v4", "127.0.0.1 8080\n127.0.0.1 40000\n"),
            ("v6", "::ffff:127.0.0.1 8080\n::ffff:127.0.0.1 40000\n"),
            ("any", "127.0.0.1 49152\n127.0.0.1 40000\n"),
            ("unix", "/run/guest.sock 0\n 0\n"),
        ];
        let tenants: String = places
            .map(|(name, _)| {
                tenant(name, &program, &format!("MODE = \"poll\", LISTEN = \"{name}\""), "")
            })
            .concat();
        let server = Server::start(&tenants);
        for (name, expected) in places {
            let answer = server.get(name, "/names");
            assert_eq!(answer.text(), expected, "{engine}, {name}");
        }
    }
}

#[test]
fn the_guest_reads_one_well_formed_request() {
    on_each("blocking", "", |server| {
        let request = Request::new("PUT", "guest", "/request?a=%20b")
            .header("X-Thing", "1")
            .header("Connection", "x-hop")
            .header("X-Hop", "1")
            .header("TE", "trailers")
            .body("12345");
        let head = server.ask(&request).text().to_owned();
        let lines: Vec<&str> = head.split("\r\n").collect();
        assert_eq!(lines[..2], ["PUT /request?a=%20b HTTP/1.1", "Host: guest.test"], "{head}");
        assert!(lines.contains(&"X-Thing: 1") && lines.contains(&"Content-Length: 5"), "{head}");
        for gone in ["Connection", "X-Hop", "Te:"] {
            assert!(!head.contains(gone), "{gone}: {head}");
        }
        assert!(head.ends_with("\r\n\r\n"));
    });
}

#[test]
fn bodies_go_both_ways_whole() {
    on_each("epoll", "[tenants.guest.limits]\nwall_time = \"60 s\"\n", |server| {
        let post = |target: &str| Request::new("POST", "guest", target);
        assert_eq!(server.ask(&post("/echo").body("hello")).text(), "hello");
        assert_eq!(server.ask(&post("/echo").body("")).text(), "");
        let large = pattern(8 << 20);
        let sum = large
            .iter()
            .fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
        let expected = format!("{} {sum}", large.len());
        assert_eq!(server.ask(&post("/sum").body(large.clone())).text(), expected);
        // Without a length.
        let mut client = server.connect();
        client
            .send(b"POST /sum HTTP/1.1\r\nHost: guest.test\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut writer = client.writer();
        let sent = large.clone();
        let sending = std::thread::spawn(move || {
            use std::io::Write as _;
            for piece in sent.chunks(100_000) {
                write!(writer, "{:x}\r\n", piece.len()).expect("the server reads");
                writer.write_all(piece).expect("the server reads");
                writer.write_all(b"\r\n").expect("the server reads");
            }
            writer.write_all(b"0\r\n\r\n").expect("the server reads");
        });
        assert_eq!(client.response("POST").text(), expected);
        sending.join().expect("all was sent");
        for target in ["/length?8388608", "/chunked?8388608", "/close?8388608"] {
            let answer = server.get("guest", target);
            assert_eq!(answer.status(), 200, "{target}");
            assert!(answer.body == large, "{target}: {} bytes", answer.body.len());
        }
    });
}

#[test]
fn a_write_that_waits_takes_everything() {
    on_each("blocking", "", |server| {
        assert!(server.get("guest", "/once?8388608").body == pattern(8 << 20));
    });
}

#[test]
fn a_client_that_expects_is_asked_for_its_body() {
    on_each("poll", "", |server| {
        let mut client = server.connect();
        let request = Request::new("POST", "guest", "/echo")
            .header("content-length", "5")
            .header("expect", "100-continue");
        client.send(&request.bytes());
        assert_eq!(client.line(), "HTTP/1.1 100 Continue");
        assert_eq!(client.line(), "");
        client.send(b"hello");
        assert_eq!(client.response("POST").text(), "hello");
    });
}

#[test]
fn responses_end_as_http_says() {
    on_each("poll", "", |server| {
        let mut client = server.connect();
        let head = client.ask(&Request::new("HEAD", "guest", "/length?7"));
        assert_eq!((head.status(), head.header("content-length")), (200, Some("7")));
        for status in [204, 304] {
            let answer = client.ask(&get(&format!("/status?{status}")));
            assert_eq!(answer.status(), status);
            assert_eq!(answer.header("x-status"), Some(&*status.to_string()));
            assert!(answer.body.is_empty());
        }
        assert_eq!(client.ask(&get("/shutdown")).text(), "until the end");
        assert_eq!(client.ask(&get("/close?10")).body, pattern(10));
        assert_eq!(client.ask(&get("/interim")).text(), "after");
        assert_eq!(client.ask(&get("/last")).text(), "the last words");
        assert_eq!(client.ask(&get("/unread")).text(), "unread");
        // What stands behind a response is no answer to anybody.
        for _ in 0..3 {
            assert_eq!(client.ask(&get("/behind")).text(), "ok");
            assert_eq!(client.ask(&get("/count")).text(), "1");
        }
    });
}

#[test]
fn a_bad_response_is_a_502_that_the_log_explains() {
    on_each("blocking", "", |server| {
        for (target, reason) in [
            ("/garbage", "the response is not HTTP/1"),
            ("/lengths", "more than one `content-length`"),
            ("/both", "a `content-length` and a `transfer-encoding`"),
            ("/upgrade", "upgrades are not supported"),
            ("/none", "closed the connection without an answer"),
            ("/silent", "every thread waits"),
            ("/exit", "exited with code 3"),
            ("/abort", "signal 6"),
        ] {
            let (status, line) = failure(server, target);
            assert_eq!(status, 502, "{target}: {line}");
            assert!(line.contains(reason), "{target}: {line}");
            assert_eq!(text(server, "/count"), "1");
        }
        // Its head has gone out: the client sees that it was cut off.
        let mut client = server.connect();
        client.send(&get("/early").bytes());
        let cut = client.try_response("GET");
        assert!(cut.is_err() || cut.is_ok_and(|answer| answer.status() == 502));
        assert_eq!(text(server, "/count"), "1");
    });
}

#[test]
fn processes_and_the_outside_are_refused() {
    on_each("epoll", "", |server| {
        assert_eq!(text(server, "/fork"), "38", "ENOSYS");
        assert_eq!(text(server, "/connect?127.0.0.1"), "111", "ECONNREFUSED");
        assert_eq!(text(server, "/connect?192.0.2.1"), "13", "EACCES");
    });
}

#[test]
fn events_arrive_as_they_happen() {
    on_each("epoll", "", |server| {
        let mut client = server.connect();
        client.send(&get("/events?5").bytes());
        let head = client.try_head("GET").expect("a response");
        assert_eq!(head.status, 200);
        for number in 0..5 {
            let piece = client.try_piece().expect("an event");
            assert_eq!(String::from_utf8_lossy(&piece), format!("data: {number}\n\n"));
        }
        assert!(client.try_piece().expect("the end").is_empty());
    });
}

#[test]
fn a_guest_that_writes_waits_for_a_client_that_does_not_read() {
    on_each("poll", "[tenants.guest.limits]\nresponse_body = \"64 MiB\"\n", |server| {
        let mut client = server.connect();
        client.send(&get("/length?33554432").bytes());
        client.wait(Duration::from_secs(10)).expect("the response begins");
        // Others are served meanwhile.
        assert_eq!(text(server, "/count"), "1");
        assert!(client.response("GET").body == pattern(32 << 20));
    });
}

#[test]
fn a_client_that_leaves_costs_nobody_anything() {
    on_each("blocking", "", |server| {
        for target in ["/slowly?5000", "/events?1000", "/length?33554432"] {
            let mut client = server.connect();
            client.send(&get(target).bytes());
            drop(client);
            assert_eq!(text(server, "/count"), "1", "{target}");
        }
        let mut client = server.connect();
        client.send(b"POST /sum HTTP/1.1\r\nHost: guest.test\r\nContent-Length: 100\r\n\r\npart");
        drop(client);
        assert_eq!(text(server, "/count"), "1");
    });
}

#[test]
fn a_request_that_computes_is_ended_and_delays_nobody() {
    on_each("poll", "[tenants.guest.limits]\nwall_time = \"300 ms\"\n", |server| {
        let mut client = server.connect();
        client.send(&get("/spin").bytes());
        for _ in 0..3 {
            assert_eq!(text(server, "/count"), "1");
        }
        assert_eq!(client.response("GET").status(), 504);
    });
}

#[test]
fn a_server_that_does_not_wait_on_a_connection_gets_a_new_one_for_each_request() {
    on_each("early", "", |server| {
        let mut client = server.connect();
        for _ in 0..3 {
            assert_eq!(client.ask(&get("/")).text(), "whoever you are");
        }
    });
    // One that does, and is tired of it when the request comes.
    on_each("true-time", "", |server| {
        assert_eq!(text(server, "/count"), "1");
        std::thread::sleep(Duration::from_millis(150));
        for _ in 0..3 {
            assert_eq!(text(server, "/count"), "1");
            assert_eq!(text(server, "/connections"), "2");
        }
    });
}

/// No time passes between snapshot and request.
#[test]
fn a_connection_does_not_time_out_before_its_request() {
    on_each("hasty", "", |server| {
        std::thread::sleep(Duration::from_millis(150));
        for _ in 0..3 {
            assert_eq!(text(server, "/connections"), "1");
        }
    });
}

#[test]
fn a_tenant_that_keeps_its_state_counts() {
    for mode in ["blocking", "epoll", "threads"] {
        on_each(mode, "isolation = \"none\"", |server| {
            let mut client: Client = server.connect();
            for count in 1..10 {
                assert_eq!(client.ask(&get("/count")).text(), count.to_string(), "{mode}");
            }
            let answers: Vec<Response> = (0..3).map(|_| client.ask(&get("/close?10"))).collect();
            assert!(answers.iter().all(|answer| answer.body == pattern(10)), "{mode}");
            assert_eq!(client.ask(&get("/count")).text(), "13", "{mode}");
        });
    }
}

#[test]
fn a_program_that_does_not_listen_is_told_what_is_missing() {
    for (_, program) in programs() {
        let server = Server::start(&tenant("guest", &program, "MODE = \"none\"", ""));
        assert_eq!(server.get("guest", "/").status(), 503);
        let line = server.log.wait("why", |line| line.contains("cannot load"));
        assert!(line.contains("exited with code 8"), "{line}");
        assert!(field(&line, "tenant") == Some("guest"), "{line}");
    }
}

#[test]
fn warm_up_requests_are_in_the_snapshot() {
    for mode in ["blocking", "epoll", "threads"] {
        on_each(mode, "warmup = { requests = 7, paths = [\"/count\", \"/echo\"] }", |server| {
            let mut client = server.connect();
            for _ in 0..3 {
                assert_eq!(client.ask(&get("/count")).text(), "8", "{mode}");
            }
        });
    }
    on_each(
        "epoll",
        "load = \"start\"\nwarmup = { requests = \"auto\", paths = [\"/count\"] }",
        |server| {
            let line = server.log.wait("what came of it", |line| line.contains("; warm-up: "));
            let said =
                line.split_once("; warm-up: ").and_then(|line| line.1.split_once(" requests, "));
            let requests: u32 = said.expect(&line).0.parse().expect(&line);
            assert!((250..=10_000).contains(&requests), "{line}");
            assert_eq!(server.get("guest", "/count").text(), (requests + 1).to_string());
        },
    );
    on_each("poll", "warmup = { requests = 2, paths = [\"/garbage\"] }", |server| {
        assert_eq!(server.get("guest", "/count").status(), 503);
        server.log.wait("the reason", |line| line.contains("the response is not HTTP/1"));
    });
}
