//! What an operator sees: counters that move exactly as requests were made, health, one line of
//! the access log for each exchange.

use std::{fs, net::SocketAddr, path::PathBuf, thread};

use sandtide_tests::{
    Client, Request, Response, Server,
    binary::top,
    built, guest,
    h2::{self, Connection, Frame, flag},
    server::Signal,
};
use serde_json::Value;

const FIXED: &str = "[tenants.fixed]\nauthorities = \"fixed.test\"\n\
    respond = { status = 200, body = \"fixed\" }\n";

struct Observed {
    server: Server,
    admin: SocketAddr,
}

impl Observed {
    /// Serves the guest of the limits, and a constant, with an access log.
    fn start(server: &str, format: &str) -> Option<Self> {
        let program = guest("suite_limits.c")?;
        let tenants = format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             [tenants.guest.limits]\ninstructions = 5_000_000\nrequest_body = 8\n{FIXED}"
        );
        Some(Self::of(
            server,
            &format!("[access_log]\nfile = \"access.log\"\nformat = {format:?}\n{tenants}"),
        ))
    }

    fn of(server: &str, rest: &str) -> Self {
        let admin = "[admin]\nlisten = \"127.0.0.1:0\"\nmax_tenants = 1\n";
        let server =
            Server::start_with(&format!("threads = 2\n{server}"), &format!("{admin}{rest}"));
        let line = server.log.wait("operators are listened to", |line| line.starts_with("admin: "));
        let admin = line["admin: http://".len()..].parse().expect("an address");
        Self { server, admin }
    }

    fn admin(&self, path: &str) -> Response {
        Client::connect(self.admin).ask(&Request::get("admin", path))
    }

    /// The value of a sample; zero if there is none.
    fn sample(&self, name: &str) -> f64 {
        let page = self.admin("/metrics");
        let mut lines = page.text().lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    fn wait_for(&self, name: &str, value: f64) {
        while self.sample(name) < value {
            thread::yield_now();
        }
    }

    fn access_log(&self) -> PathBuf {
        self.server.directory().join("access.log")
    }

    /// Stops the server. All lines are there then.
    fn lines(mut self) -> Vec<String> {
        self.server.terminate();
        assert_eq!(self.server.wait().code(), Some(0));
        let text = fs::read_to_string(self.access_log()).expect("there is a log");
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines().map(str::to_owned).collect()
    }

    fn objects(self) -> Vec<Value> {
        let parse = |line: &String| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        self.lines().iter().map(parse).collect()
    }
}

