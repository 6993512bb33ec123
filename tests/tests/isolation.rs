//! No request finds what another has left: secrets are planted in every place that a request can
//! write to, the request ends in every way that one can end, and the next request on the same
//! sandbox looks for them.
//!
//! Each tenant here has a concurrency of one on a server of one thread, so that it never has more
//! than one sandbox; that this one is used again, and not replaced, is a test of its own. That
//! the probes see what they look for is another: with `isolation = "none"`, they find everything.
//!
//! The guest is `tests/guests/suite_isolation.c`. What becomes of a sandbox whose engine panicked
//! cannot be seen from outside; a unit test of the runtime shows it.

use std::{cell::Cell, fmt::Write as _, fs, path::PathBuf};

use sandtide_tests::{
    Request, Response, Server,
    binary::top,
    guest,
    guest::native,
    h2::{self, flag, kind},
};

/// What runs the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Riscv,
    Kvm,
}

thread_local! {
    /// The engine of the test that this thread runs.
    static ENGINE: Cell<Engine> = const { Cell::new(Engine::Riscv) };
}

/// The guest, for the engine of this test.
fn program() -> Option<PathBuf> {
    match ENGINE.get() {
        Engine::Riscv => guest("suite_isolation.c"),
        Engine::Kvm => native(&top().join("tests/guests/suite_isolation.c")),
    }
}

macro_rules! on {
    ($module:ident, $engine:expr, $($name:ident)*) => {
        mod $module {
            $(
                #[test]
                fn $name() {
                    super::ENGINE.set($engine);
                    super::$name();
                }
            )*
        }
    };
}

on!(riscv, super::Engine::Riscv,
    nothing_is_left_after_success
    nothing_is_left_after_a_trap
    nothing_is_left_after_an_abort_signal
    nothing_is_left_after_an_exit
    nothing_is_left_after_a_deadline
    nothing_is_left_after_the_last_instruction
    nothing_is_left_after_the_memory_limit
    nothing_is_left_after_a_response_over_its_limit
    nothing_is_left_after_the_client_has_gone_in_its_request
    nothing_is_left_after_a_client_that_falls_silent
    nothing_is_left_after_the_client_has_gone_in_its_response
    nothing_is_left_after_a_stream_was_reset
    nothing_is_left_after_a_connection_of_http_2_was_lost
    the_probes_find_what_is_kept
    a_tenant_that_keeps_its_state_loses_it_with_a_fault
    tenants_with_the_same_program_share_nothing
    console_lines_of_two_requests_are_two_lines
    no_random_number_comes_twice
    a_sandbox_is_used_again
);

// Instructions are not counted.
on!(kvm, super::Engine::Kvm,
    nothing_is_left_after_success
    nothing_is_left_after_a_trap
    nothing_is_left_after_an_abort_signal
    nothing_is_left_after_an_exit
    nothing_is_left_after_a_long_time
    nothing_is_left_after_the_memory_limit
    nothing_is_left_after_a_response_over_its_limit
    nothing_is_left_after_the_client_has_gone_in_its_request
    nothing_is_left_after_a_client_that_falls_silent
    nothing_is_left_after_the_client_has_gone_in_its_response
    nothing_is_left_after_a_stream_was_reset
    nothing_is_left_after_a_connection_of_http_2_was_lost
    the_probes_find_what_is_kept
    a_tenant_that_keeps_its_state_loses_it_with_a_fault
    tenants_with_the_same_program_share_nothing
    console_lines_of_two_requests_are_two_lines
    no_random_number_comes_twice
    a_sandbox_is_used_again
);

const PLACES: [&str; 26] = [
    "data",
    "bss",
    "malloc",
    "brk",
    "mmap",
    "stack",
    "tls",
    "registers",
    "float",
    "descriptors",
    "offsets",
    "counters",
    "watches",
    "timers",
    "pipes",
    "scratch",
    "protection",
    "mappings",
    "code",
    "threads",
    "signals",
    "directory",
    "process",
    "environment",
    "stdio",
    "anywhere",
];

const MASK: u64 = 0x5aa5_c33c_0ff0_1e2d;

/// A server with these tenants of the guest: a name, lines of its table, lines of its limits.
fn serve(tenants: &[(&str, &str, &str)]) -> Option<(Server, tempfile::TempDir)> {
    serve_with("", tenants)
}

