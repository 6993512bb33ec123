//! Snapshots on disk: docs/snapshots.md.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use sandtide_tests::{
    Run, Server,
    binary::top,
    guest,
    guest::native,
    runtimes::{Set, go_of},
};

/// A tenant with a program, or with a snapshot as its program.
fn tenant(program: &Path, lines: &str) -> String {
    format!("[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n{lines}\n")
}

/// Makes a tenant's snapshot.
fn snapshot(directory: &Path, tenant: &str) -> PathBuf {
    let (config, file) = (directory.join("made.toml"), directory.join("guest.snapshot"));
    fs::write(&config, tenant).expect("the directory is ours");
    let run =
        Run::sandtide(["snapshot".as_ref(), config.as_os_str(), "-o".as_ref(), file.as_os_str()]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    file
}

/// Serves a snapshot with the limits that it was made with.
fn serve(file: &Path, limits: &str) -> Server {
    Server::start(&tenant(file, limits))
}

/// What is said of a snapshot that cannot be used: the answer is 503, and the log has the reason.
fn refused(file: &Path, limits: &str) -> String {
    let other = "[tenants.other]\nauthorities = \"other.test\"\nrespond = { body = \"other\" }";
    let server = Server::start(&format!("{}\n{other}\n", tenant(file, limits)));
    assert_eq!(server.get("guest", "/count").status(), 503);
    server.log.wait("why", |line| line.contains("cannot load tenant"));
    server.log.since(0).join("\n")
}

fn text(server: &Server, target: &str) -> String {
    let response = server.get("guest", target);
    assert_eq!(response.status(), 200, "{target}: {response:?}");
    response.text().to_owned()
}

/// The C server, where it can run.
fn c_server() -> Option<PathBuf> {
    native(&top().join("tests/guests/suite_sockets.c"))
}

const EPOLL: &str = "env = { MODE = \"epoll\" }";

#[test]
fn a_server_goes_on_from_its_snapshot() {
    let Some(program) = c_server() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let warm = format!("{EPOLL}\nwarmup = {{ requests = 7, paths = [\"/count\"] }}");
    let file = snapshot(directory.path(), &tenant(&program, &warm));
    let server = serve(&file, "");
    let mut client = server.connect();
    for _ in 0..20 {
        let answer = client.ask(&sandtide_tests::Request::get("guest", "/count"));
        assert_eq!((answer.status(), answer.text()), (200, "8"));
    }
    server.log.wait("it was no boot", |line| line.contains("restored"));
    let show = Run::sandtide(["snapshot".as_ref(), "--show".as_ref(), file.as_os_str()]);
    assert_eq!(show.code, Some(0), "{}{}", show.stdout, show.stderr);
    assert!(show.stdout.contains("usable here        yes"), "{}", show.stdout);
    assert!(show.stdout.contains("7 requests"), "{}", show.stdout);
}

#[test]
fn a_snapshot_of_something_else_is_refused() {
    let Some(program) = c_server() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = directory.path().join("program");
    fs::copy(&program, &copy).expect("the directory is ours");
    let file = snapshot(directory.path(), &tenant(&copy, EPOLL));
    let bytes = fs::read(&file).expect("it was written");
    let write = |bytes: &[u8]| {
        fs::remove_file(&file).expect("it is there");
        fs::write(&file, bytes).expect("the directory is ours");
    };

    let said = refused(&file, "args = [\"more\"]");
    assert!(said.contains("`args` was decided when the snapshot was made"), "{said}");
    let said = refused(&file, "limits = { memory = \"1 MiB\" }");
    assert!(said.contains("was made with `limits.memory` of"), "{said}");

    // Bits that have fallen over: in what it says of itself, and in its memory.
    for (place, what) in
        [(100, "its checksum is wrong"), (bytes.len() - 100, "its memory is wrong")]
    {
        let mut damaged = bytes.clone();
        damaged[place] ^= 4;
        write(&damaged);
        let said = refused(&file, "");
        assert!(said.contains("is damaged") && said.contains(what), "{said}");
    }
    write(&bytes[..bytes.len() / 2]);
    let said = refused(&file, "");
    assert!(said.contains("it is cut off"), "{said}");
    let mut later = bytes.clone();
    later[8] = 99;
    write(&later);
    let said = refused(&file, "");
    assert!(said.contains("has format 99, this build reads 1"), "{said}");

    write(&bytes);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let said = refused(&file, "");
    assert!(said.contains("can be written by others"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).expect("it is ours");

    // Copied, it is the same program; another one it is not.
    fs::remove_file(&copy).expect("it is ours");
    fs::copy(&program, &copy).expect("the directory is ours");
    assert_eq!(text(&serve(&file, ""), "/count"), "1");
    let mut other = fs::read(&program).expect("it is there");
    other.push(0);
    fs::write(&copy, other).expect("it is ours");
    let said = refused(&file, "");
    assert!(said.contains("has changed since the snapshot was made"), "{said}");
    let show = Run::sandtide(["snapshot".as_ref(), "--show".as_ref(), file.as_os_str()]);
    assert_eq!(show.code, Some(1));
    assert!(show.stdout.contains("usable here        no: the program's file"), "{}", show.stdout);
}

#[test]
fn programs_for_risc_v_are_not_kept() {
    let Some(program) = guest("suite_sockets.c") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    let args = ["snapshot".as_ref(), program.as_os_str(), "-o".as_ref(), file.as_os_str()];
    let run = Run::sandtide(args);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("snapshots on disk are for programs for x86-64"), "{}", run.stderr);
    assert!(!file.exists());
}

const PYTHON: &str = "
import json, sys, time, uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
import settings
print('it is booting', file=sys.stderr, flush=True)
count = 0
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        global count
        count += 1
        body = json.dumps([count, str(uuid.uuid4()), time.time(), time.monotonic(), settings.WORD])
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *args):
        pass
HTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
";

/// What the Python server answers: count, UUID, time of day, monotonic time, and a word.
fn answer(server: &Server) -> (u64, String, f64, f64, String) {
    let text = text(server, "/");
    let fields: Vec<_> =
        text.trim_matches(['[', ']']).split(", ").map(|part| part.trim_matches('"')).collect();
    let [count, id, day, monotonic, word] = fields[..] else { panic!("{text}") };
    let number = |text: &str| text.parse::<f64>().expect("a number");
    (number(count) as u64, id.to_owned(), number(day), number(monotonic), word.to_owned())
}

#[test]
fn python_goes_on_with_fresh_numbers_and_true_clocks() {
    let python = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let python = python
        .ok()
        .and_then(|output| fs::canonicalize(String::from_utf8(output.stdout).ok()?.trim()).ok());
    let (Some(_), Some(python)) = (c_server(), python) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let site = directory.path().join("site");
    fs::create_dir(&site).expect("the directory is ours");
    fs::write(site.join("server.py"), PYTHON).expect("the directory is ours");
    fs::write(site.join("settings.py"), "WORD = 'one'\n").expect("the directory is ours");
    let limits = "[tenants.guest.limits]\nboot_time = \"60 s\"\nmemory = \"512 MiB\"\n";
    let lines = format!(
        "args = [\"/srv/server.py\"]\nfiles = {{ \"/srv\" = {site:?} }}\n\
         warmup = {{ requests = 3 }}\n{limits}"
    );
    let file = snapshot(directory.path(), &tenant(&python, &lines));
    let servers = [(); 2].map(|()| serve(&file, limits));
    let (mut ids, mut before) = (HashSet::new(), 0.0);
    for round in 0..5 {
        for server in &servers {
            let (count, id, day, monotonic, word) = answer(server);
            assert_eq!((count, word.as_str()), (4, "one"));
            assert!(ids.insert(id), "a number came twice, in round {round}");
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let late = now.expect("a time after 1970").as_secs_f64() - day;
            assert!((-1.0..60.0).contains(&late), "the time of day is {late} s late");
            // Each request goes on from the snapshot, wherever that is.
            if before == 0.0 {
                before = monotonic;
            }
            assert!((monotonic - before).abs() < 60.0, "{monotonic} after {before}");
        }
    }
    for server in &servers {
        let output = server.log.since(0);
        assert!(!output.iter().any(|line| line.contains("it is booting")), "it was booted again");
    }
    // What it has imported is part of it.
    fs::write(site.join("settings.py"), "WORD = 'two'\n").expect("the directory is ours");
    let said = refused(&file, limits);
    assert!(said.contains("`/srv/settings.py`, which it has read, has changed"), "{said}");
    assert_eq!(answer(&servers[0]).4, "one", "who serves goes on");
    let file = snapshot(directory.path(), &tenant(&python, &lines));
    assert_eq!(answer(&serve(&file, limits)).4, "two");
}

