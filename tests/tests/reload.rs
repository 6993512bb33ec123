//! Programs and configurations change while requests run.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use sandtide_tests::{Request, Server, Signal, built, guest, log::field};
use tempfile::TempDir;

/// A program in a file of its own, of which there are versions.
struct Program {
    image: Vec<u8>,
    directory: TempDir,
}

impl Program {
    fn new() -> Option<Self> {
        let image = fs::read(guest("suite_version.c")?).expect("it was built");
        let program = Self { image, directory: tempfile::tempdir().expect("a directory") };
        program.replace(1, "good");
        Some(program)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("program.elf")
    }

    fn version(&self, number: u32, how: &str) -> Vec<u8> {
        let mark = b"@version:";
        let at = self.image.windows(mark.len()).position(|window| window == mark);
        let mut image = self.image.clone();
        let text = format!("{number:04}:{how}");
        let at = at.expect("the guest has a mark") + mark.len();
        image[at..at + text.len()].copy_from_slice(text.as_bytes());
        image
    }

    /// Puts a version in the place of the last one, in one step.
    fn replace(&self, number: u32, how: &str) {
        self.put(&self.version(number, how));
    }

    fn put(&self, image: &[u8]) {
        let unfinished = self.directory.path().join(".unfinished");
        fs::write(&unfinished, image).expect("the directory is ours");
        fs::rename(unfinished, self.path()).expect("the directory is ours");
    }

    fn tenant(&self, lines: &str) -> String {
        tenant("guest", &self.path(), lines)
    }
}

fn tenant(name: &str, program: &Path, lines: &str) -> String {
    format!("[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {program:?}\n{lines}\n")
}

/// Waits for the line that says that a version serves.
fn loaded(server: &Server, version: u32) -> String {
    let number = version.to_string();
    server.log.wait(&format!("version {version} serves"), |line| {
        line.contains(": loaded ") && field(line, "version") == Some(&number)
    })
}

fn says(server: &Server, text: &str) -> String {
    server.log.wait(text, |line| line.contains(text))
}

fn answer(server: &Server) -> String {
    let response = server.get("guest", "/");
    assert_eq!(response.status(), 200, "{response:?}");
    response.text().to_owned()
}

#[test]
fn a_program_is_loaded_on_first_use() {
    let Some(program) = Program::new() else { return };
    let server = Server::start(&program.tenant(""));
    let before = server.log.since(0).join("\n");
    assert!(before.contains("loads on first use"), "{before}");
    // Nobody has loaded this one yet.
    program.replace(2, "good");
    assert_eq!(answer(&server), "0002");
    let line = loaded(&server, 1);
    assert_eq!(field(&line, "tenant"), Some("guest"), "{line}");
    assert_eq!(field(&line, "reason"), Some("an exchange waits for it"), "{line}");
}

#[test]
fn many_wait_for_the_same_first_use() {
    let Some(program) = Program::new() else { return };
    let server = Server::start_with("threads = 2", &program.tenant(""));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| assert_eq!(answer(&server), "0001"));
        }
    });
    let loads = server.log.since(0).iter().filter(|line| line.contains(": loaded ")).count();
    assert_eq!(loads, 1);
}

#[test]
fn a_program_is_replaced_while_requests_run() {
    let Some(program) = Program::new() else { return };
    let server = Server::start_with("threads = 2", &program.tenant("load = \"start\""));
    let done = AtomicBool::new(false);
    let upload = Request::new("POST", "guest", "/body").header("content-length", "4");
    let mut slow = server.connect();
    slow.send(&upload.body("ab").bytes());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.connect();
                    let mut seen = Vec::new();
                    while !done.load(Ordering::Relaxed) || seen.last() != Some(&"0003".to_owned()) {
                        let response = client.ask(&Request::get("guest", "/"));
                        assert_eq!(response.status(), 200, "{response:?}");
                        seen.push(response.text().to_owned());
                    }
                    seen.dedup();
                    seen
                })
            })
            .collect();
        for version in [2, 3] {
            program.replace(version, "good");
            loaded(&server, version);
        }
        done.store(true, Ordering::Relaxed);
        for client in clients {
            let seen = client.join().expect("no request fails");
            assert!(seen.is_sorted(), "no version comes back: {seen:?}");
            assert_eq!(seen.last().map(String::as_str), Some("0003"));
        }
    });
    slow.send(b"cd");
    assert_eq!(slow.response("POST").text(), "0001", "it began with the first version");
}

