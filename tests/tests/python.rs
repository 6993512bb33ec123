//! Applications in Python in sandboxes: `sandtide serve --isolate`, docs/python-isolated.md.

use std::collections::HashSet;

use sandtide_tests::{
    Client, Curl, Request, Response, Server, binary::top, guest::native, installed,
};
use serde_json::Value;

/// Begins to serve an application of `tests/guests/python`, if there is KVM and what it needs.
fn begin(application: &str, args: &[&str]) -> Option<Server> {
    native(&top().join("tests/guests/exit_code.c"))?;
    let python = installed("apps/bin/python")?;
    let python = python.to_str().expect("the path is text");
    let args = [&["--isolate", "--python", python, application], args].concat();
    Some(Server::begin_in(&top().join("tests/guests/python"), &args))
}

fn serve(application: &str) -> Option<Server> {
    Some(begin(application, &["--warmup", "0"])?.ready())
}

fn get(server: &Server, path: &str) -> Response {
    server.get("app", path)
}

fn text(server: &Server, path: &str) -> String {
    let answer = get(server, path);
    assert_eq!(answer.status(), 200, "{path}: {answer:?}");
    answer.text().to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every request finds the program as it was, on one connection and by HTTP/2 as well.
fn counts_one(server: &Server, path: &str, expected: &str) {
    let mut client: Client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.ask(&Request::get("app", path)).text(), expected);
    }
    if sandtide_tests::has_tools(&["curl"]) {
        let url = format!("http://{}{path}", server.address());
        let got = Curl::new(&server.address().to_string(), &url).h2c().get();
        assert_eq!((got.status(), got.text()), (200, expected));
    }
}

/// None of the words of an answer comes twice.
fn never_repeats(server: &Server, words: usize) {
    let mut seen = HashSet::new();
    let mut client = server.connect();
    for _ in 0..50 {
        let answer = client.ask(&Request::get("app", "/numbers"));
        let drawn: Vec<_> = answer.text().split(' ').map(str::to_owned).collect();
        assert_eq!(drawn.len(), words, "{answer:?}");
        for word in drawn {
            assert!(seen.insert(word.clone()), "{word} comes twice");
        }
    }
}

/// The client is cut off in the middle of a response that begins like this.
fn cut_off(server: &Server, path: &str, beginning: &str) {
    let mut client = server.connect();
    client.send(&Request::get("app", path).bytes());
    let head = client.try_head("GET").expect("the response begins");
    assert_eq!(head.status, 200);
    assert_eq!(client.try_piece().expect("there is a piece"), beginning.as_bytes());
    assert!(client.try_piece().is_err(), "the response has an end");
}

#[test]
fn an_asgi_application() {
    let Some(server) = serve("kitchen_asgi:app") else { return };
    server.log.wait("its lifespan began", |line| line.contains("started"));
    counts_one(&server, "/", "1 1");

    let request = Request::new("POST", "app.test:81", "/scope-of/%C3%A4/b%2Fc?d=%20e")
        .header("x-a", "b")
        .header("x-forwarded-proto", "https")
        .body("body");
    let scope = json(server.ask(&request).text());
    let expected = [
        ("type", "http"),
        ("http_version", "1.1"),
        ("method", "POST"),
        ("scheme", "http"),
        ("path", "/scope-of/ä/b/c"),
        ("raw_path", "/scope-of/%C3%A4/b%2Fc"),
        ("query_string", "d=%20e"),
        ("root_path", ""),
    ];
    for (key, value) in expected {
        assert_eq!(scope[key], value, "{key}");
    }
    assert_eq!(scope["asgi"]["version"], "3.0");
    assert_eq!(scope["client"], serde_json::json!(["127.0.0.1", 0]));
    assert_eq!(scope["server"], serde_json::json!(["app.test", 81]));
    assert_eq!(scope["extensions"], serde_json::json!(["http.response.trailers", "sandtide"]));
    let headers = scope["headers"].as_array().expect("an array");
    assert!(headers.contains(&serde_json::json!(["x-a", "b"])), "{headers:?}");

    let duplicates =
        Request::get("app", "/duplicates").header("x-twice", "1").header("x-twice", "2");
    let answer = server.ask(&duplicates);
    assert_eq!(answer.text(), "1,2");
    let cookies = answer.head.headers.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.map(|(_, value)| value.as_str()).collect::<Vec<_>>(), ["a=1", "b=2"]);

    assert_eq!(get(&server, "/large").body.len(), 5_000_000);
    assert_eq!(get(&server, "/flood").body.len(), 4_000_000);
    let long = vec![b'z'; 3_000_000];
    let answer = server.ask(&Request::new("POST", "app", "/length").body(long.clone()));
    assert_eq!(answer.text(), "3000000");
    assert!(server.ask(&Request::new("POST", "app", "/echo").body(long.clone())).body == long);
    let trailers = server.ask(&Request::get("app", "/trailers").header("te", "trailers"));
    assert_eq!((trailers.text(), trailers.trailer("x-sum")), ("body", Some("7")));
    assert_eq!(text(&server, "/threads"), "[1, 3, 9, 27, 81]");
    assert_eq!(get(&server, "/nothing").status(), 404);
    let answer = get(&server, "/not-modified");
    assert_eq!((answer.status(), answer.header("etag")), (304, Some("\"a\"")));
    let head = server.ask(&Request::new("HEAD", "app", "/large"));
    assert_eq!((head.status(), head.header("content-length")), (200, Some("5000000")));
    never_repeats(&server, 6);
}

