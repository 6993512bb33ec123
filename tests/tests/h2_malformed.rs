//! HTTP/2 as no honest client speaks it. What breaks the connection ends it with the code that the standard
//! asks for, what breaks a request ends that one and reaches no guest; and a quiet client's connection, which is open
//! all the time, is served before, during and after.

use sandtide_tests::{
    Server,
    binary::top,
    built,
    h2::{self, Connection, End, Frame, PREFACE, code, flag, get, kind, request},
};

/// A server with an echo, and a quiet client's connection to it.
struct Quiet {
    server: Server,
    connection: Connection,
    next: u32,
}

impl Quiet {
    fn start(lines: &str) -> Option<Self> {
        let program = built(&top().join("examples/echo/echo.c"))?;
        let tenants =
            format!("[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {program:?}\n");
        let server = Server::start_with(&format!("threads = 1\n{lines}"), &tenants);
        let connection = Connection::open(server.address());
        let mut quiet = Self { server, connection, next: 1 };
        quiet.is_served("at first");
        Some(quiet)
    }

    fn connect(&self) -> Connection {
        Connection::open(self.server.address())
    }

    /// The quiet client gets its answer, on the connection that it has.
    fn is_served(&mut self, after: &str) {
        let end = self.connection.get(self.next, "echo.test", "/quiet");
        self.next += 2;
        let End::Response { status: 200, body } = end else { panic!("{after}: {end:?}") };
        assert!(body.starts_with(b"GET /quiet\necho.test\n"), "{after}");
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let log = self.server.log.since(0);
        let broken = |line: &&String| line.contains("panicked") || line.contains(" ERROR ");
        let broken = log.iter().find(broken);
        assert!(broken.is_none() || std::thread::panicking(), "{broken:?}");
    }
}

/// The frame that opens a stream and leaves it open, to send a body.
fn post(stream: u32, fields: &[(&str, &str)]) -> Frame {
    Frame::headers(stream, flag::NONE, &[&request("POST", "echo.test", "/"), fields].concat())
}

fn whole(stream: u32) -> Frame {
    Frame::headers(stream, flag::END_STREAM, &get("echo.test", "/attack"))
}

/// A frame that is long enough for what its kind is not.
fn of(kind: u8, flags: u8, stream: u32, length: usize) -> Frame {
    Frame::new(kind, flags, stream, vec![0; length])
}