#[test]
fn node_and_go_go_on_from_their_snapshots() {
    const NODE: &str = "let count = 0;
require('http').createServer((_, response) => {
  count++;
  const id = require('crypto').randomUUID({ disableEntropyCache: true });
  setTimeout(() => response.end(`${count} ${id}`), 1);
}).listen(3000);";
    if c_server().is_none() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let script = directory.path().join("server.js");
    fs::write(&script, NODE).expect("the directory is ours");
    let limits = "[tenants.guest.limits]\nboot_time = \"60 s\"\nmemory = \"1 GiB\"\nthreads = 64\ndescriptors = 256\n";
    let node = Command::new("node").args(["-p", "process.execPath"]).output().ok();
    if let Some(node) =
        node.and_then(|output| fs::canonicalize(String::from_utf8(output.stdout).ok()?.trim()).ok())
    {
        let lines = format!(
            "args = [\"/srv/server.js\"]\nfiles = {{ \"/srv/server.js\" = {script:?} }}\n\
             warmup = {{ requests = 10 }}\n{limits}"
        );
        let file = snapshot(directory.path(), &tenant(&node, &lines));
        let servers = [(); 2].map(|()| serve(&file, limits));
        let mut ids = HashSet::new();
        for server in servers.iter().cycle().take(10) {
            let text = text(server, "/");
            let (count, id) = text.split_once(' ').expect("two words");
            assert_eq!(count, "11");
            assert!(ids.insert(id.to_owned()), "a number came twice");
        }
    }
    if let Some(go) = go_of("go-server", Set::X86_64) {
        let file = snapshot(directory.path(), &tenant(&go, limits));
        let server = serve(&file, limits);
        for _ in 0..3 {
            assert_eq!(server.get("guest", "/").status(), 200);
        }
    }
}

#[test]
fn snapshots_are_kept_and_used_by_themselves() {
    let Some(program) = c_server() else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let kept = directory.path().join("kept");
    let tenant = tenant(&program, &format!("{EPOLL}\nwarmup = {{ requests = 7 }}"));
    let server = || Server::start_with(&format!("threads = 1\nsnapshots = {kept:?}"), &tenant);
    let files = || fs::read_dir(&kept).map_or(0, Iterator::count);
    let first = server();
    assert_eq!(text(&first, "/count"), "8");
    first.log.wait("it is kept", |line| line.contains("kept a snapshot"));
    assert_eq!(files(), 1);
    let second = server();
    assert_eq!(text(&second, "/count"), "8");
    second.log.wait("it is used", |line| line.contains("goes on from its snapshot"));

    // What is damaged is made again.
    let file = fs::read_dir(&kept).expect("it is there").next().expect("a file").expect("a file");
    let mut bytes = fs::read(file.path()).expect("it is ours");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::remove_file(file.path()).expect("it is ours");
    fs::write(file.path(), bytes).expect("it is ours");
    let third = server();
    assert_eq!(text(&third, "/count"), "8");
    third.log.wait("why", |line| line.contains("is booted") && line.contains("is damaged"));
    third.log.wait("it is kept", |line| line.contains("kept a snapshot"));
    assert_eq!(files(), 1);
}