#[test]
fn counters_move_as_requests_were_made() {
    let Some(observed) = Observed::start("", "json") else { return };
    let server = &observed.server;
    for _ in 0..3 {
        assert_eq!(server.get("guest", "/ok").text(), "ok");
    }
    assert_eq!(server.get("guest", "/spin").status(), 504);
    let body = Request::new("POST", "guest", "/body").body("twelve").bytes();
    let mut client = server.connect();
    client.send(&body);
    assert_eq!(client.response("POST").text(), "6");
    assert_eq!(server.ask(&Request::new("POST", "guest", "/body").body("123456789")).status(), 413);
    assert_eq!(server.get("nobody", "/").status(), 404);
    assert_eq!(server.get("fixed", "/").status(), 200);
    client.send(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(client.response("GET").status(), 400);

    let page = observed.admin("/metrics");
    let kind = page.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    for (name, value) in [
        ("sandtide_exchanges_total{tenant=\"guest\"}", 5.0),
        ("sandtide_responses_total{tenant=\"guest\",status=\"2xx\"}", 4.0),
        ("sandtide_responses_total{tenant=\"guest\",status=\"4xx\"}", 1.0),
        ("sandtide_responses_total{tenant=\"guest\",status=\"5xx\"}", 1.0),
        ("sandtide_faults_total{tenant=\"guest\",kind=\"instructions\"}", 1.0),
        ("sandtide_refused_total{tenant=\"guest\",reason=\"request_body\"}", 1.0),
        ("sandtide_request_body_bytes_total{tenant=\"guest\"}", 6.0),
        ("sandtide_response_body_bytes_total{tenant=\"guest\"}", 7.0),
        ("sandtide_duration_seconds_count{tenant=\"guest\"}", 5.0),
        ("sandtide_programs_loaded_total", 1.0),
        // One tenant has series of its own.
        ("sandtide_fixed_responses_total{tenant=\"_other\"}", 1.0),
        ("sandtide_refused_total{tenant=\"_other\",reason=\"no_tenant\"}", 1.0),
        ("sandtide_refused_total{tenant=\"_other\",reason=\"bad_request\"}", 1.0),
        ("sandtide_fixed_responses_total{tenant=\"fixed\"}", 0.0),
    ] {
        assert_eq!(observed.sample(name), value, "{name}\n{}", page.text());
    }
    assert!(observed.sample("sandtide_instructions_total{tenant=\"guest\"}") >= 5e6);
    assert!(observed.sample("sandtide_cpu_seconds_total{tenant=\"guest\"}") > 0.0);
    assert!(observed.sample("process_resident_memory_bytes") > 1e6);

    let tenants = observed.admin("/tenants");
    let tenants: Value = serde_json::from_str(tenants.text()).expect("JSON");
    assert_eq!((&tenants[0]["name"], &tenants[0]["state"]), (&"guest".into(), &"loaded".into()));
    assert_eq!(tenants[0]["counters"]["exchanges"], 5);
    assert_eq!((&tenants[1]["name"], &tenants[1]["state"]), (&"fixed".into(), &"fixed".into()));
}

#[test]
fn reloads_are_counted() {
    let base =
        "[server]\nlisten = \"127.0.0.1:0\"\nwatch = false\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    let observed = Observed::of("watch = false", FIXED);
    observed.server.configure(&format!("{base}[tenants.broken]\nauthorities = 1\n"));
    observed.server.signal(Signal::HUP);
    observed.wait_for("sandtide_failed_reloads_total", 1.0);
    assert_eq!(observed.sample("sandtide_reloads_total"), 0.0);
    observed.server.configure(&format!("{base}{FIXED}"));
    observed.server.signal(Signal::HUP);
    observed.wait_for("sandtide_reloads_total", 1.0);
    assert_eq!(observed.sample("sandtide_failed_reloads_total"), 1.0);
}

#[test]
fn a_server_that_drains_is_alive_and_not_ready() {
    let Some(observed) = Observed::start("drain_delay = \"60 s\"", "json") else { return };
    assert_eq!(
        (observed.admin("/readyz").status(), observed.admin("/healthz").status()),
        (200, 200)
    );
    observed.server.terminate();
    let draining = loop {
        let ready = observed.admin("/readyz");
        if ready.status() != 200 {
            break ready;
        }
    };
    assert_eq!((draining.status(), draining.text()), (503, "draining\n"));
    assert_eq!(observed.admin("/healthz").status(), 200);
    assert_eq!(observed.server.get("fixed", "/").status(), 200, "it is still served");
}

#[test]
fn each_exchange_has_a_line() {
    let Some(observed) = Observed::start("", "json") else { return };
    let server = &observed.server;
    let agent = "a \"quoted\" \\ agent\u{e9}";
    let ok = Request::get("guest", "/ok?a=b").header("user-agent", agent);
    assert_eq!(server.ask(&ok).text(), "ok");
    let fault = server.get("guest", "/spin");
    let refused = server.get("nobody", "/");
    assert_eq!(server.get("fixed", "/").text(), "fixed");
    let mut h2 = Connection::open(server.address());
    assert_eq!(h2.get(1, "guest.test", "/ok").status(), Some(200));
    // A client that does not wait.
    let mut gone = server.connect();
    gone.send(&Request::get("guest", "/sleep").bytes());
    while observed.sample("sandtide_exchanges_running{tenant=\"guest\"}") < 1.0 {
        thread::yield_now();
    }
    drop(gone);
    observed.wait_for("sandtide_clients_gone_total{tenant=\"guest\"}", 1.0);

    let lines = observed.objects();
    let find = |key: &str, value: &str| {
        let mut found = lines.iter().filter(|line| line[key] == value);
        let line = found.next().unwrap_or_else(|| panic!("no {key} {value} in {lines:?}"));
        assert!(found.next().is_none(), "{key} {value} twice in {lines:?}");
        line
    };
    assert_eq!(lines.len(), 6, "{lines:?}");
    let ok = find("path", "/ok?a=b");
    assert_eq!(
        (&ok["status"], &ok["bytes"], &ok["ending"]),
        (&200.into(), &2.into(), &"done".into())
    );
    assert_eq!((&ok["client"], &ok["host"]), (&"127.0.0.1".into(), &"guest.test".into()));
    assert_eq!((&ok["tenant"], &ok["protocol"]), (&"guest".into(), &"HTTP/1.1".into()));
    assert_eq!(ok["user_agent"], agent);
    assert!(ok["instructions"].as_u64().is_some_and(|n| n > 0), "{ok}");
    let spin = find("request_id", fault.id());
    assert_eq!((&spin["status"], &spin["why"]), (&504.into(), &"instructions".into()));
    assert!(spin["cpu_us"].as_u64().is_some_and(|n| n > 0), "{spin}");
    assert_eq!(spin["bytes"], fault.text().len());
    let refused = find("request_id", refused.id());
    assert_eq!((&refused["why"], refused.get("tenant")), (&"no_tenant".into(), None));
    assert_eq!(find("tenant", "fixed")["bytes"], 5);
    assert_eq!(find("protocol", "HTTP/2.0")["bytes"], 2);
    let gone = find("ending", "client_gone");
    assert_eq!((&gone["status"], &gone["bytes"]), (&499.into(), &0.into()));
}

#[test]
fn a_log_that_is_moved_away_goes_on_in_a_new_file() {
    let Some(observed) = Observed::start("", "common") else { return };
    let moved = observed.server.directory().join("access.log.1");
    assert_eq!(observed.server.get("fixed", "/first").status(), 200);
    observed.wait_for("sandtide_access_log_lines_total", 1.0);
    fs::rename(observed.access_log(), &moved).expect("the directory is ours");
    observed.server.signal(Signal::HUP);
    while !observed.access_log().exists() {
        thread::yield_now();
    }
    assert_eq!(observed.server.get("fixed", "/second").status(), 200);
    let first = fs::read_to_string(&moved).expect("the file was moved");
    let second = observed.lines();
    assert_eq!((first.lines().count(), second.len()), (1, 1));
    assert!(
        first.starts_with("127.0.0.1 - - [") && first.contains("] \"GET /first HTTP/1.1\" 200 5 ")
    );
    assert!(second[0].contains("] \"GET /second HTTP/1.1\" 200 5 "), "{second:?}");
}

/// Every answer of ours has an id and a reason, whatever was wrong; what was read of the request stands in
/// the access log.
#[test]
fn requests_that_are_none_have_an_id() {
    let limits = "max_headers = 20\nhead_timeout = \"200 ms\"";
    let Some(observed) = Observed::start(limits, "json") else { return };
    let id_of = |response: &Response, status: u16, why: &str| {
        assert_eq!(response.status(), status, "{response:?}");
        assert_eq!(response.header("proxy-status"), Some(why), "{response:?}");
        let id = response.header("x-request-id").expect("an id").to_owned();
        assert!(response.text().ends_with(&format!(" (request {id})\n")), "{response:?}");
        id
    };
    let malformed = "sandtide; error=http_request_error";
    let mut client = observed.server.connect();
    client.send(b"GET /hosts HTTP/1.1\r\nhost: guest.test\r\nhost: fixed.test\r\n\r\n");
    let hosts = id_of(&client.response("GET"), 400, malformed);

    let mut client = observed.server.connect();
    client.send(b"GET /slow HTTP/1.1\r\nhost: guest.te");
    let slow = "sandtide; error=http_request_error; details=\"head_timeout\"";
    let slow = id_of(&client.response("GET"), 408, slow);
    assert_eq!(client.rest(), b"");

    let mut connection = Connection::open(observed.server.address());
    let names: Vec<String> = (0..21).map(|n| format!("x-{n}")).collect();
    let fields = names.iter().map(|name| (name.as_str(), ""));
    let fields: Vec<_> = h2::get("guest.test", "/headers").into_iter().chain(fields).collect();
    connection.frame(&Frame::headers(1, flag::END_STREAM, &fields));
    assert_eq!(connection.end_of(1).status(), Some(431));

    // The parser's own answer, as the documentation says.
    let many = (0..21).fold(Request::get("guest", "/"), |r, n| r.header(&format!("x-{n}"), ""));
    let bare = observed.server.ask(&many);
    assert_eq!((bare.status(), bare.header("x-request-id")), (431, None), "{bare:?}");

    let refused = "sandtide_refused_total{tenant=\"_other\",reason=\"bad_request\"}";
    assert_eq!(observed.sample(refused), 3.0);
    let lines = observed.objects();
    let of = |path: &str| lines.iter().find(|line| line["path"] == path).expect("a line").clone();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (&of("/hosts")["status"], &of("/hosts")["request_id"]),
        (&400.into(), &hosts.into())
    );
    assert_eq!(of("/headers")["status"], 431);
    assert!(lines.iter().all(|line| line.get("tenant").is_none()), "{lines:?}");
    assert!(lines.iter().all(|line| line["request_id"] != slow.as_str()), "{lines:?}");
}