/// The same, with these lines in `[server]`.
fn serve_with(server: &str, tenants: &[(&str, &str, &str)]) -> Option<(Server, tempfile::TempDir)> {
    let program = program()?;
    let files = tempfile::tempdir().expect("a temporary directory");
    fs::write(files.path().join("file"), "granted").expect("the directory is ours");
    let mut config = String::new();
    for (name, lines, limits) in tenants {
        write!(
            config,
            "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
             args = [\"isolation\"]\nenv = {{ ORIGINAL = \"yes\" }}\n\
             files = {{ \"/data\" = {files:?} }}\nconcurrency = 1\n{lines}\n\
             [tenants.{name}.limits]\nthreads = 8\n{limits}\n",
            files = files.path(),
        )
        .expect("a String takes everything");
    }
    Some((Server::start_with(&format!("threads = 1\n{server}"), &config), files))
}

/// A secret of its own for each place (splitmix64).
fn secret(place: &str) -> u64 {
    let seed = place.bytes().fold(1u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte));
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) | 1
}

fn plant(tenant: &str, place: &str, ending: &str) -> Request {
    Request::get(tenant, &format!("/plant/{place}/{ending}"))
        .header("x-secret", &format!("{:x}", secret(place)))
}

/// What the next request finds in that place.
fn probe(server: &Server, tenant: &str, place: &str) -> String {
    let request = Request::get(tenant, &format!("/probe/{place}"))
        .header("x-masked", &format!("{:x}", secret(place) ^ MASK));
    let response = server.ask(&request);
    format!("{} {}", response.status(), String::from_utf8_lossy(&response.body))
}

const CLEAN: &str = "200 clean";

/// Plants in every place, ends so, and expects the next request to find nothing.
fn nothing_is_left_after(ending: &str, limits: &str, end: impl Fn(&Server, &Request)) {
    if let Some((server, _files)) = serve(&[("guest", "", limits)]) {
        nothing_is_left_on(&server, ending, end);
    }
}

fn nothing_is_left_on(server: &Server, ending: &str, end: impl Fn(&Server, &Request)) {
    let mut found = String::new();
    for place in PLACES {
        assert_eq!(probe(server, "guest", place), CLEAN, "{place}, before anything was planted");
        end(server, &plant("guest", place, ending));
        let left = probe(server, "guest", place);
        if left != CLEAN {
            // Writing to a String cannot fail.
            let _ = writeln!(found, "{place}: {left}");
        }
    }
    assert!(found.is_empty(), "after {ending}, the next request finds\n{found}");
}

/// The request is answered with this status.
fn answered(status: u16) -> impl Fn(&Server, &Request) {
    move |server, request| {
        let response: Response = server.ask(request);
        assert_eq!(response.status(), status, "{response:?}");
    }
}

/// The log says that the request ended with this kind of fault.
fn faulted(status: u16, kind: &'static str) -> impl Fn(&Server, &Request) {
    move |server, request| {
        let mark = server.log.mark();
        answered(status)(server, request);
        let fault = format!("fault=\"{kind}\"");
        let seen = |line: &str| line.contains(&fault);
        // Reports are limited; whether this one came does not matter after the first.
        if mark == 0 {
            server.log.wait_since(mark, &fault, seen);
        }
    }
}

fn nothing_is_left_after_success() {
    nothing_is_left_after("success", "", answered(200));
}

fn nothing_is_left_after_a_trap() {
    nothing_is_left_after("trap", "", faulted(502, "trap"));
}

fn nothing_is_left_after_an_abort_signal() {
    nothing_is_left_after("abort", "", faulted(502, "signal"));
}

fn nothing_is_left_after_an_exit() {
    nothing_is_left_after("exit", "", faulted(502, "exit"));
}

fn nothing_is_left_after_a_deadline() {
    let limits = "wall_time = \"500 ms\"\ninstructions = 100_000_000_000";
    nothing_is_left_after("deadline", limits, faulted(504, "deadline"));
}

/// Without the sweep through memory: a virtual machine takes longer for its 10,000 bad reads.
fn nothing_is_left_after_a_long_time() {
    let Some((server, _files)) = serve(&[("guest", "", "wall_time = \"1 s\"")]) else { return };
    for place in PLACES.into_iter().filter(|place| *place != "anywhere") {
        faulted(504, "deadline")(&server, &plant("guest", place, "deadline"));
        assert_eq!(probe(&server, "guest", place), CLEAN, "{place}");
    }
}

