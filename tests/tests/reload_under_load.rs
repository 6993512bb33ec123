//! A hundred reloads, programs and configuration in turn, while clients of HTTP/1 and HTTP/2 ask all the time: not one
//! request fails, each is answered by a version that was in force, and after each reload by the one that is.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use sandtide_tests::{
    Request, Server, Signal,
    binary::top,
    built, guest,
    h2::{Connection, End},
    log::field,
};

const RELOADS: usize = 100;

/// What the two programs answer.
const ANSWERS: [&str; 2] = ["Hello, World!\n", "ok"];

/// What the two configurations answer.
const CONSTANTS: [&str; 2] = ["even", "odd"];

fn configuration(directory: &Path, which: usize) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 2\nwatch = false\n\
         [tenants.program]\nauthorities = \"program.test\"\nprogram = {:?}\nload = \"start\"\n\
         [tenants.constant]\nauthorities = \"constant.test\"\nrespond = {{ body = {:?} }}\n\
         [tenants.steady]\nauthorities = \"steady.test\"\nprogram = {:?}\n\
         [tenants.steady.limits]\nrequest_body = \"{} MiB\"\n",
        directory.join("program.elf"),
        CONSTANTS[which],
        directory.join("steady.elf"),
        1 + which,
    )
}

/// Puts a file in the place of another in one step.
fn replace(from: &Path, to: &Path) {
    let unfinished = to.with_extension("unfinished");
    fs::copy(from, &unfinished).expect("the directory is ours");
    fs::rename(unfinished, to).expect("the directory is ours");
}

/// Tells the server to look again, and waits for the line that says that it has. What the last
/// signal has started may see the change as well, and be first: `mark` is from before the change.
fn reload(server: &Server, mark: usize, done: impl Fn(&str) -> bool) {
    server.signal(Signal::HUP);
    server.log.wait_since(mark, "the reload is done", done);
}

fn is_loaded(line: &str) -> bool {
    line.contains("sandtide::control: loaded") && field(line, "tenant") == Some("program")
}

fn is_configured(line: &str) -> bool {
    line.contains("sandtide::control: configured")
}

/// What a client may get from each tenant.
const TENANTS: [(&str, &[&str]); 3] =
    [("program", &ANSWERS), ("constant", &CONSTANTS), ("steady", &[ANSWERS[0]])];

#[test]
fn a_hundred_reloads_lose_no_request() {
    let Some(first) = built(&top().join("examples/hello/hello.c")) else { return };
    let Some(second) = guest("suite_limits.c") else { return };
    let programs = [first, second];
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("program.elf");
    replace(&programs[0], &program);
    replace(&programs[0], &directory.path().join("steady.elf"));
    let mut server = Server::of(&configuration(directory.path(), 0));
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));

    thread::scope(|scope| {
        let server = &server;
        let (stop, asked) = (&stop, &asked);
        let address = server.address();
        for (tenant, allowed) in TENANTS {
            scope.spawn(move || {
                let mut client = server.connect();
                while !stop.load(Relaxed) {
                    let response = client.ask(&Request::get(tenant, "/"));
                    assert_eq!(response.status(), 200, "{tenant}: {response:?}");
                    assert!(allowed.contains(&response.text()), "{tenant}: {response:?}");
                    asked.fetch_add(1, Relaxed);
                }
            });
            scope.spawn(move || {
                let mut connection = Connection::open(address);
                let mut stream = 1;
                while !stop.load(Relaxed) {
                    let end = connection.get(stream, &format!("{tenant}.test"), "/");
                    let End::Response { status: 200, body } = &end else {
                        panic!("{tenant}: {end:?}")
                    };
                    assert!(allowed.iter().any(|a| a.as_bytes() == body), "{tenant}: {end:?}");
                    asked.fetch_add(1, Relaxed);
                    stream += 2;
                }
            });
        }
        // Connections of their own, which meet a reload at any point.
        scope.spawn(move || {
            while !stop.load(Relaxed) {
                assert_eq!(server.get("steady", "/").text(), ANSWERS[0]);
                asked.fetch_add(1, Relaxed);
            }
        });
        let result = std::panic::catch_unwind(|| {
            for turn in 0..RELOADS {
                let which = (turn / 2 + 1) % 2;
                let before = asked.load(Relaxed);
                let mark = server.log.mark();
                let (tenant, expected) = if turn % 2 == 0 {
                    replace(&programs[which], &program);
                    reload(server, mark, is_loaded);
                    ("program", ANSWERS[which])
                } else {
                    server.configure(&configuration(directory.path(), which));
                    reload(server, mark, is_configured);
                    ("constant", CONSTANTS[which])
                };
                // From the reload on, on old connections and new ones.
                assert_eq!(server.get(tenant, "/").text(), expected, "reload {turn}");
                // Nobody waits for long either.
                while asked.load(Relaxed) < before + 10 {
                    thread::yield_now();
                }
            }
        });
        stop.store(true, Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(asked.load(Relaxed) > 1000, "{asked:?}");
    assert!(server.is_alive());
    let log = server.log.since(0);
    let bad = |line: &&String| [" WARN ", " ERROR ", "panicked"].iter().any(|w| line.contains(w));
    assert_eq!(log.iter().find(bad), None);
}
