//! The examples through the real server: what goes in and comes out, byte by byte.

use std::{collections::BTreeSet, fs, io::Write as _, thread};

use sandtide_tests::{
    Request, Server,
    binary::top,
    built, guest,
    h2::{self, flag, kind},
    log::field,
};

/// A table for an example; `None` without a compiler.
fn tenant(name: &str, source: &str, lines: &str) -> Option<String> {
    let program = built(&top().join("examples").join(source))?;
    Some(format!(
        "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n{lines}\n"
    ))
}

fn echo() -> Option<Server> {
    Some(Server::start(&tenant("echo", "echo/echo.c", "")?))
}

#[test]
fn a_guest_sees_the_whole_request() {
    let Some(server) = echo() else { return };
    let request = Request::new("PATCH", "echo", "/a/b%20c?x=1&y=%2F")
        .header("X-Twice", "one")
        .header("x-twice", "two")
        .header("X-Empty", "")
        .body("the body");
    let response = server.ask(&request);
    assert_eq!(response.status(), 200);
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(
        response.text(),
        "PATCH /a/b%20c?x=1&y=%2F\necho.test\nhost: echo.test\nx-twice: one\nx-twice: two\n\
         x-empty: \ncontent-length: 8\nx-forwarded-for: 127.0.0.1\nx-forwarded-proto: http\n\
         x-forwarded-host: echo.test\nthe body"
    );
}

#[test]
fn a_chunked_body_comes_in_whole() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    let head = Request::new("POST", "echo", "/").header("transfer-encoding", "chunked").bytes();
    client.send(&head);
    for chunk in [&b"5\r\nfirst\r\n"[..], b"7\r\n second\r\n", b"0", b"\r\n", b"\r\n"] {
        client.send(chunk);
    }
    assert!(client.response("POST").text().ends_with("first second"));
}

#[test]
fn a_body_goes_both_ways_at_a_time() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    client.send(&Request::new("POST", "echo", "/stream").header("content-length", "15").bytes());
    for piece in [&b"first"[..], b"second", b"last"] {
        client.send(piece);
        if piece == b"first" {
            assert_eq!(client.try_head("POST").expect("it begins before the end").status, 200);
        }
        // Each piece is back before the next is sent.
        assert_eq!(client.body_bytes(piece.len()), piece);
    }
    assert_eq!(client.try_piece().expect("the end"), b"");
}

#[test]
fn trailers_go_both_ways() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    let request = Request::new("POST", "echo", "/trailers")
        .header("transfer-encoding", "chunked")
        .header("trailer", "x-sum, x-note")
        .header("te", "trailers")
        .body("4\r\nbody\r\n0\r\nX-Sum: 42\r\nx-note: ends here\r\n\r\n");
    let response = client.ask(&request);
    assert_eq!(response.text(), "4 bytes of body, 2 trailers\n");
    assert_eq!(response.trailer("x-sum"), Some("42"));
    assert_eq!(response.trailer("x-note"), Some("ends here"));
    // The connection goes on.
    assert_eq!(client.ask(&Request::get("echo", "/")).status(), 200);
}

#[test]
fn trailers_go_both_ways_in_http_2() {
    let Some(server) = echo() else { return };
    let mut connection = h2::Connection::open(server.address());
    for stream in [1, 3] {
        let head = h2::request("POST", "echo.test", "/trailers");
        connection.frame(&h2::Frame::headers(stream, flag::NONE, &head));
        connection.frame(&h2::Frame::new(kind::DATA, flag::NONE, stream, *b"body"));
        let trailers = [("x-sum", "42"), ("x-note", "ends here")];
        connection.frame(&h2::Frame::headers(stream, flag::END_STREAM, &trailers));
        let mut frames = Vec::new();
        while frames.last().is_none_or(|frame: &h2::Frame| !frame.is_last()) {
            let own = connection.until(|frame| frame.stream == stream);
            frames.push(own.expect("the stream goes on"));
        }
        let body: Vec<u8> = frames
            .iter()
            .filter(|frame| frame.kind == kind::DATA)
            .flat_map(|frame| frame.payload.clone())
            .collect();
        assert_eq!(String::from_utf8_lossy(&body), "4 bytes of body, 2 trailers\n");
        assert_eq!((frames[0].kind, frames[0].status()), (kind::HEADERS, Some(200)));
        let last = frames.last().expect("there are frames");
        assert_eq!((last.kind, last.status()), (kind::HEADERS, None));
        assert!(!last.payload.is_empty());
    }
}

