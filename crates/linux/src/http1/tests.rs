//! Requests as a guest reads them, and responses as it may write them.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use proptest::prelude::*;
use sandtide_engine::{
    BodyError, BodySource, Exchange, ExchangeId, Fault, Frame, RequestBody, Response,
};
use std::task::{Context, Poll};

use super::*;

fn exchange(request: http::request::Builder, body: RequestBody) -> Exchange {
    let (parts, ()) = request.body(()).unwrap().into_parts();
    Exchange::new(ExchangeId(1), parts, body, 1 << 20)
}

fn response() -> Response {
    exchange(Request::get("/"), RequestBody::empty()).response
}

fn written(request: http::request::Builder, body: RequestBody) -> (String, Framing) {
    let mut out = Vec::new();
    let framing = head(&exchange(request, body), &mut out);
    (String::from_utf8(out).unwrap(), framing)
}

/// A body whose length is not known.
struct Unknown;

impl BodySource for Unknown {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(None)
    }
}

fn unknown() -> RequestBody {
    RequestBody::streaming(Box::new(Unknown), None)
}

#[test]
fn a_head_says_whom_and_what() {
    let request = Request::get("/a/b?c=%20")
        .header("host", "shop.example:8080")
        .header("accept", "*/*")
        .header("x-request-id", "7");
    let expected = "GET /a/b?c=%20 HTTP/1.1\r\nHost: shop.example:8080\r\nAccept: */*\r\n\
                    X-Request-Id: 7\r\n\r\n";
    assert_eq!(written(request, RequestBody::empty()), (expected.to_owned(), Framing::None));
}

