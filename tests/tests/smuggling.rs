//! Requests that two servers might read in two ways. Each is refused, with what follows it on its
//! connection, or read in the one way that the standard gives, and then what follows is answered by itself.
//!
//! The tenant is the echo example: its answers show what a guest was given.

use sandtide_tests::{Request, Response, Server, binary::top, built, guest, log::field};

/// What follows each case on its connection.
const NEXT: &str = "GET /next HTTP/1.1\r\nhost: echo.test\r\nconnection: close\r\n\r\n";

const POST: &str = "POST /first HTTP/1.1\r\nhost: echo.test\r\n";
const GET: &str = "GET /first HTTP/1.1\r\nhost: echo.test\r\n";

fn serve() -> Option<Server> {
    let program = built(&top().join("examples/echo/echo.c"))?;
    Some(Server::start(&format!(
        "[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {program:?}\n\
         [tenants.other]\nauthorities = \"other.test\"\nrespond = {{ body = \"other\" }}\n"
    )))
}

/// Everything that is answered to these bytes and the request behind them.
fn answers(server: &Server, bytes: &[u8]) -> Vec<Response> {
    let mut client = server.connect();
    // The server need not take what it will not read.
    let _ = client.try_send(&[bytes, NEXT.as_bytes()].concat());
    let mut answers = Vec::new();
    while let Ok(response) = client.try_response("GET") {
        answers.push(response);
    }
    answers
}

/// One answer, with this status; then the connection is closed, and nothing behind is answered.
fn is_refused(server: &Server, status: u16, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let answers = answers(server, bytes);
    let statuses: Vec<_> = answers.iter().map(Response::status).collect();
    assert_eq!(statuses, [status], "{shown:?}");
    assert!(!answers[0].text().contains("/next"), "{shown:?}");
}

/// Two answers: the first ends with this body, as the guest got it, and the second is for what follows.
fn is_read(server: &Server, body: &str, bytes: impl AsRef<[u8]>) {
    let shown = String::from_utf8_lossy(bytes.as_ref()).into_owned();
    let answers = answers(server, bytes.as_ref());
    let statuses: Vec<_> = answers.iter().map(Response::status).collect();
    assert_eq!(statuses, [200, 200], "{shown:?}");
    let first = answers[0].text();
    assert!(first.contains(" /first\necho.test\n"), "{shown:?}: {first}");
    assert!(first.ends_with(&format!("\n{body}")), "{shown:?}: {first}");
    assert!(answers[1].text().starts_with("GET /next\n"), "{shown:?}: {}", answers[1].text());
}

#[test]
fn lengths_that_can_be_read_in_two_ways() {
    let Some(server) = serve() else { return };
    for fields in [
        "content-length: 4\r\ncontent-length: 5\r\n",
        "content-length: 4\r\nx-between: a\r\ncontent-length: 0\r\n",
        "content-length: 4, 5\r\n",
        "content-length: 4, 4\r\n",
        "content-length: +4\r\n",
        "content-length: -4\r\n",
        "content-length: 0x4\r\n",
        "content-length: 4.0\r\n",
        "content-length: 4e0\r\n",
        "content-length: 4 4\r\n",
        "content-length: four\r\n",
        "content-length: \r\n",
        "content-length:\r\n",
        "content-length: 4;\r\n",
        "content-length: \"4\"\r\n",
        "content-length: 18446744073709551620\r\n",
        "content-length: 99999999999999999999999999999999\r\n",
        "content-length : 4\r\n",
        "content-length\t: 4\r\n",
        " content-length: 4\r\n",
        "x-folded: a\r\n content-length: 4\r\n",
        "content-length:\r\n 4\r\n",
        "content-length: 4\0\r\n",
        "content-length: 4\r5\r\n",
        "content-\u{17f}ength: 4\r\n",
    ] {
        is_refused(&server, 400, format!("{POST}{fields}\r\nabcd"));
    }
    // The same length twice is one length (RFC 9110 §8.6).
    is_read(&server, "abcd", format!("{POST}content-length: 4\r\ncontent-length: 4\r\n\r\nabcd"));
    is_read(&server, "abcd", format!("{POST}content-length: \t 4 \t\r\n\r\nabcd"));
    is_read(&server, "abcd", format!("{POST}content-length: 0004\r\n\r\nabcd"));
    is_read(&server, "abcd", format!("{GET}content-length: 4\r\n\r\nabcd"));
    // Another header is no length.
    is_read(&server, "", format!("{POST}content_length: 4\r\n\r\n"));
}

