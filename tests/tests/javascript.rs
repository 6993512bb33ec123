//! The SDK for JavaScript on Node, Deno and Bun: docs/javascript.md.

use std::{
    collections::HashSet,
    fs,
    io::Read as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use sandtide_tests::{Client, Curl, Log, Request, Server, binary::top, guest::native, installed};
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

fn never_repeats(server: &Server) {
    let mut numbers = HashSet::new();
    for _ in 0..20 {
        for number in server.get("app", "/numbers").text().split(' ') {
            assert!(numbers.insert(number.to_owned()), "{number} comes twice");
        }
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

    never_repeats(server);
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
    let deno = installed("npm/bin/deno");
    let Some(server) = serve(deno, &["run", "-A"], &[], "") else { return };
    kitchen(&server);
}

#[test]
fn on_bun() {
    let Some(server) = serve(installed("npm/bin/bun"), &[], &[], "") else { return };
    kitchen(&server);
}

#[test]
fn numbers_that_warm_up_requests_have_drawn() {
    let lines = "warmup = { requests = 5, paths = [\"/numbers\"] }";
    let runtimes = [(node(), &[][..]), (installed("npm/bin/deno"), &["run", "-A"])];
    for (runtime, before) in runtimes.into_iter().chain([(installed("npm/bin/bun"), &[][..])]) {
        if let Some(server) = serve(runtime, before, &[], lines) {
            never_repeats(&server);
        }
    }
}

/// The SDKs serve plain HTTP by themselves outside of a sandbox.
#[test]
fn outside_a_sandbox() {
    if !sandtide_tests::has_tools(&["curl"]) {
        return;
    }
    let module = top().join("sdk/js/sandtide.js");
    let script = format!(
        "import {{ context, serve }} from {module:?};\n\
         serve(async request => new Response(`${{context(request).target}} ${{await request.text()}}`));"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("hello.mjs");
    fs::write(&file, script).expect("the directory is ours");
    let python = top().join("sdk/python");
    let say = "import sandtide\nsandtide.serve(lambda r: f'{r.target} {r.body().decode()}')";
    let mut commands = vec![Command::new("python3")];
    commands[0].args(["-c", say]).env("PYTHONPATH", python);
    let deno = installed("npm/bin/deno");
    for (runtime, before) in [(node(), None), (deno, Some("run")), (installed("npm/bin/bun"), None)]
    {
        let Some(runtime) = runtime else { continue };
        commands.push(Command::new(runtime));
        let last = commands.len() - 1;
        commands[last].args(before).args(before.map(|_| "-A")).arg(&file);
    }
    for mut command in commands {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let address = probe.local_addr().expect("it has one");
        drop(probe);
        command.env("PORT", address.port().to_string()).stdin(Stdio::null());
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let said = child.stderr.take().expect("it is piped");
        let log = Log::of(said.chain(child.stdout.take().expect("it is piped")));
        let is_said = |line: &str| line.contains(&address.port().to_string());
        log.wait("it serves", is_said);
        let url = format!("http://{address}/a?b=c");
        let answer = Curl::new(&address.to_string(), &url).body("body").get();
        assert_eq!((answer.status(), answer.text()), (200, "/a?b=c body"), "{command:?}");
        child.kill().expect("it runs");
        child.wait().expect("a child can be waited for");
    }
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
