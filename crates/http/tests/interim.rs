//! Interim responses of scripted guests, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod client;
#[path = "../../runtime/tests/fake/mod.rs"]
mod fake;

use bytes::Bytes;
use client::{get, serve};
use fake::{Act, Gate, answer, trap};

const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

fn hints() -> Act {
    Act::Inform(103, vec![("link", "</a>")])
}

/// Sends hints, then the body back.
fn hinted_echo() -> Vec<Act> {
    vec![hints(), Act::Begin(200, vec![]), Act::Echo, Act::Finish(vec![])]
}

#[test]
fn hints_come_before_an_answer_that_is_there_at_once() {
    let script = [vec![hints(), hints()], answer("hello")].concat();
    let server = serve([("/a", script)], |_, _| {});
    let mut client = server.connect();
    for _ in 0..3 {
        client.send(get("/a"));
        assert_eq!(client.take_until("\r\n\r\n"), HINTS);
        assert_eq!(client.take_until("\r\n\r\n"), HINTS);
        assert_eq!(client.response().text(), "hello");
    }
    // Of a response without content, too.
    client.send(get("/a").replace("GET", "HEAD"));
    assert_eq!(client.take_until(HINTS), HINTS.repeat(2)[..HINTS.len()]);
    assert_eq!(client.take_until(HINTS), HINTS);
    assert_eq!(client.head_response().status, 200);
}

#[test]
fn hints_come_while_the_guest_waits() {
    let gate = Gate::new();
    let waits = [vec![hints(), Act::Wait(gate.clone()), hints()], answer("hello")].concat();
    let body = [vec![hints(), Act::ReadBody], answer("read")].concat();
    let server = serve([("/waits", waits), ("/body", body), ("/echo", hinted_echo())], |_, _| {});
    let mut client = server.connect();
    client.send(get("/waits"));
    assert_eq!(client.take_until("\r\n\r\n"), HINTS);
    gate.open();
    assert_eq!(client.take_until("\r\n\r\n"), HINTS);
    assert_eq!(client.response().text(), "hello");
    for path in ["/body", "/echo"] {
        client
            .send(format!("POST {path} HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 4\r\n\r\n"));
        assert_eq!(client.take_until("\r\n\r\n"), HINTS);
        client.send("body");
        let expected = if path == "/echo" { "body" } else { "read" };
        assert_eq!(client.response().text(), expected);
    }
}

#[test]
fn hints_come_while_the_guest_computes() {
    let script = [vec![hints(), Act::Slice, Act::Slice, hints(), Act::Slice], answer("hello")];
    let server = serve([("/a", script.concat())], |_, _| {});
    let mut client = server.connect();
    client.send(get("/a"));
    assert_eq!(client.take_until("\r\n\r\n"), HINTS);
    assert_eq!(client.take_until("\r\n\r\n"), HINTS);
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn a_guest_that_fails_has_hinted_in_vain() {
    let gate = Gate::new();
    let script = vec![hints(), Act::Wait(gate.clone()), Act::Fault(trap)];
    let server = serve([("/a", script)], |_, _| {});
    let mut client = server.connect();
    client.send(get("/a"));
    assert_eq!(client.take_until("\r\n\r\n"), HINTS);
    gate.open();
    assert_eq!(client.response().status, 502);
}

#[test]
fn http_1_0_has_no_interim_responses() {
    let script = [vec![hints()], answer("hello")].concat();
    let server = serve([("/a", script)], |_, _| {});
    let mut client = server.connect();
    client.send("GET /a HTTP/1.0\r\nhost: shop.test\r\nconnection: keep-alive\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_gets_both() {
    let script = [vec![hints(), Act::ReadBody], answer("read")].concat();
    let server = serve([("/a", script)], |_, _| {});
    let mut client = server.connect();
    client.send(
        "POST /a HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\n",
    );
    // Their order is free.
    let both = [client.take_until("\r\n\r\n"), client.take_until("\r\n\r\n")];
    assert!(both.contains(&HINTS.to_owned()), "{both:?}");
    assert!(both.contains(&"HTTP/1.1 100 Continue\r\n\r\n".to_owned()), "{both:?}");
    client.send("body");
    assert_eq!(client.response().text(), "read");
}

/// Hints never stand inside another response, however that is sent.
#[test]
fn hints_keep_out_of_the_response_before() {
    let hinted = [vec![hints()], answer("hello")].concat();
    // More than the sockets' buffers hold, in pieces of each kind.
    for (piece, count) in [(1 << 10, 1 << 13), (20 << 10, 400), (8 << 20, 1)] {
        let data = Act::Write(Bytes::from(vec![b'x'; piece]));
        let big = [vec![Act::Begin(200, vec![])], vec![data; count], vec![Act::Finish(vec![])]];
        let server = serve([("/big", big.concat()), ("/a", hinted.clone())], |shop, _| {
            shop.limits.response_body = 1 << 30;
        });
        let mut client = server.connect();
        client.send([get("/a"), get("/big"), get("/a")].concat().repeat(2));
        for length in [5, piece * count, 5].repeat(2) {
            if length == 5 {
                assert_eq!(client.take_until("\r\n\r\n"), HINTS);
            }
            let response = client.response();
            assert_eq!((response.status, response.body.len()), (200, length));
            assert!(length == 5 || response.body.iter().all(|byte| *byte == b'x'));
        }
    }
}
