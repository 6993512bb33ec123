//! Translated programs, from outside: large ones change over while they serve, translations are kept and
//! mistrusted, limits bind, and whatever happens the answers are the same.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

use sandtide_tests::{
    Client, Request, Run, Server,
    binary::top,
    built,
    documented::documented,
    guest,
    log::{field, number},
};
use serde_json::Value;

/// A directory for translations.
fn cache() -> tempfile::TempDir {
    // It is its owner's alone.
    tempfile::tempdir().expect("a temporary directory")
}

fn hello() -> Option<PathBuf> {
    built(&top().join("examples/hello/hello.c"))
}

/// Serves a program with `translate = "auto"`, and what else is said of the server and the tenant.
fn start(program: &Path, server: &str, tenant: &str) -> Server {
    Server::of(&configuration(program, server, tenant))
}

fn configuration(program: &Path, server: &str, tenant: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 2\n[server.translation]\n{server}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\nload = \"start\"\n\
         translate = \"auto\"\n{tenant}"
    )
}

/// The line that says what has become of the translation of a version.
fn settled(server: &Server, version: u64) -> String {
    server.log.wait("the translation is settled", |line| {
        line.contains("translated") && number(line, "version") == Some(version)
    })
}

/// What an operator gets.
fn admin(server: &Server, path: &str) -> String {
    let line = server.log.wait("operators are listened to", |line| line.starts_with("admin: "));
    let address = line["admin: http://".len()..].parse().expect("an address");
    Client::connect(address).ask(&Request::get("admin", path)).text().to_owned()
}

/// What `/tenants` says of the translation.
fn shown(server: &Server) -> Value {
    let tenants: Value = serde_json::from_str(&admin(server, "/tenants")).expect("JSON");
    tenants[0]["translation"].clone()
}

/// What a program answers when it is interpreted.
fn interpreted(program: &Path) -> String {
    let auto = configuration(program, "cache = \"off\"", "");
    let server = Server::of(&auto.replace("translate = \"auto\"", "translate = \"off\""));
    let answer = server.get("guest", "/").text().to_owned();
    let log = server.log.since(0);
    assert!(!log.iter().any(|line| line.contains("translated")), "{log:?}");
    assert_eq!(shown(&server)["state"], "interpreted");
    answer
}

#[test]
fn a_large_program_changes_over_while_it_serves() {
    let Some(program) = guest("suite_large.c") else { return };
    let expected = interpreted(&program);
    let server = start(&program, "cache = \"off\"", "");
    assert_eq!(shown(&server)["state"], "waiting", "{:?}", server.log.since(0));
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = server.connect();
                while !stop.load(Relaxed) {
                    let response = client.ask(&Request::get("guest", "/"));
                    assert_eq!((response.status(), response.text()), (200, &*expected));
                    asked.fetch_add(1, Relaxed);
                }
            });
        }
        let result = std::panic::catch_unwind(|| {
            while asked.load(Relaxed) < 10 {
                thread::yield_now();
            }
            assert_eq!(shown(&server)["state"], "waiting");
            let line = settled(&server, 1);
            assert!(line.contains("control: translated"), "{line}");
            assert_eq!(field(&line, "from"), Some("background"));
            let before = asked.load(Relaxed);
            while asked.load(Relaxed) < before + 100 {
                thread::yield_now();
            }
        });
        stop.store(true, Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(shown(&server)["state"], "translated");
    let page = admin(&server, "/metrics");
    assert!(page.contains("\nsandtide_translations_total 1.0\n"), "{page}");
    let exchanges = format!("sandtide_exchanges_total{{tenant=\"guest\"}} {}", asked.load(Relaxed));
    assert!(page.contains(&exchanges), "{exchanges}: {page}");
}

#[test]
fn a_translation_is_taken_from_the_cache_the_second_time() {
    let Some(program) = hello() else { return };
    let cache = cache();
    let kept = format!("cache = {:?}", cache.path());
    for from in ["load", "cache"] {
        let server = start(&program, &kept, "");
        let line = settled(&server, 1);
        assert_eq!(field(&line, "from"), Some(from), "{line}");
        assert_eq!(field(&line, "left"), Some("0"), "{line}");
        assert_eq!(server.get("guest", "/").text(), "Hello, World!\n");
        let hits = u64::from(from == "cache");
        let page = admin(&server, "/metrics");
        assert!(
            page.contains(&format!("sandtide_translation_cache_hits_total {hits}.0\n")),
            "{page}"
        );
    }
    // Another limit, another translation; and one cache for all.
    let server = start(&program, &kept, "[tenants.guest.limits]\ntranslate_size = \"16 MiB\"\n");
    assert_eq!(field(&settled(&server, 1), "from"), Some("load"));
    assert_eq!(files(cache.path()).len(), 2);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("the directory is ours");
    entries.map(|entry| entry.expect("the directory is ours").path()).collect()
}

