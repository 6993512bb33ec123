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

/// The requests are all there, and the thread takes the next one of a connection when it has
/// answered the one before: their ids tell in which order they began.
#[test]
fn tenants_share_by_weight() {
    const REQUESTS: usize = 60;
    let Some(program) = guest("suite_fairness.c") else { return };
    let tenant = |name: &str, weight: u32| {
        format!(
            "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
             weight = {weight}\n"
        )
    };
    let server = Server::start(&format!("{}{}", tenant("heavy", 300), tenant("light", 100)));
    for name in ["heavy", "light"] {
        assert!(!server.get(name, "/").text().is_empty(), "loaded before");
    }
    let mut clients = ["heavy", "heavy", "light", "light"].map(|name| (name, server.connect()));
    for (name, client) in &mut clients {
        client.send(&Request::get(name, "/work").bytes().repeat(REQUESTS));
    }
    let mut ids = [("heavy", Vec::new()), ("light", Vec::new())];
    for (name, client) in &mut clients {
        for _ in 0..REQUESTS {
            let id = u64::from_str_radix(client.response("GET").text(), 16).expect("an id");
            let (_, of) = ids.iter_mut().find(|(other, _)| other == name).expect("one of both");
            of.push(id);
        }
    }
    let [(_, heavy), (_, light)] = ids;
    // As long as both have something to do.
    let first = *light.iter().min().expect("there are some");
    let last = *heavy.iter().max().expect("there are some");
    let [heavy, light] =
        [heavy, light].map(|ids| ids.iter().filter(|id| (first..=last).contains(id)).count());
    assert!(heavy * 10 > light * 22 && heavy * 10 < light * 38, "{heavy} to {light}");
}

#[test]
fn requests_over_the_rate_are_told_so() {
    let Some(program) = guest("suite_fairness.c") else { return };
    let server = Server::start(&format!(
        "[tenants.limited]\nauthorities = \"limited.test\"\nprogram = {program:?}\n\
         limits = {{ requests_per_second = 1, burst = 3 }}\n\
         [tenants.fixed]\nauthorities = \"fixed.test\"\nrespond = {{ body = \"hi\" }}\n\
         limits = {{ requests_per_second = 1 }}\n\
         [tenants.other]\nauthorities = \"other.test\"\nprogram = {program:?}\n"
    ));
    let mut client = server.connect();
    for (tenant, burst) in [("limited", 3), ("fixed", 1)] {
        let statuses: Vec<_> =
            (0..20).map(|_| client.ask(&Request::get(tenant, "/")).status()).collect();
        let served = statuses.iter().filter(|status| **status == 200).count();
        assert!(served >= burst && served < 20, "{statuses:?}");
        assert_eq!(statuses[..burst], vec![200; burst]);
        let refused = loop {
            let response = client.ask(&Request::get(tenant, "/"));
            if response.status() != 200 {
                break response;
            }
        };
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.header("retry-after"), Some("1"));
        let why = "sandtide; error=http_request_error; details=\"requests_per_second\"";
        assert_eq!(refused.header("proxy-status"), Some(why));
        assert!(refused.text().starts_with("429: too many requests a second"), "{refused:?}");
    }
    let others = (0..50).map(|_| client.ask(&Request::get("other", "/")).status());
    assert!(others.into_iter().all(|status| status == 200));
}

/// Far more comes for one tenant than it can be served, from clients that do not wait for each
/// other. It is told so early, what is admitted is answered, and nobody else notices. The work is
/// sized for the interpreter.
#[test]
fn an_overloaded_tenant_sheds_and_others_do_not_notice() {
    const CLIENTS: usize = 100;
    let Some(program) = guest("suite_fairness.c") else { return };
    let server = Server::start(&format!(
        "[tenants.busy]\nauthorities = \"busy.test\"\nprogram = {program:?}\n\
         queue_time = \"200 ms\"\ntranslate = \"off\"\n\
         [tenants.quiet]\nauthorities = \"quiet.test\"\nprogram = {program:?}\n"
    ));
    let (mut served, mut shed) = (0, 0);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    let mut quiet = server.connect();
    for _ in 0..5 {
        for client in &mut clients {
            client.send(&Request::get("busy", "/work").bytes());
        }
        for _ in 0..10 {
            assert_eq!(quiet.ask(&Request::get("quiet", "/")).status(), 200);
        }
        for client in &mut clients {
            let response = client.response("GET");
            match response.status() {
                200 => served += 1,
                503 => {
                    shed += 1;
                    assert_eq!(response.header("retry-after"), Some("1"), "{response:?}");
                    let why = response.header("proxy-status").unwrap_or_default();
                    assert!(why.ends_with("details=\"queue_time\""), "{why}");
                    assert!(server.log.since(0).len() < 10_000, "a flood does not fill the log");
                }
                other => panic!("{other}: {response:?}"),
            }
        }
    }
    assert!(served >= CLIENTS / 4 && shed >= CLIENTS / 4, "{served} served, {shed} shed");
    assert_eq!(served + shed, 5 * CLIENTS);
}
