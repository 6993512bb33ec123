//! Every limit of what a client may ask of the server, exceeded: what it gets is what docs/limits.md says. And no
//! limit in those tables is without a test.

use std::collections::BTreeSet;

use sandtide_tests::{
    Client, Request, Server,
    documented::{documented, rows},
    guest,
    h2::{self, Connection, Frame, code, flag, kind},
};

/// A server with these lines in `[server]`, and a guest with these limits.
fn serve(server: &str, limits: &str) -> Option<Server> {
    let program = guest("suite_limits.c")?;
    Some(Server::start_with(
        &format!("threads = 1\n{server}"),
        &format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             [tenants.guest.limits]\n{limits}\n"
        ),
    ))
}

fn get() -> Request {
    Request::get("guest", "/ok")
}

#[test]
fn requests_per_second_and_burst() {
    let Some(server) = serve("", "requests_per_second = 1\nburst = 3") else { return };
    for _ in 0..3 {
        assert_eq!(server.get("guest", "/ok").text(), "ok", "the burst is let through");
    }
    let over = server.get("guest", "/ok");
    for row in [documented("requests_per_second"), documented("burst")] {
        row.is_answered_by(&over);
        row.is_logged_by(&server.log.report(over.id()));
    }
    // Over HTTP/2 it is the same tenant's.
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.get(1, "guest.test", "/ok").status(), Some(429));
}

#[test]
fn response_time() {
    let row = documented("response_time");
    assert!(row.answer.starts_with("cut off"), "{row:?}");
    let limits = "response_time = \"100 ms\"\nresponse_body = \"1 GiB\"";
    let Some(server) = serve("", limits) else { return };
    let mut client = server.connect();
    client.send(&Request::get("guest", "/stream").bytes());
    client.wait_cut();
    assert!(client.try_response("GET").is_err(), "it looks whole");
    assert_eq!(server.ask(&get()).text(), "ok");
}

#[test]
fn max_head() {
    let Some(server) = serve("max_head = \"2 KiB\"", "") else { return };
    let response = server.ask(&get().header("x-long", &"x".repeat(3000)));
    assert_eq!(documented("max_head").status(), Some(response.status()), "{response:?}");
    assert_eq!(server.ask(&get()).text(), "ok");
}

#[test]
fn max_headers() {
    let Some(server) = serve("max_headers = 10", "") else { return };
    let many = (0..10).fold(get(), |request, n| request.header(&format!("x-{n}"), ""));
    let response = server.ask(&many);
    assert_eq!(documented("max_headers").status(), Some(response.status()), "{response:?}");
    let mut connection = Connection::open(server.address());
    let many: Vec<String> = (0..11).map(|n| format!("x-{n}")).collect();
    let fields = h2::get("guest.test", "/ok");
    let fields: Vec<_> =
        fields.into_iter().chain(many.iter().map(|name| (name.as_str(), ""))).collect();
    connection.frame(&Frame::headers(1, flag::END_STREAM, &fields));
    assert_eq!(connection.end_of(1).status(), documented("max_headers").status());
    assert_eq!(server.ask(&get()).text(), "ok");
}

#[test]
fn head_timeout() {
    let row = documented("head_timeout");
    let Some(server) = serve("head_timeout = \"100 ms\"", "") else { return };
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nhost");
    let response = client.response("GET");
    row.is_answered_by(&response);
    assert!(row.answer.contains("the connection is closed"), "{row:?}");
    assert_eq!(client.rest(), b"");
    assert_eq!(server.ask(&get()).text(), "ok");
}

#[test]
fn idle_timeout() {
    assert_eq!(documented("idle_timeout").answer, "the connection is closed");
    let Some(server) = serve("idle_timeout = \"100 ms\"", "") else { return };
    let mut client = server.connect();
    assert_eq!(client.ask(&get()).text(), "ok");
    assert_eq!(client.rest(), b"");
}

#[test]
fn body_timeout() {
    let row = documented("body_timeout");
    let Some(server) = serve("body_timeout = \"100 ms\"", "") else { return };
    let mut client = server.connect();
    client.send(&Request::new("POST", "guest", "/body").header("content-length", "9").bytes());
    let response = client.response("POST");
    row.is_answered_by(&response);
    row.is_logged_by(&server.log.report(response.id()));
    assert_eq!(client.rest(), b"");
    assert_eq!(server.ask(&get()).text(), "ok");
}

#[test]
fn max_streams() {
    assert!(documented("max_streams").answer.contains("`REFUSED_STREAM`"));
    let Some(server) = serve("max_streams = 2", "") else { return };
    let mut connection = Connection::open(server.address());
    for stream in [1, 3, 5] {
        let head = h2::request("POST", "guest.test", "/body");
        connection.frame(&Frame::headers(stream, 0, &head));
    }
    let refused = connection.until(|frame| frame.kind == kind::RST_STREAM).expect("refused");
    assert_eq!((refused.stream, refused.code()), (5, Some(code::REFUSED_STREAM)));
    for stream in [1, 3] {
        connection.frame(&Frame::new(kind::DATA, flag::END_STREAM, stream, *b"body"));
        connection.until(|frame| frame.stream == stream && frame.is_last()).expect("answered");
    }
    // And it can be tried again.
    assert_eq!(connection.get(7, "guest.test", "/ok").status(), Some(200));
}

#[test]
fn max_connections() {
    let row = documented("max_connections");
    assert!(row.answer.ends_with("if none is, the new one waits"), "{row:?}");
    let Some(server) = serve("max_connections = 2", "") else { return };
    let mut busy: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut busy {
        let upload = Request::new("POST", "guest", "/body").header("content-length", "4");
        client.send(&upload.header("expect", "100-continue").bytes());
        assert_eq!((client.line().as_str(), client.line().as_str()), ("HTTP/1.1 100 Continue", ""));
    }
    let mut waiting = server.connect();
    waiting.send(&get().bytes());
    busy[0].send(b"body");
    assert_eq!(busy[0].response("POST").text(), "4");
    assert_eq!(waiting.response("GET").text(), "ok");
    busy[1].send(b"body");
    assert_eq!(busy[1].response("POST").text(), "4");
}

/// The tables and the tests speak of the same limits.
#[test]
fn no_limit_is_without_a_test() {
    let tests = [
        include_str!("egress.rs"),
        include_str!("limits.rs"),
        include_str!("limits_of_clients.rs"),
        include_str!("translation.rs"),
    ]
    .concat();
    let tested: BTreeSet<&str> =
        tests.split("documented(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let missing: Vec<_> =
        rows().iter().map(|row| row.key.as_str()).filter(|key| !tested.contains(key)).collect();
    assert_eq!(missing, [""; 0], "limits in docs/limits.md that no test exceeds");
}
