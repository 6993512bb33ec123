//! State that goes from one version of a program to the next, and what becomes of it when that
//! fails: docs/state.md.
//!
//! The guest is `tests/guests/suite_state.cpp`: it answers `VERSION TEXT`, and its texts can make
//! its handlers fail.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use sandtide_tests::{Request, Server, binary::top, built, guest, log::field, server::Signal};

/// What stands in the configuration besides the tenants. Only a signal makes the server look.
const TOLD: &str = "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 2\nwatch = false\n\n";

fn tenant(name: &str, program: &Path, version: u32, lines: &str) -> String {
    format!(
        "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
         isolation = \"none\"\nenv = {{ VERSION = \"{version}\" }}\n{lines}\n\
         [tenants.{name}.limits]\nwall_time = \"400 ms\"\ninstructions = 100_000_000_000\n\
         response_body = \"1 MiB\"\n"
    )
}

/// A server with one tenant of the guest, and the means to change its version.
struct Stateful {
    server: Server,
    program: PathBuf,
    lines: &'static str,
}

impl Stateful {
    fn start(lines: &'static str) -> Option<Self> {
        let program = guest("suite_state.cpp")?;
        let server = Server::of(&format!("{TOLD}{}", tenant("guest", &program, 1, lines)));
        let stateful = Self { server, program, lines };
        assert_eq!(stateful.get("/"), "1 fresh");
        stateful.server.log.wait("the first version", |line| line.contains(": loaded "));
        Some(stateful)
    }

    fn get(&self, target: &str) -> String {
        let response = self.server.get("guest", target);
        assert_eq!(response.status(), 200, "{response:?}");
        response.text().to_owned()
    }

    /// Puts another version in place and returns what the log says of that.
    fn change(&self, version: u32) -> String {
        let mark = self.server.log.mark();
        let text = tenant("guest", &self.program, version, self.lines);
        self.server.configure(&format!("{TOLD}{text}"));
        self.server.signal(Signal::HUP);
        self.server.log.wait_since(mark, "the tenant's program", |line| {
            field(line, "tenant") == Some("guest")
                && (line.contains(": loaded ") || line.contains("cannot load"))
        })
    }
}

#[test]
fn state_goes_from_version_to_version() {
    let Some(guest) = Stateful::start("") else { return };
    guest.get("/set?kept");
    for version in 2..6 {
        let line = guest.change(version);
        assert_eq!(field(&line, "state"), Some("4 bytes handed over"), "{line}");
        assert_eq!(guest.get("/"), format!("{version} kept"));
    }
    // As large as a response may be, and nothing at all.
    guest.get("/set?big-1048576");
    assert!(guest.change(6).contains("1048576 bytes handed over"));
    assert_eq!(guest.get("/"), "6 big-1048576");
    guest.get("/set");
    assert!(guest.change(7).contains(" 0 bytes handed over") || guest.get("/") == "7 ");
    assert_eq!(guest.get("/"), "7 ");
}

#[test]
fn there_is_nothing_to_hand_over_before_the_first_request() {
    let Some(program) = guest("suite_state.cpp") else { return };
    let server = Server::of(&format!("{TOLD}{}", tenant("guest", &program, 1, "load = \"start\"")));
    let mark = server.log.mark();
    server.configure(&format!("{TOLD}{}", tenant("guest", &program, 2, "load = \"start\"")));
    server.signal(Signal::HUP);
    server.log.wait_since(mark, "the second version", |line| line.contains(": loaded "));
    assert_eq!(server.get("guest", "/").text(), "2 fresh");
}

/// The new version never serves, and the old one goes on as if nothing had happened.
#[test]
fn a_state_that_cannot_be_handed_over_stays_where_it_is() {
    let Some(guest) = Stateful::start("") else { return };
    for (version, text, why) in [
        (2, "save-throw", "answered `save` with status 500"),
        (3, "restore-throw", "answered `restore` with status 500"),
        (4, "restore-trap", "failed to restore the state"),
        (5, "restore-spin", "failed to restore the state"),
    ] {
        guest.get(&format!("/set?{text}"));
        let line = guest.change(version);
        assert!(line.contains("cannot load") && line.contains(why), "{line}");
        assert_eq!(guest.get("/"), format!("1 {text}"));
    }
    // The exception's text is in the tenant's log.
    guest.server.log.wait("why", |line| line.contains("exception in on_restore: asked to"));
    guest.get("/set?good");
    assert!(guest.change(6).contains("4 bytes handed over"));
    assert_eq!(guest.get("/"), "6 good");
}

/// A fault takes the state with it, as it does in every other exchange.
#[test]
fn a_fault_while_saving_loses_the_state() {
    let Some(guest) = Stateful::start("") else { return };
    for (version, text) in [(2, "save-trap"), (3, "save-spin"), (4, "big-1048577")] {
        guest.get(&format!("/set?{text}"));
        let line = guest.change(version);
        assert!(field(&line, "state").is_some_and(|state| state.starts_with("lost")), "{line}");
        assert_eq!(guest.get("/"), format!("{version} fresh"));
    }
}