#[test]
fn lengths_beside_codings() {
    let Some(server) = serve() else { return };
    // The coding goes before the length, and the connection ends (RFC 9112 §6.1).
    for fields in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 4\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n",
        "content-length: 100000\r\ntransfer-encoding: chunked\r\n",
    ] {
        let bytes = format!("{POST}{fields}\r\n2\r\nab\r\n0\r\n\r\n");
        let answers = answers(&server, bytes.as_bytes());
        let statuses: Vec<_> = answers.iter().map(Response::status).collect();
        match statuses[..] {
            [400] => {}
            [200] => {
                let text = answers[0].text();
                assert!(text.ends_with("\nab") && !text.contains("content-length"), "{text}");
                assert_eq!(answers[0].header("connection"), Some("close"));
            }
            _ => panic!("{fields:?}: {statuses:?}"),
        }
    }
}

#[test]
fn codings_that_are_not_chunked() {
    let Some(server) = serve() else { return };
    for fields in [
        "transfer-encoding: identity\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: identity, chunked\r\n",
        "transfer-encoding: gzip, chunked\r\n",
        "transfer-encoding: gzip\r\n",
        "transfer-encoding: chunked, chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
        "transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked,\r\n",
        "transfer-encoding: ,chunked\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunkedx\r\n",
        "transfer-encoding: chunked;q=1\r\n",
        "transfer-encoding: \"chunked\"\r\n",
        "transfer-encoding: 'chunked'\r\n",
        "transfer-encoding: \r\n",
        "transfer-encoding: \u{b}chunked\r\n",
        "transfer-encoding: chunked\0\r\n",
        "transfer-encoding: chun\u{212a}ed\r\n",
        "transfer-encoding:\r\n chunked\r\n",
        "transfer-encoding: chunked\r\n , identity\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer-encoding\t: chunked\r\n",
        " transfer-encoding: chunked\r\n",
        "x-folded: a\r\n transfer-encoding: chunked\r\n",
        "x-bare: a\rtransfer-encoding: chunked\r\n",
    ] {
        is_refused(&server, 400, format!("{POST}{fields}\r\n2\r\nab\r\n0\r\n\r\n"));
    }
    // HTTP/1.0 has no codings.
    let old = "POST /first HTTP/1.0\r\nhost: echo.test\r\nconnection: keep-alive\r\n";
    is_refused(&server, 400, format!("{old}transfer-encoding: chunked\r\n\r\n0\r\n\r\n"));
    for field in ["chunked", "CHUNKED", "Chunked", "\tchunked", "chunked\t", "  chunked  "] {
        let bytes = format!("{POST}transfer-encoding:{field}\r\n\r\n2\r\nab\r\n0\r\n\r\n");
        is_read(&server, "ab", bytes);
    }
    let get = format!("{GET}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n");
    is_read(&server, "ab", get);
    is_read(&server, "", format!("{POST}transfer_encoding: chunked\r\n\r\n"));
}

/// The body of a chunked request that begins well.
fn chunked(chunks: &str) -> String {
    format!("{POST}transfer-encoding: chunked\r\n\r\n2\r\nab\r\n{chunks}")
}

#[test]
fn chunks_that_are_not_chunks() {
    let Some(server) = serve() else { return };
    for chunks in [
        "-1\r\nx\r\n0\r\n\r\n",
        "+1\r\nx\r\n0\r\n\r\n",
        "0x1\r\nx\r\n0\r\n\r\n",
        "1.0\r\nx\r\n0\r\n\r\n",
        "g\r\nx\r\n0\r\n\r\n",
        "\r\nx\r\n0\r\n\r\n",
        " 1\r\nx\r\n0\r\n\r\n",
        "1 1\r\nx\r\n0\r\n\r\n",
        "1,\r\nx\r\n0\r\n\r\n",
        "\u{ff11}\r\nx\r\n0\r\n\r\n",
        "10000000000000001\r\nx\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nx\r\n0\r\n\r\n",
        // The line has to end as lines do, and the data where it says.
        "1\nx\r\n0\r\n\r\n",
        "1\rx\r\n0\r\n\r\n",
        "1\r\nx\n0\r\n\r\n",
        "1\r\nx0\r\n\r\n",
        "1\r\nxx\r\n0\r\n\r\n",
        "2\r\nx\r\n0\r\n\r\n",
        "1;a\nx\r\n0\r\n\r\n",
        "1;a\rb\r\nx\r\n0\r\n\r\n",
        "0\n\n",
        // Trailers are fields.
        "0\r\nno field\r\n\r\n",
        "0\r\nx y: a\r\n\r\n",
        "0\r\nx : a\r\n\r\n",
        "0\r\n: a\r\n\r\n",
        "0\r\nx: a\0b\r\n\r\n",
        "0\r\nx: a\r\n folded\r\n\r\n",
    ] {
        is_refused(&server, 400, chunked(chunks));
    }
    for chunks in [
        "1;name=value\r\nx\r\n0\r\n\r\n",
        "1;name=\"a;b\"\r\nx\r\n0\r\n\r\n",
        "01\r\nx\r\n00\r\n\r\n",
        "1\r\nx\r\n0;last\r\nx-trailer: a\r\n\r\n",
    ] {
        is_read(&server, "abx", chunked(chunks));
    }
}