#[test]
fn a_file_may_be_written_in_place_and_in_pieces() {
    let Some(program) = Program::new() else { return };
    let server = Server::start(&program.tenant("load = \"start\""));
    let image = program.version(2, "good");
    let (first, second) = image.split_at(image.len() / 2);
    fs::write(program.path(), first).expect("the file is ours");
    assert_eq!(answer(&server), "0001");
    let mut file = fs::OpenOptions::new().append(true).open(program.path()).expect("ours");
    std::io::Write::write_all(&mut file, second).expect("the file is ours");
    loaded(&server, 2);
    assert_eq!(answer(&server), "0002");
}

#[test]
fn a_program_that_is_broken_replaces_nothing() {
    let Some(program) = Program::new() else { return };
    let lines = "load = \"start\"\nwarmup = [\"/\", \"/warm?x=1\"]";
    let server = Server::start(&program.tenant(lines));
    program.put(b"\x7fELF, more or less");
    let line = says(&server, "cut off");
    assert_eq!(field(&line, "serves"), Some("version 1"), "{line}");
    program.replace(2, "exit");
    says(&server, "exited with code 3");
    program.replace(3, "trap");
    says(&server, "failed to answer the warm-up request `GET /`");
    program.replace(4, "sick");
    says(&server, "answered the warm-up request `GET /` with status 500");
    assert_eq!(answer(&server), "0001");
    fs::remove_file(program.path()).expect("the file is ours");
    says(&server, "No such file");
    assert_eq!(answer(&server), "0001");
    program.replace(5, "good");
    loaded(&server, 2);
    assert_eq!(answer(&server), "0005");
}

#[test]
fn a_program_that_could_not_be_loaded_is_tried_again_when_it_changes() {
    let Some(program) = Program::new() else { return };
    program.replace(1, "exit");
    let server = Server::start(&program.tenant(""));
    let response = server.get("guest", "/");
    assert_eq!(response.status(), 503);
    assert!(response.header("retry-after").is_some());
    says(&server, "exited with code 3");
    program.replace(2, "good");
    loaded(&server, 1);
    assert_eq!(answer(&server), "0002");
}

#[test]
fn faults_bring_the_version_before_back() {
    let Some(program) = Program::new() else { return };
    let server = Server::start(&program.tenant("load = \"start\"\nrollback_on_faults = 3"));
    program.replace(2, "trap");
    loaded(&server, 2);
    let statuses: Vec<_> = (0..5).map(|_| server.get("guest", "/").status()).collect();
    assert_eq!(statuses, [502, 502, 502, 200, 200]);
    let line = says(&server, "rolled back from version 2");
    assert_eq!(field(&line, "version"), Some("1"), "{line}");
    // What has failed is not loaded again, even if somebody insists.
    server.signal(Signal::HUP);
    says(&server, "the configuration is as it was");
    program.replace(3, "good");
    loaded(&server, 3);
    assert_eq!(answer(&server), "0003");
}

#[test]
fn state_goes_from_version_to_version() {
    let Some(counter) = built(&sandtide_tests::binary::top().join("examples/counter/counter.c"))
    else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("counter.elf");
    // What stands behind a program makes it another one.
    let image = fs::read(counter).expect("it was built");
    let replace = |version: u8| {
        let unfinished = directory.path().join(".unfinished");
        fs::write(&unfinished, [&image[..], &[version]].concat()).expect("ours");
        fs::rename(unfinished, &program).expect("ours");
    };
    replace(1);
    let server =
        Server::start_with("threads = 2", &tenant("guest", &program, "isolation = \"none\""));
    const EACH: u64 = 100;
    let mut seen: Vec<u64> = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.connect();
                    let next = |_| {
                        let response = client.ask(&Request::get("guest", "/"));
                        assert_eq!(response.status(), 200, "{response:?}");
                        response.text().trim().parse::<u64>().expect("a number")
                    };
                    (0..EACH).map(next).collect::<Vec<_>>()
                })
            })
            .collect();
        loaded(&server, 1);
        for version in [2, 3] {
            replace(version);
            let line = loaded(&server, version.into());
            assert!(field(&line, "state").is_some_and(|how| how.contains("handed over")), "{line}");
        }
        clients.into_iter().flat_map(|client| client.join().expect("no request fails")).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (1..=4 * EACH).collect::<Vec<_>>(), "no count is lost, none comes twice");
    assert_eq!(server.get("guest", "/").text().trim(), (4 * EACH + 1).to_string());
}

