//! Hostile programs, hostile guests and hostile clients: the server survives, says what is wrong,
//! and the tenant next door does not notice.
//!
//! The guest is `tests/guests/suite_hostile.c`.

use std::{fmt::Write as _, fs, path::Path};

use sandtide_tests::{
    Client, Request, Run, Server, binary::top, guest, guest::native, log::field, sandtide,
};

/// A server with the hostile guest and a neighbour of good manners.
fn serve(lines: &str, limits: &str) -> Option<Server> {
    serve_program(&guest("suite_hostile.c")?, lines, limits)
}

/// The same with the guest in a virtual machine.
fn serve_native(lines: &str, limits: &str) -> Option<Server> {
    serve_program(&native(&top().join("tests/guests/suite_hostile.c"))?, lines, limits)
}

fn serve_program(hostile: &Path, lines: &str, limits: &str) -> Option<Server> {
    let neighbour = guest("suite_limits.c")?;
    Some(Server::start(&format!(
        "[tenants.hostile]\nauthorities = \"hostile.test\"\nprogram = {hostile:?}\n{lines}\n\
         [tenants.hostile.limits]\n{limits}\n\
         [tenants.neighbour]\nauthorities = \"neighbour.test\"\nprogram = {neighbour:?}\n"
    )))
}

fn the_neighbour_is_fine(server: &Server) {
    assert_eq!(server.get("neighbour", "/ok").text(), "ok");
}

/// Nothing of ours broke: no panic, no failed reset.
fn we_did_not_break(server: &mut Server) {
    assert!(server.is_alive());
    let log = server.log.since(0);
    let broken = |line: &&String| line.contains("panicked") || line.contains(" ERROR ");
    assert_eq!(log.iter().find(broken), None);
}

#[test]
fn guests_that_trap_are_told_from_each_other() {
    let Some(mut server) = serve("", "instructions = 50_000_000") else { return };
    for (path, fault, text) in [
        ("/data", "trap", "jump to memory that is not code"),
        ("/code", "trap", "bad write"),
        ("/illegal", "trap", "illegal instruction"),
        ("/stack", "trap", "bad write"),
        ("/recurse", "trap", "bad write"),
    ] {
        let response = server.get("hostile", path);
        assert_eq!(response.status(), 502, "{path}: {response:?}");
        let report = server.log.report(response.id());
        assert_eq!(field(&report, "fault"), Some(fault), "{path}: {report}");
        assert!(report.contains(text), "{path}: {report}");
        assert_eq!(server.get("hostile", "/ok").text(), "ok");
        the_neighbour_is_fine(&server);
    }
    we_did_not_break(&mut server);
}

#[test]
fn endless_recursion_has_a_bounded_backtrace() {
    let Some(server) = serve("", "") else { return };
    let response = server.get("hostile", "/recurse");
    let report = server.log.report(response.id());
    let backtrace = field(&report, "backtrace").unwrap_or_default();
    assert!(backtrace.contains("(recurse+0x"), "{report}");
    assert!((2..200).contains(&backtrace.split(" < ").count()), "{report}");
}

/// On both engines.
fn attacks(path: &str, seeds: u64, at_least: u64, limits: &str) {
    for server in [serve("", limits), serve_native("", limits)].into_iter().flatten() {
        attack(server, path, seeds, at_least);
    }
}

/// Every seed is another attack; what is reached must be worth the name.
fn attack(mut server: Server, path: &str, seeds: u64, at_least: u64) {
    let mut done = 0;
    for seed in 1..=seeds {
        let response = server.get("hostile", &format!("{path}?{seed}"));
        match response.status() {
            200 => done += response.text().parse::<u64>().unwrap_or(0),
            502 | 504 => {
                // Whatever it did, the report names it as the guest's fault.
                let id = response.id().to_owned();
                assert!(!response.text().contains("0x"), "{}", response.text());
                assert_eq!(id.len(), 16);
            }
            status => panic!("seed {seed}: {status} {:?}", response.text()),
        }
        the_neighbour_is_fine(&server);
    }
    assert!(done >= at_least, "the attacks were over too soon: {done}");
    assert_eq!(server.get("hostile", "/ok").text(), "ok");
    we_did_not_break(&mut server);
}

