//! The SDK for JavaScript on Node, Deno and Bun: docs/javascript.md.

use std::{collections::HashSet, fs, path::PathBuf, process::Command};

use sandtide_tests::{Client, Curl, Request, Server, binary::top, guest::native, installed};
use serde_json::Value;

/// The handler of `tests/guests/kitchen.mjs`, if there is KVM and the runtime.
fn serve(
    runtime: Option<PathBuf>,
    before: &[&str],
    behind: &[&str],
    lines: &str,
) -> Option<Server> {
    native(&top().join("tests/guests/exit_code.c"))?;
    let runtime = runtime?;
    let file = top().join("tests/guests/kitchen.mjs");
    let args = [before, &["/srv/kitchen.mjs"], behind].concat();
    let server = Server::start(&format!(
        "[tenants.app]\nauthorities = \"app.test\"\nprogram = {runtime:?}\nargs = {args:?}\n\
         files = {{ \"/srv/kitchen.mjs\" = {file:?} }}\nload = \"start\"\n{lines}\n\
         [tenants.app.limits]\nboot_time = \"60 s\"\nwall_time = \"30 s\"\nmemory = \"2 GiB\"\nthreads = 64\n\
         descriptors = 256\n"
    ));
    Some(server)
}

fn node() -> Option<PathBuf> {
    let output = Command::new("node").args(["-p", "process.execPath"]).output().ok()?;
    fs::canonicalize(String::from_utf8(output.stdout).ok()?.trim()).ok()
}

fn counts(server: &Server, expected: impl Fn(u32) -> String) {
    let mut client: Client = server.connect();
    for number in 1..=5 {
        assert_eq!(client.ask(&Request::get("app", "/")).text(), expected(number));
    }
}

/// What every runtime does.
fn kitchen(server: &Server) {
    let get = |path: &str| server.get("app", path);
    let post = |path: &str, body: &[u8]| server.ask(&Request::new("POST", "app", path).body(body));
    counts(server, |_| "1".to_owned());
    if sandtide_tests::has_tools(&["curl"]) {
        let url = format!("http://app.test:{}/", server.address().port());
        let got = Curl::new(&server.address().to_string(), &url).h2c().get();
        assert_eq!((got.status(), got.text()), (200, "1"));
    }
    assert_eq!(get("/timer").text(), "later");
    assert_eq!(get("/file").text(), "Linux");
    assert_eq!(post("/text", b"abc").text(), "ABC");
    let long = vec![b'z'; 1_000_000];
    assert!(post("/echo", &long).body == long);
    assert_eq!(post("/length", &long).text(), "1000000");
    assert_eq!(get("/large").body.len(), 5_000_000);
    assert_eq!(get("/flood").body.len(), 4_000_000);

    let seen = Request::get("app", "/seen?a=%20b").header("x-twice", "1").header("x-twice", "2");
    let seen: Value = serde_json::from_str(server.ask(&seen).text()).expect("it is JSON");
    assert_eq!(seen["url"], "http://app.test/seen?a=%20b");
    assert_eq!(seen["target"], "/seen?a=%20b");
    assert_eq!(seen["twice"], serde_json::json!(["1", "2"]));
    assert_eq!((&seen["joined"], &seen["httpVersion"]), (&"1, 2".into(), &"1.1".into()));
    assert_eq!(seen["random"], 32);

    let answer = get("/headers");
    let cookies = answer.head.headers.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!((answer.status(), answer.header("x-a"), cookies.count()), (204, Some("b"), 2));
    assert_eq!((get("/not-modified").status(), get("/nothing").status()), (304, 404));
    let head = server.ask(&Request::new("HEAD", "app", "/large"));
    assert_eq!((head.status(), head.header("content-length")), (200, Some("5000000")));
    let trailers = Request::new("POST", "app", "/trailers")
        .header("te", "trailers")
        .header("transfer-encoding", "chunked")
        .body("1\r\na\r\n0\r\nx-sum: 7\r\n\r\n");
    let answer = server.ask(&trailers);
    assert_eq!((answer.text(), answer.trailer("x-sum")), ("body", Some("7")));
    let mut client = server.connect();
    client.send(&Request::get("app", "/hints").bytes());
    assert_eq!(client.line(), "HTTP/1.1 103 Early Hints");
    assert_eq!(client.line(), "link: </a.css>; rel=preload");
    assert_eq!(client.line(), "");
    assert_eq!(client.response("GET").text(), "hinted");

    // The handler goes on while the body is on its way.
    let mut client = server.connect();
    let chunked = Request::new("POST", "app", "/ticks").header("transfer-encoding", "chunked");
    client.send(&chunked.bytes());
    assert_eq!(client.try_head("POST").expect("a head").status, 200);
    assert_eq!(client.try_piece().expect("a piece"), b"ready\n");
    client.send(b"1\r\na\r\n0\r\n\r\n");
    assert_eq!(client.try_piece().expect("a piece"), b"went on");

    let mut numbers = HashSet::new();
    for _ in 0..20 {
        for number in get("/numbers").text().split(' ') {
            assert!(numbers.insert(number.to_owned()), "{number} comes twice");
        }
    }

    for (path, said) in [
        ("/throws", "in the handler"),
        ("/no-response", "instead of a Response"),
        ("/never", "the handler waits for what cannot happen"),
    ] {
        let answer = get(path);
        assert_eq!((answer.status(), answer.text()), (500, "Internal Server Error\n"), "{path}");
        server.log.wait("it is told", |line| line.contains(said));
    }
    let mut client = server.connect();
    client.send(&Request::get("app", "/throws-late").bytes());
    assert_eq!(client.try_head("GET").expect("a head").status, 200);
    assert_eq!(client.try_piece().expect("a piece"), b"some");
    assert!(client.try_piece().is_err(), "the response has an end");
    assert_eq!(get("/leaves").status(), 502);
    counts(server, |_| "1".to_owned());
}

#[test]
fn on_node() {
    let Some(server) = serve(node(), &[], &[], "") else { return };
    kitchen(&server);
}

#[test]
fn on_deno() {
    let Some(server) = serve(installed("npm/bin/deno"), &["run", "-A"], &[], "") else { return };
    kitchen(&server);
}

#[test]
fn on_bun() {
    let Some(server) = serve(installed("npm/bin/bun"), &[], &[], "") else { return };
    kitchen(&server);
}

#[test]
fn a_program_that_is_never_idle() {
    let lines = "warmup = { requests = 3 }";
    let Some(server) = serve(node(), &[], &["--busy"], lines) else { return };
    counts(&server, |_| "4".to_owned());
    assert_eq!(server.get("app", "/timer").text(), "later");
}

#[test]
fn a_program_that_keeps_its_state() {
    for arguments in [&[][..], &["--busy"]] {
        let Some(server) = serve(node(), &[], arguments, "isolation = \"none\"") else { return };
        counts(&server, |number| number.to_string());
        assert_eq!(server.get("app", "/throws").status(), 500);
        assert_eq!(server.get("app", "/").text(), "6");
    }
}