#[test]
fn a_bad_file_in_the_cache_is_told_of_and_replaced() {
    let Some(program) = hello() else { return };
    let cache = cache();
    let kept = format!("cache = {:?}", cache.path());
    settled(&start(&program, &kept, ""), 1);
    let [file] = &files(cache.path())[..] else { panic!("{:?}", files(cache.path())) };
    let whole = fs::read(file).expect("the file is ours");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x10;
    let elsewhere = [&whole[..16], &[0; 32], &whole[48..]].concat();
    let bad: [(&[u8], &str); 4] = [
        (&flipped, "its checksum is wrong"),
        (&whole[..whole.len() - 1], "its checksum is wrong"),
        (b"\x7fELF", "it is cut off"),
        (&elsewhere, "it is the translation of something else"),
    ];
    for (bytes, why) in bad {
        fs::write(file, bytes).expect("the file is ours");
        let server = start(&program, &kept, "");
        let told = server.log.wait("it is told of", |line| line.contains("in the cache"));
        assert!(told.contains(why) && field(&told, "file") == file.to_str(), "{told}");
        assert_eq!(field(&settled(&server, 1), "from"), Some("load"));
        assert_eq!(server.get("guest", "/").text(), "Hello, World!\n");
        let page = admin(&server, "/metrics");
        assert!(page.contains("sandtide_translation_cache_damaged_total 1.0\n"), "{page}");
        assert_eq!(fs::read(file).expect("the file is ours").len(), whole.len());
        drop(server);
        let again = start(&program, &kept, "");
        assert_eq!(field(&settled(&again, 1), "from"), Some("cache"));
    }
}

#[test]
fn a_cache_that_others_can_write_is_refused() {
    let Some(program) = hello() else { return };
    let cache = cache();
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let config = cache.path().join("sandtide.toml");
    let kept = format!("cache = {:?}", cache.path());
    fs::write(&config, configuration(&program, &kept, "")).expect("it is ours");
    let run = Run::sandtide(["serve".as_ref(), config.as_os_str()]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("can be written by others"), "{}", run.stderr);
    assert!(
        run.stderr.contains("hint: make it a directory of the server's user"),
        "{}",
        run.stderr
    );
}

#[test]
fn what_is_over_a_limit_is_interpreted() {
    let Some(program) = guest("suite_large.c") else { return };
    let expected = interpreted(&program);
    let limits = |limit: &str| format!("[tenants.guest.limits]\n{limit}\n");
    let size = documented("translate_size");
    let time = documented("translate_time");
    let room = documented("code_memory");
    for (server, tenant, reason, what, row) in [
        ("", "translate_size = \"64 KiB\"", "size", "`limits.translate_size`, 64 KiB", size),
        ("", "translate_time = \"1 ms\"", "time", "`limits.translate_time`, 1ms", time),
        (
            "code_memory = \"1 MiB\"",
            "",
            "room",
            "no room left of `server.translation.code_memory`, 1024 KiB",
            room,
        ),
    ] {
        let server = start(&program, &format!("cache = \"off\"\n{server}"), &limits(tenant));
        let line = settled(&server, 1);
        assert!(line.contains(" WARN ") && line.contains(what), "{line}");
        assert_eq!(field(&line, "limit"), Some(reason), "{line}");
        assert!(field(&line, "hint").is_some(), "{line}");
        assert_eq!(server.get("guest", "/").text(), expected, "{reason}");
        let shown = shown(&server);
        // In so little time not one function is translated.
        let state = if reason == "time" { "interpreted" } else { "partly" };
        assert_eq!((shown["state"].as_str(), shown["limit"].as_str()), (Some(state), Some(reason)));
        if state == "partly" {
            row.is_logged_by(&line);
        }
        assert!(row.answer.starts_with("nothing; "), "{row:?}");
        let page = admin(&server, "/metrics");
        let counted = format!("sandtide_interpreted_total{{limit=\"{reason}\"}} 1\n");
        assert!(page.contains(&counted), "{page}");
    }
}

#[test]
fn tenants_of_one_program_share_its_translation() {
    let Some(program) = hello() else { return };
    let other = |name| {
        format!(
            "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n\
             translate = \"auto\"\nargs = [\"{name}\"]\n"
        )
    };
    let others = ["one", "two"].map(other).concat();
    let server = start(&program, "cache = \"off\"", &others);
    assert_eq!(field(&settled(&server, 1), "from"), Some("load"));
    for tenant in ["one", "two"] {
        let mark = server.log.mark();
        assert_eq!(server.get(tenant, "/").text(), "Hello, World!\n");
        let line = server.log.wait_since(mark, "it is translated", |line| {
            line.contains("control: translated") && field(line, "tenant") == Some(tenant)
        });
        assert_eq!((field(&line, "from"), number(&line, "bytes")), (Some("another"), Some(0)));
    }
}

#[test]
fn a_program_is_replaced_while_it_waits_for_its_translation() {
    let Some(large) = guest("suite_large.c") else { return };
    let Some(small) = hello() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("program.elf");
    fs::copy(&large, &program).expect("the directory is ours");
    let server = start(&program, "cache = \"off\"", "");
    assert_eq!(server.get("guest", "/").status(), 200);
    let unfinished = directory.path().join("unfinished");
    fs::copy(&small, &unfinished).expect("the directory is ours");
    fs::rename(&unfinished, &program).expect("the directory is ours");
    let line = settled(&server, 2);
    assert_eq!(field(&line, "from"), Some("load"), "{line}");
    assert_eq!(server.get("guest", "/").text(), "Hello, World!\n");
    assert_eq!(shown(&server)["state"], "translated");
}