#[test]
fn jumps_everywhere() {
    let Some(server) = serve("", "instructions = 100_000_000") else { return };
    attack(server, "/jump", 10, 10_000);
}

#[test]
fn wild_guest_calls() {
    // A call may well end the exchange: most seeds do not come far.
    attacks("/calls", 60, 0, "instructions = 100_000_000");
}

#[test]
fn wild_system_calls() {
    attacks("/syscalls", 30, 30_000, "instructions = 200_000_000\nwall_time = \"3 s\"");
}

/// With those that wait, kill and exit.
#[test]
fn all_wild_system_calls() {
    attacks("/all-syscalls", 60, 0, "instructions = 100_000_000\nwall_time = \"100 ms\"");
}

#[test]
fn a_thread_bomb_hurts_nobody_else() {
    let limits = "threads = 32\nwall_time = \"500 ms\"";
    for mut server in [serve("", limits), serve_native("", limits)].into_iter().flatten() {
        let mut bomber = server.connect();
        bomber.send(&Request::get("hostile", "/threads").bytes());
        for _ in 0..20 {
            the_neighbour_is_fine(&server);
        }
        let response = bomber.response("GET");
        assert!([502, 504].contains(&response.status()), "{response:?}");
        assert_eq!(server.get("hostile", "/ok").text(), "ok");
        we_did_not_break(&mut server);
    }
}

#[test]
fn a_storm_of_timers_and_events_hurts_nobody_else() {
    let limits = "wall_time = \"500 ms\"";
    for mut server in [serve("", limits), serve_native("", limits)].into_iter().flatten() {
        let mut stormer = server.connect();
        stormer.send(&Request::get("hostile", "/storm").bytes());
        for _ in 0..20 {
            the_neighbour_is_fine(&server);
        }
        let response = stormer.response("GET");
        assert_eq!(response.status(), 504, "{response:?}");
        assert_eq!(server.get("hostile", "/ok").text(), "ok");
        we_did_not_break(&mut server);
    }
}

#[test]
fn there_is_no_second_process() {
    let Some(mut server) = serve("", "") else { return };
    let before = children(&server);
    let response = server.get("hostile", "/fork");
    assert_eq!(response.status(), 200, "{response:?}");
    let text = response.text();
    assert!(text.starts_with("fork "), "{text}");
    assert!(!text.contains(" 0"), "one of them worked: {text}");
    assert_eq!(children(&server), before);
    we_did_not_break(&mut server);
}

