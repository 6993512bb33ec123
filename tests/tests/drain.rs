//! A server that is told to stop: what runs comes to its end, what idles is closed first, and what does not end
//! is cut off at the deadline.

use sandtide_tests::{
    Client, Request, Server, guest,
    h2::{Connection, Frame, code, flag, get, kind, request},
};

fn serve(lines: &str) -> Option<Server> {
    let program = guest("suite_limits.c")?;
    let tenant = format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
         [tenants.guest.limits]\nwall_time = \"60 s\"\n"
    );
    Some(Server::start_with(&format!("threads = 2\n{lines}"), &tenant))
}

/// An exchange of h1 that waits for the rest of its body.
fn in_flight(server: &Server) -> Client {
    let mut client = server.connect();
    let upload = Request::new("POST", "guest", "/body").header("content-length", "4");
    client.send(&upload.header("expect", "100-continue").bytes());
    // The guest reads: the exchange has begun.
    assert_eq!(client.line(), "HTTP/1.1 100 Continue");
    assert_eq!(client.line(), "");
    client
}

fn stop(server: &Server) {
    let mark = server.log.mark();
    server.terminate();
    server.log.wait_since(mark, "it is told", |line| line.contains("SIGTERM"));
}

#[test]
fn idle_connections_are_closed_first() {
    let Some(mut server) = serve("") else { return };
    let mut busy = in_flight(&server);
    let mut idle = server.connect();
    assert_eq!(idle.ask(&Request::get("guest", "/ok")).status(), 200);
    let mut silent = server.connect();
    let mut idle_h2 = Connection::open(server.address());
    assert_eq!(idle_h2.get(1, "guest.test", "/ok").status(), Some(200));
    stop(&server);
    assert_eq!(idle.rest(), b"");
    assert_eq!(silent.rest(), b"");
    assert_eq!(idle_h2.closed(), Some(code::NO_ERROR));
    // Which the one that runs outlives.
    assert!(server.is_alive());
    busy.send(b"body");
    let response = busy.response("POST");
    assert_eq!(response.text(), "4");
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(busy.rest(), b"");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn h2_streams_come_to_their_end() {
    let Some(mut server) = serve("") else { return };
    let mut connection = Connection::open(server.address());
    connection.frame(&Frame::headers(1, 0, &request("POST", "guest.test", "/body")));
    connection.frame(&Frame::new(kind::DATA, 0, 1, *b"some"));
    // It is there: a ping behind it is answered.
    connection.frame(&Frame::new(kind::PING, 0, 0, [7; 8]));
    connection.until(|frame| frame.kind == kind::PING).expect("an answer");
    stop(&server);
    let away = connection.until(|frame| frame.kind == kind::GOAWAY).expect("a GOAWAY");
    assert_eq!(away.code(), Some(code::NO_ERROR));
    connection.frame(&Frame::new(kind::DATA, flag::END_STREAM, 1, *b" more"));
    let end = connection.end_of(1);
    assert_eq!(end.status(), Some(200), "{end:?}");
    connection.closed();
    assert_eq!(server.wait().code(), Some(0));
}

/// What a client sent before it could know is answered or refused by number: nothing is lost without a word.
#[test]
fn h2_requests_that_cross_the_goodbye() {
    let Some(mut server) = serve("") else { return };
    let mut connection = Connection::open(server.address());
    connection.frame(&Frame::headers(1, 0, &request("POST", "guest.test", "/body")));
    connection.frame(&Frame::new(kind::PING, 0, 0, [7; 8]));
    connection.until(|frame| frame.kind == kind::PING).expect("an answer");
    stop(&server);
    let mut last = u32::MAX;
    let mut answered = Vec::new();
    // Until the first GOAWAY is read, the client goes on.
    connection.frame(&Frame::headers(3, flag::END_STREAM, &get("guest.test", "/ok")));
    connection.frame(&Frame::new(kind::DATA, flag::END_STREAM, 1, *b"body"));
    while let Some(frame) = connection.receive() {
        if frame.kind == kind::GOAWAY {
            let bytes: [u8; 4] = frame.payload[..4].try_into().expect("a stream");
            last = last.min(u32::from_be_bytes(bytes) & 0x7fff_ffff);
        }
        if frame.is_last() {
            answered.push(frame.stream);
        }
    }
    assert!(answered.contains(&1), "{answered:?}");
    assert!(answered.contains(&3) || last < 3, "3 is lost: {answered:?}, {last}");
    assert_eq!(server.wait().code(), Some(0));
}

/// Nobody is let in any more.
#[test]
fn new_connections_are_refused() {
    let Some(mut server) = serve("") else { return };
    let address = server.address();
    let mut busy = in_flight(&server);
    stop(&server);
    // What the kernel let in before the listener was closed is still served, and then closed.
    while let Ok(stream) = std::net::TcpStream::connect(address) {
        drop(stream);
        let Ok(mut late) = Client::try_connect(address) else { break };
        let _ = late.try_send(&Request::get("guest", "/ok").bytes());
        let rest = late.rest();
        assert!(rest.is_empty() || rest.ends_with(b"\r\n\r\nok"), "{rest:?}");
    }
    busy.send(b"body");
    assert_eq!(busy.response("POST").text(), "4");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn what_does_not_end_is_cut_off() {
    let Some(mut server) = serve("drain = \"100 ms\"") else { return };
    let mut h1 = in_flight(&server);
    let mut h2 = Connection::open(server.address());
    h2.frame(&Frame::headers(1, 0, &request("POST", "guest.test", "/body")));
    h2.frame(&Frame::new(kind::PING, 0, 0, [7; 8]));
    h2.until(|frame| frame.kind == kind::PING).expect("an answer");
    stop(&server);
    assert!(h1.try_response("POST").is_err(), "it looks whole");
    assert_eq!(h2.end_of(1).status(), None);
    assert_eq!(server.wait().code(), Some(0));
    let log = server.log.since(0).join("\n");
    assert!(log.contains("cut off"), "{log}");
}
