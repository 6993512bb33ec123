//! Programs with a runtime of their own do in a sandbox what they do on Linux: Go's scheduler,
//! poller and garbage collector; tokio's threads and event loop.

use std::{path::PathBuf, process::Command};

use sandtide_tests::{
    Run,
    binary::running,
    guest::has_kvm,
    runtimes::{self, Set},
};

/// Runs the program for this machine on Linux and in a virtual machine, and the one for RISC-V,
/// and compares what they print.
fn same_everywhere(make: impl Fn(Set) -> Option<PathBuf>) {
    let Some(here) = make(Set::X86_64) else { return };
    let expected = Run::of(&mut Command::new(&here), b"");
    assert_eq!(expected.code, Some(0), "on Linux: {}", expected.stderr);
    let kvm = has_kvm().then_some(here);
    for program in [kvm, make(Set::Riscv64)].into_iter().flatten() {
        let run = Run::of(running("run").arg(&program), b"");
        assert_eq!(run.stdout, expected.stdout, "{}: {}", program.display(), run.stderr);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
    }
}

#[test]
fn go_runs_as_on_linux() {
    same_everywhere(runtimes::go);
}

#[test]
fn tokio_runs_as_on_linux() {
    same_everywhere(runtimes::tokio);
}
