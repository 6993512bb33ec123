//! Too much of everything: each is refused with its status as soon as that is known, the connection is closed where
//! what follows could not be told from it, and the next request is served.

use std::fmt::Write as _;

use sandtide_tests::{Client, Request, Response, Server, binary::top, built, guest};

/// An echo behind these lines in `[server]`.
fn echo(server: &str) -> Option<Server> {
    let program = built(&top().join("examples/echo/echo.c"))?;
    let tenant = format!("[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {program:?}\n");
    Some(Server::start_with(&format!("threads = 1\n{server}"), &tenant))
}

/// What is answered to bytes that need not all be taken.
fn answer(server: &Server, bytes: &[u8]) -> Response {
    let mut client = server.connect();
    let _ = client.try_send(bytes);
    let response = client.response("GET");
    if response.status() != 200 {
        assert_eq!(client.rest(), b"", "the connection goes on behind {response:?}");
    }
    response
}

/// 431, said to be ours, and nothing of the inside.
fn is_too_large(response: &Response) {
    assert_eq!(response.status(), 431, "{response:?}");
    assert_eq!(response.header("connection"), Some("close"), "{response:?}");
}

#[test]
fn heads() {
    let Some(server) = echo("max_head = \"4 KiB\"") else { return };
    let get = |filling: usize| Request::get("echo", "/").header("x-long", &"x".repeat(filling));
    assert_eq!(answer(&server, &get(3000).bytes()).status(), 200);
    is_too_large(&answer(&server, &get(5000).bytes()));
    is_too_large(&answer(&server, &get(200_000).bytes()));
    // In many small fields, in a name, and in a target.
    let mut many = Request::get("echo", "/");
    for number in 0..90 {
        many = many.header(&format!("x-{number}"), &"y".repeat(50));
    }
    is_too_large(&answer(&server, &many.bytes()));
    let name = Request::get("echo", "/").header(&"n".repeat(5000), "v");
    is_too_large(&answer(&server, &name.bytes()));
    for target in [5000, 70_000] {
        let long = Request::get("echo", &format!("/{}", "t".repeat(target)));
        let response = answer(&server, &long.bytes());
        assert!([414, 431].contains(&response.status()), "{response:?}");
    }
    // A method without an end, and a line without one.
    is_too_large(&answer(&server, &[b'M'; 5000]));
    assert_eq!(server.get("echo", "/").status(), 200);
}

#[test]
fn numbers_of_headers() {
    let Some(server) = echo("max_headers = 20") else { return };
    let with = |count: usize| {
        // The host is one of them.
        (1..count)
            .fold(Request::get("echo", "/"), |request, n| request.header(&format!("x-{n}"), ""))
    };
    let fits = answer(&server, &with(20).bytes());
    assert_eq!(fits.status(), 200);
    assert!(fits.text().contains("\nx-19: \n"), "{}", fits.text());
    is_too_large(&answer(&server, &with(21).bytes()));
    // The same one, over and over.
    let same = (0..500).fold(Request::get("echo", "/"), |request, _| request.header("x-same", ""));
    is_too_large(&answer(&server, &same.bytes()));
    assert_eq!(server.get("echo", "/").status(), 200);
}

/// Without a configuration the defaults hold.
#[test]
fn defaults_are_safe() {
    let Some(server) = echo("") else { return };
    let long = Request::get("echo", "/").header("x-long", &"x".repeat(66 << 10));
    is_too_large(&answer(&server, &long.bytes()));
    let many = (0..100).fold(Request::get("echo", "/"), |request, _| request.header("x", ""));
    is_too_large(&answer(&server, &many.bytes()));
    let fits = Request::get("echo", "/").header("x-long", &"x".repeat(60 << 10));
    assert_eq!(answer(&server, &fits.bytes()).status(), 200);
}

