//! Programs for this machine's own processor: the same on Linux itself and in a virtual machine.

use std::{fs, path::PathBuf, process::Command};

use sandtide_tests::{Client, Request, Run, Server, binary::top, guest::native, sandtide};

const INPUT: &[u8] = b"first line\nsecond line\n\nlast line without an end";
const ARGUMENTS: [&str; 4] = ["one", "two words", "", "--three=3"];
const VARIABLE: (&str, &str) = ("GUEST_A", "a value");

/// The programs of `tests/guests` that run to an end.
fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(top().join("tests/guests")).expect("the guests are there");
    let mut programs: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|kind| kind == "c" || kind == "cpp"))
        .filter(|path| {
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            !name.starts_with("suite_")
        })
        .collect();
    programs.sort();
    assert!(programs.len() >= 10, "{programs:?}");
    programs
}

/// The output and the code that a shell would show.
fn ended(command: &mut Command) -> (String, i32) {
    let run = Run::of(command, INPUT);
    (run.stdout, run.code.or_else(|| run.signal.map(|signal| 128 + signal)).unwrap_or(-1))
}

#[test]
fn programs_do_in_a_virtual_machine_what_they_do_on_linux() {
    let mut differences = Vec::new();
    for source in programs() {
        let Some(program) = native(&source) else { return };
        let (name, value) = VARIABLE;
        let mut bare = Command::new(&program);
        let expected = ended(bare.args(ARGUMENTS).env_clear().env(name, value));
        let mut command = sandtide();
        command.args(["run", "--env", &format!("{name}={value}")]).arg(&program).args(ARGUMENTS);
        let found = ended(&mut command);
        if found != expected {
            differences.push(format!("{}:\n{found:?}\non Linux:\n{expected:?}", source.display()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn examples_answer_each_request_from_their_snapshot() {
    let example = |name: &str| native(&top().join(format!("examples/{name}/{name}.c")));
    let (Some(hello), Some(counter), Some(echo)) =
        (example("hello"), example("counter"), example("echo"))
    else {
        return;
    };
    let server = Server::start(&format!(
        "[tenants.hello]\nauthorities = \"hello.test\"\nprogram = {hello:?}\n\
         [tenants.counter]\nauthorities = \"counter.test\"\nprogram = {counter:?}\n\
         [tenants.kept]\nauthorities = \"kept.test\"\nprogram = {counter:?}\nephemeral = false\n\
         [tenants.echo]\nauthorities = \"echo.test\"\nprogram = {echo:?}\n"
    ));
    let mut client = Client::connect(server.address());
    for round in 1..=50 {
        let response = client.ask(&Request::get("hello", "/"));
        assert_eq!((response.status(), response.text()), (200, "Hello, World!\n"));
        assert_eq!(client.ask(&Request::get("counter", "/")).text(), "1\n");
        assert_eq!(client.ask(&Request::get("kept", "/")).text(), format!("{round}\n"));
    }
    let request = Request::new("POST", "echo", "/a?b").header("x-a", "b").body("the body");
    let response = client.ask(&request);
    assert!(response.text().ends_with("the body"), "{}", response.text());
}

#[test]
fn a_program_that_is_not_for_kvm_says_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("dynamic.c");
    fs::write(&source, "int main(void) { return 0; }\n").expect("the directory is ours");
    if native(&source).is_none() {
        return;
    }
    let program = directory.path().join("dynamic");
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).status();
    assert!(built.expect("a compiler was found").success());
    let run = Run::of(sandtide().arg("run").arg(&program), b"");
    assert_eq!(run.code, Some(125), "{}", run.stderr);
    assert!(run.stderr.contains("dynamically linked"), "{}", run.stderr);
    assert!(run.stderr.contains("hint: link it with `-static`"), "{}", run.stderr);
}