#[test]
fn an_authority_in_the_target_becomes_a_host() {
    let request = Request::get("http://a.example/x").header("host", "a.example");
    let (text, _) = written(request, RequestBody::empty());
    assert_eq!(text, "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let (text, _) = written(Request::options("*"), RequestBody::empty());
    assert_eq!(text, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
}

#[test]
fn the_framing_is_made_anew() {
    let request = || {
        Request::post("/")
            .header("content-length", "99")
            .header("transfer-encoding", "gzip, chunked")
            .header("connection", "close, X-Hop")
            .header("x-hop", "1")
            .header("keep-alive", "5")
            .header("proxy-connection", "x")
            .header("te", "trailers")
            .header("upgrade", "websocket")
            .header("expect", "100-continue")
            .header("trailer", "x-sum")
    };
    let line = "POST / HTTP/1.1\r\nHost: localhost\r\n";
    let (text, framing) = written(request(), RequestBody::whole(Bytes::from_static(b"abc")));
    assert_eq!((text, framing), (format!("{line}Content-Length: 3\r\n\r\n"), Framing::Length(3)));
    let (text, framing) = written(request(), RequestBody::empty());
    assert_eq!((text, framing), (format!("{line}Content-Length: 0\r\n\r\n"), Framing::Length(0)));
    let (text, framing) = written(request(), unknown());
    let expected = format!("{line}Trailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!((text, framing), (expected, Framing::Chunked));
}

#[test]
fn a_chunked_body_ends_with_its_trailers() {
    let mut out = Vec::new();
    chunk(&[b'a'; 26], &mut out);
    last_chunk(None, &mut out);
    assert_eq!(out, b"1a\r\naaaaaaaaaaaaaaaaaaaaaaaaaa\r\n0\r\n\r\n");
    let mut trailers = HeaderMap::new();
    for (name, value) in [("x-sum", "1"), ("content-length", "3"), ("connection", "close")] {
        trailers.insert(name, value.parse().unwrap());
    }
    out.clear();
    last_chunk(Some(&trailers), &mut out);
    assert_eq!(out, b"0\r\nX-Sum: 1\r\n\r\n");
}

/// What a guest's bytes come to: the response, the bytes behind it, and whether it is over.
struct Answer {
    response: Response,
    left: usize,
    is_over: bool,
}

impl Answer {
    fn body(&mut self) -> Bytes {
        self.response.take_data().unwrap_or_default()
    }
}

/// Reads pieces of a guest's output; the connection ends behind them if `closes`.
fn read_pieces(pieces: &[&[u8]], is_head: bool, closes: bool) -> Result<Answer, BadResponse> {
    let (mut reader, mut response) = (ResponseReader::new(is_head), response());
    let mut left = 0;
    for piece in pieces {
        left += piece.len() - reader.read(piece, &mut response)?;
    }
    if closes {
        reader.end(&mut response)?;
    }
    Ok(Answer { response, left, is_over: reader.is_over() })
}

fn read(text: &str) -> Result<Answer, BadResponse> {
    read_pieces(&[text.as_bytes()], false, false)
}

fn refusal(text: &str) -> BadResponse {
    match read_pieces(&[text.as_bytes()], false, true) {
        Ok(_) => panic!("{text:?} is taken for a response"),
        Err(error) => error,
    }
}

#[test]
fn a_length_ends_a_response() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A:  b \r\n\r\nhelloHTTP/1.1 500 no\r\n";
    let mut answer = read(text).unwrap();
    assert!(answer.is_over && answer.response.is_finished());
    assert_eq!(&answer.body()[..], b"hello");
    assert_eq!(answer.left, "HTTP/1.1 500 no\r\n".len());
    let head = answer.response.take_head().unwrap();
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["x-a"], "b");
    assert_eq!(head.headers["content-length"], "5");
}

#[test]
fn chunks_end_a_response() {
    let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n\
                5;a=\"b c\"\r\nhello\r\n00A \r\n, world!\r\n\r\n0\r\nX-Sum: 1\r\n\r\nrest";
    let mut answer = read(text).unwrap();
    assert!(answer.is_over);
    assert_eq!(&answer.body()[..], b"hello, world!\r\n");
    assert_eq!(answer.left, 4);
    assert_eq!(answer.response.take_trailers().unwrap()["x-sum"], "1");
    assert!(!answer.response.take_head().unwrap().headers.contains_key("transfer-encoding"));
}

#[test]
fn the_end_of_the_connection_ends_a_response() {
    let text = b"HTTP/1.0 404 Not Found\nserver: old\n\nnothing\n";
    let mut answer = read_pieces(&[text], false, false).unwrap();
    assert!(!answer.is_over && answer.response.is_begun());
    answer = read_pieces(&[text], false, true).unwrap();
    assert!(answer.is_over);
    assert_eq!(&answer.body()[..], b"nothing\n");
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    for (status, is_head) in [(204, false), (304, false), (200, true), (404, true)] {
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 9\r\n\r\n");
        let answer = read_pieces(&[text.as_bytes()], is_head, false).unwrap();
        assert!(answer.is_over, "{status}");
        let text = format!("HTTP/1.1 {status} \r\nTransfer-Encoding: chunked\r\n\r\n");
        assert!(read_pieces(&[text.as_bytes()], is_head, false).unwrap().is_over);
    }
    assert!(read("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap().is_over);
}

#[test]
fn interim_responses_inform_and_100_does_not() {
    let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\
                Connection: x\r\nX: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let mut answer = read(text).unwrap();
    assert!(answer.is_over);
    let interim = answer.response.take_interim();
    assert_eq!(interim.len(), 1);
    assert_eq!(interim[0].status, 103);
    assert_eq!(interim[0].headers.len(), 1);
}

#[test]
fn what_is_about_the_connection_stays_behind() {
    let text = "HTTP/1.1 200 OK\r\nConnection: close, X-Hop, Content-Length\r\nX-Hop: 1\r\n\
                Keep-Alive: timeout=5\r\nUpgrade: h2c\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                Content-Length: 0\r\n\r\n";
    let head = read(text).unwrap().response.take_head().unwrap();
    let names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["set-cookie", "content-length"]);
    assert_eq!(head.headers.get_all("set-cookie").iter().count(), 2);
}

#[test]
fn a_response_that_can_be_read_in_two_ways_is_refused() {
    let with = |headers: &str| refusal(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n0\r\n\r\n"));
    let cases = [
        ("Content-Length: 5\r\nContent-Length: 6", BadResponse::TwoLengths),
        ("Content-Length: 5\r\nContent-Length: 5", BadResponse::TwoLengths),
        ("Content-Length: 5, 5", BadResponse::BadLength("5, 5".to_owned())),
        ("Content-Length: +5", BadResponse::BadLength("+5".to_owned())),
        ("Content-Length: 0x5", BadResponse::BadLength("0x5".to_owned())),
        ("Content-Length:", BadResponse::BadLength(String::new())),
        (
            "Content-Length: 99999999999999999999",
            BadResponse::BadLength("99999999999999999999".to_owned()),
        ),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", BadResponse::LengthAndCoding),
        ("Transfer-Encoding: gzip", BadResponse::UnknownCoding("gzip".to_owned())),
        (
            "Transfer-Encoding: gzip, chunked",
            BadResponse::UnknownCoding("gzip, chunked".to_owned()),
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            BadResponse::UnknownCoding("chunked".to_owned()),
        ),
    ];
    for (headers, expected) in cases {
        assert_eq!(with(headers), expected, "{headers:?}");
    }
    for headers in [
        "A: b\r\n c",
        "A: b\rContent-Length: 1",
        "A : b",
        "A\r\nB: c",
        ": b",
        "A: b\0",
        "Content-Length: 1\r\r\n",
        "A: b\r\n\tc: d",
    ] {
        assert!(matches!(with(headers), BadResponse::Malformed(_)), "{headers:?}");
    }
    let error = refusal("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(error, BadResponse::CodingInHttp10);
}

#[test]
fn what_is_no_response_is_refused() {
    for text in [
        "garbage\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "\0\0\n\n",
    ] {
        assert!(matches!(refusal(text), BadResponse::Malformed(_)), "{text:?}");
    }
    assert!(matches!(refusal("HTTP/1.1 600 OK\r\n\r\n"), BadResponse::Response(_)));
    assert!(matches!(refusal("HTTP/1.1 099 OK\r\n\r\n"), BadResponse::Response(_)));
    assert_eq!(refusal("HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n"), BadResponse::Upgrade);
    assert_eq!(refusal(""), BadResponse::NoAnswer);
    assert_eq!(refusal("HTTP/1.1 200 OK\r\n"), BadResponse::Truncated);
    assert_eq!(refusal("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na"), BadResponse::Truncated);
    let fault = Fault::from(refusal(""));
    let expected = "bad response: the program closed the connection without an answer";
    assert_eq!(fault.to_string(), expected);
}

#[test]
fn chunks_are_read_in_one_way() {
    for body in [
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\n",
        "0\r\nA: b\r\n c\r\n\r\n",
        "0\r\nA\r\n\r\n",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let error = refusal(&text);
        let is_bad = matches!(error, BadResponse::BadChunk(_) | BadResponse::Malformed(_));
        assert!(is_bad, "{body:?}: {error}");
    }
    for body in ["5\r\nhell", "5\r\nhello\r\n", "0\r\n", "5\r\nhello\r\n0\r\n"] {
        let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_eq!(refusal(&text), BadResponse::Truncated, "{body:?}");
    }
}

#[test]
fn heads_have_limits() {
    let long = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(64 << 10));
    assert!(matches!(refusal(&long), BadResponse::HeadTooLong { .. }));
    let endless = "A: b\r\n".repeat(20_000);
    let pieces: Vec<&[u8]> = endless.as_bytes().chunks(7).collect();
    let error = read_pieces(&pieces, false, false).map(drop);
    assert!(matches!(error, Err(BadResponse::HeadTooLong { .. })));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(257));
    assert!(matches!(refusal(&many), BadResponse::TooManyHeaders { limit: 256 }));
    let chunk = format!("{};{}\r\n", 5, "a".repeat(2000));
    let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}");
    assert!(matches!(refusal(&text), BadResponse::BadChunk(_)));
}

#[test]
fn a_full_response_takes_no_more() {
    let (mut reader, mut response) = (ResponseReader::new(false), response());
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n";
    assert_eq!(reader.read(head, &mut response), Ok(head.len()));
    let data = vec![b'x'; 0x2_0000];
    let taken = reader.read(&data, &mut response).unwrap();
    assert_eq!(taken, Response::HIGH_WATER);
    assert_eq!(reader.read(&data[taken..], &mut response), Ok(0));
    response.take_data();
    assert_eq!(reader.read(&data[taken..], &mut response), Ok(data.len() - taken));
}

proptest! {
    /// However a response is cut, it is read alike.
    #[test]
    fn cuts_do_not_matter(
        text in prop::sample::select(vec![
            "HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n1\r\n\n\r\n0\r\nT: 1\r\n\r\n?",
            "HTTP/1.0 200 OK\n\nhello\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        ]),
        mut cuts in prop::collection::vec(0..100usize, 0..6),
    ) {
        cuts.push(0);
        cuts.push(text.len());
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(text.len()));
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> =
            cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
        let seen = |answer: Result<Answer, BadResponse>| answer.map(|mut answer| {
            let head = answer.response.take_head().map(|head| (head.status, head.headers));
            let interim = answer.response.take_interim().len();
            let trailers = answer.response.is_finished();
            (head, interim, answer.body(), answer.left, answer.is_over, trailers)
        });
        let cut = seen(read_pieces(&pieces, false, true));
        prop_assert_eq!(cut, seen(read_pieces(&[text.as_bytes()], false, true)));
    }

    /// What a guest reads with another parser is what was asked.
    #[test]
    fn a_head_can_be_read_again(
        names in prop::collection::vec("[a-z][a-z0-9-]{0,8}", 0..6),
        values in prop::collection::vec("[ -~]{0,12}", 6),
        path in "/[a-z0-9/.%-]{0,12}",
    ) {
        let mut builder = Request::builder().method(Method::DELETE).uri(&path);
        for (name, value) in names.iter().zip(&values) {
            builder = builder.header(name, value.trim());
        }
        prop_assume!(builder.uri_ref().is_some());
        let exchange = exchange(builder, RequestBody::empty());
        let mut out = Vec::new();
        head(&exchange, &mut out);
        let mut room = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Request::new(&mut room);
        prop_assert_eq!(parsed.parse(&out).unwrap(), httparse::Status::Complete(out.len()));
        prop_assert_eq!(parsed.method, Some("DELETE"));
        prop_assert_eq!(parsed.path, Some(path.as_str()));
    }
}