#[test]
fn frames_that_end_the_connection() {
    use code::{
        COMPRESSION_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, PROTOCOL_ERROR, STREAM_CLOSED,
    };
    let Some(mut quiet) = Quiet::start("") else { return };
    let open = |stream| post(stream, &[]);
    let window = |stream, room: u32| Frame::new(kind::WINDOW_UPDATE, 0, stream, room.to_be_bytes());
    let hpack = |bytes: &[u8]| Frame::new(kind::HEADERS, flag::END_HEADERS | 1, 1, bytes);
    let unfinished =
        Frame::new(kind::HEADERS, flag::END_STREAM, 1, h2::block(&get("echo.test", "/")));
    let cases: Vec<(&str, Vec<Frame>, &[u32])> = vec![
        // On the wrong stream.
        ("data on 0", vec![of(kind::DATA, 0, 0, 4)], &[PROTOCOL_ERROR]),
        ("headers on 0", vec![Frame::headers(0, 1, &get("echo.test", "/"))], &[PROTOCOL_ERROR]),
        ("priority on 0", vec![of(kind::PRIORITY, 0, 0, 5)], &[PROTOCOL_ERROR]),
        ("reset on 0", vec![of(kind::RST_STREAM, 0, 0, 4)], &[PROTOCOL_ERROR]),
        ("continuation on 0", vec![of(kind::CONTINUATION, 4, 0, 4)], &[PROTOCOL_ERROR]),
        ("settings on 1", vec![of(kind::SETTINGS, 0, 1, 6)], &[PROTOCOL_ERROR]),
        ("ping on 1", vec![of(kind::PING, 0, 1, 8)], &[PROTOCOL_ERROR]),
        ("goaway on 1", vec![of(kind::GOAWAY, 0, 1, 8)], &[PROTOCOL_ERROR]),
        ("even stream", vec![whole(2)], &[PROTOCOL_ERROR]),
        ("lower stream", vec![whole(5), whole(3)], &[PROTOCOL_ERROR, STREAM_CLOSED]),
        ("data on an idle stream", vec![of(kind::DATA, 0, 9, 4)], &[PROTOCOL_ERROR]),
        ("reset of an idle stream", vec![of(kind::RST_STREAM, 0, 9, 4)], &[PROTOCOL_ERROR]),
        ("window of an idle stream", vec![window(9, 1)], &[PROTOCOL_ERROR]),
        // Of the wrong length.
        ("long frame", vec![open(1), of(kind::DATA, 0, 1, 16_385)], &[FRAME_SIZE_ERROR]),
        ("long headers", vec![of(kind::HEADERS, 4, 1, 16_385)], &[FRAME_SIZE_ERROR]),
        ("settings of 5 bytes", vec![of(kind::SETTINGS, 0, 0, 5)], &[FRAME_SIZE_ERROR]),
        ("acknowledgement with settings", vec![of(kind::SETTINGS, 1, 0, 6)], &[FRAME_SIZE_ERROR]),
        ("ping of 7 bytes", vec![of(kind::PING, 0, 0, 7)], &[FRAME_SIZE_ERROR]),
        ("goaway of 7 bytes", vec![of(kind::GOAWAY, 0, 0, 7)], &[FRAME_SIZE_ERROR]),
        ("reset of 3 bytes", vec![open(1), of(kind::RST_STREAM, 0, 1, 3)], &[FRAME_SIZE_ERROR]),
        ("window of 3 bytes", vec![of(kind::WINDOW_UPDATE, 0, 0, 3)], &[FRAME_SIZE_ERROR]),
        // With what must not be in them.
        ("no push", vec![Frame::settings(&[(2, 2)])], &[PROTOCOL_ERROR]),
        ("window of 2 GiB", vec![Frame::settings(&[(4, 1 << 31)])], &[FLOW_CONTROL_ERROR]),
        ("frames of a byte", vec![Frame::settings(&[(5, 1)])], &[PROTOCOL_ERROR]),
        ("frames of 16 MiB", vec![Frame::settings(&[(5, 1 << 24)])], &[PROTOCOL_ERROR]),
        ("no room for nothing", vec![window(0, 0)], &[PROTOCOL_ERROR]),
        ("room beyond measure", vec![window(0, 0x7fff_ffff)], &[FLOW_CONTROL_ERROR]),
        ("a promise", vec![open(1), of(kind::PUSH_PROMISE, 4, 1, 8)], &[PROTOCOL_ERROR]),
        (
            "all padding",
            vec![open(1), Frame::new(kind::DATA, flag::PADDED, 1, [9, 0])],
            &[PROTOCOL_ERROR],
        ),
        ("a head of padding", vec![Frame::new(kind::HEADERS, 0xc, 1, [9, 0])], &[PROTOCOL_ERROR]),
        // Out of order.
        (
            "continuation of nothing",
            vec![open(1), of(kind::CONTINUATION, 4, 1, 4)],
            &[PROTOCOL_ERROR],
        ),
        ("another between", vec![unfinished.clone(), of(kind::PING, 0, 0, 8)], &[PROTOCOL_ERROR]),
        (
            "another stream between",
            vec![unfinished.clone(), of(kind::CONTINUATION, 4, 3, 0)],
            &[PROTOCOL_ERROR],
        ),
        // HPACK.
        ("index 0", vec![hpack(&[0x80])], &[COMPRESSION_ERROR]),
        ("index of nothing", vec![hpack(&[0xff, 0x40])], &[COMPRESSION_ERROR]),
        ("table too large", vec![hpack(&[0x3f, 0xe1, 0xff, 0x03])], &[COMPRESSION_ERROR]),
        ("endless integer", vec![hpack(&[0xff; 20])], &[COMPRESSION_ERROR]),
        ("string beyond the block", vec![hpack(&[0, 0x7f, 0x20, b'a'])], &[COMPRESSION_ERROR]),
        ("bad huffman", vec![hpack(&[0, 0x84, 0xff, 0xff, 0xff, 0xff, 0])], &[COMPRESSION_ERROR]),
    ];
    let mut wrong = Vec::new();
    for (name, frames, expected) in cases {
        let mut connection = quiet.connect();
        frames.iter().for_each(|frame| {
            connection.frame(frame);
        });
        let code = connection.closed();
        // The library says `PROTOCOL_ERROR` where the standard has a word of its own.
        let is_expected = |code| code == PROTOCOL_ERROR || expected.contains(&code);
        if !code.is_some_and(is_expected) {
            wrong.push((name, code));
        }
        quiet.is_served(name);
    }
    assert_eq!(wrong, []);
}

#[test]
fn prefaces_that_are_none() {
    let Some(mut quiet) = Quiet::start("head_timeout = \"200 ms\"") else { return };
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX",
        b"PRI * HTTP/2.0\r\nhost: echo.test\r\n\r\n",
        b"PRI / HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"pri * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/1.1\r\nhost: echo.test\r\nconnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut connection = Connection::bare(quiet.server.address());
        connection.send(bytes);
        // Frames, a line of HTTP/1.1, or nothing at all; but the end.
        connection.finish_sending();
        connection.closed();
        quiet.is_served(&String::from_utf8_lossy(bytes));
    }
    // A preface without settings behind it is not a client's word for word, and nobody's harm.
    for frame in [of(kind::PING, 0, 0, 8), of(kind::SETTINGS, flag::ACK, 0, 0)] {
        let mut connection = Connection::bare(quiet.server.address());
        connection.send(PREFACE);
        connection.frame(&frame);
        connection.closed();
        quiet.is_served("a wrong first frame");
    }
}