/// The processes that the server has started.
fn children(server: &Server) -> String {
    let pid = server.pid();
    let path = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn the_hosts_files_are_out_of_reach() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (granted, secret) = (files.path().join("granted"), files.path().join("secret"));
    fs::create_dir(&granted).expect("the directory is ours");
    fs::write(&secret, "the secret of the host").expect("the directory is ours");
    let link = |name: &str, to: &Path| {
        std::os::unix::fs::symlink(to, granted.join(name)).expect("the directory is ours");
    };
    link("absolute", &secret);
    link("relative", Path::new("../secret"));
    link("up", Path::new(".."));
    link("root", Path::new("/"));
    link("loop", Path::new("loop"));
    link("within", Path::new("page"));
    fs::write(granted.join("page"), "granted").expect("the directory is ours");
    let Some(server) = serve(&format!("files = {{ \"/data\" = {granted:?} }}"), "") else { return };
    let read = |path: &str| {
        let response = server.get("hostile", &format!("/read?{path}"));
        assert_eq!(response.status(), 200, "{path}");
        String::from_utf8_lossy(&response.body).into_owned()
    };
    assert_eq!(read("/data/within"), "granted");
    let name = secret.display().to_string();
    for path in [
        name.as_str(),
        "/etc/passwd",
        "/etc/hostname",
        "/root",
        "/proc/1/environ",
        "/data/absolute",
        "/data/relative",
        "/data/up/secret",
        "/data/../secret",
        "/data/../../../../../../etc/passwd",
        "/data/./../secret",
        "//data//..//secret",
        "/data/root/etc/passwd",
        "/data/root/proc/self/environ",
        "/data/loop",
        "/dev/mem",
        "/sys/kernel",
        "/proc/self/root/etc/passwd",
        "/proc/self/cwd/../etc/passwd",
        "/proc/self/fd/3",
        "/tmp/../etc/passwd",
    ] {
        let got = read(path);
        assert!(got.starts_with("error "), "{path}: {got}");
    }
    // What exists of /proc/self is the guest's own, not the server's.
    for path in ["/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps", "/proc/self/exe"] {
        let got = read(path);
        for word in ["PATH=", "HOME=", "CARGO", "serve", "sandtide.toml", "/lib/"] {
            assert!(!got.contains(word), "{path} shows {word}");
        }
    }
}

#[test]
fn headers_cannot_be_injected() {
    let Some(mut server) = serve("", "") else { return };
    for which in 0..14 {
        let mut client = server.connect();
        let mut request = Request::get("hostile", &format!("/header?{which}"));
        request = request.header("connection", "close");
        client.send(&request.bytes());
        let bytes = client.rest();
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert_eq!(text.matches("http/1.1 ").count(), 1, "{which}: {text}");
        let injected = text.lines().any(|line| line.starts_with("x-injected"));
        assert!(!injected, "{which}: {text}");
        assert!(!text.contains("upgrade"), "{which}: {text}");
        let lengths = text.matches("\r\ncontent-length:").count();
        let codings = text.matches("\r\ntransfer-encoding:").count();
        // One way to tell the end, and a true one; or a response that is visibly cut off.
        assert!(lengths + codings <= 1, "{which}: {text}");
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && head.starts_with("http/1.1 200")
            && let Some(length) = head.lines().find_map(|l| l.strip_prefix("content-length: "))
        {
            assert!(length == body.len().to_string() || body.len() < 4, "{which}: {text}");
        }
        the_neighbour_is_fine(&server);
    }
    we_did_not_break(&mut server);
}

/// What a client or a guest makes longer than it need be is cut in the log.
#[test]
fn reports_are_short() {
    let Some(mut server) = serve("", "") else { return };
    let long = "x".repeat(30_000);
    let path = format!("/illegal/../{long}");
    let response = server.ask(&Request::get("hostile", &format!("/header?13&{long}")));
    assert_eq!(response.status(), 502);
    let report = server.log.report(response.id());
    assert!(report.len() < 2000, "{} bytes: {report}", report.len());
    let response = server.ask(&Request::new(&"M".repeat(9000), "hostile", "/illegal"));
    assert_eq!(response.status(), 502);
    let report = server.log.report(response.id());
    assert!(report.len() < 10_000, "{} bytes", report.len());
    assert!(field(&report, "method").is_some_and(|method| method.starts_with("MMMM")), "{report}");
    assert_eq!(server.get("hostile", &path).status(), 200);
    we_did_not_break(&mut server);
}

/// Puts a number of `N` bytes into a file.
fn patched<const N: usize>(image: &[u8], at: usize, bytes: [u8; N]) -> Vec<u8> {
    let mut image = image.to_vec();
    image[at..at + N].copy_from_slice(&bytes);
    image
}

