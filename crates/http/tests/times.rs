//! What happens to clients that take too long, and to connections that are too many.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
#[path = "../../runtime/tests/fake/mod.rs"]
mod fake;

use std::{io::ErrorKind, time::Duration};

use bytes::Bytes;
use client::{get, serve};
use fake::{Act, Gate, answer};

const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn a_head_that_comes_too_slowly_is_408() {
    let server = serve([("/", answer("x"))], |_, options| options.head_timeout = SOON);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nhost: shop");
    assert_eq!(client.response().status, 408);
    client.end().unwrap();
    // Between requests as well, and behind an answer.
    let mut client = server.connect();
    client.send(get("/"));
    assert_eq!(client.response().text(), "x");
    client.send("GET / HTTP/1.1\r\n");
    assert_eq!(client.response().status, 408);
    client.end().unwrap();
    // Who has said nothing gets no answer to it.
    server.connect().end().unwrap();
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let (entered, gate) = (Gate::new(), Gate::new());
    let late = [vec![Act::Open(entered), Act::Wait(gate.clone())], answer("late")].concat();
    let server = serve([("/", answer("x")), ("/late", late)], |_, options| {
        options.idle_timeout = SOON;
    });
    let mut busy = server.connect();
    busy.send(get("/late"));
    let mut idle = server.connect();
    idle.send(get("/"));
    assert_eq!(idle.response().text(), "x");
    idle.end().unwrap();
    gate.open();
    assert_eq!(busy.response().text(), "late");
    busy.end().unwrap();
}

#[test]
fn a_body_that_stops_is_408() {
    let script = vec![Act::ReadBody, Act::Begin(200, vec![]), Act::Finish(vec![])];
    let server = serve([("/e", script)], |tenant, options| {
        options.body_timeout = SOON;
        tenant.limits.wall_time = NEVER;
    });
    let mut client = server.connect();
    client.send("POST /e HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 9\r\n\r\npart");
    assert_eq!(client.response().status, 408);
    client.end().unwrap();
}

#[test]
fn a_response_that_nobody_takes_is_cut_off() {
    let big = vec![
        Act::Begin(200, vec![]),
        Act::Write(Bytes::from(vec![b'x'; 64 << 20])),
        Act::Finish(vec![]),
    ];
    let server = serve([("/big", big)], |tenant, _| {
        tenant.limits.response_body = u64::MAX;
        tenant.limits.response_time = SOON;
    });
    let mut client = server.connect();
    client.send(get("/big"));
    assert_eq!(client.take(12).unwrap(), b"HTTP/1.1 200");
    // Nothing is read until the connection is gone, which its end at the server shows.
    assert_eq!(server.stop().exchanges, 1);
    let end = loop {
        if let Err(error) = client.take(1 << 20) {
            break error;
        }
    };
    assert_eq!(end, ErrorKind::ConnectionReset);
}

#[test]
fn one_connection_too_many_closes_the_longest_idle_one() {
    let (entered, gate) = (Gate::new(), Gate::new());
    let late = [vec![Act::Open(entered), Act::Wait(gate.clone())], answer("late")].concat();
    let server = serve([("/", answer("x")), ("/late", late)], |_, options| {
        options.max_connections = 2;
    });
    let mut idle = server.connect();
    idle.send(get("/"));
    idle.response();
    let mut busy = server.connect();
    busy.send(get("/late"));
    let mut next = server.connect();
    next.send(get("/"));
    assert_eq!(next.response().text(), "x");
    idle.end().unwrap();
    gate.open();
    assert_eq!(busy.response().text(), "late");
}

#[test]
fn who_sends_too_much_can_still_read_why() {
    let server = serve([("/", answer("x"))], |_, options| options.max_head = 8 << 10);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nhost: shop.test\r\n");
    for _ in 0..64 {
        client.send(format!("x: {}\r\n", "y".repeat(8 << 10)));
    }
    assert_eq!(client.response().status, 431);
    let server = serve([("/", answer("x"))], |tenant, _| tenant.limits.request_body = 10);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 500000\r\n\r\n");
    client.send(vec![b'x'; 500_000]);
    assert_eq!(client.response().status, 413);
    client.end().unwrap();
}

#[test]
fn connections_are_accepted_until_the_delay_is_over() {
    let mut server = serve([("/", answer("x"))], |_, options| options.drain_delay = SOON * 10);
    let draining = server.draining();
    assert!(!draining.is_draining());
    server.begin_stop();
    while !draining.is_draining() {
        std::thread::yield_now();
    }
    assert_eq!(server.get("/").text(), "x");
    server.stop();
}