fn nothing_is_left_after_the_last_instruction() {
    let limits = "instructions = 20_000_000";
    nothing_is_left_after("instructions", limits, faulted(504, "instructions"));
}

fn nothing_is_left_after_the_memory_limit() {
    nothing_is_left_after("memory", "memory = \"8 MiB\"", faulted(502, "memory"));
}

fn nothing_is_left_after_a_response_over_its_limit() {
    let limits = "response_body = \"64 KiB\"";
    nothing_is_left_after("response", limits, faulted(502, "response"));
}

fn nothing_is_left_after_the_client_has_gone_in_its_request() {
    nothing_is_left_after("client-in-request", "", |server, request| {
        let mark = server.log.mark();
        let mut client = server.connect();
        client.send(&request.clone().header("content-length", "100000").body("a part").bytes());
        server.log.wait_since(mark, "planted", |line| line.contains("planted"));
    });
}

fn nothing_is_left_after_a_client_that_falls_silent() {
    let tenants = [("guest", "", "")];
    let Some((server, _files)) = serve_with("body_timeout = \"20 ms\"", &tenants) else { return };
    nothing_is_left_on(&server, "client-in-request", |server, request| {
        let request = request.clone().header("content-length", "100000").body("a part");
        answered(408)(server, &request);
    });
}

fn nothing_is_left_after_the_client_has_gone_in_its_response() {
    nothing_is_left_after("client-in-response", "", |server, request| {
        let mut client = server.connect();
        client.send(&request.bytes());
        client.try_head("GET").expect("the response begins");
        assert!(client.body_bytes(7).starts_with(b"planted"));
    });
}

/// Plants over HTTP/2, and hands over when the guest waits for more of the body (`POST`) or has
/// begun its response (`GET`).
fn planted_in_http_2(server: &Server, method: &str, place: &str, ending: &str) -> h2::Connection {
    let mark = server.log.mark();
    let mut connection = h2::Connection::open(server.address());
    let (path, secret) = (format!("/plant/{place}/{ending}"), format!("{:x}", secret(place)));
    let mut head = h2::request(method, "guest.test", &path).to_vec();
    head.push(("x-secret", &secret));
    let flags = if method == "GET" { flag::END_STREAM } else { flag::NONE };
    connection.frame(&h2::Frame::headers(1, flags, &head));
    if method == "GET" {
        connection.until(|frame| frame.kind == kind::DATA).expect("the response begins");
    } else {
        connection.frame(&h2::Frame::new(kind::DATA, flag::NONE, 1, *b"a part"));
        server.log.wait_since(mark, "planted", |line| line.contains("planted"));
    }
    connection
}

/// The stream is reset, and the connection goes on.
fn nothing_is_left_after_a_stream_was_reset() {
    for (method, ending) in [("POST", "client-in-request"), ("GET", "client-in-response")] {
        let Some((server, _files)) = serve(&[("guest", "", "")]) else { return };
        let mut found = String::new();
        for place in PLACES {
            let mut connection = planted_in_http_2(&server, method, place, ending);
            let cancel = h2::code::CANCEL.to_be_bytes();
            connection.frame(&h2::Frame::new(kind::RST_STREAM, flag::NONE, 1, cancel));
            // What has come of the stream has used up the window of the connection.
            let room = (1u32 << 20).to_be_bytes();
            connection.frame(&h2::Frame::new(kind::WINDOW_UPDATE, flag::NONE, 0, room));
            let masked = format!("{:x}", secret(place) ^ MASK);
            let path = format!("/probe/{place}");
            let mut head = h2::get("guest.test", &path).to_vec();
            head.push(("x-masked", &masked));
            connection.frame(&h2::Frame::headers(3, flag::END_STREAM, &head));
            let left = connection.end_of(3);
            if left != (h2::End::Response { status: 200, body: b"clean".to_vec() }) {
                // Writing to a String cannot fail.
                let _ = writeln!(found, "{place}: {left:?}");
            }
        }
        assert!(found.is_empty(), "after a reset of {ending}, the next request finds\n{found}");
    }
}

