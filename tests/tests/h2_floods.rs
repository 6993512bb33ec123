//! HTTP/2 without end: frames that cost the sender little and the receiver, if it lets them, much. The server ends
//! the connection or bears it, in bounded memory, and a quiet client on another connection is served meanwhile.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    net::TcpStream,
};

use sandtide_tests::{
    Server,
    binary::top,
    built,
    h2::{self, Connection, End, Frame, PREFACE, code, flag, get, kind, request},
};

/// How much more may be resident behind a flood: buffers, and no more than a few connections' worth.
const GROWTH: u64 = 24 << 20;

/// Bytes of a flood, at least, that is not stopped.
const MUCH: usize = 8 << 20;

struct Quiet {
    server: Server,
    connection: Connection,
    next: u32,
    resident: u64,
}

impl Quiet {
    fn start(lines: &str) -> Option<Self> {
        let program = built(&top().join("examples/echo/echo.c"))?;
        let tenants =
            format!("[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {program:?}\n");
        let server = Server::start_with(&format!("threads = 1\n{lines}"), &tenants);
        let connection = Connection::open(server.address());
        let mut quiet = Self { server, connection, next: 1, resident: 0 };
        quiet.is_served();
        quiet.resident = resident(&quiet.server);
        Some(quiet)
    }

    fn is_served(&mut self) {
        let end = self.connection.get(self.next, "echo.test", "/quiet");
        self.next += 2;
        assert_eq!(end.status(), Some(200), "{end:?}");
    }

    /// Sends the same bytes over and over behind these, reading nothing, until the server ends the
    /// connection, takes no more, or has taken much. The quiet client is served meanwhile.
    fn floods(&mut self, begin: &[Frame], bytes: &[u8]) -> Connection {
        let mut connection = Connection::bare(self.server.address());
        connection.send(PREFACE);
        connection.frame(&Frame::settings(&[]));
        begin.iter().for_each(|frame| {
            connection.frame(frame);
        });
        let mut socket = connection.socket();
        socket.set_nonblocking(true).expect("a socket can be set");
        let (mut sent, mut stuck) = (0, 0);
        while sent < MUCH && stuck < 20 {
            match write(&mut socket, bytes, sent % bytes.len()) {
                Some(0) => {
                    // It takes no more, for now: between two answers to others it may.
                    stuck += 1;
                    self.is_served();
                }
                Some(count) => sent += count,
                None => break,
            }
        }
        self.is_served();
        socket.set_nonblocking(false).expect("a socket can be set");
        let resident = resident(&self.server);
        assert!(resident < self.resident + GROWTH, "{} KiB, then {resident}", self.resident);
        connection
    }
}

/// Writes what fits, 0 if nothing does, `None` if the connection is over.
fn write(socket: &mut TcpStream, bytes: &[u8], from: usize) -> Option<usize> {
    match socket.write(&bytes[from..]) {
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("proc(5)");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("proc(5)");
    line.split_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).expect("kB") << 10
}

fn many(frame: &Frame) -> Vec<u8> {
    frame.bytes().repeat(1000)
}

#[test]
fn continuations() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let begin = Frame::new(kind::HEADERS, flag::END_STREAM, 1, h2::block(&get("echo.test", "/")));
    let field = h2::block(&[("x-filling", &"x".repeat(1000))]);
    let more = Frame::new(kind::CONTINUATION, 0, 1, field);
    let mut connection = quiet.floods(std::slice::from_ref(&begin), &many(&more));
    let code = connection.closed();
    let expected = [code::ENHANCE_YOUR_CALM, code::PROTOCOL_ERROR, code::COMPRESSION_ERROR];
    assert!(code.is_none_or(|code| expected.contains(&code)), "{code:?}");
    // Empty ones never end either.
    let mut connection = quiet.floods(&[begin], &many(&Frame::new(kind::CONTINUATION, 0, 1, [])));
    connection.closed();
    quiet.is_served();
}

