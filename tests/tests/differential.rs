//! The same programs here and under QEMU's user mode, the outside witness: same output, same exit
//! code, with every compiler that there is. And SDK programs as ordinary programs, which serve
//! plain HTTP by themselves.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use sandtide_tests::{
    Client, Log, Request, Run,
    binary::{running, top},
    built,
    guest::{built_by, compilers, has_toolchain, qemu},
};

const INPUT: &[u8] = b"first line\nsecond line\n\nlast line without an end";
const ARGUMENTS: [&str; 4] = ["one", "two words", "", "--three=3"];
/// One variable: QEMU turns the order of several round.
const ENVIRONMENT: &str = "GUEST_A=a value";

/// The programs of `tests/guests` that run to an end.
fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(top().join("tests/guests")).expect("the guests are there");
    let mut programs: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "c" || kind == "cpp"))
        .filter(|path| !name(path).starts_with("suite_"))
        .collect();
    programs.sort();
    assert!(programs.len() >= 10, "{programs:?}");
    programs
}

fn name(path: &Path) -> &str {
    path.file_stem().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The output and the code that a shell would show.
fn ended(command: &mut Command) -> (String, i32, String) {
    let run = Run::of(command, INPUT);
    (
        run.stdout,
        run.code.or_else(|| run.signal.map(|signal| 128 + signal)).unwrap_or(-1),
        run.stderr,
    )
}

fn under_qemu(qemu: &str, program: &Path) -> (String, i32, String) {
    let mut command = Command::new(qemu);
    ended(command.arg("-E").arg(ENVIRONMENT).arg(program).args(ARGUMENTS))
}

fn here(program: &Path) -> (String, i32, String) {
    let mut command = running("run");
    ended(command.args(["--env", ENVIRONMENT]).arg(program).args(ARGUMENTS))
}

#[test]
fn programs_do_here_what_they_do_under_qemu() {
    if !has_toolchain() {
        return;
    }
    let Some(qemu) = qemu() else { return };
    let programs = programs();
    let cases: Vec<_> = compilers()
        .iter()
        .flat_map(|compiler| programs.iter().map(move |program| (*compiler, program)))
        .collect();
    let next = AtomicUsize::new(0);
    let differences = thread::scope(|scope| {
        let work = || {
            let mut differences = Vec::new();
            while let Some((compiler, source)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                let program = built_by(compiler, source);
                let (expected, expected_code, _) = under_qemu(qemu, &program);
                let (output, code, errors) = here(&program);
                if (&output, code) != (&expected, expected_code) {
                    differences.push(format!(
                        "{} ({compiler}): exit code {code}, under QEMU {expected_code}\n{}{errors}",
                        name(source),
                        first_difference(&output, &expected),
                    ));
                }
            }
            differences
        };
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.map(|worker| worker.join().expect("a worker")).concat()
    });
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn first_difference(ours: &str, theirs: &str) -> String {
    let pairs = ours.lines().map(Some).chain([None]).zip(theirs.lines().map(Some).chain([None]));
    for (line, (our, their)) in pairs.enumerate() {
        if our != their {
            return format!("line {}: {our:?}, under QEMU {their:?}\n", line + 1);
        }
    }
    String::new()
}

/// A program that serves by itself; killed when dropped.
struct Standalone {
    child: Child,
    client: Client,
}

impl Standalone {
    fn start(command: &mut Command) -> Self {
        command.env("PORT", "0").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let log = Log::of(child.stderr.take().expect("stderr is piped"));
        let line = log.wait("it serves", |line| line.contains("serving http://"));
        let address = line.rsplit("http://").next().unwrap_or_default().trim();
        let client = Client::connect(address.parse().expect("an address"));
        Self { child, client }
    }

    /// What the examples answer here as in a sandbox.
    fn serves_hello(mut self) {
        for _ in 0..3 {
            let response = self.client.ask(&Request::get("hello", "/"));
            assert_eq!((response.status(), response.text()), (200, "Hello, World!\n"));
            assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        }
        let head = self.client.ask(&Request::new("HEAD", "hello", "/"));
        assert_eq!((head.status(), head.body.len()), (200, 0));
    }

    fn serves_echo(mut self) {
        let request = Request::new("POST", "echo", "/a?b").header("x-a", "b").body("the body");
        let expected = "POST /a?b\necho.test\nhost: echo.test\nx-a: b\ncontent-length: 8\nthe body";
        assert_eq!(self.client.ask(&request).text(), expected);
        let chunked = Request::new("POST", "echo", "/trailers")
            .header("transfer-encoding", "chunked")
            .body("4\r\nbody\r\n0\r\nX-Sum: 42\r\n\r\n");
        let response = self.client.ask(&chunked);
        assert_eq!(response.text(), "4 bytes of body, 1 trailers\n");
        assert_eq!(response.trailer("x-sum"), Some("42"));
    }
}

impl Drop for Standalone {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The example as a program of this machine.
fn native(example: &str, directory: &Path) -> PathBuf {
    let program = directory.join(example);
    let mut command = Command::new("cc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-I"]).arg(top().join("sdk/c"));
    command.arg(top().join(format!("examples/{example}/{example}.c"))).arg("-o").arg(&program);
    let run = Run::of(&mut command, b"");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    program
}

#[test]
fn examples_serve_by_themselves_on_this_machine() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    Standalone::start(&mut Command::new(native("hello", directory.path()))).serves_hello();
    Standalone::start(&mut Command::new(native("echo", directory.path()))).serves_echo();
}

#[test]
fn examples_serve_by_themselves_under_qemu() {
    let hello = built(&top().join("examples/hello/hello.c"));
    let Some((hello, echo)) = hello.zip(built(&top().join("examples/echo/echo.c"))) else { return };
    let Some(qemu) = qemu() else { return };
    Standalone::start(Command::new(qemu).arg(hello)).serves_hello();
    Standalone::start(Command::new(qemu).arg(echo)).serves_echo();
}