#[test]
fn chunks_that_are_too_much() {
    let Some(server) = serve() else { return };
    let long = "e".repeat(100_000);
    is_refused(&server, 400, chunked(&format!("1;{long}\r\nx\r\n0\r\n\r\n")));
    // Small ones that add up.
    let many = format!("1;{}\r\nx\r\n", "e".repeat(8_000)).repeat(20);
    is_refused(&server, 400, chunked(&format!("{many}0\r\n\r\n")));
    is_refused(&server, 400, chunked(&format!("0\r\nx: {long}\r\n\r\n")));
    is_refused(&server, 400, chunked(&format!("0\r\n{}\r\n", "x: a\r\n".repeat(10_000))));
    assert_eq!(server.get("echo", "/").status(), 200);
}

/// A trailer is never taken for a header.
#[test]
fn trailers_that_would_frame() {
    let Some(server) = serve() else { return };
    let trailers =
        "0\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nhost: other.test\r\n\r\n";
    is_read(&server, "ab", chunked(trailers));
    // Nor does a guest that sends them back frame anything with them.
    let bytes = format!(
        "POST /trailers HTTP/1.1\r\nhost: echo.test\r\nte: trailers\r\n\
         transfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nx-sum: 1\r\ncontent-length: 5\r\n\
         transfer-encoding: chunked\r\nconnection: close\r\n\r\n{NEXT}"
    );
    let mut client = server.connect();
    client.send(bytes.as_bytes());
    let response = client.response("POST");
    for name in ["content-length", "transfer-encoding", "connection"] {
        assert_eq!(response.trailer(name), None, "{response:?}");
    }
    assert!(client.response("GET").text().starts_with("GET /next\n"));
}

