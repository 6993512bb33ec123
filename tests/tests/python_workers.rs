//! Worker processes of applications: docs/python.md.

use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Instant,
};

use sandtide_tests::{PATIENCE, Request, Server};

/// Which process answers a new connection.
fn pid(server: &Server) -> String {
    server.get("x", "/pid").text().to_owned()
}

/// Asks until it is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not {what} in {PATIENCE:?}");
    }
}

/// The processes that answer, as soon as there are so many.
fn pids(server: &Server, count: usize) -> BTreeSet<String> {
    let mut pids = BTreeSet::new();
    until("enough processes", || {
        pids.insert(pid(server));
        pids.len() == count
    });
    pids
}

#[test]
fn workers_share_a_port_and_end_together() {
    let mut server = Server::application("sink:app", &["--workers", "2"]);
    pids(&server, 2);
    server.terminate();
    assert!(server.wait().success());
    // Both write to one pipe, and an end of line may come late.
    let told = server.log.since(0).concat();
    assert_eq!(told.matches("lifespan: shut down").count(), 2, "{told}");
}

#[test]
fn a_worker_that_crashes_takes_no_other_ones_requests_with_it() {
    let server = Server::application("sink:app", &["--workers", "2"]);
    let both = pids(&server, 2);
    // A connection to each.
    let mut clients: Vec<_> = both
        .iter()
        .map(|wanted| {
            loop {
                let mut client = server.connect();
                if client.ask(&Request::get("x", "/pid")).text() == wanted {
                    break client;
                }
            }
        })
        .collect();
    let (mut spared, mut hit) = (clients.remove(0), clients.remove(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(spared.ask(&Request::get("x", "/hello")).status(), 200);
                count += 1;
            }
            count
        });
        hit.send(&Request::get("x", "/crash").bytes());
        assert!(hit.try_response("GET").is_err());
        server.log.wait("the crash is told", |line| line.contains("a worker ended by signal 6"));
        // Who connects meanwhile waits at worst.
        until("replaced", || !both.contains(&pid(&server)));
        is_over.store(true, Ordering::Relaxed);
        assert!(load.join().expect("no request fails") > 0);
    });
}

#[test]
fn a_worker_is_replaced_after_its_requests_and_none_fails() {
    let server = Server::application("sink:app", &["--max-requests", "20"]);
    let first = pid(&server);
    until("replaced", || pid(&server) != first);
}

#[test]
fn a_worker_that_has_grown_is_replaced() {
    let server = Server::application("sink:app", &["--max-rss", "128 MiB"]);
    let first = server.get("x", "/grow").text().to_owned();
    server.get("x", "/grow");
    until("replaced", || pid(&server) != first);
    server.log.wait("why", |line| line.contains("it has grown"));
}

#[test]
fn a_changed_file_is_taken_over_if_it_can_be_imported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let write = |body: &str| {
        fs::write(directory.path().join("changing.py"), body).expect("the directory is ours");
    };
    let app = |answer: &str| {
        format!(
            "async def app(scope, receive, send):\n\
             \x20   await send({{'type': 'http.response.start', 'status': 200}})\n\
             \x20   await send({{'type': 'http.response.body', 'body': b'{answer}'}})\n"
        )
    };
    write(&app("one"));
    let arguments = ["--reload", "--lifespan", "off"];
    let server = Server::begin_application_in(directory.path(), "changing:app", &arguments).ready();
    assert_eq!(server.get("x", "/").text(), "one");
    write(&app("two"));
    until("reloaded", || server.get("x", "/").text() == "two");
    write("1 / 0\n");
    server.log.wait("it stays", |line| line.contains("the worker before it stays"));
    assert_eq!(server.get("x", "/").text(), "two");
    write(&app("three"));
    until("reloaded", || server.get("x", "/").text() == "three");
}

#[test]
fn nothing_is_served_if_no_worker_can_be() {
    let mut server = Server::begin_application("broken:app", &["--workers", "2"]);
    assert!(!server.wait().success());
    let lines = server.log.since(0);
    assert!(lines.iter().any(|line| line == "ZeroDivisionError: division by zero"));
}