#[test]
fn an_asgi_application_waits_for_its_client() {
    let Some(server) = serve("kitchen_asgi:app") else { return };
    let chunked =
        |path| Request::new("POST", "app", path).header("transfer-encoding", "chunked").bytes();
    // The handler goes on while the body is on its way.
    for (path, first, last) in [("/ticks", "ready\n", "went on"), ("/cancelled", "go\n", "abc")] {
        let mut client = server.connect();
        client.send(&chunked(path));
        assert_eq!(client.try_head("POST").expect("a head").status, 200);
        assert_eq!(client.try_piece().expect("a piece"), first.as_bytes());
        client.send(b"1\r\na\r\n");
        client.send(b"2\r\nbc\r\n0\r\n\r\n");
        assert_eq!(client.try_piece().expect("a piece"), last.as_bytes());
    }
    // A body that comes byte by byte is answered as it comes.
    let mut client = server.connect();
    client.send(&chunked("/echo"));
    for byte in *b"abc" {
        client.send(&[b'1', b'\r', b'\n', byte, b'\r', b'\n']);
        if byte == b'a' {
            assert_eq!(client.try_head("POST").expect("a head").status, 200);
        }
        assert_eq!(client.try_piece().expect("a piece"), [byte]);
    }
    // One that breaks off.
    let mut client = server.connect();
    client.send(&chunked("/broken"));
    client.send(b"1\r\na\r\n");
    client.finish_sending();
    server.log.wait("it is told", |line| line.contains("the client broke off"));
}

#[test]
fn what_goes_wrong_in_an_asgi_application() {
    let Some(server) = serve("kitchen_asgi:app") else { return };
    let answer = get(&server, "/background");
    assert_eq!((answer.status(), answer.text()), (200, "answered"));
    server.log.wait("it goes on", |line| line.contains("the background is done"));
    for (path, said) in [
        ("/raises", "RuntimeError: before the response"),
        ("/silent", "RuntimeError: the application returned without a response"),
        ("/unfinished", "RuntimeError: the application returned without a complete response"),
        ("/bad-header", "a header with a line break"),
    ] {
        let answer = get(&server, path);
        assert_eq!((answer.status(), answer.text()), (500, "Internal Server Error\n"), "{path}");
        server.log.wait("it is told", |line| line.contains(said));
    }
    cut_off(&server, "/raises-late", "some");
    server.log.wait("it is told", |line| line.contains("RuntimeError: behind the beginning"));
    assert_eq!(get(&server, "/leaves").status(), 502);
    // An upgrade is an ordinary request.
    let upgrade =
        Request::get("app", "/").header("connection", "upgrade").header("upgrade", "websocket");
    assert_eq!(server.ask(&upgrade).text(), "1 1");
    counts_one(&server, "/", "1 1");
}

