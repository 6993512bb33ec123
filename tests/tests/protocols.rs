//! Every example over every way to reach it, by a client that shares no code with the server.

use std::{
    io::{self, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    thread,
};

use sandtide_tests::{
    Client, Curl, Request, Server, binary::top, built, has_tools, proxy, tls::Authority,
};
use tempfile::TempDir;

/// A server that listens in every way there is, with every example.
struct Everything {
    server: Server,
    authority: Authority,
    unix: PathBuf,
    /// A proxy of version 2 in front of the listener that wants one.
    behind_proxy: SocketAddr,
    _directory: TempDir,
}

/// Where the proxy says that the clients are.
const BEHIND: &str = "203.0.113.7:4711";

const EXAMPLES: [&str; 6] = [
    "hello/hello.c",
    "echo/echo.c",
    "counter/counter.c",
    "misbehave/misbehave.c",
    "python/page.py",
    "python-request/page.py",
];

fn name(example: &str) -> &str {
    example.split('/').next().unwrap_or(example)
}

impl Everything {
    fn start(examples: &[&str]) -> Option<Self> {
        if !has_tools(&["curl", "nghttp", "openssl"]) {
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new(directory.path(), "authority");
        let names: Vec<_> = examples.iter().map(|e| format!("{}.test", name(e))).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let identity = authority.issue("server", &names);
        let unix = directory.path().join("http.sock");
        let mut text = format!(
            "[server]\nthreads = 2\nlisten = [\n  \"127.0.0.1:0\",\n  {{ address = \"127.0.0.1:0\", tls = true }},\n  \
             \"unix:{}\",\n  {{ address = \"127.0.0.1:0\", proxy_protocol = true }},\n  \"[::1]:0\",\n]\n\
             [tls]\ncertificates = [{}]\n",
            unix.display(),
            identity.toml()
        );
        for example in examples {
            let (name, program) = (name(example), built(&top().join("examples").join(example))?);
            text += &format!(
                "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
                 [tenants.{name}.limits]\nwall_time = \"30 s\"\n"
            );
        }
        let server = Server::of(&text);
        let target = server.address_at(3).expect("an address");
        let behind_proxy = relay(target);
        Some(Self { server, authority, unix, behind_proxy, _directory: directory })
    }

    /// A call of curl for each way, with its name and the version of HTTP that it has to be.
    fn ways(&self, tenant: &str, path: &str) -> Vec<(&'static str, &'static str, Curl)> {
        let at = |which| self.server.address_at(which).expect("an address").to_string();
        let unix = format!("unix:{}", self.unix.display());
        let proxy = self.behind_proxy.to_string();
        let plain = |address: &str| Curl::new(address, &format!("http://{tenant}.test{path}"));
        let tls = || {
            Curl::new(&at(1), &format!("https://{tenant}.test{path}"))
                .trusting(&self.authority.certificate)
        };
        vec![
            ("h1", "1.1", plain(&at(0))),
            ("h2c", "2", plain(&at(0)).h2c()),
            ("h1 over TLS", "1.1", tls().arg("--http1.1")),
            ("h2 over TLS", "2", tls().arg("--http2")),
            ("h1 over a Unix socket", "1.1", plain(&unix)),
            ("h2c over a Unix socket", "2", plain(&unix).h2c()),
            ("h1 behind a proxy", "1.1", plain(&proxy)),
            ("h2c behind a proxy", "2", plain(&proxy).h2c()),
            ("h1 over IPv6", "1.1", plain(&at(4))),
            ("h2c over IPv6", "2", plain(&at(4)).h2c()),
        ]
    }
}

/// A proxy that says who the client is, and passes bytes on in both directions.
fn relay(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it listens");
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            // Either side may go first.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(mut server) = TcpStream::connect(target) else { return };
            let source = BEHIND.parse().expect("an address");
            let destination = "198.51.100.1:80".parse().expect("an address");
            let header = proxy::header(source, destination);
            let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
            if server.write_all(&header).is_ok() {
                pass(clone(&client), clone(&server));
                pass(server, client);
            }
        }
    });
    address
}

#[test]
fn every_example_in_every_way() {
    let Some(everything) = Everything::start(&EXAMPLES) else { return };
    for example in EXAMPLES {
        let tenant = name(example);
        for (way, version, curl) in everything.ways(tenant, "/") {
            let got = curl.get();
            assert_eq!(got.version, version, "{tenant}, {way}");
            assert_eq!(got.status(), 200, "{tenant}, {way}: {got:?}");
            let text = got.text();
            match tenant {
                "hello" => assert_eq!(text, "Hello, World!\n", "{way}"),
                "counter" => assert_eq!(text, "1\n", "{way}"),
                "echo" => assert!(text.starts_with("GET /\necho.test\n"), "{way}: {text}"),
                "misbehave" => assert!(text.contains("/fault-after-head\n"), "{way}: {text}"),
                "python" => {
                    assert!(text.starts_with("this is a very long string"), "{way}: {text}")
                }
                _ => assert!(!text.is_empty(), "{way}"),
            }
            // Framing and hop-by-hop fields are of the version.
            let coding = got.response.header("transfer-encoding");
            let hops = ["connection", "keep-alive", "transfer-encoding", "upgrade"];
            let found = hops.iter().find(|name| got.response.header(name).is_some());
            assert!(version == "1.1" || found.is_none(), "{tenant}, {way}: {got:?}");
            assert!(coding.is_none_or(|coding| coding == "chunked"), "{tenant}, {way}");
        }
    }
}

