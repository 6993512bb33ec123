//! Interim responses: those of guests, and the 100 that asks a client for its body. Every byte is
//! looked at, since a client that takes one message for another is an attacker's way in.
//!
//! The guest is `tests/guests/suite_interim.c`.

use sandtide_tests::{Client, Request, Server, guest, h2, log::field};

fn serve() -> Option<Server> {
    serve_with("")
}

fn serve_with(limits: &str) -> Option<Server> {
    let program = guest("suite_interim.c")?;
    Some(Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
         [tenants.guest.limits]\n{limits}\n"
    )))
}

fn get(target: &str) -> Request {
    Request::get("guest", target)
}

/// A request that announces a body of so many bytes, and does not send it.
fn post(target: &str, length: usize) -> Request {
    Request::new("POST", "guest", target).header("content-length", &length.to_string())
}

/// Such a request from a client that waits to be asked for the body.
fn expects(target: &str, length: usize) -> Request {
    post(target, length).header("expect", "100-continue")
}

/// The lines of the next head, interim or not.
fn head(client: &mut Client) -> Vec<String> {
    let lines = std::iter::repeat_with(|| client.line());
    lines.take_while(|line| !line.is_empty()).collect()
}

/// The body of the next response, which is a final one.
fn answer(client: &mut Client) -> String {
    let head = head(client);
    assert_eq!(head[0], "HTTP/1.1 200 OK", "{head:?}");
    let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse().ok()).expect("a length");
    String::from_utf8(client.exactly(length)).expect("text")
}

const HINTS: [&str; 2] = ["HTTP/1.1 103 Early Hints", "link: </style.css>; rel=preload"];
const CONTINUE: [&str; 1] = ["HTTP/1.1 100 Continue"];

#[test]
fn hints_come_before_the_response() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    for count in [0, 1, 3, 16, 1] {
        client.send(&get(&format!("/hints?{count}")).bytes());
        for _ in 0..count {
            assert_eq!(head(&mut client), HINTS);
        }
        assert_eq!(answer(&mut client), "done", "{count}");
    }
    // To a HEAD as well.
    client.send(&Request::new("HEAD", "guest", "/hints?1").bytes());
    assert_eq!(head(&mut client), HINTS);
    assert_eq!(client.response("HEAD").status(), 200);
}

#[test]
fn hints_come_from_cpp() {
    let Some(program) = guest("suite_state.cpp") else { return };
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n"
    ));
    let mut client = server.connect();
    client.send(&get("/hints").bytes());
    assert_eq!(head(&mut client), HINTS);
    assert_eq!(answer(&mut client), "? fresh");
}

#[test]
fn hints_come_while_the_guest_waits_for_the_body() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    for (target, expected) in [("/read", "4"), ("/stream", "first last"), ("/read", "4")] {
        client.send(&post(target, 4).bytes());
        assert_eq!(head(&mut client), HINTS);
        client.send(b"body");
        assert_eq!(client.response("POST").text(), expected);
    }
}

#[test]
fn hints_come_while_the_guest_computes() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    client.send(&get("/compute").bytes());
    assert_eq!(head(&mut client), HINTS);
    assert_eq!(head(&mut client), HINTS);
    assert_eq!(answer(&mut client), "done");
}

#[test]
fn pipelined_requests_keep_their_hints_and_their_order() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    let batch = [get("/hints?2").bytes(), get("/ignore").bytes(), get("/hints?1").bytes()];
    client.send(&batch.concat().repeat(20));
    for _ in 0..20 {
        assert_eq!([head(&mut client), head(&mut client)], [HINTS; 2]);
        assert_eq!(answer(&mut client), "done");
        assert_eq!(answer(&mut client), "ignored");
        assert_eq!(head(&mut client), HINTS);
        assert_eq!(answer(&mut client), "done");
    }
}

#[test]
fn http_1_0_gets_none() {
    let Some(server) = serve() else { return };
    for (target, text) in [("/hints?3", "done"), ("/compute", "done")] {
        let mut client = server.connect();
        client.send(format!("GET {target} HTTP/1.0\r\nhost: guest.test\r\n\r\n").as_bytes());
        let everything = String::from_utf8(client.rest()).expect("text");
        assert!(everything.starts_with("HTTP/1.0 200 OK\r\n"), "{everything}");
        assert!(everything.ends_with(text) && !everything.contains("103"), "{everything}");
    }
}

#[test]
fn the_framing_of_interim_responses_is_not_the_guests() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(&get("/framing").bytes());
        assert_eq!(head(&mut client), ["HTTP/1.1 103 Early Hints", "x-stays: yes"]);
        assert_eq!(answer(&mut client), "done");
    }
}