/// What the standard says to ignore is ignored.
#[test]
fn frames_that_mean_nothing() {
    let Some(mut quiet) = Quiet::start("") else { return };
    for frame in [
        of(0x42, 0xff, 0, 100),
        of(0x42, 0xff, 1, 100),
        Frame::settings(&[(0x42, 7), (0xffff, 1)]),
        of(kind::PRIORITY, 0, 11, 5),
        of(kind::PING, 0, 0, 8),
        of(kind::PING, flag::ACK, 0, 8),
    ] {
        let mut connection = quiet.connect();
        connection.frame(&frame);
        assert_eq!(connection.get(1, "echo.test", "/").status(), Some(200), "{frame:?}");
        quiet.is_served("a frame that means nothing");
    }
}

/// Requests that are none: reset, or answered with 400, and no guest sees them.
#[test]
fn requests_that_are_malformed() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let mark = quiet.server.log.mark();
    let method = (":method", "GET");
    let scheme = (":scheme", "http");
    let authority = (":authority", "echo.test");
    let path = (":path", "/attack");
    let with = |field: (&'static str, &'static str)| vec![method, scheme, authority, path, field];
    let cases: Vec<(&str, Vec<(&str, &str)>)> = vec![
        ("no method", vec![scheme, authority, path]),
        ("no scheme", vec![method, authority, path]),
        ("no path", vec![method, scheme, authority]),
        ("no authority and no host", vec![method, scheme, path]),
        ("nothing", vec![]),
        ("two methods", vec![method, method, scheme, authority, path]),
        ("two schemes", vec![method, scheme, scheme, authority, path]),
        ("two authorities", vec![method, scheme, authority, authority, path]),
        ("two paths", vec![method, scheme, authority, path, path]),
        ("a status", vec![method, scheme, authority, path, (":status", "200")]),
        ("an unknown pseudo field", with((":extra", "1"))),
        ("a pseudo field behind others", vec![method, scheme, authority, ("x-a", "b"), path]),
        ("an empty path", vec![method, scheme, authority, (":path", "")]),
        ("a path without a slash", vec![method, scheme, authority, (":path", "attack")]),
        ("a path with a space", vec![method, scheme, authority, (":path", "/a b")]),
        ("a path with a line", vec![method, scheme, authority, (":path", "/a\r\nx: y")]),
        ("an empty method", vec![(":method", ""), scheme, authority, path]),
        ("a method with a space", vec![(":method", "GET /"), scheme, authority, path]),
        ("a method with a line", vec![(":method", "GET\r\n"), scheme, authority, path]),
        ("an authority with a user", vec![method, scheme, (":authority", "a@echo.test"), path]),
        ("an authority with a path", vec![method, scheme, (":authority", "echo.test/x"), path]),
        ("an authority with a space", vec![method, scheme, (":authority", "echo test"), path]),
        ("an authority with a line", vec![method, scheme, (":authority", "echo.test\r\n"), path]),
        ("an authority that is not the host", with(("host", "other.test"))),
        ("two hosts", vec![method, scheme, path, ("host", "echo.test"), ("host", "other.test")]),
        ("a tunnel", vec![(":method", "CONNECT"), authority]),
        ("upper case", with(("X-Upper", "a"))),
        ("a name with a space", with(("x y", "a"))),
        ("a name with a colon", with(("x:y", "a"))),
        ("a name with a line", with(("x\r\ny", "a"))),
        ("a name with NUL", with(("x\0", "a"))),
        ("an empty name", with(("", "a"))),
        ("a value with LF", with(("x", "a\nb"))),
        ("a value with CR", with(("x", "a\rb"))),
        ("a value with NUL", with(("x", "a\0b"))),
        ("connection", with(("connection", "close"))),
        ("keep-alive", with(("keep-alive", "timeout=5"))),
        ("proxy-connection", with(("proxy-connection", "close"))),
        ("transfer-encoding", with(("transfer-encoding", "chunked"))),
        ("upgrade", with(("upgrade", "h2c"))),
        ("te", with(("te", "gzip"))),
        ("a length without a body", with(("content-length", "4"))),
        ("a length that is none", with(("content-length", "four"))),
    ];
    for (name, fields) in cases {
        let mut connection = quiet.connect();
        connection.frame(&Frame::headers(1, flag::END_STREAM, &fields));
        match connection.end_of(1) {
            End::Reset(code::PROTOCOL_ERROR) | End::Closed(Some(code::PROTOCOL_ERROR)) => {}
            End::Response { status: 400, body } => {
                assert!(!body.starts_with(b"GET"), "{name} has reached the guest");
            }
            end => panic!("{name}: {end:?}"),
        }
        quiet.is_served(name);
    }
    let log = quiet.server.log.since(mark);
    assert!(!log.iter().any(|line| line.contains("fault=")), "{log:?}");
}