#[test]
fn settings() {
    let Some(mut quiet) = Quiet::start("") else { return };
    quiet.floods(&[], &many(&Frame::settings(&[(4, 65_535)])));
    quiet.floods(&[], &many(&Frame::settings(&[])));
    quiet.is_served();
}

#[test]
fn pings() {
    let Some(mut quiet) = Quiet::start("") else { return };
    quiet.floods(&[], &many(&Frame::new(kind::PING, 0, 0, [1; 8])));
    quiet.is_served();
}

#[test]
fn priorities_windows_and_unknown_frames() {
    let Some(mut quiet) = Quiet::start("") else { return };
    quiet.floods(&[], &many(&Frame::new(kind::PRIORITY, 0, 3, [0, 0, 0, 0, 1])));
    quiet.floods(&[], &many(&Frame::new(kind::WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])));
    quiet.floods(&[], &many(&Frame::new(0x42, 0, 0, [7; 100])));
    quiet.is_served();
}

#[test]
fn empty_data() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let open = Frame::headers(1, 0, &request("POST", "echo.test", "/stream"));
    quiet.floods(std::slice::from_ref(&open), &many(&Frame::new(kind::DATA, 0, 1, [])));
    // Padding alone is flow-controlled: more than the window ends it.
    let padding = Frame::new(kind::DATA, flag::PADDED, 1, [&[200u8][..], &[0; 200]].concat());
    quiet.floods(&[open], &many(&padding));
    quiet.is_served();
}

/// CVE-2023-44487: streams that are opened and reset at once cost no more than the limit of streams says.
#[test]
fn rapid_resets() {
    let Some(mut quiet) = Quiet::start("") else { return };
    for target in ["/stream", "/"] {
        let mut connection = quiet.connect_raw();
        let mut flood = Vec::new();
        for stream in (1..40_000).step_by(2) {
            flood.extend(Frame::headers(stream, 0, &request("POST", "echo.test", target)).bytes());
            let cancel = code::CANCEL.to_be_bytes();
            flood.extend(Frame::new(kind::RST_STREAM, 0, stream, cancel).bytes());
        }
        connection.send(&flood);
        // Whole, or refused; and refused at some point, for it is too much.
        let code = connection.closed();
        assert!(
            [Some(code::ENHANCE_YOUR_CALM), Some(code::PROTOCOL_ERROR)].contains(&code),
            "{code:?}"
        );
        quiet.is_served();
    }
    assert!(resident(&quiet.server) < quiet.resident + GROWTH);
}

/// The same through the server's own resets: malformed frames that each earn one (CVE-2025-8671).
#[test]
fn resets_that_the_server_is_made_to_send() {
    let Some(mut quiet) = Quiet::start("") else { return };
    let mut connection = quiet.connect_raw();
    let mut flood = Vec::new();
    for stream in (1..40_000).step_by(2) {
        flood.extend(Frame::headers(stream, 0, &request("POST", "echo.test", "/stream")).bytes());
        flood.extend(Frame::new(kind::WINDOW_UPDATE, 0, stream, [0; 4]).bytes());
    }
    connection.send(&flood);
    let code = connection.closed();
    assert!(
        [Some(code::ENHANCE_YOUR_CALM), Some(code::PROTOCOL_ERROR)].contains(&code),
        "{code:?}"
    );
    quiet.is_served();
    assert!(resident(&quiet.server) < quiet.resident + GROWTH);
}

