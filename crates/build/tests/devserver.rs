//! The HTTP server that a C program is outside a sandbox (sdk/c/sandtide_devserver.h), through
//! examples/echo.
#![allow(clippy::unwrap_used)]

mod support;

use sandtide_build::CompilerChoice;
use support::{Server, has_qemu, program, root, split};

fn echo() -> Option<(Server, tempfile::TempDir)> {
    let scratch = tempfile::tempdir().unwrap();
    let source = root().join("examples/echo/echo.c");
    let program = program(&source, scratch.path(), CompilerChoice::Auto)?;
    has_qemu().then(|| (Server::start(&program), scratch))
}

const HOST: &str = "Host: h\r\n";
const LAST: &str = "Host: h\r\nConnection: close\r\n";

#[test]
fn requests_arrive_whole() {
    let Some((server, _scratch)) = echo() else { return };
    let long = "a".repeat(40_000);
    let body = "x".repeat(1_000_000);
    for (request, expected) in [
        (format!("GET /a?b=c HTTP/1.1\r\n{LAST}X-One:  1 \r\n\r\n"), "GET /a?b=c\nh\n"),
        (format!("GET / HTTP/1.1\r\n{LAST}X-One:  1 \r\n\r\n"), "x-one: 1\n"),
        (format!("\r\nGET / HTTP/1.1\r\n{LAST}\r\n"), "GET /\n"),
        ("GET /old HTTP/1.0\r\n\r\n".to_owned(), "GET /old\n\n"),
        (format!("GET http://o:80?q HTTP/1.1\r\n{LAST}\r\n"), "GET /?q\no:80\n"),
        (format!("OPTIONS * HTTP/1.1\r\n{LAST}\r\n"), "OPTIONS *\n"),
        (format!("POST / HTTP/1.1\r\n{LAST}Content-Length: 5\r\n\r\nhello"), "5\nhello"),
        (
            format!(
                "POST / HTTP/1.1\r\n{LAST}Transfer-Encoding: chunked\r\n\r\n\
                 5;x=\"y\"\r\nhello\r\nA\r\n, chunked!\r\n0\r\n\r\n"
            ),
            "hello, chunked!",
        ),
        // Larger than the SDK's first buffer for a block, and than the server's input.
        (format!("GET / HTTP/1.1\r\n{LAST}X-Long: {long}\r\n\r\n"), &long),
        (format!("POST / HTTP/1.1\r\n{LAST}Content-Length: 1000000\r\n\r\n{body}"), &body),
    ] {
        let answer = server.exchange(&request);
        let (status, _, text) = split(&answer);
        assert_eq!(status, 200, "{answer}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn bad_requests_are_refused_and_closed() {
    let Some((server, _scratch)) = echo() else { return };
    let long = "a".repeat(70_000);
    let many = "X: a\r\n".repeat(200);
    for (expected, request) in [
        (400, "GET / HTTP/1.1\nHost: h\n\n".to_owned()),
        (400, "GET / HTTP/1.1\r\n\r\n".to_owned()),
        (400, format!("GET / HTTP/1.1\r\n{HOST}{HOST}\r\n")),
        (400, format!("GET  / HTTP/1.1\r\n{HOST}\r\n")),
        (400, format!("G@T / HTTP/1.1\r\n{HOST}\r\n")),
        (400, format!("GET a HTTP/1.1\r\n{HOST}\r\n")),
        (400, format!("GET * HTTP/1.1\r\n{HOST}\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{HOST}X: a\r\n b\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{HOST}X : a\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{HOST}X: a\0b\r\n\r\n")),
        (400, format!("GET / HTTP/1.1\r\n{HOST}X: a\rb\r\n\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{HOST}Content-Length: +3\r\n\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 99999999999999999999\r\n\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\n")),
        (
            400,
            format!(
                "POST / HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ),
        ),
        (400, format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\n")),
        (400, format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n")),
        (417, format!("POST / HTTP/1.1\r\n{HOST}Expect: a-pony\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\n{HOST}X: {long}\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\n{HOST}{many}\r\n")),
        (501, format!("CONNECT a:1 HTTP/1.1\r\n{HOST}\r\n")),
        (501, format!("POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked\r\n\r\n")),
        (505, format!("GET / HTTP/2.0\r\n{HOST}\r\n")),
    ] {
        let answer = server.exchange(&request);
        let (status, head, _) = split(&answer);
        assert_eq!(status, expected, "{}", request.chars().take(200).collect::<String>());
        assert!(head.contains("connection: close"), "{head}");
    }
    let answer = server.exchange(&format!("GET /still HTTP/1.1\r\n{LAST}\r\n"));
    assert!(split(&answer).2.starts_with("GET /still\n"));
}

#[test]
fn a_connection_serves_request_after_request() {
    let Some((server, _scratch)) = echo() else { return };
    let mut connection = server.connect();
    // The echo refuses this body unread; the server reads and drops it.
    let large = "x".repeat((1 << 20) + 1);
    connection.send(&format!("POST / HTTP/1.1\r\n{HOST}Content-Length: 1048577\r\n\r\n{large}"));
    connection.expect("use /stream for more.\n");
    connection.send(&format!("HEAD / HTTP/1.1\r\n{HOST}\r\nGET /2 HTTP/1.1\r\n{LAST}\r\n"));
    let text = connection.rest();
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    let after = text.split("use /stream for more.\n").nth(1).unwrap();
    let (head_response, last) = after.split_once("\r\n\r\n").unwrap();
    assert!(head_response.starts_with("HTTP/1.1 200 "), "{after}");
    assert!(split(last).2.starts_with("GET /2\n"), "{last}");
}

#[test]
fn bodies_stream_both_ways_at_once() {
    let Some((server, _scratch)) = echo() else { return };
    let mut connection = server.connect();
    connection.send(&format!(
        "POST /stream HTTP/1.1\r\n{LAST}Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"
    ));
    connection.expect("5\r\nfirst\r\n");
    connection.send("6\r\nsecond\r\n");
    connection.expect("6\r\nsecond\r\n");
    connection.send("0\r\n\r\n");
    assert!(connection.rest().ends_with("second\r\n0\r\n\r\n"));
}

#[test]
fn trailers_come_back_as_trailers() {
    let Some((server, _scratch)) = echo() else { return };
    let answer = server.exchange(&format!(
        "POST /trailers HTTP/1.1\r\n{LAST}Transfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\nX-Sum: 99\r\nB: c\r\n\r\n"
    ));
    let (_, _, body) = split(&answer);
    assert_eq!(body, "5 bytes of body, 2 trailers\nx-sum: 99\r\nb: c\r\n\r\n");
}

#[test]
fn a_body_is_asked_for_when_the_program_reads_it() {
    let Some((server, _scratch)) = echo() else { return };
    let mut connection = server.connect();
    connection.send(&format!(
        "POST / HTTP/1.1\r\n{LAST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    ));
    connection.expect("HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("hello");
    assert!(connection.rest().contains("5\r\nhello\r\n0\r\n\r\n"));
}

#[test]
fn interim_responses_come_before_the_body_is_asked_for() {
    let Some((server, _scratch)) = echo() else { return };
    let mut connection = server.connect();
    connection.send(&format!(
        "POST /hints HTTP/1.1\r\n{LAST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    ));
    connection.expect("HTTP/1.1 103 \r\nlink: </style.css>; rel=preload; as=style\r\n\r\n");
    connection.expect("HTTP/1.1 100 Continue\r\n\r\n");
    connection.send("hello");
    connection.expect("HTTP/1.1 200 \r\n");
    assert!(connection.rest().contains("5\r\nhello\r\n0\r\n\r\n"));
    // HTTP/1.0 has none.
    let answer = server.exchange("GET /hints HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn neither_an_idle_client_nor_one_that_left_blocks_the_next() {
    let Some((server, _scratch)) = echo() else { return };
    let _idle = server.connect();
    let mut leaves = server.connect();
    leaves.send(&format!("POST /stream HTTP/1.1\r\n{HOST}Content-Length: 100\r\n\r\nabc"));
    leaves.expect("3\r\nabc\r\n");
    drop(leaves);
    let answer = server.exchange(&format!("GET /next HTTP/1.1\r\n{LAST}\r\n"));
    assert!(split(&answer).2.starts_with("GET /next\n"));
}
