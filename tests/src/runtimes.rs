//! Guests in languages that bring a runtime, compiled for both instruction sets by the language's
//! own tool: Go, and Rust with tokio. Their sources are in `tests/guests/runtimes`.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use sha2::{Digest as _, Sha256};

use crate::{
    Run,
    binary::{target, top},
    guest::add_tree,
};

/// An instruction set, as the tools name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// This machine's own.
    X86_64,
    /// RV64GC.
    Riscv64,
}

impl Set {
    fn go(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Riscv64 => "riscv64",
        }
    }

    fn rust(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Riscv64 => "riscv64gc-unknown-linux-gnu",
        }
    }
}

/// The Go program; `None`, and a loud note, if this machine has no Go.
///
/// # Panics
/// If it does not compile; and with `SANDTIDE_REQUIRE_TOOLCHAIN` set, if there is no Go.
pub fn go(set: Set) -> Option<PathBuf> {
    go_of("go", set)
}

/// The Go program in a folder of `tests/guests/runtimes`: see [`go`].
///
/// # Panics
/// As [`go`].
pub fn go_of(name: &str, set: Set) -> Option<PathBuf> {
    let has_go = works(Command::new("go").arg("version"));
    found(has_go, "no Go", "install golang-go").then(|| {
        let source = top().join("tests/guests/runtimes").join(name);
        made(name, &source, set, |program| {
            let mut command = Command::new("go");
            command.args(["build", "-buildvcs=false", "-trimpath", "-o"]).arg(program).arg(".");
            command.env("GOARCH", set.go()).env("GOOS", "linux").env("CGO_ENABLED", "0");
            command.env("GOFLAGS", "").env("GOTOOLCHAIN", "local").env("GOWORK", "off");
            command.env("GOCACHE", target().join("guests/go-cache")).current_dir(&source);
            let run = Run::of(&mut command, b"");
            assert_eq!(run.code, Some(0), "{command:?}\n{}{}", run.stdout, run.stderr);
        })
    })
}

/// The Rust program with tokio; `None`, and a loud note, if this machine cannot make it.
///
/// # Panics
/// If it does not compile; and with `SANDTIDE_REQUIRE_TOOLCHAIN` set, if Rust's library for the
/// instruction set is missing though rustup could install it.
pub fn tokio(set: Set) -> Option<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    let has_library = sysroot.join("lib/rustlib").join(set.rust()).is_dir();
    let what = format!("no Rust library for {}", set.rust());
    if !has_library && !works(Command::new("rustup").arg("--version")) {
        eprintln!("SKIPPED: {what}, and no rustup");
        return None;
    }
    let linker = match set {
        Set::X86_64 => "cc",
        Set::Riscv64 => "riscv64-linux-gnu-gcc",
    };
    let has_linker = works(Command::new(linker).arg("--version"));
    let remedy = format!("rustup target add {}; install {linker}", set.rust());
    found(has_library && has_linker, &what, &remedy).then(|| {
        let source = top().join("tests/guests/runtimes/tokio");
        made("tokio", &source, set, |program| {
            let build = target().join("guests/tokio-target");
            let mut command = Command::new("cargo");
            command.args(["build", "--quiet", "--locked", "--target", set.rust()]);
            command.arg("--manifest-path").arg(source.join("Cargo.toml"));
            command.env("CARGO_TARGET_DIR", &build).env_remove("CARGO_ENCODED_RUSTFLAGS");
            command.env("RUSTFLAGS", format!("-Ctarget-feature=+crt-static -Clinker={linker}"));
            let run = Run::of(&mut command, b"");
            assert_eq!(run.code, Some(0), "{command:?}\n{}{}", run.stdout, run.stderr);
            let built = build.join(set.rust()).join("debug/guest-tokio");
            fs::copy(&built, program).expect("cargo left a program");
        })
    })
}

/// Whether a tool is there; a loud note if not.
fn found(is_here: bool, what: &str, remedy: &str) -> bool {
    assert!(
        is_here || env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(),
        "{what}\nhint: {remedy}, or run `make setup` with SANDTIDE_REQUIRE_TOOLCHAIN=1"
    );
    if !is_here {
        eprintln!("SKIPPED: {what}: {remedy}");
    }
    is_here
}

fn works(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The program of a source directory, kept under the hash of what it is made from.
fn made(name: &str, source: &Path, set: Set, make: impl Fn(&Path)) -> PathBuf {
    let mut hash = Sha256::new();
    add_tree(&mut hash, source);
    let hash: String = hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = target().join("guests");
    fs::create_dir_all(&directory).expect("the target directory is ours");
    let program = directory.join(format!("{name}-{}-{hash}.elf", set.go()));
    // Tests run in parallel, in one process and in many; and tools share their caches.
    let lock = File::create(directory.join(format!("{name}.lock"))).expect("the directory is ours");
    lock.lock().expect("files can be locked");
    if !program.is_file() {
        let unfinished = program.with_extension("unfinished");
        make(&unfinished);
        fs::rename(&unfinished, &program).expect("the tool left a program");
    }
    program
}
