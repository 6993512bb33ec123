//! Tenants of which each connection of a client has a sandbox: docs/state.md. Each test runs on each
//! engine that is here.

use std::{path::PathBuf, time::Instant};

use sandtide_tests::{Client, Request, Server, binary::top, built, guest, guest::native, h2};

const CONNECTION: &str = "isolation = \"connection\"";

/// The guest of `tests/tests/sockets.rs` for each engine that is here.
fn programs() -> Vec<(&'static str, PathBuf)> {
    let source = top().join("tests/guests/suite_sockets.c");
    let engines = [("riscv", guest("suite_sockets.c")), ("kvm", native(&source))];
    engines.into_iter().filter_map(|(engine, program)| Some((engine, program?))).collect()
}

fn tenant(program: &PathBuf, mode: &str, lines: &str) -> String {
    format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
         env = {{ MODE = \"{mode}\" }}\n{CONNECTION}\n{lines}\n"
    )
}

fn text(client: &mut Client, target: &str) -> String {
    let answer = client.ask(&Request::get("guest", target));
    assert_eq!(answer.status(), 200, "{target}: {answer:?}");
    answer.text().to_owned()
}

/// Waits until the metrics say that so many sandboxes are held.
fn wait_for_held(server: &Server, expected: u64) {
    let line = server.log.wait("operators are listened to", |line| line.starts_with("admin: "));
    let admin = line["admin: http://".len()..].parse().expect("an address");
    let line = format!("sandtide_sandboxes_held{{tenant=\"guest\"}} {expected}.0");
    let start = Instant::now();
    loop {
        let answer = Client::connect(admin).ask(&Request::get("admin", "/metrics"));
        if answer.text().lines().any(|seen| seen == line) {
            return;
        }
        assert!(start.elapsed().as_secs() < 30, "no {line} in {}", answer.text());
    }
}

#[test]
fn a_connection_counts_for_itself() {
    for (engine, program) in programs() {
        for mode in ["blocking", "poll", "epoll", "threads"] {
            let server = Server::start_with("threads = 1", &tenant(&program, mode, ""));
            let (mut one, mut two) = (server.connect(), server.connect());
            for number in 1..=20 {
                assert_eq!(text(&mut one, "/count"), number.to_string(), "{engine}, {mode}");
                assert_eq!(text(&mut two, "/count"), number.to_string(), "{engine}, {mode}");
            }
            // The program has one connection of its own for each, which was there before.
            assert_eq!(text(&mut one, "/connections"), "1", "{engine}, {mode}");
            // One that it closes is followed by another, with the same state.
            assert_eq!(text(&mut one, "/close?1").len(), 1);
            assert_eq!(text(&mut one, "/count"), "23", "{engine}, {mode}");
            assert_eq!(text(&mut one, "/connections"), "2", "{engine}, {mode}");
            drop(one);
            assert_eq!(text(&mut server.connect(), "/count"), "1", "{engine}, {mode}");
            assert_eq!(text(&mut two, "/count"), "21", "{engine}, {mode}");
        }
    }
}

#[test]
fn streams_of_http2_share_the_sandbox_of_their_connection() {
    for (engine, program) in programs() {
        let server = Server::start(&tenant(&program, "epoll", ""));
        for _ in 0..2 {
            let mut connection = h2::Connection::open(server.address());
            let streams = [1, 3, 5, 7, 9];
            for stream in streams {
                let get = h2::get("guest.test", "/count");
                connection.frame(&h2::Frame::headers(stream, 0x5, &get));
            }
            let mut answers = Vec::new();
            while answers.len() < streams.len() {
                let frame = connection.receive().expect("answers");
                if frame.kind == h2::kind::DATA && !frame.payload.is_empty() {
                    answers.push(String::from_utf8(frame.payload).expect("a number"));
                }
            }
            answers.sort();
            assert_eq!(answers, ["1", "2", "3", "4", "5"], "{engine}");
        }
    }
}

#[test]
fn a_fault_costs_a_connection_its_state_and_nobody_else_anything() {
    for (engine, program) in programs() {
        let server = Server::start_with("threads = 1", &tenant(&program, "epoll", ""));
        let (mut one, mut two) = (server.connect(), server.connect());
        assert_eq!((text(&mut one, "/count"), text(&mut two, "/count")), ("1".into(), "1".into()));
        for failing in ["/abort", "/exit", "/garbage"] {
            assert_eq!(text(&mut one, "/count"), "2", "{engine}");
            assert_eq!(one.ask(&Request::get("guest", failing)).status(), 502, "{engine}");
            assert_eq!(text(&mut one, "/count"), "1", "{engine}: after {failing}");
        }
        assert_eq!(text(&mut two, "/count"), "2", "{engine}");
    }
}

#[test]
fn what_connections_hold_is_limited_and_comes_back() {
    for (engine, program) in programs() {
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\n";
        let tenant = tenant(&program, "epoll", "concurrency = 2");
        let server = Server::start_with("threads = 1", &format!("{admin}{tenant}"));
        let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(text(client, "/count"), "1", "{engine}");
        }
        wait_for_held(&server, 2);
        // The sandbox of the first was taken back, and it begins anew in place of the second.
        assert_eq!(text(&mut clients[2], "/count"), "2", "{engine}");
        assert_eq!(text(&mut clients[0], "/count"), "1", "{engine}");
        assert_eq!(text(&mut clients[1], "/count"), "1", "{engine}");
        drop(clients);
        wait_for_held(&server, 0);
        assert_eq!(text(&mut server.connect(), "/count"), "1", "{engine}");
    }
}