#[test]
fn tenants_come_change_and_go() {
    let Some(program) = Program::new() else { return };
    let server = |rest: &str| format!("[server]\nlisten = \"127.0.0.1:0\"\nthreads = 1\n{rest}");
    let constant = |name: &str, body: &str| {
        format!(
            "[tenants.{name}]\nauthorities = \"{name}.test\"\nrespond = {{ body = {body:?} }}\n"
        )
    };
    let first = server(&[program.tenant(""), constant("old", "old")].concat());
    let running = Server::of(&first);
    let mut client = running.connect();
    assert_eq!(client.ask(&Request::get("guest", "/")).text(), "0001");
    assert_eq!(client.ask(&Request::get("old", "/")).text(), "old");

    running.configure(&first.replace("program =", "programm ="));
    let line = says(&running, "not configured, goes on as it was");
    assert!(line.contains("sandtide.toml:6") && line.contains("`program`"), "{line}");
    assert_eq!(client.ask(&Request::get("old", "/")).text(), "old");

    let changed = program.tenant("[tenants.guest.limits]\nrequest_body = \"3 B\"");
    running.configure(&server(&[changed, constant("new", "new")].concat()));
    let line = says(&running, ": configured ");
    for (key, name) in [("added", "new"), ("changed", "guest"), ("removed", "old")] {
        assert_eq!(field(&line, key), Some(name), "{line}");
    }
    assert_eq!(client.ask(&Request::get("new", "/")).text(), "new");
    assert_eq!(client.ask(&Request::get("old", "/")).status(), 404);
    let long = Request::new("POST", "guest", "/").body("long");
    assert_eq!(running.ask(&long).status(), 413);
    // Its limits belong to the program.
    assert_eq!(field(&loaded(&running, 2), "reason"), Some("its configuration has changed"));

    running.configure(&server(&constant("new", "newer")).replace("threads = 1", "threads = 2"));
    let line = says(&running, "need a restart");
    assert_eq!(field(&line, "keys"), Some("server.threads"), "{line}");
    assert_eq!(running.get("new", "/").text(), "newer");
}

#[test]
fn nothing_is_watched_if_so_configured_and_a_signal_looks_at_everything() {
    let Some(program) = Program::new() else { return };
    let server =
        Server::start_with("threads = 1\nwatch = false", &program.tenant("load = \"start\""));
    program.replace(2, "good");
    assert_eq!(answer(&server), "0001");
    server.signal(Signal::HUP);
    loaded(&server, 2);
    assert_eq!(answer(&server), "0002");
}

/// The tenants stand in a pipe: the server reads them when the test writes them, and reads them again
/// for the signal.
#[test]
fn a_signal_before_the_server_is_ready_is_not_lost() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pipe = directory.path().join("tenants.toml");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("the directory is ours");
    let tenant =
        |body| format!("[tenants.fixed]\ndefault = true\nrespond = {{ body = \"{body}\" }}\n");
    let server = Server::begin(&format!(
        "include = [\"{}\"]\n[server]\nlisten = \"127.0.0.1:0\"\nthreads = 1\nwatch = false\n",
        pipe.display()
    ));
    // It can be opened when the server opens it.
    let mut tenants = OpenOptions::new().write(true).open(&pipe).expect("the server reads it");
    server.signal(Signal::HUP);
    tenants.write_all(tenant("before").as_bytes()).expect("the server reads it");
    drop(tenants);
    let server = server.ready();
    fs::write(&pipe, tenant("behind")).expect("the server reads it once more");
    says(&server, ": configured ");
    assert_eq!(server.get("fixed", "/").text(), "behind");
}

#[test]
fn a_program_that_is_not_used_is_let_go_of() {
    let Some(program) = Program::new() else { return };
    let server = Server::start(&program.tenant("cold_after = \"1 s\""));
    assert_eq!(answer(&server), "0001");
    says(&server, "let go of until it is used again");
    program.replace(2, "good");
    assert_eq!(answer(&server), "0002");
    loaded(&server, 2);
}
