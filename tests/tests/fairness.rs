//! A tenant that spins at its concurrency limit does not keep a quiet one from being served.
//!
//! One thread, so that they have to share it. Events give the order: every quiet request is
//! answered before the first spinner has ended.

use sandtide_tests::{Request, Server, guest, log::field};

const SPINNERS: usize = 8;
const QUIET_REQUESTS: usize = 50;

#[test]
fn a_quiet_tenant_is_served_while_another_spins() {
    serve_beside("/log-and-spin");
}

#[test]
fn a_quiet_tenant_is_served_while_another_makes_costly_calls() {
    serve_beside("/log-and-map");
}

fn serve_beside(spinning: &str) {
    let Some(program) = guest("suite_limits.c") else { return };
    let server = Server::start(&format!(
        "[tenants.spinner]\nauthorities = \"spinner.test\"\nprogram = {program:?}\n\
         concurrency = {SPINNERS}\n[tenants.spinner.limits]\nwall_time = \"5 s\"\n\
         instructions = 1_000_000_000_000\n\
         [tenants.quiet]\nauthorities = \"quiet.test\"\nprogram = {program:?}\n"
    ));
    let mut spinners: Vec<_> = (0..SPINNERS).map(|_| server.connect()).collect();
    let mut seen = 0;
    for spinner in &mut spinners {
        spinner.send(&Request::get("spinner", spinning).bytes());
        server.log.wait_since(seen, "a spinner runs", |line| {
            seen += 1;
            line.contains("spinning")
        });
    }
    let running =
        |server: &Server| !server.log.since(0).iter().any(|line| field(line, "fault").is_some());
    // On one connection, and on new ones.
    let mut kept = server.connect();
    for _ in 0..QUIET_REQUESTS {
        assert_eq!(kept.ask(&Request::get("quiet", "/ok")).text(), "ok");
        assert_eq!(server.get("quiet", "/ok").text(), "ok");
    }
    assert!(running(&server), "the spinners ended before the quiet requests did");
    for spinner in &mut spinners {
        let response = spinner.response("GET");
        assert_eq!(response.status(), 504);
        let report = server.log.report(response.id());
        assert_eq!(field(&report, "fault"), Some("deadline"), "{report}");
    }
    assert_eq!(server.get("spinner", "/ok").text(), "ok");
}

/// The spinners share among themselves as well: none has to wait for another to end.
#[test]
fn spinners_come_forward_together() {
    let Some(program) = guest("suite_limits.c") else { return };
    let server = Server::start(&format!(
        "[tenants.spinner]\nauthorities = \"spinner.test\"\nprogram = {program:?}\n\
         concurrency = 4\n[tenants.spinner.limits]\nwall_time = \"2 s\"\n\
         instructions = 1_000_000_000_000\n"
    ));
    let mut spinners: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for spinner in &mut spinners {
        spinner.send(&Request::get("spinner", "/spin").bytes());
    }
    let counts: Vec<u64> = spinners
        .iter_mut()
        .map(|spinner| {
            let response = spinner.response("GET");
            assert_eq!(response.status(), 504);
            let report = server.log.report(response.id());
            sandtide_tests::log::number(&report, "instructions").expect("usage is reported")
        })
        .collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    // A whole share each, however busy the machine is: far from one after the other.
    assert!(least.zip(most).is_some_and(|(least, most)| least * 5 > *most), "{counts:?}");
}
