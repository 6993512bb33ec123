//! Every limit of the configuration, and a guest that goes over it: the status is right, the
//! client learns nothing of the inside, the log says under the same id what and where it was, and
//! the next request on the tenant is served.
//!
//! The guest is `tests/guests/suite_limits.c`.

use sandtide_tests::{
    Request, Response, Run, Server,
    documented::{Row, documented},
    guest,
    log::{field, number},
};

/// A server with one tenant of the guest, `guest`, with these limits and other lines.
fn serve(lines: &str, limits: &str) -> Option<Server> {
    let program = guest("suite_limits.c")?;
    Some(Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n{lines}\n\
         [tenants.guest.limits]\n{limits}\n"
    )))
}

/// What an error page may say: status, a line of ours, and the id.
fn says_nothing_of_the_inside(response: &Response) {
    let text = response.text();
    let id = response.id();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.starts_with(&response.status().to_string()), "{text}");
    assert!(text.ends_with(&format!("(request {id})\n")), "{text}");
    let rest = text.replace(id, "");
    for inside in ["0x", "main", "spin", "+", "/", ".elf", "suite", "guest", "limit", "panic"] {
        assert!(!rest.contains(inside), "{inside} in {text}");
    }
    assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
}

/// The report in the log has everything that the client was not told.
fn is_reported(server: &Server, response: &Response, function: Option<&str>) {
    let report = server.log.report(response.id());
    assert!(report.contains(" WARN "), "{report}");
    assert_eq!(field(&report, "tenant"), Some("guest"), "{report}");
    assert!(number(&report, "instructions").is_some_and(|count| count > 0), "{report}");
    assert!(number(&report, "pages_written").is_some_and(|count| count > 0), "{report}");
    assert!(number(&report, "calls").is_some(), "{report}");
    let Some(function) = function else { return };
    let pc = field(&report, "pc").unwrap_or_default();
    assert!(pc.starts_with("0x"), "{report}");
    let backtrace = field(&report, "backtrace").unwrap_or_default();
    assert!(backtrace.starts_with(pc), "{report}");
    assert!(backtrace.contains(&format!("({function}+0x")), "{report}");
    assert!(backtrace.contains("(main+0x"), "{report}");
}

/// The limit is met, in the function `at`, as the table says, and afterwards all is well.
fn is_met(row: &Row, lines: &str, limits: &str, request: &Request, at: &str) {
    let Some(server) = serve(lines, limits) else { return };
    // Twice: what the first leaves must not help the second.
    for _ in 0..2 {
        let response = server.ask(request);
        row.is_answered_by(&response);
        says_nothing_of_the_inside(&response);
        row.is_logged_by(&server.log.report(response.id()));
        is_reported(&server, &response, (!at.is_empty()).then_some(at));
        assert_eq!(server.get("guest", "/ok").text(), "ok");
    }
}

fn get(path: &str) -> Request {
    Request::get("guest", path)
}

#[test]
fn instructions() {
    let limits = "instructions = 5_000_000";
    is_met(documented("instructions"), "", limits, &get("/spin"), "spin_for_ever");
}

#[test]
fn wall_time_of_a_guest_that_computes() {
    let limits = "wall_time = \"100 ms\"\ninstructions = 1_000_000_000_000";
    is_met(documented("wall_time"), "", limits, &get("/spin"), "spin_for_ever");
}

#[test]
fn wall_time_of_a_guest_that_waits() {
    let limits = "wall_time = \"100 ms\"";
    is_met(documented("wall_time"), "", limits, &get("/sleep"), "sleep_for_ever");
}

#[test]
fn memory() {
    is_met(documented("memory"), "", "memory = \"4 MiB\"", &get("/memory"), "write_memory");
}

