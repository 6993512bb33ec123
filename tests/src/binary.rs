//! The `sandtide` binary, and running it to its end.

use std::{
    env,
    ffi::OsStr,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// The top of the checkout.
pub fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the checkout")
}

/// The directory that cargo builds this profile into: two above the test executable.
pub fn target() -> &'static Path {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    TARGET.get_or_init(|| {
        let test = env::current_exe().expect("a process knows its executable");
        let directory = test.ancestors().nth(2).expect("tests lie in `deps`");
        directory.to_owned()
    })
}

/// The binary under test: `$SANDTIDE_BIN`, or what `cargo build -p sandtide-cli` made.
fn path() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let (binary, remedy) = match env::var_os("SANDTIDE_BIN") {
            Some(path) => (PathBuf::from(path), "SANDTIDE_BIN names it: correct or unset that"),
            None => (target().join("sandtide"), "build it: `cargo build -p sandtide-cli`"),
        };
        assert!(binary.is_file(), "no binary to test at `{}`\nhint: {remedy}", binary.display());
        binary
    })
}

/// The binary under test, to be run. What it keeps by itself goes to a directory of the tests.
///
/// # Panics
/// If there is none.
pub fn sandtide() -> Command {
    let mut command = Command::new(path());
    command.env("CACHE_DIRECTORY", target().join("tests-cache"));
    command
}

/// A subcommand that runs guests: `serve`, `run` or `call`. `SANDTIDE_TRANSLATE` says whether they
/// are translated (`auto`, `off`), as `--translate` does; without it, they are as configured.
pub fn running(subcommand: &str) -> Command {
    let mut command = sandtide();
    command.arg(subcommand);
    if let Some(mode) = env::var_os("SANDTIDE_TRANSLATE") {
        command.arg("--translate").arg(mode);
    }
    command
}

/// How a run of the binary ended.
#[derive(Debug)]
pub struct Run {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Run {
    /// Runs `sandtide` with these arguments and nothing on its standard input.
    pub fn sandtide<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        let mut command = sandtide();
        command.args(args);
        Self::of(&mut command, b"")
    }

    /// Runs a command to its end with this on its standard input.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of(command: &mut Command, stdin: &[u8]) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut pipe = child.stdin.take().expect("stdin is piped");
        let stdin = stdin.to_owned();
        // From a thread of its own: a child that fills its output before it reads would block.
        let writer = std::thread::spawn(move || {
            // The child need not read what it gets.
            let _ = pipe.write_all(&stdin);
        });
        let output = child.wait_with_output().expect("a child can be waited for");
        writer.join().expect("the writer does not panic");
        Self {
            code: output.status.code(),
            signal: output.status.signal(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