/// Files that are no program, by name.
fn bad_programs(good: &[u8]) -> Vec<(String, Vec<u8>)> {
    let header = |n: usize| 64 + 56 * n;
    // The first segment that is loaded.
    let load = (0..).map(header).find(|&at| good[at] == 1).expect("a program is loaded");
    let other = (1..).map(|n| load + 56 * n).find(|&at| good[at] == 1).expect("in two parts");
    let mut same_place = good.to_vec();
    same_place.copy_within(load + 16..load + 24, other + 16);
    let mut bad = vec![
        ("empty".to_owned(), Vec::new()),
        ("garbage".to_owned(), b"\x00\xff garbage".repeat(1000)),
        ("script".to_owned(), b"#!/bin/sh\nexit 0\n".to_vec()),
        ("magic-alone".to_owned(), b"\x7fELF".to_vec()),
        ("of-32-bits".to_owned(), patched(good, 4, [1])),
        ("big-endian".to_owned(), patched(good, 5, [2])),
        ("object-file".to_owned(), patched(good, 16, 1u16.to_le_bytes())),
        ("aarch64".to_owned(), patched(good, 18, 183u16.to_le_bytes())),
        ("headers-outside".to_owned(), patched(good, 32, u64::MAX.to_le_bytes())),
        ("headers-at-the-end".to_owned(), patched(good, 32, (good.len() as u64 - 8).to_le_bytes())),
        ("many-headers".to_owned(), patched(good, 56, u16::MAX.to_le_bytes())),
        ("no-headers".to_owned(), patched(good, 56, 0u16.to_le_bytes())),
        ("header-size".to_owned(), patched(good, 54, 1u16.to_le_bytes())),
        ("bytes-outside".to_owned(), patched(good, load + 8, (1u64 << 40).to_le_bytes())),
        ("bytes-overflow".to_owned(), patched(good, load + 8, u64::MAX.to_le_bytes())),
        ("too-long".to_owned(), patched(good, load + 40, (1u64 << 33).to_le_bytes())),
        ("longest".to_owned(), patched(good, load + 40, u64::MAX.to_le_bytes())),
        ("too-high".to_owned(), patched(good, load + 16, (u64::MAX - 4095).to_le_bytes())),
        ("beyond-4-gib".to_owned(), patched(good, load + 16, (1u64 << 32).to_le_bytes())),
        ("more-file-than-memory".to_owned(), patched(good, load + 40, 1u64.to_le_bytes())),
        ("overlapping".to_owned(), same_place),
        ("entry-nowhere".to_owned(), patched(good, 24, 0u64.to_le_bytes())),
        ("entry-odd".to_owned(), patched(good, 24, u64::MAX.to_le_bytes())),
    ];
    for length in [5, 16, 20, 63, 64, 100, 200, 1000, good.len() / 4] {
        bad.push((format!("cut-at-{length}"), good[..length].to_vec()));
    }
    bad
}

#[test]
fn files_that_are_no_programs_are_refused_with_a_reason() {
    let Some(program) = guest("suite_limits.c") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bad = bad_programs(&fs::read(&program).expect("the program was built"));
    let mut config =
        format!("[tenants.neighbour]\nauthorities = \"neighbour.test\"\nprogram = {program:?}\n");
    for (name, image) in &bad {
        let file = directory.path().join(name);
        fs::write(&file, image).expect("the directory is ours");
        writeln!(config, "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {file:?}")
            .expect("a String takes everything");
    }
    let mut server = Server::start(&config);
    for (name, _) in &bad {
        let response = server.get(name, "/ok");
        assert_eq!(response.status(), 503, "{name}");
        let text = format!("cannot load tenant `{name}`");
        server.log.wait(&text, |line| line.contains(&text));
    }
    the_neighbour_is_fine(&server);
    we_did_not_break(&mut server);

    let check =
        Run::sandtide(["check".as_ref(), server.directory().join("sandtide.toml").as_os_str()]);
    assert_eq!(check.code, Some(1), "{check:?}");
    for (name, _) in &bad {
        let row = check.stdout.lines().find(|line| line.starts_with(name.as_str()));
        assert!(row.is_some_and(|row| row.contains("failed")), "{name}: {}", check.stdout);
        let first = format!("cannot load tenant `{name}`");
        let mut blocks = check.stderr.split("error: ");
        let said = blocks.find(|block| block.lines().next() == Some(&first));
        let said = said.unwrap_or_else(|| panic!("{name}: {}", check.stderr));
        assert!(said.contains("caused by: "), "{name}: {said}");
        assert!(said.contains("hint: "), "{name}: {said}");
    }

    // Alone, there is nothing to serve.
    for (name, _) in &bad {
        let serve = Run::of(
            sandtide().args(["serve", "--listen", "127.0.0.1:0"]).arg(directory.path().join(name)),
            b"",
        );
        assert_eq!(serve.code, Some(1), "{name}: {serve:?}");
        assert!(serve.stderr.contains("hint: "), "{name}: {}", serve.stderr);
        assert!(!serve.stderr.contains("panicked"), "{name}: {}", serve.stderr);
    }
}

