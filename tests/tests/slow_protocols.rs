//! Clients that take their time with what comes before a request: a TLS handshake, a PROXY header, a preface;
//! and with frames of HTTP/2. As in `slow`, each is given up when its timeout says.

use std::path::Path;

use sandtide_tests::{
    Client, Server, guest,
    h2::{self, Connection, Frame, PREFACE, code, flag, get, kind, request},
    proxy,
    tls::Authority,
};

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
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.get(1, "guest.test", "/ok").status(), Some(200));
}

#[test]
fn handshakes_that_stop() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let server = serve_tls(directory.path(), "head_timeout = \"100 ms\"");
    let address = server.address_at(1).expect("an address");
    // A TLS record that says it is longer; a record's first byte; nothing.
    for part in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\x16", b""] {
        let mut client = Client::connect(address);
        client.send(part);
        assert!(client.rest().len() < 100, "an alert at most");
    }
    // What is no TLS at all is an end as well.
    let mut client = Client::connect(address);
    client.send(b"GET / HTTP/1.1\r\nhost: fixed.test\r\n\r\n");
    let rest = client.rest();
    assert!(!rest.starts_with(b"HTTP/"), "{rest:?}");
    assert_eq!(server.get("fixed", "/").status(), 200);
}

#[test]
fn proxy_headers_that_stop() {
    let server = Server::of(
        "[server]\nlisten = [\"127.0.0.1:0\", { address = \"127.0.0.1:0\", proxy_protocol = true }]\n\
         threads = 1\nhead_timeout = \"100 ms\"\n\
         [tenants.fixed]\nauthorities = \"fixed.test\"\nrespond = { body = \"fixed\" }\n",
    );
    let address = server.address_at(1).expect("an address");
    let header = proxy::header(
        "192.0.2.1:1000".parse().expect("an address"),
        "192.0.2.2:80".parse().expect("an address"),
    );
    for length in [0, 1, 11, 12, 15, 16, header.len() - 1] {
        let mut client = Client::connect(address);
        client.send(&header[..length]);
        assert_eq!(client.rest(), b"", "{length} bytes of a header");
    }
    assert_eq!(server.get("fixed", "/").status(), 200);
}

/// A server with one listener in clear and one with TLS.
fn serve_tls(directory: &Path, lines: &str) -> Server {
    let identity = Authority::new(directory, "authority").issue("server", &["fixed.test"]);
    Server::of(&format!(
        "[server]\nlisten = [\"127.0.0.1:0\", {{ address = \"127.0.0.1:0\", tls = true }}]\n\
         threads = 1\n{lines}\n[tls]\ncertificates = [{}]\n\
         [tenants.fixed]\nauthorities = \"fixed.test\"\nrespond = {{ body = \"fixed\" }}\n",
        identity.toml()
    ))
}

#[test]
fn h2_heads_that_do_not_end() {
    let Some(server) = serve("head_timeout = \"100 ms\"", "") else { return };
    // Half a preface; a preface alone.
    for part in [&PREFACE[..10], &PREFACE[..14], PREFACE] {
        let mut connection = Connection::bare(server.address());
        connection.send(part);
        connection.closed();
    }
    // A head that waits for its continuation; half a frame.
    let begin =
        Frame::new(kind::HEADERS, flag::END_STREAM, 1, h2::block(&get("guest.test", "/ok")));
    for bytes in [begin.bytes(), begin.bytes()[..20].to_vec()] {
        let mut connection = Connection::open(server.address());
        connection.send(&bytes);
        connection.closed();
    }
    is_served(&server);
}

#[test]
fn h2_bodies_that_stop() {
    let Some(server) = serve("body_timeout = \"100 ms\"", "") else { return };
    let mut connection = Connection::open(server.address());
    connection.frame(&Frame::headers(1, 0, &request("POST", "guest.test", "/body")));
    connection.frame(&Frame::new(kind::DATA, 0, 1, *b"some"));
    assert_eq!(connection.end_of(1).status(), Some(408));
    // Its neighbours on the connection have nothing to do with it.
    assert_eq!(connection.get(3, "guest.test", "/ok").status(), Some(200));
    is_served(&server);
}

#[test]
fn h2_responses_that_nobody_reads() {
    let limits = "response_time = \"200 ms\"\nresponse_body = \"1 GiB\"\nwall_time = \"30 s\"";
    let Some(server) = serve("", limits) else { return };
    let mut connection = Connection::open(server.address());
    connection.frame(&Frame::headers(1, flag::END_STREAM, &get("guest.test", "/stream")));
    // No room is given for more than the first 64 KiB.
    let end = connection.until(|frame| frame.stream == 1 && frame.kind == kind::RST_STREAM);
    assert!(end.is_some(), "the stream is not ended");
    // The connection has no room either, but an answer without a body needs none.
    let head = Frame::headers(3, flag::END_STREAM, &request("HEAD", "guest.test", "/ok"));
    connection.frame(&head);
    let end = connection.until(|frame| frame.stream == 3 && frame.is_last());
    assert!(end.is_some(), "the connection is ended");
    is_served(&server);
}

#[test]
fn h2_connections_that_are_idle() {
    let Some(server) = serve("idle_timeout = \"100 ms\"", "") else { return };
    let mut connection = Connection::open(server.address());
    assert_eq!(connection.get(1, "guest.test", "/ok").status(), Some(200));
    assert_eq!(connection.closed(), Some(code::NO_ERROR));
    is_served(&server);
}

/// Many of each, all at a time, and a client that means it.
#[test]
fn many_slow_clients_of_each_kind() {
    let lines = "head_timeout = \"300 ms\"\nbody_timeout = \"300 ms\"";
    let Some(server) = serve(lines, "") else { return };
    let mut slow: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (number, client) in slow.iter_mut().enumerate() {
        match number % 3 {
            0 => client.send(b"GET / HTTP/1.1\r\nhost"),
            1 => client.send(b"PRI * HTTP/2.0\r\n\r\nSM"),
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