#[test]
fn what_is_no_interim_response_ends_the_exchange() {
    let Some(server) = serve() else { return };
    for (target, says) in [
        ("/status?100", "100 is not an interim status"),
        ("/status?101", "101 is not an interim status"),
        ("/status?99", "99 is not an interim status"),
        ("/status?200", "200 is not an interim status"),
        ("/status?65639", "not an interim status"),
        ("/status?-1", "not an interim status"),
        ("/hints?17", "more than 16 interim responses"),
        ("/inject", "a byte that no field may have"),
    ] {
        let mut client = server.connect();
        client.send(&get(target).header("connection", "close").bytes());
        let everything = String::from_utf8(client.rest()).expect("text");
        assert!(everything.starts_with("HTTP/1.1 502 "), "{target}: {everything}");
        assert_eq!(everything.matches("HTTP/1.1").count(), 1, "{target}: {everything}");
        let id = everything.lines().find_map(|line| line.strip_prefix("x-request-id: "));
        let report = server.log.report(id.expect("an error has an id"));
        assert!(report.contains(says), "{target}: {report}");
        assert_eq!(field(&report, "tenant"), Some("guest"), "{report}");
    }
    for status in [102, 104, 199] {
        let mut client = server.connect();
        client.send(&get(&format!("/status?{status}")).bytes());
        assert!(client.line().starts_with(&format!("HTTP/1.1 {status} ")));
        assert_eq!(client.line(), "");
        assert_eq!(answer(&mut client), "done");
    }
}

#[test]
fn hints_after_the_head_cut_the_response_off() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    client.send(&get("/late").bytes());
    let response = client.try_response("GET");
    assert!(response.as_ref().is_ok_and(|whole| whole.status() == 502) || response.is_err());
}

#[test]
fn a_guest_that_faults_has_hinted_in_vain() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    client.send(&post("/fault", 4).bytes());
    assert_eq!(head(&mut client), HINTS);
    client.send(b"body");
    assert_eq!(client.response("POST").status(), 502);
}

#[test]
fn a_guest_that_reads_has_the_client_asked_for_its_body() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    for _ in 0..2 {
        client.send(&expects("/read", 4).bytes());
        let mut both = [head(&mut client), head(&mut client)];
        both.sort();
        assert_eq!(both[0], CONTINUE);
        assert_eq!(both[1], HINTS);
        client.send(b"body");
        assert_eq!(answer(&mut client), "4");
    }
    // In chunks, too.
    let chunked = Request::new("POST", "guest", "/read").header("expect", "100-continue");
    client.send(&chunked.header("transfer-encoding", "chunked").bytes());
    let mut both = [head(&mut client), head(&mut client)];
    both.sort();
    assert_eq!(both[0], CONTINUE);
    client.send(b"4\r\nbody\r\n0\r\n\r\n");
    assert_eq!(answer(&mut client), "4");
}

/// Whether the body follows is not to be known then, so the connection cannot go on.
#[test]
fn a_guest_that_does_not_read_has_nobody_asked() {
    let Some(server) = serve() else { return };
    let smuggled = get("/hints?0").bytes();
    for body in [&b""[..], &smuggled] {
        let mut client = server.connect();
        client.send(&expects("/ignore", smuggled.len()).bytes());
        assert_eq!(answer(&mut client), "ignored");
        // The client sends the body all the same, or its next request in the place of it.
        let _ = client.try_send(body);
        let _ = client.try_send(&get("/hints?0").bytes());
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(rest.is_empty(), "{rest}");
    }
    assert_eq!(server.get("guest", "/hints?0").text(), "done");
}

#[test]
fn a_body_over_the_limit_is_not_asked_for() {
    let Some(server) = serve_with("request_body = 100") else { return };
    let mut client = server.connect();
    client.send(&expects("/read", 101).bytes());
    assert_eq!(client.line(), "HTTP/1.1 413 Payload Too Large");
}

#[test]
fn a_client_of_http_1_0_is_not_asked() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    client.send(
        b"POST /read HTTP/1.0\r\nhost: guest.test\r\nexpect: 100-continue\r\n\
          content-length: 4\r\n\r\nbody",
    );
    let everything = String::from_utf8(client.rest()).expect("text");
    assert!(everything.starts_with("HTTP/1.0 200 OK\r\n"), "{everything}");
    assert!(everything.ends_with("\r\n\r\n4"), "{everything}");
}

/// Hyper has no interface for them there: the response comes without, and whole.
#[test]
fn http_2_gets_the_response_alone() {
    let Some(server) = serve() else { return };
    let mut connection = h2::Connection::open(server.address());
    for (stream, path) in [(1, "/hints?3"), (3, "/compute"), (5, "/framing")] {
        let end = connection.get(stream, "guest.test", path);
        assert_eq!(end, h2::End::Response { status: 200, body: b"done".to_vec() }, "{path}");
    }
}