/// Bytes changed at random, where they matter most. Many of them load; none may do harm.
#[test]
fn damaged_programs_do_no_harm() {
    let Some(program) = guest("suite_limits.c") else { return };
    let good = fs::read(&program).expect("the program was built");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut config = format!(
        "[defaults.limits]\nboot_time = \"100 ms\"\nwall_time = \"100 ms\"\n\
         [tenants.neighbour]\nauthorities = \"neighbour.test\"\nprogram = {program:?}\n\
         limits = {{ wall_time = \"10 s\", boot_time = \"10 s\" }}\n"
    );
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    const COUNT: usize = 60;
    for number in 0..COUNT {
        let mut image = good.clone();
        for _ in 0..1 + next(4) {
            let at = if number % 2 == 0 { next(600) } else { next(image.len()) };
            image[at] = next(256) as u8;
        }
        let file = directory.path().join(format!("damaged{number}"));
        fs::write(&file, image).expect("the directory is ours");
        writeln!(
            config,
            "[tenants.d{number}]\nauthorities = \"d{number}.test\"\nprogram = {file:?}"
        )
        .expect("a String takes everything");
    }
    let mut server = Server::start(&config);
    // Loaded before the others stand in line for that.
    the_neighbour_is_fine(&server);
    for number in 0..COUNT {
        let status = server.get(&format!("d{number}"), "/ok").status();
        assert!([200, 500, 502, 503, 504].contains(&status), "{number}: {status}");
    }
    the_neighbour_is_fine(&server);
    we_did_not_break(&mut server);
}