#[test]
fn guests_learn_of_the_client_and_of_the_trace() {
    let Some(program) = built(&top().join("examples/echo/echo.c")) else { return };
    let echo = format!("[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {program:?}\n");
    let log = "[access_log]\nfile = \"access.log\"\nformat = \"json\"\n";
    let observed = Observed::of("forwarded = { trust = \"127.0.0.1\" }", &format!("{log}{echo}"));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let request = Request::get("echo", "/")
        .header("x-forwarded-for", "203.0.113.1, 192.0.2.7")
        .header("forwarded", "for=10.0.0.1")
        .header("traceparent", parent)
        .header("tracestate", "vendor=1");
    let response = observed.server.ask(&request);
    let text = response.text();
    assert!(text.contains("\nx-forwarded-for: 203.0.113.1, 192.0.2.7, 127.0.0.1\n"), "{text}");
    assert!(!text.contains("forwarded: for"), "{text}");
    assert!(text.contains("\ntracestate: vendor=1\n") && !text.contains(parent), "{text}");
    let (trace, _) = parent[3..].split_once('-').expect("a context");
    let own = text.lines().find_map(|line| line.strip_prefix("traceparent: "));
    let own = own.expect("a context").to_owned();
    let bad =
        Request::get("echo", "/bad").header("traceparent", "00-0-0-0").header("tracestate", "a=1");
    assert!(!observed.server.ask(&bad).text().contains("\ntrace"));

    // Each reactor writes what it has when it ends.
    let mut lines = observed.objects();
    lines.sort_by_key(|line| line["path"].as_str().map(str::to_owned));
    assert_eq!((&lines[0]["client"], &lines[0]["trace_id"]), (&"192.0.2.7".into(), &trace.into()));
    let span = lines[0]["span_id"].as_str().expect("a span");
    assert_eq!(own, format!("00-{trace}-{span}-01"));
    assert_eq!((&lines[1]["client"], lines[1].get("trace_id")), (&"127.0.0.1".into(), None));
}