#[test]
fn a_wsgi_application() {
    let Some(server) = serve("kitchen_wsgi") else { return };
    counts_one(&server, "/", "1");
    let request = Request::new("POST", "app.test:81", "/environ-of/%C3%A4?d=%20e")
        .header("x-a", "b")
        .header("x-a", "c")
        .header("x_a", "not taken for x-a")
        .header("cookie", "a=1")
        .header("content-type", "text/plain")
        .body("body");
    let environ = json(server.ask(&request).text());
    let expected = [
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", ""),
        ("PATH_INFO", "/environ-of/\u{c3}\u{a4}"),
        ("QUERY_STRING", "d=%20e"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "4"),
        ("SERVER_NAME", "app.test"),
        ("SERVER_PORT", "81"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("HTTP_X_A", "b,c"),
        ("HTTP_COOKIE", "a=1"),
        ("HTTP_HOST", "app.test:81"),
        ("wsgi.url_scheme", "http"),
    ];
    for (key, value) in expected {
        assert_eq!(environ[key], value, "{key}");
    }
    assert_eq!(environ["wsgi.multithread"], false);
    let long = vec![b'z'; 3_000_000];
    assert!(server.ask(&Request::new("POST", "app", "/echo").body(long.clone())).body == long);
    let lines = server.ask(&Request::new("POST", "app", "/lines").body("a\nb\nc"));
    assert_eq!(lines.text(), "a|2");
    let answer = get(&server, "/writes");
    assert_eq!((answer.header("x-a"), answer.text()), (Some("b"), "written, returned"));
    assert_eq!(text(&server, "/closes"), "body");
    server.log.wait("it is closed", |line| line.contains("closed"));
    assert_eq!(text(&server, "/streams").lines().count(), 100);
    assert_eq!(get(&server, "/wraps").body.len(), 400_000);
    assert_eq!(get(&server, "/large").body.len(), 5_000_000);
    let answer = get(&server, "/replaces");
    assert_eq!((answer.status(), answer.header("x-a"), answer.text()), (400, None, "replaced"));
    cut_off(&server, "/too-late", "some");
    for path in ["/twice", "/raises", "/never-starts"] {
        assert_eq!(get(&server, path).status(), 500, "{path}");
    }
    let answer = get(&server, "/nothing");
    let cookies = answer.head.headers.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!((answer.status(), cookies.count()), (404, 2));
    assert_eq!(get(&server, "/not-modified").status(), 304);
    let head = server.ask(&Request::new("HEAD", "app", "/large"));
    assert_eq!((head.status(), head.header("content-length")), (200, Some("5000000")));
    never_repeats(&server, 1);
}

#[test]
fn fastapi() {
    // The only application of its module, warmed up as it is by default.
    let Some(server) = begin("fastapi_app", &[]) else { return };
    let server = server.ready();
    counts_one(&server, "/", "{\"count\":11}");
    counts_one(&server, "/sync", "{\"count\":11}");
    let json_body = |body: &str| {
        let post = Request::new("POST", "app", "/items").header("content-type", "application/json");
        server.ask(&post.body(body))
    };
    let answer = json_body("{\"name\": \"a\", \"price\": 2}");
    assert_eq!((answer.status(), answer.text()), (200, "{\"name\":\"a\",\"with_tax\":3.0}"));
    assert_eq!(json_body("{\"name\": 1}").status(), 422);
    let length = server.ask(&Request::new("POST", "app", "/length").body(vec![0; 1_000_000]));
    assert_eq!(length.text(), "{\"length\":1000000}");
    assert_eq!(text(&server, "/stream"), "0\n1\n2\n");
    assert_eq!(text(&server, "/background"), "{}");
    server.log.wait("it goes on", |line| line.contains("the background is done"));
    assert_eq!(get(&server, "/missing").status(), 404);
    assert_eq!(get(&server, "/raises").status(), 500);
    server.log.wait("it is told", |line| line.contains("RuntimeError: in the handler"));
}

#[test]
fn flask() {
    let Some(server) = serve("flask_app:create_app") else { return };
    counts_one(&server, "/", "{\"count\":1}\n");
    let length = server.ask(&Request::new("POST", "app", "/length").body(vec![0; 1_000_000]));
    assert_eq!(length.text(), "{\"length\":1000000}\n");
    assert_eq!(text(&server, "/stream"), "0\n1\n2\n");
    assert_eq!(get(&server, "/raises").status(), 500);
}

#[test]
fn django() {
    for application in ["django_app.py", "django_app:asynchronous"] {
        let Some(server) = serve(application) else { return };
        counts_one(&server, "/", "{\"count\": 1}");
        let length = server.ask(&Request::new("POST", "app", "/length").body(vec![0; 1_000_000]));
        assert_eq!(length.text(), "{\"length\": 1000000}");
        assert_eq!(text(&server, "/stream"), "0\n1\n2\n");
        assert_eq!(text(&server, "/waits"), "waited");
        assert_eq!(get(&server, "/raises").status(), 500);
    }
}

#[test]
fn what_is_no_application_is_told() {
    for (application, said) in [
        ("nothing_here:app", "no module `nothing_here`"),
        ("kitchen_asgi:nothing", "module `kitchen_asgi` has no `nothing`"),
        ("kitchen_asgi:count", "is neither an ASGI nor a WSGI application"),
        ("os:getcwd", "is neither an ASGI nor a WSGI application"),
    ] {
        let Some(mut server) = begin(application, &[]) else { return };
        server.log.wait("it is told", |line| line.contains(said));
        assert_eq!(server.wait().code(), Some(1), "{application}");
    }
}
