//! Clients of HTTP/1 that take their time: each is given up when its timeout says, and told so where the protocol has a
//! word for it. Nobody else waits for them.
//!
//! Tests wait for the server to act; the timeouts are short so that it does soon.

use std::time::Duration;

use sandtide_tests::{Client, Request, Server, guest};

/// A server with short times for this, and a guest that reads bodies and streams without an end.
fn serve(server: &str, limits: &str) -> Option<Server> {
    let program = guest("suite_limits.c")?;
    Some(Server::start_with(
        &format!("threads = 1\n{server}"),
        &format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             queue_time = \"60 s\"\n\
             [tenants.guest.limits]\n{limits}\n"
        ),
    ))
}

fn is_served(server: &Server) {
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

/// The server answers with this and closes, within patience.
fn is_given_up(mut client: Client, status: u16) {
    let response = client.response("GET");
    assert_eq!(response.status(), status, "{response:?}");
    assert_eq!(response.header("connection"), Some("close"), "{response:?}");
    assert_eq!(client.rest(), b"");
}

#[test]
fn heads_that_do_not_end() {
    let Some(server) = serve("head_timeout = \"100 ms\"", "") else { return };
    for part in [
        &b"G"[..],
        b"GET / HTTP/1.1\r\n",
        b"GET / HTTP/1.1\r\nhost: guest.test\r\nx-slow: a",
        b"GET / HTTP/1.1\r\nhost: guest.test\r\n",
        b"\r\n",
    ] {
        let mut client = server.connect();
        client.send(part);
        is_given_up(client, 408);
    }
    // Behind an answered request it counts anew.
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("guest", "/ok")).status(), 200);
    client.send(b"GET / HTTP/1.1\r\nhost: gue");
    is_given_up(client, 408);
    is_served(&server);
}

/// A byte at a time does not make it last longer.
#[test]
fn heads_that_trickle() {
    let Some(server) = serve("head_timeout = \"150 ms\"", "") else { return };
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nhost: guest.test\r\n");
    let mut trickle = 0;
    while client.wait(Duration::from_millis(10)).is_none() {
        // The server may close between the look and the byte.
        if client.try_send(b"x: y\r\n").is_err() {
            break;
        }
        trickle += 1;
        assert!(trickle < 1000, "a head that trickles is waited for");
    }
    assert!(trickle > 2, "it is given up at once");
    assert_eq!(client.response("GET").status(), 408);
    is_served(&server);
}

#[test]
fn connections_that_say_nothing() {
    let Some(server) = serve("head_timeout = \"100 ms\"", "") else { return };
    let mut client = server.connect();
    // There is no request to answer; either is well.
    let rest = client.rest();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 "), "{rest:?}");
    is_served(&server);
}

#[test]
fn connections_that_are_idle() {
    let Some(server) = serve("idle_timeout = \"100 ms\"", "") else { return };
    let mut client = server.connect();
    assert_eq!(client.ask(&Request::get("guest", "/ok")).status(), 200);
    assert_eq!(client.rest(), b"", "nobody has asked anything");
    is_served(&server);
}

#[test]
fn bodies_that_stop() {
    let Some(server) = serve("body_timeout = \"100 ms\"", "") else { return };
    for (field, part) in [
        (("content-length", "10"), &b""[..]),
        (("content-length", "10"), b"12345"),
        (("transfer-encoding", "chunked"), b""),
        (("transfer-encoding", "chunked"), b"5"),
        (("transfer-encoding", "chunked"), b"5\r\n123"),
        (("transfer-encoding", "chunked"), b"5\r\n12345\r\n"),
        (("transfer-encoding", "chunked"), b"5\r\n12345\r\n0\r\n"),
        (("transfer-encoding", "chunked"), b"5\r\n12345\r\n0\r\nx-trailer: a"),
    ] {
        let mut client = server.connect();
        let head = Request::new("POST", "guest", "/body").header(field.0, field.1);
        client.send(&[&head.bytes(), part].concat());
        let response = client.response("POST");
        assert_eq!(response.status(), 408, "{part:?}: {response:?}");
        assert_eq!(client.rest(), b"");
        is_served(&server);
    }
}

/// The time of a body is the time between two pieces of it; the whole is bounded by the exchange's.
#[test]
fn bodies_that_trickle() {
    let Some(server) = serve("body_timeout = \"10 s\"", "wall_time = \"200 ms\"") else { return };
    let mut client = server.connect();
    let head = Request::new("POST", "guest", "/body").header("content-length", "1000000");
    client.send(&head.bytes());
    let mut trickle = 0;
    while client.wait(Duration::from_millis(10)).is_none() {
        if client.try_send(b"x").is_err() {
            break;
        }
        trickle += 1;
        assert!(trickle < 1000, "a body that trickles is waited for");
    }
    assert!(trickle > 2, "it is given up at once");
    assert_eq!(client.response("POST").status(), 504);
    is_served(&server);
}

#[test]
fn responses_that_nobody_reads() {
    let limits = "response_time = \"200 ms\"\nresponse_body = \"1 GiB\"\nwall_time = \"30 s\"";
    let Some(server) = serve("", limits) else { return };
    let mut client = server.connect();
    client.send(&Request::get("guest", "/stream").bytes());
    let head = client.try_head("GET").expect("a head");
    assert_eq!(head.status, 200);
    client.wait_cut();
    // What was sent comes, and then no end that looks like one.
    let end = loop {
        match client.try_piece() {
            Ok(piece) if !piece.is_empty() => {}
            end => break end,
        }
    };
    assert!(end.is_err(), "the response looks whole");
    is_served(&server);
}

/// The same for one that is all there before it is sent.
#[test]
fn whole_responses_that_nobody_reads() {
    let limits = "response_time = \"200 ms\"\nresponse_body = \"64 MiB\"";
    let Some(server) = serve("", limits) else { return };
    let mut client = server.connect();
    // More than any buffer of the kernel holds.
    for _ in 0..64 {
        client.send(&Request::get("guest", "/response").bytes());
    }
    client.wait_cut();
    // It ends in the middle of a response, though each alone is complete.
    let mut whole = 0;
    while let Ok(response) = client.try_response("GET") {
        assert_eq!(response.body.len(), 1 << 20);
        whole += 1;
    }
    assert!(whole < 64, "a client that does not read is waited for");
    is_served(&server);
}

/// Many of each, all at a time, and a client that means it.
#[test]
fn many_slow_clients() {
    let lines = "head_timeout = \"300 ms\"\nbody_timeout = \"300 ms\"";
    let Some(server) = serve(lines, "") else { return };
    let mut slow: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        match number % 3 {
            0 => client.send(b"GET / HTTP/1.1\r\nhost"),
            1 => client.send(b""),
            _ => {
                client.send(b"POST /body HTTP/1.1\r\nhost: guest.test\r\ncontent-length: 9\r\n\r\n")
            }
        }
    }
    for _ in 0..50 {
        is_served(&server);
    }
    for client in &mut slow {
        client.rest();
    }
    is_served(&server);
}