fn nothing_is_left_after_a_connection_of_http_2_was_lost() {
    for (method, ending) in [("POST", "client-in-request"), ("GET", "client-in-response")] {
        let Some((server, _files)) = serve(&[("guest", "", "")]) else { return };
        for place in PLACES {
            drop(planted_in_http_2(&server, method, place, ending));
            assert_eq!(probe(&server, "guest", place), CLEAN, "{place} after {ending}");
        }
    }
}

/// What the probes are worth: where nothing is reset, they find every secret.
fn the_probes_find_what_is_kept() {
    let Some((server, _files)) = serve(&[("guest", "isolation = \"none\"", "")]) else { return };
    let mut missed = Vec::new();
    for place in PLACES {
        answered(200)(&server, &plant("guest", place, "success"));
        if probe(&server, "guest", place) == CLEAN {
            missed.push(place);
        }
        // A fault takes the state with it: the next place starts afresh.
        answered(502)(&server, &plant("guest", "bss", "trap"));
    }
    assert!(missed.is_empty(), "these probes find nothing: {missed:?}");
}

fn a_tenant_that_keeps_its_state_loses_it_with_a_fault() {
    let Some((server, _files)) = serve(&[("guest", "isolation = \"none\"", "")]) else { return };
    answered(200)(&server, &plant("guest", "data", "success"));
    assert_ne!(probe(&server, "guest", "data"), CLEAN);
    answered(502)(&server, &plant("guest", "bss", "trap"));
    server.log.wait("state lost", |line| line.contains("the tenant's state is lost"));
    for place in PLACES {
        assert_eq!(probe(&server, "guest", place), CLEAN, "{place}");
        answered(502)(&server, &plant("guest", "bss", "trap"));
    }
}

/// Two tenants with one program, neither of which is ever reset.
fn tenants_with_the_same_program_share_nothing() {
    let kept = "isolation = \"none\"";
    let Some((server, _files)) = serve(&[("one", kept, ""), ("two", kept, "")]) else { return };
    for place in PLACES {
        answered(200)(&server, &plant("one", place, "success"));
        assert_eq!(probe(&server, "two", place), CLEAN, "{place}");
        assert_ne!(probe(&server, "one", place), CLEAN, "{place}");
        for tenant in ["one", "two"] {
            answered(502)(&server, &plant(tenant, "bss", "trap"));
        }
    }
}

/// A partial line is the line of the request that wrote it.
fn console_lines_of_two_requests_are_two_lines() {
    let Some((server, _files)) = serve(&[("guest", "", "")]) else { return };
    for text in ["first", "second"] {
        let mark = server.log.mark();
        assert_eq!(server.get("guest", &format!("/line?{text}")).text(), "planted");
        let line = server.log.wait_since(mark, text, |line| line.contains(text));
        assert!(line.contains(&format!(": {text} tenant=")), "{line}");
    }
}

/// Randomness is renewed: it is the one thing that no two requests may share.
fn no_random_number_comes_twice() {
    let Some((server, _files)) = serve(&[("one", "", ""), ("two", "", "")]) else { return };
    let mut seen = Vec::new();
    for tenant in ["one", "two", "one", "two", "one"] {
        let response = server.get(tenant, "/random");
        let numbers: Vec<_> = response.text().split(' ').map(str::to_owned).collect();
        assert_eq!(numbers.len(), 3, "{numbers:?}");
        seen.extend(numbers);
    }
    assert!(!seen.contains(&"0".repeat(32)), "{seen:?}");
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "{seen:?}");
}

/// The sandbox that was reset is the one that serves next: a new one would have to fault in every
/// page that it writes. This is also the promise that a request takes no page fault in steady
/// state.
fn a_sandbox_is_used_again() {
    let Some((server, _files)) = serve(&[("guest", "", "")]) else { return };
    for (ending, status) in [("success", 200), ("trap", 502)] {
        let request = plant("guest", "data", ending);
        let mut client = server.connect();
        let mut ask = |count: u32| {
            for _ in 0..count {
                assert_eq!(client.ask(&request).status(), status);
            }
        };
        ask(200);
        let before = server.minor_faults();
        ask(400);
        let faults = server.minor_faults() - before;
        assert!(faults < 100, "{faults} page faults in 400 requests that end by {ending}");
    }
}