/// What is not HTTP is answered with 4xx, or not at all.
#[test]
fn malformed_requests_reach_no_tenant() {
    let Some(mut server) = serve("", "") else { return };
    let long = "x".repeat(1 << 20);
    let many = "a: b\r\n".repeat(10_000);
    let with = |fields: &str| {
        format!("POST /id HTTP/1.1\r\nhost: neighbour.test\r\n{fields}\r\nbody").into_bytes()
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing of a request", b"\0\x01\x02\x03\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("no version", b"GET /\r\n\r\n".to_vec()),
        ("another version", b"GET / HTTP/9.9\r\nhost: neighbour.test\r\n\r\n".to_vec()),
        ("no target", b"GET HTTP/1.1\r\nhost: neighbour.test\r\n\r\n".to_vec()),
        ("a wild method", b"G@T(/ / HTTP/1.1\r\nhost: neighbour.test\r\n\r\n".to_vec()),
        ("no host", b"GET /id HTTP/1.1\r\n\r\n".to_vec()),
        ("two hosts", with("host: hostile.test\r\n")),
        ("a space in a name", with("x note: a\r\n")),
        ("a space before the colon", with("content-length : 4\r\n")),
        ("a line without a colon", with("nonsense\r\n")),
        ("a folded line", with("a: b\r\n c\r\n")),
        ("a NUL in a value", with("a: b\0c\r\n")),
        ("a bare CR in a value", with("a: b\rc\r\n")),
        ("two lengths", with("content-length: 4\r\ncontent-length: 5\r\n")),
        ("a list of lengths", with("content-length: 4, 5\r\n")),
        ("a negative length", with("content-length: -1\r\n")),
        ("a signed length", with("content-length: +4\r\n")),
        ("a length of words", with("content-length: four\r\n")),
        ("a length beyond counting", with("content-length: 99999999999999999999999\r\n")),
        ("an unknown coding", with("transfer-encoding: gzip\r\n")),
        ("chunked that is not last", with("transfer-encoding: chunked, gzip\r\n")),
        ("a long target", format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n").into_bytes()),
        ("a long field", with(&format!("a: {long}\r\n"))),
        ("many fields", with(&many)),
    ];
    for (name, bytes) in cases {
        let mut client = server.connect();
        // The server may close before it has read all of it.
        let _ = client.try_send(&bytes);
        client.finish_sending();
        let answer = client.rest();
        let answer = String::from_utf8_lossy(&answer);
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{name}: {answer}");
        the_neighbour_is_fine(&server);
    }
    we_did_not_break(&mut server);
}

/// A request must not be seen in the body of another (RFC 9112 §6.1, §11.2).
#[test]
fn requests_cannot_be_smuggled() {
    let Some(server) = serve("", "") else { return };
    let smuggled = "GET /id HTTP/1.1\r\nhost: neighbour.test\r\n\r\n";
    let both = format!(
        "POST /body HTTP/1.1\r\nhost: neighbour.test\r\ncontent-length: {}\r\n\
         transfer-encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}",
        5 + smuggled.len()
    );
    let mut client = server.connect();
    client.send(both.as_bytes());
    client.finish_sending();
    let answers = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(answers.matches("HTTP/1.1 ").count() <= 1, "{answers}");
    the_neighbour_is_fine(&server);
}

#[test]
fn malformed_chunks_end_the_request() {
    let Some(mut server) = serve("", "") else { return };
    for chunks in [
        "x\r\nbody\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "ffffffffffffffff\r\nbody",
        "fffffffffffffffff\r\nbody",
        "4\r\nbody too long\r\n0\r\n\r\n",
        "4\r\nbo",
        "4;a=b\r\nbody\r\n0\r\nno trailer\r\n\r\n",
    ] {
        let mut client = server.connect();
        let request = Request::new("POST", "neighbour", "/body")
            .header("transfer-encoding", "chunked")
            .body(chunks);
        client.send(&request.bytes());
        client.finish_sending();
        let answer = client.rest();
        let answer = String::from_utf8_lossy(&answer);
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{chunks:?}: {answer}");
        the_neighbour_is_fine(&server);
    }
    we_did_not_break(&mut server);
}

/// Connections that say nothing, or stop in the middle, are nobody's problem but their own.
#[test]
fn silent_connections_hold_up_nobody() {
    let Some(mut server) = serve("", "") else { return };
    let mut silent: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for (number, client) in silent.iter_mut().enumerate() {
        let whole = Request::get("hostile", "/ok").bytes();
        client.send(&whole[..number % whole.len()]);
    }
    the_neighbour_is_fine(&server);
    drop(silent);
    the_neighbour_is_fine(&server);
    we_did_not_break(&mut server);
}

/// A client that does not read stops its guest, and only that.
#[test]
fn a_client_that_does_not_read_holds_up_nobody() {
    let Some(mut server) = serve("", "") else { return };
    let mut lazy: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for client in &mut lazy {
        client.send(&Request::get("neighbour", "/stream").bytes());
        // The response has begun, and is larger than what the sockets hold.
        client.try_head("GET").expect("a head");
    }
    for _ in 0..20 {
        the_neighbour_is_fine(&server);
        assert_eq!(server.get("hostile", "/ok").text(), "ok");
    }
    drop(lazy);
    the_neighbour_is_fine(&server);
    we_did_not_break(&mut server);
}
