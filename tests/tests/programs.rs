//! The same paths in every language, each on its own server: what a program does inside of Sandtide is
//! what it does as an ordinary process, and whatever goes wrong in one request ends that one.
//!
//! The programs are `tests/guests/programs` and `tests/guests/runtimes/go-paths`. Random numbers are
//! looked at by `random.rs`.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use sandtide_tests::{
    Client, PATIENCE, Request, Server,
    binary::top,
    guest::native,
    h2,
    runtimes::{Set, go_of},
    tools::installed,
};

/// A program and what it is started with. `{}` in an argument is where its files are.
struct Program {
    file: PathBuf,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// The memory that it may have, in MiB: as much as it starts with, and some.
    memory: u32,
    /// Python's packages.
    packages: Option<PathBuf>,
    /// What a request gets whose handler throws.
    thrown: u16,
}

/// Where a program of the `PATH` really lies, as the program itself says.
fn found(program: &str, args: &[&str]) -> Option<PathBuf> {
    let output = Command::new(program).args(args).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let path = fs::canonicalize(path).ok();
    if path.is_none() {
        eprintln!("SKIPPED: no {program}");
    }
    path
}

fn sources() -> PathBuf {
    top().join("tests/guests/programs")
}

/// What programs read as a file, and what they are sent: bytes without a pattern.
fn data(length: usize) -> Vec<u8> {
    let step = |state: &mut u32| {
        *state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((*state >> 24) as u8)
    };
    std::iter::repeat_n((), length).scan(7, |state, ()| step(state)).collect()
}

/// The program as an ordinary process.
struct Bare {
    child: Child,
    address: SocketAddr,
}