#[test]
fn big_bodies_go_both_ways() {
    let Some(server) = echo() else { return };
    let body: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    let mut client = server.connect();
    let request = Request::new("POST", "echo", "/stream");
    let head = request.header("content-length", &body.len().to_string()).bytes();
    client.send(&head);
    thread::scope(|scope| {
        // A client that reads only when it has written would wait for ever, as would the guest.
        let mut writer = client.writer();
        let body = &body;
        scope.spawn(move || writer.write_all(body).expect("the server reads"));
        let response = client.response("POST");
        assert_eq!(response.body.len(), body.len());
        assert!(response.body == *body);
    });
}

#[test]
fn head_has_no_body_and_the_connection_goes_on() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    for _ in 0..3 {
        let response = client.ask(&Request::new("HEAD", "echo", "/"));
        assert_eq!((response.status(), response.body.len()), (200, 0));
        assert!(client.ask(&Request::get("echo", "/next")).text().starts_with("GET /next\n"));
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    let mut requests = Vec::new();
    for number in 0..50 {
        let request = Request::new("POST", "echo", &format!("/{number}"));
        requests.extend(request.body(format!("body {number}")).bytes());
    }
    client.send(&requests);
    for number in 0..50 {
        let response = client.response("POST");
        assert!(response.text().starts_with(&format!("POST /{number}\n")), "{number}");
        assert!(response.text().ends_with(&format!("\nbody {number}")), "{number}");
    }
}

/// What a guest leaves unread of one request is not the next.
#[test]
fn a_body_that_nobody_reads_is_no_request() {
    let Some(table) = tenant("hello", "hello/hello.c", "") else { return };
    let server = Server::start(&[table, tenant("echo", "echo/echo.c", "").unwrap()].concat());
    let inner = Request::get("echo", "/smuggled").bytes();
    for size in [inner.len(), 40_000] {
        let mut body = inner.clone();
        body.resize(size, b'\n');
        let mut client = server.connect();
        client.send(&Request::new("POST", "hello", "/").body(body).bytes());
        client.send(&Request::get("echo", "/true").header("connection", "close").bytes());
        assert_eq!(client.response("POST").text(), "Hello, World!\n");
        // The connection may end here, but not go on with the wrong request.
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(!rest.contains("smuggled"), "{rest}");
        assert!(rest.is_empty() || rest.contains("GET /true\n"), "{rest}");
    }
}

#[test]
fn connections_close_when_the_client_says_so() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    let response = client.ask(&Request::get("echo", "/").header("connection", "close"));
    assert_eq!(response.header("connection"), Some("close"));
    assert_eq!(client.rest(), b"");
    // HTTP/1.0 closes by itself, and knows no chunks.
    let mut old = server.connect();
    old.send(b"GET / HTTP/1.0\r\nhost: echo.test\r\n\r\n");
    let everything = String::from_utf8(old.rest()).unwrap();
    assert!(everything.contains("GET /\necho.test\n"), "{everything}");
    assert!(!everything.to_lowercase().contains("chunked"), "{everything}");
}

#[test]
fn a_client_that_expects_to_be_told_is_told_to_go_on() {
    let Some(server) = echo() else { return };
    let mut client = server.connect();
    let request = Request::new("POST", "echo", "/").header("expect", "100-continue");
    client.send(&request.header("content-length", "4").bytes());
    assert_eq!(client.line(), "HTTP/1.1 100 Continue");
    assert_eq!(client.line(), "");
    client.send(b"body");
    assert!(client.response("POST").text().ends_with("body"));
}