/// Each way to misbehave ends the same over each protocol, and the next request sees nothing of it.
#[test]
fn faults_in_every_way() {
    let Some(everything) = Everything::start(&["misbehave/misbehave.c"]) else { return };
    for (path, status) in [
        ("/trap", 502),
        ("/exit", 502),
        ("/bad-header", 502),
        ("/recurse", 502),
        ("/nothing", 404),
        ("/ok", 200),
    ] {
        for (way, version, curl) in everything.ways("misbehave", path) {
            let got = curl.get();
            assert_eq!((got.status(), got.version.as_str()), (status, version), "{path}, {way}");
            if status == 502 {
                assert_eq!(got.response.id().len(), 16, "{path}, {way}: {got:?}");
                everything.server.log.report(got.response.id());
            }
        }
    }
    // A response that breaks off is not taken for a whole one.
    for (way, _, curl) in everything.ways("misbehave", "/big") {
        let end = curl.run();
        assert!(end.is_err(), "{way} takes a response that was cut off for a whole one");
    }
    for (way, _, curl) in everything.ways("misbehave", "/ok") {
        assert_eq!(curl.get().text(), "ok\n", "{way}");
    }
}

#[test]
fn bodies_in_every_way() {
    let Some(everything) = Everything::start(&["echo/echo.c"]) else { return };
    let body: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
    for (way, _, curl) in everything.ways("echo", "/stream") {
        let got = curl.body(body.clone()).header("expect:").run();
        let got = got.unwrap_or_else(|error| panic!("{way}: {error:?}"));
        assert!(got.response.body == body, "{way}: {} bytes", got.response.body.len());
    }
    // Without a length: chunks, or frames.
    for (way, _, curl) in everything.ways("echo", "/stream") {
        let curl = curl.arg("--request").arg("POST").arg("--upload-file").arg("-");
        let got = curl.piped(body.clone()).header("expect:").run();
        let got = got.unwrap_or_else(|error| panic!("{way}: {error:?}"));
        assert!(got.response.body == body, "{way}: {} bytes", got.response.body.len());
    }
    // A client of HTTP/1.1 that wants to be told to go on is told. The library has no interim responses in
    // HTTP/2, whose clients go on by themselves after a moment, as they must (RFC 9110 §10.1.1).
    for (way, version, curl) in everything.ways("echo", "/") {
        let patience = if version == "2" { "0.05" } else { "60" };
        let curl = curl.arg("--expect100-timeout").arg(patience).header("expect: 100-continue");
        let got = curl.body("the body").run();
        let got = got.unwrap_or_else(|error| panic!("{way}: {error:?}"));
        assert!(got.text().ends_with("the body"), "{way}: {}", got.text());
        let interim: Vec<u16> = got.interim.iter().map(|head| head.status).collect();
        assert!(interim == [100] || version == "2" && interim.is_empty(), "{way}: {interim:?}");
    }
}

#[test]
fn heads_in_every_way() {
    let Some(everything) = Everything::start(&["echo/echo.c", "hello/hello.c"]) else { return };
    for (way, _, curl) in everything.ways("hello", "/") {
        let got = curl.arg("--head").get();
        // Curl would complain about a body, and shows the head in its place.
        assert_eq!(got.status(), 200, "{way}");
        assert_eq!(got.response.header("content-length"), Some("14"), "{way}: {got:?}");
    }
    for (way, _, curl) in everything.ways("echo", "/a%20b?c=d&e=%2F") {
        let got = curl.header("X-Twice: one").header("x-twice: two").header("X-Empty;").get();
        let text = got.text();
        assert!(text.starts_with("GET /a%20b?c=d&e=%2F\necho.test\n"), "{way}: {text}");
        assert!(text.contains("\nx-twice: one\nx-twice: two\n"), "{way}: {text}");
        assert!(text.contains("\nx-empty: \n"), "{way}: {text}");
    }
}