#[test]
fn bodies_and_early_answers_leave_the_connection_in_order() {
    for (engine, program) in programs() {
        let server = Server::start_with("threads = 1", &tenant(&program, "epoll", ""));
        let mut client = server.connect();
        for round in 0..5 {
            let long = "x".repeat(200_000);
            let sum = Request::new("POST", "guest", "/sum").body(long.clone());
            assert!(client.ask(&sum).text().starts_with("200000 "), "{engine}");
            // It answers before it has read the body.
            let early = Request::new("POST", "guest", "/unread").body("short");
            assert_eq!(client.ask(&early).text(), "unread", "{engine}");
            assert_eq!(client.ask(&Request::new("HEAD", "guest", "/length?5")).status(), 200);
            assert_eq!(text(&mut client, "/count"), (4 * (round + 1)).to_string(), "{engine}");
        }
    }
}

#[test]
fn the_direct_protocol_counts_too() {
    let Some(program) = built(&top().join("examples/counter/counter.c")) else { return };
    let server = Server::start_with(
        "threads = 1",
        &format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n{CONNECTION}\n"
        ),
    );
    let mut one = server.connect();
    let first = text(&mut one, "/");
    let second = text(&mut one, "/");
    assert_ne!(first, second);
    let mut two = server.connect();
    assert_eq!((text(&mut two, "/"), text(&mut two, "/")), (first, second));
}

#[test]
fn a_reload_and_a_drain_do_not_wait_for_connections() {
    for (engine, program) in programs() {
        let mut server = Server::start_with("threads = 1", &tenant(&program, "epoll", ""));
        let mut client = server.connect();
        assert_eq!(
            (text(&mut client, "/count"), text(&mut client, "/count")),
            ("1".into(), "2".into())
        );
        let mark = server.log.mark();
        let other = "[tenants.guest.limits]\nmemory = \"32 MiB\"\n";
        server.configure(&format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 1\n{}",
            tenant(&program, "epoll", other)
        ));
        server.log.wait_since(mark, "the next version", |line| line.contains("version=2"));
        assert_eq!(text(&mut client, "/count"), "1", "{engine}");
        server.terminate();
        assert!(server.wait().success(), "{engine}");
    }
}