#[test]
fn a_counter_loses_no_request() {
    const CLIENTS: u32 = 6;
    const REQUESTS: u32 = 150;
    let Some(table) = tenant("counter", "counter/counter.c", "isolation = \"none\"") else {
        return;
    };
    let server = Server::start_with("threads = 2", &table);
    let mut answers = BTreeSet::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.connect();
                    let mut ask = || client.ask(&Request::get("counter", "/")).text().to_owned();
                    (0..REQUESTS).map(|_| ask()).collect::<Vec<_>>()
                })
            })
            .collect();
        for client in clients {
            let own = client.join().expect("a client that got its answers");
            let own: Vec<u32> = own.iter().map(|text| text.trim().parse().unwrap()).collect();
            assert!(own.is_sorted(), "{own:?}");
            answers.extend(own);
        }
    });
    assert!(answers.iter().copied().eq(1..=CLIENTS * REQUESTS), "{answers:?}");
}

/// The same program without state: every answer is the first.
#[test]
fn without_state_every_request_is_the_first() {
    let Some(table) = tenant("counter", "counter/counter.c", "") else { return };
    let server = Server::start(&table);
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.ask(&Request::get("counter", "/")).text(), "1\n");
    }
}

#[test]
fn requests_find_their_tenant() {
    let constant = |name: &str, lines: &str| {
        format!("[tenants.{name}]\n{lines}\n[tenants.{name}.respond]\nbody = \"{name}\"\n")
    };
    let server = Server::start(
        &[
            constant("exact", "authorities = [\"a.example\", \"shop.b.example\"]"),
            constant("wild", "authorities = \"*.b.example\""),
            constant("deeper", "authorities = \"*.c.b.example\""),
            constant("cart", "authorities = \"a.example\"\npath = \"/cart\""),
            constant("fallback", "default = true"),
            constant("fallback-api", "default = true\npath = \"/api\""),
        ]
        .concat(),
    );
    for (authority, path, expected) in [
        ("a.example", "/", "exact"),
        ("A.Example:8080", "/x", "exact"),
        ("a.example", "/cart", "cart"),
        ("a.example", "/cart/1?x", "cart"),
        ("a.example", "/cartoon", "exact"),
        ("shop.b.example", "/", "exact"),
        ("x.b.example", "/", "wild"),
        ("x.y.b.example", "/", "wild"),
        ("x.c.b.example", "/", "deeper"),
        ("b.example", "/", "fallback"),
        ("nobody.example", "/", "fallback"),
        ("nobody.example", "/api/x", "fallback-api"),
    ] {
        assert_eq!(server.get(authority, path).text(), expected, "{authority}{path}");
    }
    // A target in absolute form goes before the host header (RFC 9112 §3.2.2).
    let mut client = server.connect();
    client.send(b"GET http://a.example/cart HTTP/1.1\r\nhost: nobody.example\r\n\r\n");
    assert_eq!(client.response("GET").text(), "cart");
}

#[test]
fn nothing_answers_where_no_tenant_is() {
    let server =
        Server::start("[tenants.a]\nauthorities = \"a.example\"\npath = \"/only\"\nrespond = {}\n");
    assert_eq!(server.get("a.example", "/only").status(), 200);
    for (authority, path) in [("a.example", "/"), ("b.example", "/only")] {
        let response = server.get(authority, path);
        assert_eq!(response.status(), 404, "{authority}{path}");
        assert_eq!(response.id().len(), 16);
    }
}

#[test]
fn constants_answer_as_configured() {
    let server = Server::start(
        "[tenants.none]\nauthorities = \"none.test\"\nrespond = { status = 204 }\n\
         [tenants.teapot]\nauthorities = \"teapot.test\"\n[tenants.teapot.respond]\n\
         status = 418\nheaders = { x-pot = [\"a\", \"b\"] }\nbody = \"short and stout\"\n",
    );
    let mut client = server.connect();
    let none = client.ask(&Request::get("none", "/"));
    assert_eq!((none.status(), none.header("content-length")), (204, None));
    let teapot = client.ask(&Request::get("teapot", "/"));
    assert_eq!((teapot.status(), teapot.text()), (418, "short and stout"));
    let pots = teapot.head.headers.iter().filter(|(name, _)| name == "x-pot").count();
    assert_eq!(pots, 2);
}