#[test]
fn heads_that_are_not_heads() {
    let Some(server) = serve() else { return };
    for head in [
        "GET  /first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /first  HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET\t/first\tHTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /a b HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /a\0b HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /first\r\nhost: echo.test\r\n\r\n",
        "GET /first\r\n\r\n",
        "GET /first HTTP/1.1 \r\nhost: echo.test\r\n\r\n",
        "GET /first HTTP/1.2\r\nhost: echo.test\r\n\r\n",
        "GET /first HTTP/2.0\r\nhost: echo.test\r\n\r\n",
        "GET /first http/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /first HTTP/1.1x\r\nhost: echo.test\r\n\r\n",
        "G@T /first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "G(T /first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        " GET /first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "/first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET first HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET * HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "CONNECT echo.test:80 HTTP/1.1\r\nhost: echo.test\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx\0: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx: a\0b\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx: a\u{7f}b\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx y: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx\u{e9}: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\n: a\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nno colon\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost: echo.test\r\nx: a\rb: c\r\n\r\n",
        "GET /first HTTP/1.1\r\n host: echo.test\r\n\r\n",
        "GET /first HTTP/1.1\r\nhost : echo.test\r\n\r\n",
    ] {
        is_refused(&server, 400, head);
    }
    // Empty lines before a request are skipped (RFC 9112 §2.2), and a lone LF ends a line.
    is_read(&server, "", format!("\r\n\r\n{GET}\r\n"));
    is_read(&server, "", "GET /first HTTP/1.1\nhost: echo.test\n\n");
}

#[test]
fn hosts_that_name_nobody_or_two() {
    let Some(server) = serve() else { return };
    let get = |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\n{fields}\r\n");
    for fields in [
        "",
        "host: echo.test\r\nhost: other.test\r\n",
        "host: echo.test\r\nhost: echo.test\r\n",
        "host: echo.test, other.test\r\n",
        "host: echo.test other.test\r\n",
        "host: other.test@echo.test\r\n",
        "host: echo.test/other.test\r\n",
        "host: http://echo.test\r\n",
        "host: echo.test:80:80\r\n",
        "host: echo.test:x\r\n",
        "host: echo.test:65536\r\n",
        "host: [::1\r\n",
        "host: echo.test?\r\n",
        "host: echo.test#\r\n",
        "host: echo.test\\other.test\r\n",
        "host: echo.test\t.other\r\n",
    ] {
        is_refused(&server, 400, get("/first", fields));
    }
    for target in [
        "http://other.test@echo.test/first",
        "ftp://echo.test/first",
        "http:/first",
        "http:///first",
    ] {
        is_refused(&server, 400, get(target, "host: echo.test\r\n"));
    }
    // An absolute target says where to, whatever the header says; but there must be one.
    is_read(&server, "", get("http://echo.test/first", "host: other.test\r\n"));
    is_refused(&server, 400, get("http://echo.test/first", ""));
    // A path is a path.
    let answers = answers(&server, get("//other.test/first", "host: echo.test\r\n").as_bytes());
    assert!(answers[0].text().starts_with("GET //other.test/first\necho.test\n"));
}

/// What is in a body is a body, however much it looks like a request.
#[test]
fn requests_inside_of_bodies() {
    let Some(server) = serve() else { return };
    let inner = "GET /inner HTTP/1.1\r\nhost: echo.test\r\n\r\n";
    let length = inner.len();
    is_read(&server, inner, format!("{POST}content-length: {length}\r\n\r\n{inner}"));
    is_read(&server, inner, format!("{GET}content-length: {length}\r\n\r\n{inner}"));
    let chunks = format!("{length:x}\r\n{inner}\r\n0\r\n\r\n");
    is_read(&server, inner, format!("{POST}transfer-encoding: chunked\r\n\r\n{chunks}"));
    // Refused by its head, so that the body is never looked at.
    let refused = format!("POST /first HTTP/1.1\r\nhost: a b\r\ncontent-length: {length}\r\n\r\n");
    is_refused(&server, 400, format!("{refused}{inner}"));
    // Nor does an upgrade that does not happen make it anything else.
    let upgrade =
        "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n";
    is_read(&server, inner, format!("{POST}{upgrade}content-length: {length}\r\n\r\n{inner}"));
}

/// A client's mistake is not the guest's fault.
#[test]
fn a_body_that_breaks_off_is_the_clients_doing() {
    let Some(server) = serve() else { return };
    let mut client = server.connect();
    client.send(chunked("bad\n").as_bytes());
    let response = client.response("POST");
    assert_eq!(response.status(), 400);
    let report = server.log.report(response.id());
    assert_eq!(field(&report, "fault"), Some("request_body"), "{report}");
    assert_eq!(client.rest(), b"");
}

/// What guests put into their heads and trailers is what they answer, and nothing more.
#[test]
fn guests_cannot_frame_their_responses() {
    let Some(program) = guest("suite_responses.c") else { return };
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n"
    ));
    let count: usize = server.get("guest", "/count").text().parse().unwrap();
    for way in ["whole", "stream", "trailers"] {
        for number in 0..count {
            let path = format!("/{way}?{number}");
            let mut client = server.connect();
            client.send(&Request::get("guest", &path).header("te", "trailers").bytes());
            client.send(&Request::get("guest", "/next").header("connection", "close").bytes());
            let first = client.try_response("GET");
            let name = format!("{way} {number}");
            if let Ok(first) = &first {
                assert!([200, 502].contains(&first.status()), "{name}: {first:?}");
                if first.status() == 200 {
                    assert_eq!(first.text(), "body", "{name}");
                }
                let fields = first.head.headers.iter().chain(&first.trailers);
                for (field, value) in fields {
                    assert!(!field.starts_with("x-injected"), "{name}: {first:?}");
                    let hop = ["upgrade", "keep-alive", "te", "proxy-connection"];
                    assert!(!hop.contains(&field.as_str()), "{name}: {first:?}");
                    assert!(!value.contains(['\r', '\n', '\0']), "{name}: {first:?}");
                }
                assert_eq!(first.trailer("content-length"), None, "{name}");
                // The connection goes on with the next request, or ends.
                let rest = client.rest();
                let rest = String::from_utf8_lossy(&rest);
                assert!(
                    rest.is_empty() || rest.starts_with("HTTP/1.1 200 OK\r\n"),
                    "{name}: {rest}"
                );
                assert!(rest.matches("HTTP/1.1 ").count() <= 1, "{name}: {rest}");
                assert!(rest.is_empty() || rest.ends_with("\r\n\r\nnext"), "{name}: {rest}");
            }
            // And a new one knows nothing of it.
            assert_eq!(server.get("guest", "/next").text(), "next", "{name}");
        }
    }
    let log = server.log.since(0);
    assert!(!log.iter().any(|line| line.contains("panicked") || line.contains(" ERROR ")));
}
