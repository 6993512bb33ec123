//! Programs with a runtime of their own do in a sandbox what they do on Linux: Go's scheduler,
//! poller and garbage collector; tokio's threads and event loop.

use std::{path::PathBuf, process::Command};

use sandtide_tests::{
    Client, Request, Run, Server,
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

/// Serves it on both engines: each request finds the program as it was when it waited.
fn served_on_both(make: impl Fn(Set) -> Option<PathBuf>, expected: &str) {
    let kvm = has_kvm().then(|| make(Set::X86_64)).flatten();
    for program in [kvm, make(Set::Riscv64)].into_iter().flatten() {
        let server = Server::start(&format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             args = [\"serve\"]\n[tenants.guest.limits]\nboot_time = \"60 s\"\n"
        ));
        let mut client: Client = server.connect();
        for number in 0..10 {
            let post = Request::new("POST", "guest", &format!("/x?{number}")).body("hello");
            let answer = client.ask(&post);
            assert_eq!((answer.status(), answer.text()), (200, expected), "{answer:?}");
        }
    }
}

#[test]
fn a_go_server_is_served() {
    served_on_both(runtimes::go, "1 220 hello");
}

#[test]
fn a_hyper_server_is_served() {
    served_on_both(runtimes::tokio, "1 6 hello");
}

#[test]
fn go_runs_as_on_linux() {
    same_everywhere(runtimes::go);
}

#[test]
fn tokio_runs_as_on_linux() {
    same_everywhere(runtimes::tokio);
}