/// Bodies that are not as long as was announced.
#[test]
fn bodies_that_are_not_what_was_announced() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let data = |flags, bytes: &[u8]| Frame::new(kind::DATA, flags, 1, bytes);
    let cases: Vec<(&str, Vec<Frame>)> = vec![
        ("shorter", vec![post(1, &[("content-length", "5")]), data(flag::END_STREAM, b"four")]),
        ("longer", vec![post(1, &[("content-length", "3")]), data(flag::END_STREAM, b"four")]),
        ("none", vec![post(1, &[("content-length", "3")]), data(flag::END_STREAM, b"")]),
        (
            "shorter before trailers",
            vec![
                post(1, &[("content-length", "5")]),
                data(0, b"four"),
                Frame::headers(1, flag::END_STREAM, &[("x-sum", "1")]),
            ],
        ),
        (
            "two lengths",
            vec![
                post(1, &[("content-length", "4"), ("content-length", "5")]),
                data(flag::END_STREAM, b"four"),
            ],
        ),
        (
            "trailers that do not end",
            vec![post(1, &[]), data(0, b"four"), Frame::headers(1, 0, &[("x-sum", "1")])],
        ),
    ];
    for (name, frames) in cases {
        let mut connection = quiet.connect();
        frames.iter().for_each(|frame| {
            connection.frame(frame);
        });
        match connection.end_of(1) {
            End::Reset(code::PROTOCOL_ERROR) | End::Closed(Some(code::PROTOCOL_ERROR)) => {}
            End::Response { status: 400, .. } => {}
            end => panic!("{name}: {end:?}"),
        }
        quiet.is_served(name);
    }
}

/// Trailers say nothing of where a request goes: the library drops what pretends to.
#[test]
fn pseudo_fields_in_trailers() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let mut connection = quiet.connect();
    connection.frame(&Frame::headers(1, 0, &request("POST", "echo.test", "/trailers")));
    connection.frame(&Frame::new(kind::DATA, 0, 1, *b"four"));
    let trailers = [("x-sum", "1"), (":path", "/other"), (":authority", "other.test")];
    connection.frame(&Frame::headers(1, flag::END_STREAM, &trailers));
    match connection.end_of(1) {
        End::Response { status: 200, body } => {
            assert!(!String::from_utf8_lossy(&body).contains("other"), "{body:?}");
        }
        End::Response { status: 400, .. } | End::Reset(code::PROTOCOL_ERROR) => {}
        end => panic!("{end:?}"),
    }
    quiet.is_served("pseudo fields in trailers");
}

/// What comes on a stream that has ended concerns that stream or this connection, and no other.
#[test]
fn frames_behind_the_end_of_a_stream() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let ended = [
        Frame::headers(1, flag::END_STREAM, &[("x-sum", "1")]),
        whole(1),
        Frame::new(kind::DATA, flag::END_STREAM, 1, *b"more"),
    ];
    for frame in ended {
        let mut connection = quiet.connect();
        connection.frame(&whole(1));
        connection.frame(&frame);
        connection.frame(&frame);
        // A response may have gone out before the frame was seen.
        let end = connection.until(|frame| [kind::RST_STREAM, kind::GOAWAY].contains(&frame.kind));
        let code = end.and_then(|end| end.code());
        let expected = [code::STREAM_CLOSED, code::PROTOCOL_ERROR];
        assert!(code.is_some_and(|code| expected.contains(&code)), "{frame:?}: {code:?}");
        quiet.is_served("a frame behind the end");
    }
}

/// Room that a stream is given beyond measure ends the stream, and not the connection.
#[test]
fn windows_of_streams() {
    let Some(mut quiet) = Quiet::start("") else { return };
    for (room, expected) in [(0u32, code::PROTOCOL_ERROR), (0x7fff_ffff, code::FLOW_CONTROL_ERROR)]
    {
        let mut connection = quiet.connect();
        connection.frame(&post(1, &[]));
        connection.frame(&Frame::new(kind::WINDOW_UPDATE, 0, 1, room.to_be_bytes()));
        let end = connection.end_of(1);
        assert!(end == End::Reset(expected) || end == End::Closed(Some(expected)), "{end:?}");
        quiet.is_served("a window");
    }
}