/// A guest that answers with more headers than any client takes.
#[test]
fn heads_of_responses() {
    let Some(program) = guest("suite_responses.c") else { return };
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n"
    ));
    for (path, status) in [
        ("/fields?200", 200),
        ("/fields?256", 200),
        ("/fields?257", 502),
        ("/fields?100000", 502),
        ("/long-field?60000", 200),
        ("/long-field?66000", 502),
    ] {
        let response = server.get("guest", path);
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(server.get("guest", "/next").text(), "next", "{path}");
    }
}

/// With all connections taken, one that is idle makes room.
#[test]
fn connections() {
    let Some(server) = echo("max_connections = 4") else { return };
    let mut idle: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.ask(&Request::get("echo", "/")).status(), 200);
    }
    let mut more = server.connect();
    assert_eq!(more.ask(&Request::get("echo", "/")).status(), 200);
    let go_on = |client: &mut Client| {
        // It may be closed while this is on its way.
        let sent = client.try_send(&Request::get("echo", "/").bytes());
        sent.and_then(|()| client.try_response("GET")).is_ok()
    };
    let open = idle.iter_mut().filter_map(|client| go_on(client).then_some(())).count();
    assert_eq!(open, 3, "one of the idle ones is closed, and no other");
}

/// And when none is idle, the new one waits until one of them ends.
#[test]
fn connections_that_are_all_busy() {
    let Some(server) = echo("max_connections = 2") else { return };
    let mut busy: Vec<Client> = (0..2).map(|_| server.connect()).collect();
    for client in &mut busy {
        let head = Request::new("POST", "echo", "/stream").header("content-length", "6");
        client.send(&[&head.bytes(), &b"abc"[..]].concat());
        assert_eq!(client.try_head("POST").expect("a head").status, 200);
        assert_eq!(client.body_bytes(3), b"abc");
    }
    let mut waiting = server.connect();
    waiting.send(&Request::get("echo", "/waiting").bytes());
    // The busy ones go on, and the new one is not let in beside them.
    for client in &mut busy {
        client.send(b"d");
        assert_eq!(client.body_bytes(1), b"d");
    }
    assert_eq!(waiting.wait(std::time::Duration::from_millis(50)), None);
    busy[0].send(b"ef");
    assert_eq!(busy[0].body_bytes(2), b"ef");
    assert_eq!(busy[0].try_piece().expect("the end"), b"");
    // It is idle now, and makes room.
    assert!(waiting.response("GET").text().starts_with("GET /waiting\n"));
    busy[0].wait_cut();
    busy[1].send(b"ef");
    assert_eq!(busy[1].body_bytes(2), b"ef");
}

/// A flood of connections, most of which never say anything.
#[test]
fn many_connections() {
    let Some(server) = echo("max_connections = 50\nhead_timeout = \"60 s\"") else { return };
    let silent: Vec<Client> = (0..100).map(|_| server.connect()).collect();
    for _ in 0..20 {
        assert_eq!(server.get("echo", "/").status(), 200);
    }
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("proc(5)").count();
    assert!(sockets < 100, "{sockets} descriptors");
    drop(silent);
    assert_eq!(server.get("echo", "/").status(), 200);
}

/// Chunks of one byte: as much work as they are, they are a body.
#[test]
fn tiny_chunks() {
    let Some(server) = echo("") else { return };
    let mut body = String::new();
    for _ in 0..20_000 {
        body.write_str("1\r\nx\r\n").expect("a String takes everything");
    }
    let request = Request::new("POST", "echo", "/stream").header("transfer-encoding", "chunked");
    let mut client = server.connect();
    let bytes = request.body(format!("{body}0\r\n\r\n")).bytes();
    std::thread::scope(|scope| {
        let mut writer = client.writer();
        scope.spawn(move || {
            std::io::Write::write_all(&mut writer, &bytes).expect("the server reads");
        });
        let response = client.response("POST");
        assert_eq!((response.status(), response.body.len()), (200, 20_000));
    });
}