#[test]
fn a_program_that_hands_nothing_over_starts_afresh() {
    let Some(guest) = Stateful::start("") else { return };
    let Some(other) = built(&top().join("examples/hello/hello.c")) else { return };
    guest.get("/set?kept");
    let mark = guest.server.log.mark();
    guest.server.configure(&format!("{TOLD}{}", tenant("guest", &other, 1, "")));
    guest.server.signal(Signal::HUP);
    let line = guest.server.log.wait_since(mark, "hello", |line| line.contains(": loaded "));
    assert!(line.contains("dropped: the new version does not restore it"), "{line}");
    assert_eq!(guest.get("/"), "Hello, World!\n");
    assert!(guest.change(3).contains("dropped: the old version does not save it"));
    assert_eq!(guest.get("/"), "3 fresh");
}

/// Requests wait while the state changes hands, and go on with the new version: none fails, none
/// is counted twice.
#[test]
fn no_request_is_lost_while_state_changes_hands() {
    const CLIENTS: usize = 4;
    const VERSIONS: u32 = 10;
    let Some(counter) = built(&top().join("examples/counter/counter.c")) else { return };
    let configuration =
        |version| format!("{TOLD}{}", tenant("counter", &counter, version, "queue = 100"));
    let server = Server::of(&configuration(1));
    assert_eq!(server.get("counter", "/").text(), "1\n");
    server.log.wait("the first version", |line| line.contains(": loaded "));
    let changing = AtomicBool::new(true);
    let count = || {
        let (mut client, mut counts) = (server.connect(), Vec::new());
        while changing.load(Ordering::Relaxed) {
            let response = client.ask(&Request::get("counter", "/"));
            assert_eq!(response.status(), 200, "{response:?}");
            counts.push(response.text().trim().parse::<u64>().expect("a count"));
        }
        counts
    };
    let mut counts: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(count)).collect();
        let done = Done(&changing);
        for version in 2..=VERSIONS {
            let mark = server.log.mark();
            server.configure(&configuration(version));
            server.signal(Signal::HUP);
            server.log.wait_since(mark, "the next version", |line| {
                line.contains(": loaded ") && line.contains("bytes handed over")
            });
        }
        drop(done);
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    });
    counts.sort_unstable();
    assert!(counts.iter().copied().eq(2..2 + counts.len() as u64), "{counts:?}");
}

/// Ends the clients, also when the test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Nobody tells the server: it sees that the file has changed.
#[test]
fn a_changed_file_takes_the_state_over() {
    let Some(counter) = built(&top().join("examples/counter/counter.c")) else { return };
    let files = tempfile::tempdir().expect("a temporary directory");
    let program = files.path().join("counter.elf");
    fs::copy(&counter, &program).expect("the directory is ours");
    let server = Server::start(&tenant("counter", &program, 1, ""));
    assert_eq!(server.get("counter", "/").text(), "1\n");
    assert_eq!(server.get("counter", "/").text(), "2\n");
    let mark = server.log.mark();
    // The same code in another file: what stands behind an ELF file's parts is not part of it.
    let mut image = fs::read(&counter).expect("a program");
    image.extend(b"another version");
    let next = files.path().join("next");
    fs::write(&next, image).expect("the directory is ours");
    fs::rename(&next, &program).expect("the directory is ours");
    server.log.wait_since(mark, "the new file", |line| line.contains("bytes handed over"));
    assert_eq!(server.get("counter", "/").text(), "3\n");
}

/// No client can ask for a state, or set one.
#[test]
fn clients_cannot_make_events() {
    let Some(guest) = Stateful::start("") else { return };
    guest.get("/set?secret");
    let mut client = guest.server.connect();
    for method in ["SAVE", "RESTORE"] {
        let response = client.ask(&Request::new(method, "guest", "/").body("stolen"));
        // A request like any other.
        assert_eq!(response.text(), "1 secret");
        client.send(format!("{method} * HTTP/1.1\r\nhost: guest.test\r\n\r\n").as_bytes());
        assert_ne!(client.try_response(method).map_or(400, |response| response.status()), 500);
        client = guest.server.connect();
    }
    assert_eq!(guest.get("/"), "1 secret");
}

/// Two tenants with one program, whose versions change at the same time.
#[test]
fn state_never_crosses_tenants() {
    let Some(program) = guest("suite_state.cpp") else { return };
    let configuration = |version| {
        let tenants = ["one", "two", "three"].map(|name| tenant(name, &program, version, ""));
        format!("{TOLD}{}", tenants.concat())
    };
    let server = Server::of(&configuration(1));
    server.get("one", "/set?of-one");
    server.get("two", "/set?of-two");
    for version in 2..8 {
        let mark = server.log.mark();
        server.configure(&configuration(version));
        server.signal(Signal::HUP);
        for name in ["one", "two"] {
            let own = |line: &str| field(line, "tenant") == Some(name) && line.contains("handed");
            server.log.wait_since(mark, name, own);
        }
        assert_eq!(server.get("one", "/").text(), format!("{version} of-one"));
        assert_eq!(server.get("two", "/").text(), format!("{version} of-two"));
    }
    assert_eq!(server.get("three", "/").text(), "7 fresh");
}