/// What guests are told of who asks: the proxy's client behind a proxy, and nothing that the client made up.
#[test]
fn guests_learn_who_asks() {
    let Some(everything) = Everything::start(&["echo/echo.c"]) else { return };
    for (way, _, curl) in everything.ways("echo", "/") {
        let got = curl
            .header("x-forwarded-for: 198.51.100.66")
            .header("forwarded: for=198.51.100.66")
            .get();
        let text = got.text();
        assert!(!text.contains("198.51.100.66"), "{way} believes a stranger: {text}");
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("{way}: no {name} in {text}")).to_owned()
        };
        let client = match way {
            _ if way.contains("proxy") => "203.0.113.7",
            _ if way.contains("IPv6") => "::1",
            _ if way.contains("Unix") => continue,
            _ => "127.0.0.1",
        };
        assert_eq!(of("x-forwarded-for"), client, "{way}");
        let scheme = if way.contains("TLS") { "https" } else { "http" };
        assert_eq!(of("x-forwarded-proto"), scheme, "{way}");
        assert_eq!(of("x-forwarded-host"), "echo.test", "{way}");
    }
}

/// Trailers both ways over HTTP/2, which nghttp can send and shows.
#[test]
fn h2_trailers_go_both_ways() {
    let Some(everything) = Everything::start(&["echo/echo.c"]) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let body = directory.path().join("body");
    std::fs::write(&body, "body").expect("the directory is ours");
    let port = everything.server.address().port();
    let run = sandtide_tests::Run::of(
        std::process::Command::new("nghttp")
            .args(["--verbose", "--no-push", "--trailer", "x-sum: 42", "--trailer", "x-note: ends"])
            .args(["--header", ":authority: echo.test", "--header", "te: trailers"])
            .arg("--data")
            .arg(&body)
            .arg(format!("http://127.0.0.1:{port}/trailers")),
        b"",
    );
    let shown = &run.stdout;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(shown.contains("4 bytes of body, 2 trailers\n"), "{shown}");
    let (_, behind) = shown.split_once("2 trailers\n").expect("it was there");
    assert!(behind.contains(" x-sum: 42\n") || shown.contains("\u{1b}[0m: 42"), "{shown}");
    assert!(shown.matches("x-note").count() >= 2, "{shown}");
}

/// h1 on a connection of its own kind: pipelined, kept, closed.
#[test]
fn unix_connections_are_kept() {
    let Some(everything) = Everything::start(&["hello/hello.c", "echo/echo.c"]) else { return };
    let mut client = Client::connect_unix(&everything.unix);
    for number in 0..20 {
        client.send(&Request::get("echo", &format!("/{number}")).bytes());
    }
    for number in 0..20 {
        assert!(client.response("GET").text().starts_with(&format!("GET /{number}\n")));
    }
    assert_eq!(client.ask(&Request::get("hello", "/").header("connection", "close")).status(), 200);
    assert_eq!(client.rest(), b"");
}

/// A listener that wants a PROXY header takes nothing else for one.
#[test]
fn connections_without_the_header_of_a_proxy() {
    let Some(everything) = Everything::start(&["echo/echo.c"]) else { return };
    let address = everything.server.address_at(3).expect("an address");
    let request = Request::get("echo", "/").header("connection", "close").bytes();
    let source = "192.0.2.1:1000".parse().expect("an address");
    let good = proxy::header(source, "192.0.2.2:80".parse().expect("an address"));
    let mut bad_version = good.clone();
    bad_version[12] = 0x31;
    let mut bad_command = good.clone();
    bad_command[12] = 0x2f;
    let mut bad_signature = good.clone();
    bad_signature[11] = b'\r';
    for (name, header) in [
        ("none", Vec::new()),
        ("version 3", bad_version),
        ("an unknown command", bad_command),
        ("another signature", bad_signature),
        ("addresses that are cut off", proxy::raw(0x21, 0x11, &[1, 2, 3])),
        ("the second half", good[6..].to_vec()),
    ] {
        let mut client = Client::connect(address);
        // It may be closed before all is sent.
        let _ = client.try_send(&[header, request.clone()].concat());
        let rest = client.rest();
        assert!(!rest.starts_with(b"HTTP/1.1 200"), "{name}: {}", String::from_utf8_lossy(&rest));
    }
    // A proxy that speaks for itself, further fields behind the addresses, and IPv6.
    let of_v6 = proxy::header(
        "[2001:db8::1]:1000".parse().expect("an address"),
        "[2001:db8::2]:80".parse().expect("an address"),
    );
    let addresses = [&good[16..], &[0x04, 0, 3, 1, 2, 3][..]].concat();
    for (header, client_is) in [
        (good.clone(), Some("192.0.2.1")),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1000 80\r\n".to_vec(), Some("192.0.2.1")),
        (proxy::local(), None),
        (proxy::raw(0x21, 0x11, &addresses), Some("192.0.2.1")),
        (of_v6, Some("2001:db8::1")),
    ] {
        let mut client = Client::connect(address);
        client.send(&[header, request.clone()].concat());
        let response = client.response("GET");
        assert_eq!(response.status(), 200);
        if let Some(client_is) = client_is {
            let text = response.text();
            assert!(text.contains(&format!("x-forwarded-for: {client_is}\n")), "{text}");
        }
    }
    // Nor is a header believed where none is expected.
    let mut client = everything.server.connect();
    client.send(&[good, request].concat());
    assert_eq!(client.response("GET").status(), 400);
}