/// More streams at a time than the server allows: those are refused, and the others are served.
#[test]
fn streams_over_the_limit() {
    let Some(mut quiet) = Quiet::start("max_streams = 8") else { return };
    let mut connection = Connection::open(quiet.server.address());
    let limit = connection.until(|frame| frame.kind == kind::SETTINGS && frame.flags == 0);
    let limit = limit.expect("settings come first").payload;
    let limit = limit.chunks(6).find(|entry| entry[..2] == [0, 3]).expect("it says so");
    assert_eq!(limit[2..], 8u32.to_be_bytes());
    for stream in (1..24).step_by(2) {
        connection.frame(&Frame::headers(stream, 0, &request("POST", "echo.test", "/stream")));
    }
    let mut refused = Vec::new();
    while refused.len() < 4 {
        let frame = connection.until(|frame| frame.kind == kind::RST_STREAM).expect("refused");
        assert_eq!(frame.code(), Some(code::REFUSED_STREAM), "{frame:?}");
        refused.push(frame.stream);
    }
    assert_eq!(refused, [17, 19, 21, 23]);
    for stream in (1..16).step_by(2) {
        connection.frame(&Frame::new(kind::DATA, flag::END_STREAM, stream, *b"body"));
        let whole = End::Response { status: 200, body: b"body".to_vec() };
        let end = connection.end_of(stream);
        assert!(end == whole || end.status() == Some(0), "{stream}: {end:?}");
    }
    assert_eq!(connection.get(25, "echo.test", "/").status(), Some(200));
    quiet.is_served();
}

/// Heads that are too large: 431, on that stream alone.
#[test]
fn heads_that_are_too_large() {
    let Some(mut quiet) = Quiet::start("max_head = \"8 KiB\"\nmax_headers = 20") else { return };
    let long = "x".repeat(9000);
    let twenty: Vec<(String, String)> = (0..21).map(|n| (format!("x-{n}"), "y".into())).collect();
    let twenty: Vec<(&str, &str)> = twenty.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let path = format!("/{long}");
    for (name, fields) in [
        ("a long value", [&get("echo.test", "/")[..], &[("x-long", &long)]].concat()),
        ("many fields", [&get("echo.test", "/")[..], &twenty].concat()),
        ("a long path", get("echo.test", &path).to_vec()),
    ] {
        let mut connection = Connection::open(quiet.server.address());
        connection.frame(&Frame::headers(1, flag::END_STREAM, &fields));
        assert_eq!(connection.end_of(1).status(), Some(431), "{name}");
        assert_eq!(connection.get(3, "echo.test", "/").status(), Some(200), "{name}");
        quiet.is_served();
    }
}

/// A few bytes that stand for many: an entry of the table, again and again.
#[test]
fn heads_that_grow_when_they_are_unpacked() {
    let Some(mut quiet) = Quiet::start("") else { return };
    // What is somewhat too large is answered, what is beyond measure ends the connection.
    for (repeats, too_much) in [(20, false), (12_000, true)] {
        let mut connection = Connection::open(quiet.server.address());
        let mut block = h2::block(&get("echo.test", "/"));
        // A literal with indexing, of nearly the size of the table; then its index.
        block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
        block.extend([b'y'; 4000]);
        block.extend(vec![0xbe; repeats]);
        connection.frame(&Frame::new(kind::HEADERS, flag::END_HEADERS | 1, 1, block));
        let end = connection.end_of(1);
        let calm = End::Closed(Some(code::ENHANCE_YOUR_CALM));
        assert!(end.status() == Some(431) || (too_much && end == calm), "{repeats}: {end:?}");
        quiet.is_served();
    }
    assert!(resident(&quiet.server) < quiet.resident + GROWTH);
}

/// A client without room for answers holds what it asked for, and nothing else.
#[test]
fn clients_without_room() {
    let Some(mut quiet) = Quiet::start("max_streams = 32") else { return };
    let mut connection = Connection::with(quiet.server.address(), &[(4, 0)]);
    for stream in (1..64).step_by(2) {
        connection.frame(&Frame::headers(stream, 1, &get("echo.test", "/held")));
    }
    for _ in 0..50 {
        quiet.is_served();
    }
    // With room they are all there.
    for stream in (1..64u32).step_by(2) {
        connection.frame(&Frame::new(kind::WINDOW_UPDATE, 0, stream, 60_000u32.to_be_bytes()));
    }
    let mut ended = 0;
    while ended < 32 {
        let frame = connection.receive().expect("they are all answered");
        ended += u32::from(frame.is_last());
        assert_ne!(frame.kind, kind::RST_STREAM);
    }
    quiet.is_served();
}

impl Quiet {
    fn connect_raw(&self) -> Connection {
        Connection::open(self.server.address())
    }
}