#[test]
fn python_programs_are_served() {
    let Some(page) = tenant("page", "python/page.py", "load = \"start\"") else { return };
    let Some(request) = tenant("request", "python-request/page.py", "") else { return };
    let server = Server::start(&[page, request].concat());
    let hello = server.log.wait("the line of on_init", |line| line.contains("Hello from Python"));
    assert_eq!(field(&hello, "tenant"), Some("page"), "{hello}");
    for _ in 0..3 {
        let response = server.get("page", "/");
        assert_eq!(response.status(), 200);
        assert!(response.header("content-type").is_some_and(|text| text.starts_with("text/plain")));
        let page = "this is a very long string if I had the energy to type more and more ...";
        assert_eq!(response.text(), page);
    }
    // Another status for another target.
    let statuses: BTreeSet<_> =
        ["/", "/no/such/page"].map(|path| server.get("request", path).status()).into();
    assert!(statuses.len() > 1, "{statuses:?}");
}

#[test]
fn files_are_seen_as_granted_and_only_so() {
    let Some(program) = guest("suite_hostile.c") else { return };
    let files = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(files.path().join("granted")).expect("the directory is ours");
    fs::write(files.path().join("granted/page"), "granted").expect("the directory is ours");
    fs::write(files.path().join("one"), "one file").expect("the directory is ours");
    fs::write(files.path().join("secret"), "secret").expect("the directory is ours");
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
         files = {{ \"/data\" = {:?}, \"/etc/one\" = {:?} }}\n",
        files.path().join("granted"),
        files.path().join("one"),
    ));
    let read = |path: &str| server.get("guest", &format!("/read?{path}")).text().to_owned();
    assert_eq!(read("/data/page"), "granted");
    assert_eq!(read("/data/../data/./page"), "granted");
    assert_eq!(read("/etc/one"), "one file");
    assert_eq!(read("/data/none"), "error 2");
    assert_eq!(read("/data/../secret"), "error 2");
    // What is written on the host is seen; what the guest writes is refused.
    fs::write(files.path().join("granted/later"), "later").expect("the directory is ours");
    assert_eq!(read("/data/later"), "later");
    let written = server.get("guest", "/write?/data/page").text().to_owned();
    assert!(["error 30", "error 13"].contains(&written.as_str()), "{written}");
    assert_eq!(fs::read_to_string(files.path().join("granted/page")).unwrap(), "granted");
}

#[test]
fn output_becomes_lines_of_the_tenants_log() {
    let Some(program) = guest("suite_limits.c") else { return };
    let server = Server::start(&format!(
        "[tenants.writer]\nauthorities = \"writer.test\"\nprogram = {program:?}\n"
    ));
    assert_eq!(server.get("writer", "/log/3").text(), "written");
    for number in 0..3 {
        let text = format!("line {number:06} of the flood");
        let line = server.log.wait(&text, |line| line.contains(&text));
        assert!(line.contains(" sandtide::guest: "), "{line}");
        assert_eq!(field(&line, "tenant"), Some("writer"), "{line}");
        assert_eq!(field(&line, "stream"), Some("stdout"), "{line}");
    }
}

#[test]
fn a_server_that_is_told_to_stop_ends_its_exchanges_first() {
    let Some(mut server) = echo() else { return };
    let mut client = server.connect();
    client.send(&Request::new("POST", "echo", "/stream").header("content-length", "9").bytes());
    client.send(b"first");
    client.try_head("POST").expect("the exchange has begun");
    assert_eq!(client.body_bytes(5), b"first");
    server.terminate();
    server.log.wait("it is told", |line| line.contains("SIGTERM"));
    client.send(b"last");
    assert_eq!(client.body_bytes(4), b"last");
    assert_eq!(client.try_piece().expect("the end"), b"");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_is_told_to_stop_cuts_off_what_does_not_end() {
    let Some(table) = tenant("echo", "echo/echo.c", "") else { return };
    let mut server = Server::start_with("threads = 1\ndrain = \"50 ms\"", &table);
    let mut client = server.connect();
    client.send(&Request::new("POST", "echo", "/stream").header("content-length", "9").bytes());
    client.send(b"first");
    client.try_head("POST").expect("the exchange has begun");
    server.terminate();
    assert!(server.wait().code().is_some());
    assert!(client.try_response("POST").is_err());
}