impl Bare {
    fn start(program: &Program, here: &Path) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = free.local_addr().expect("a listener has an address");
        drop(free);
        let here_text = here.to_str().expect("a path that is text");
        let args = program.args.iter().map(|arg| arg.replace("{}", here_text));
        let mut command = Command::new(&program.file);
        command.args(args).envs(program.env.iter().copied());
        command.env("PORT", address.port().to_string()).env("HERE", here).current_dir(here);
        command.envs(program.packages.iter().map(|packages| ("PYTHONPATH", packages)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let give_up = Instant::now() + PATIENCE;
        while Client::try_connect(address).is_err() {
            assert!(Instant::now() < give_up, "{command:?} does not listen");
            std::thread::yield_now();
        }
        Self { child, address }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Memory that the server has, in MiB.
fn resident(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("as in proc(5)");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

fn answers(server: &Server, path: &str, expected: &str) {
    let answer = server.get("guest", path);
    assert_eq!((answer.status(), answer.text()), (200, expected), "{path}");
}

fn behaves(program: Option<Program>) {
    // Whether there is KVM, as any native program shows.
    if native(&top().join("tests/guests/exit_code.c")).is_none() {
        return;
    }
    let Some(program) = program else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let here = directory.path();
    for source in ["paths.mjs", "worker.mjs", "paths.py"] {
        fs::copy(sources().join(source), here.join(source)).expect("the directory is ours");
    }
    fs::write(here.join("data"), data(100_000)).expect("the directory is ours");

    let args: Vec<_> = program.args.iter().map(|arg| arg.replace("{}", "/srv")).collect();
    let mut env: Vec<_> =
        program.env.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
    let mut files = vec![format!("\"/srv\" = {here:?}")];
    if let Some(packages) = &program.packages {
        files.push(format!("\"/packages\" = {packages:?}"));
        env.push("PYTHONPATH = \"/packages\"".to_owned());
    }
    let memory = program.memory;
    let (file, files, env) = (&program.file, files.join(", "), env.join(", "));
    // One with time to fill its memory, and one without patience.
    let tenant = |name: &str, wall_time: &str| {
        format!(
            "[tenants.{name}]\nauthorities = \"{name}.test\"\nprogram = {file:?}\nargs = {args:?}\n\
             files = {{ {files} }}\nenv = {{ {env} }}\nwarmup = {{ requests = 3 }}\n\
             [tenants.{name}.limits]\nboot_time = \"60 s\"\nwall_time = \"{wall_time}\"\n\
             memory = \"{memory} MiB\"\nthreads = 64\ndescriptors = 256\n\
             request_body = \"16 MiB\"\nresponse_body = \"16 MiB\"\n"
        )
    };
    let server = Server::start(&[tenant("guest", "30 s"), tenant("hasty", "1 s")].concat());
    answers(&server, "/", "no such path");
    let bare = Bare::start(&program, here);
    let directly = |request: &Request| Client::connect(bare.address).ask(request);

    // Each request is the first, over one connection and over streams of one.
    let mut client = server.connect();
    for _ in 0..5 {
        assert_eq!(client.ask(&Request::get("guest", "/counter")).text(), "1");
    }
    let mut connection = h2::Connection::open(server.address());
    for stream in [1, 3, 5] {
        let end = connection.get(stream, "guest.test", "/counter");
        let is_first = matches!(&end, h2::End::Response { status: 200, body } if body == b"1");
        assert!(is_first, "{end:?}");
    }

    // What a program can do, it does as elsewhere.
    for path in ["/timer", "/file", "/hash", "/worker", "/stream", "/nothing"] {
        let (inside, outside) = (server.get("guest", path), directly(&Request::get("guest", path)));
        assert_eq!(outside.status(), 200, "{path}: {outside:?}");
        assert_eq!((inside.status(), inside.text()), (200, outside.text()), "{path}");
    }
    answers(&server, "/timer", "three ticks");
    answers(&server, "/worker", "5050");
    answers(&server, "/stream", "0\n1\n2\n");
    let large = data(10 << 20);
    let echoed = server.ask(&Request::new("POST", "guest", "/echo").body(large.clone()));
    assert_eq!(echoed.status(), 200);
    assert!(echoed.body == large, "10 MiB there and back: {} bytes", echoed.body.len());

    // What it may not, it is told at once.
    answers(&server, "/fork", "refused");
    answers(&server, "/dns", "not found");

    // What goes wrong ends one request.
    assert_eq!(server.get("guest", "/throw").status(), program.thrown);
    answers(&server, "/counter", "1");
    assert_eq!(server.get("guest", "/exit").status(), 502);
    answers(&server, "/counter", "1");
    let mut spins = server.connect();
    spins.send(&Request::get("hasty", "/spin").bytes());
    answers(&server, "/counter", "1");
    assert_eq!(spins.response("GET").status(), 504);
    assert_eq!(server.get("hasty", "/counter").text(), "1");
    let before = resident(&server);
    // Some are told that there is no more in time to say so.
    let bombed = server.get("guest", "/bomb");
    assert!([500, 502].contains(&bombed.status()), "{bombed:?}");
    answers(&server, "/counter", "1");
    let after = resident(&server);
    assert!(after < before + 200, "{before} MiB before, {after} MiB after");
}

fn shared(file: Option<PathBuf>, args: &'static [&'static str]) -> Option<Program> {
    Some(Program { file: file?, args, env: &[], memory: 256, packages: None, thrown: 500 })
}

#[test]
fn node() {
    behaves(shared(found("node", &["-p", "process.execPath"]), &["{}/paths.mjs"]));
}

#[test]
fn deno() {
    let program = shared(installed("npm/bin/deno"), &["run", "-A", "--no-lock", "{}/paths.mjs"]);
    behaves(program.map(|program| Program {
        env: &[("DENO_DIR", "/tmp")],
        // With 512 MiB, V8 wants to have its code next to its own, where there is no room.
        memory: 544,
        ..program
    }));
}

#[test]
fn bun() {
    behaves(shared(installed("npm/bin/bun"), &["{}/paths.mjs"]));
}

fn python_with(args: &'static [&'static str]) -> Option<Program> {
    shared(found("python3", &["-c", "import sys; print(sys.executable)"]), args)
}

#[test]
fn python() {
    behaves(python_with(&["{}/paths.py"]));
}

#[test]
fn uvicorn() {
    let Some(interpreter) = installed("apps/bin/python") else { return };
    let script = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = found(&interpreter.to_string_lossy(), &["-c", script]);
    let program = python_with(&["{}/paths.py", "uvicorn"]);
    behaves(program.map(|program| Program { packages, ..program }));
}

#[test]
fn go() {
    // A handler that panics ends its connection, as net/http has it.
    let program = shared(go_of("go-paths", Set::X86_64), &[]);
    behaves(program.map(|program| Program { thrown: 502, ..program }));
}