#[test]
fn malloc_says_no_or_the_guest_ends_before_the_memory_limit_is_passed() {
    let Some(server) = serve("", "memory = \"4 MiB\"") else { return };
    let response = server.get("guest", "/heap");
    if response.status() == 200 {
        let taken: u64 = response.text().split(' ').next().unwrap_or("").parse().unwrap();
        assert!((1 << 20..4 << 20).contains(&taken), "{taken}");
        assert!(response.text().ends_with("then 1"), "{}", response.text());
    } else {
        documented("memory").is_answered_by(&response);
        is_reported(&server, &response, None);
    }
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

#[test]
fn response_body_at_once() {
    let limits = "response_body = \"1048575 B\"";
    is_met(documented("response_body"), "", limits, &get("/response"), "");
}

#[test]
fn response_body_in_pieces_is_cut_off() {
    let Some(server) = serve("", "response_body = \"300 KiB\"") else { return };
    let mut client = server.connect();
    client.send(&get("/stream").bytes());
    // A reset may also take back the head and what is on the way.
    let response = client.try_response("GET");
    assert!(response.is_err(), "a response over the limit must not look whole: {response:?}");
    let report = server.log.wait("the report", |line| field(line, "fault") == Some("response"));
    assert!(report.contains("307200"), "{report}");
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

#[test]
fn request_body_that_was_announced() {
    let Some(server) = serve("", "request_body = \"1000 B\"") else { return };
    let fits = Request::new("POST", "guest", "/body").body(vec![b'x'; 1000]);
    assert_eq!(server.ask(&fits).text(), "1000");
    // The body is not sent: the head is enough to know.
    let head = Request::new("POST", "guest", "/body").header("content-length", "1001");
    let response = server.ask(&head);
    documented("request_body").is_answered_by(&response);
    says_nothing_of_the_inside(&response);
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

#[test]
fn request_body_that_was_not_announced() {
    let Some(server) = serve("", "request_body = \"1000 B\"") else { return };
    let chunked = |chunks: &[&str]| {
        Request::new("POST", "guest", "/body")
            .header("transfer-encoding", "chunked")
            .body(chunks.concat())
    };
    let hundred = format!("64\r\n{}\r\n", "x".repeat(100));
    let fits = [[hundred.as_str(); 10].concat(), "0\r\n\r\n".to_owned()].concat();
    assert_eq!(server.ask(&chunked(&[&fits])).text(), "1000");
    let over = [[hundred.as_str(); 10].concat(), "1\r\nx\r\n0\r\n\r\n".to_owned()].concat();
    let response = server.ask(&chunked(&[&over]));
    let row = documented("request_body");
    row.is_answered_by(&response);
    row.is_logged_by(&server.log.report(response.id()));
    says_nothing_of_the_inside(&response);
    is_reported(&server, &response, None);
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

/// Asks for as many of a thing as there are, twice: the second gets as many as the first.
fn as_many_as(row: &Row, limits: &str, path: &str, expected: &str) {
    assert!(row.is_not_logged() && row.answer.contains("the system call fails"), "{row:?}");
    let Some(server) = serve("", limits) else { return };
    for _ in 0..2 {
        assert_eq!(server.get("guest", path).text(), expected);
    }
}

#[test]
fn descriptors() {
    // Standard input, output and error are three of them.
    as_many_as(documented("descriptors"), "descriptors = 16", "/descriptors", "13 more, then 1");
}

#[test]
fn threads() {
    as_many_as(documented("threads"), "threads = 5", "/threads", "4 more, then 1");
    as_many_as(documented("threads"), "threads = 1", "/threads", "0 more, then 1");
}

#[test]
fn scratch() {
    let Some(server) = serve("", "scratch = \"64 KiB\"") else { return };
    let first = server.get("guest", "/scratch").text().to_owned();
    let written: u64 = first.split(' ').next().unwrap_or("").parse().unwrap();
    // The file's name and inode count as well.
    assert!((48 << 10..=64 << 10).contains(&written), "{first}");
    assert!(first.ends_with("bytes, then 1"), "{first}");
    assert_eq!(server.get("guest", "/scratch").text(), first);
    as_many_as(documented("scratch"), "scratch = 0", "/scratch", "0 bytes, then 1");
}

/// How many lines of the flood reached the log before a request that came after it.
fn flooded(server: &Server, lines: u32) -> usize {
    let mark = server.log.mark();
    assert_eq!(server.get("guest", &format!("/log/{lines}")).text(), "written");
    // The log is in order: the report of a later fault comes behind the flood.
    let response = server.get("guest", "/spin");
    server.log.report(response.id());
    server.log.since(mark).iter().filter(|line| line.contains("of the flood")).count()
}

#[test]
fn log_lines() {
    let limits = "log_lines = 10\ninstructions = 20_000_000";
    let Some(server) = serve("", limits) else { return };
    let lines = flooded(&server, 2000);
    assert!(lines >= 10, "{lines}");
    assert!(lines < 100, "{lines} lines of 2000 reached the log");
    let note =
        server.log.wait("a note of what is missing", |line| line.contains("output suppressed"));
    documented("log_lines").is_logged_by(&note);
    assert!(note.contains("tenant=guest"), "{note}");
}

#[test]
fn log_bytes() {
    let limits = "log_lines = 1000000\nlog_bytes = \"1 KiB\"\ninstructions = 20_000_000";
    let Some(server) = serve("", limits) else { return };
    let lines = flooded(&server, 2000);
    // A hundred bytes each, and a burst of some seconds.
    assert!((10..200).contains(&lines), "{lines} lines of 2000 reached the log");
    let note = server.log.wait("a note of what is missing", |line| line.contains("output supp"));
    documented("log_bytes").is_logged_by(&note);
}

#[test]
fn concurrency_and_queue() {
    let lines = "concurrency = 1\nqueue = 1";
    let Some(server) = serve(lines, "wall_time = \"30 s\"") else { return };
    // One holds the only sandbox, waiting for its body.
    let upload = Request::new("POST", "guest", "/body").header("content-length", "4");
    let mut holder = server.connect();
    holder.send(&upload.clone().body("ab").bytes());
    // The server takes connections in any order: ask until one is turned away, which is when
    // the holder has the sandbox and another waits.
    let mut waiting = Vec::new();
    let turned_away = loop {
        let mut client = server.connect();
        client.send(&get("/ok").bytes());
        let mut witness = server.connect();
        witness.send(&get("/ok").header("connection", "close").bytes());
        waiting.push(client);
        let response = witness.response("GET");
        if response.status() == 503 {
            break response;
        }
        assert!(waiting.len() < 100, "nobody is turned away");
    };
    // Over the concurrency it waits; over the queue it is told.
    assert_eq!(documented("concurrency").answer, "waits in the queue");
    let row = documented("queue");
    row.is_answered_by(&turned_away);
    row.is_logged_by(&server.log.report(turned_away.id()));
    says_nothing_of_the_inside(&turned_away);
    let report = server.log.report(turned_away.id());
    assert!(report.contains("too many exchanges wait"), "{report}");
    holder.send(b"cd");
    assert_eq!(holder.response("POST").text(), "4");
    let served = waiting.iter_mut().map(|client| client.response("GET"));
    let statuses: Vec<_> = served.map(|response| response.status()).collect();
    assert!(statuses.contains(&200), "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    assert_eq!(server.get("guest", "/ok").text(), "ok");
}

#[test]
fn queue_time() {
    let lines = "concurrency = 1\nqueue_time = \"50 ms\"";
    let Some(server) = serve(lines, "wall_time = \"30 s\"") else { return };
    let mut holder = server.connect();
    let upload = Request::new("POST", "guest", "/body").header("content-length", "4");
    holder.send(&upload.body("ab").bytes());
    let turned_away = loop {
        let response = server.get("guest", "/ok");
        if response.status() != 200 {
            break response;
        }
    };
    let row = documented("queue_time");
    row.is_answered_by(&turned_away);
    says_nothing_of_the_inside(&turned_away);
    let report = server.log.report(turned_away.id());
    row.is_logged_by(&report);
    assert!(report.contains("waited too long"), "{report}");
    holder.send(b"cd");
    assert_eq!(holder.response("POST").text(), "4");
}

/// A program that does not come to its first request: the tenant answers 503, its neighbour does
/// not notice, and both commands say why.
fn does_not_boot(row: &Row, how: &str, limits: &str, expected: &[&str]) {
    let Some(program) = guest("suite_limits.c") else { return };
    let config = format!(
        "[tenants.neighbour]\nauthorities = \"neighbour.test\"\nprogram = {program:?}\n\
         [tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
         args = [\"{how}\"]\nload = \"start\"\n[tenants.guest.limits]\n{limits}\n"
    );
    let server = Server::start(&config);
    let response = server.get("guest", "/ok");
    row.is_answered_by(&response);
    says_nothing_of_the_inside(&response);
    assert_eq!(server.get("neighbour", "/ok").text(), "ok");
    let check =
        Run::sandtide(["check".as_ref(), server.directory().join("sandtide.toml").as_os_str()]);
    assert_eq!(check.code, Some(1), "{check:?}");
    let log = server.log.since(0).join("\n");
    for said in [&check.stderr, &log] {
        for text in expected {
            assert!(said.contains(text), "no {text:?} in\n{said}");
        }
    }
    let row = |name: &str| check.stdout.lines().find(|line| line.starts_with(name)).unwrap_or("");
    assert!(row("guest").contains("failed"), "{}", check.stdout);
    assert!(row("neighbour").contains("ok"), "{}", check.stdout);
}

#[test]
fn boot_instructions() {
    let expected = ["`guest`", "used up its 5000000 instructions", "spin_for_ever", "hint: "];
    does_not_boot(
        documented("boot_instructions"),
        "spin",
        "boot_instructions = 5_000_000",
        &expected,
    );
}

#[test]
fn boot_time_of_a_guest_that_computes() {
    let limits = "boot_time = \"100 ms\"\nboot_instructions = 1_000_000_000_000";
    does_not_boot(
        documented("boot_time"),
        "spin",
        limits,
        &["`guest`", "within 100ms", "spin_for_ever", "boot_time"],
    );
}

#[test]
fn boot_time_of_a_guest_that_waits() {
    let expected = ["`guest`", "within 100ms", "sleep_for_ever", "boot_time"];
    does_not_boot(documented("boot_time"), "sleep", "boot_time = \"100 ms\"", &expected);
}

#[test]
fn memory_of_a_boot() {
    let expected = ["`guest`", "write_memory", "4194304 bytes", "limits.memory"];
    does_not_boot(documented("boot_time"), "memory", "memory = \"4 MiB\"", &expected);
}

#[test]
fn a_program_that_leaves_before_its_first_request() {
    does_not_boot(
        documented("boot_time"),
        "exit",
        "",
        &["`guest`", "exited with code 3", "sandtide_next_request"],
    );
}

#[test]
fn a_program_that_is_larger_than_its_memory() {
    does_not_boot(
        documented("boot_time"),
        "",
        "memory = \"64 KiB\"",
        &["`guest`", "memory", "hint: raise the limit"],
    );
}

/// The id is the same in the log, for the client and for the guest.
#[test]
fn ids_differ_between_requests() {
    let Some(server) = serve("", "instructions = 1_000_000") else { return };
    let first = server.get("guest", "/id").text().to_owned();
    let second = server.get("guest", "/id").text().to_owned();
    assert_ne!(first, second);
    assert!(first.len() == 16 && second.len() == 16);
}
