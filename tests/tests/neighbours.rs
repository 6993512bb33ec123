//! A quiet tenant beside one that crashes at each request, one that does not even start, one that spins and one that
//! is flooded, all at a time: the quiet one loses nothing, over HTTP/1 and HTTP/2.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    thread,
};

use sandtide_tests::{Request, Server, guest, log::field};

const QUIET_REQUESTS: usize = 200;

/// A client of a bad neighbour: asks until it is told to stop, and takes any answer of these.
fn asks(server: &Server, stop: &AtomicBool, tenant: &str, path: &str, allowed: &[u16]) -> u32 {
    let mut count = 0;
    let mut client = server.connect();
    while !stop.load(Relaxed) {
        let response = client.ask(&Request::get(tenant, path));
        assert!(allowed.contains(&response.status()), "{tenant}: {response:?}");
        count += 1;
    }
    count
}

#[test]
fn a_quiet_tenant_loses_nothing() {
    let (Some(program), Some(hostile)) = (guest("suite_limits.c"), guest("suite_hostile.c")) else {
        return;
    };
    let tenant = |name: &str, program: &std::path::Path, lines: &str| {
        format!("[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n{lines}\n")
    };
    let mut server = Server::start_with(
        "threads = 2",
        &[
            tenant("quiet", &program, ""),
            tenant("crashing", &hostile, ""),
            tenant("dead", &program, "args = [\"exit\"]"),
            tenant("spinning", &program, "concurrency = 4\nlimits = { wall_time = \"300 ms\" }"),
            tenant("flooded", &program, "concurrency = 2\nqueue = 2\nqueue_time = \"20 ms\""),
            tenant("chatty", &program, "limits = { log_lines = 10 }"),
        ]
        .concat(),
    );
    let (stop, others) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let (server, stop, others) = (&server, &stop, &others);
        let neighbours: [(&str, &str, &[u16], usize); 5] = [
            ("crashing", "/illegal", &[502], 2),
            ("dead", "/ok", &[503], 1),
            ("spinning", "/spin", &[504, 503], 6),
            ("flooded", "/scratch", &[200, 503], 8),
            ("chatty", "/log/500", &[200], 1),
        ];
        for (tenant, path, allowed, clients) in neighbours {
            for _ in 0..clients {
                scope.spawn(move || {
                    others.fetch_add(asks(server, stop, tenant, path, allowed), Relaxed);
                });
            }
        }
        let result = std::panic::catch_unwind(|| {
            let mut kept = server.connect();
            for number in 0..QUIET_REQUESTS {
                assert_eq!(kept.ask(&Request::get("quiet", "/ok")).text(), "ok", "{number}");
                assert_eq!(server.get("quiet", "/ok").text(), "ok", "{number}");
            }
        });
        stop.store(true, Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(others.load(Relaxed) > 50, "the neighbours did nothing: {others:?}");
    assert!(server.is_alive());
    // Nothing bad of the quiet one is in the log, and nothing of ours broke.
    for line in server.log.since(0).iter().filter(|line| !line.contains(" INFO ")) {
        assert_ne!(field(line, "tenant"), Some("quiet"), "{line}");
        assert!(!line.contains("panicked") && !line.contains(" ERROR "), "{line}");
    }
    for tenant in ["crashing", "flooded", "spinning", "chatty"] {
        assert_eq!(server.get(tenant, "/ok").text(), "ok", "{tenant}");
    }
}
