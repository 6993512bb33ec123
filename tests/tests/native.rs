//! Programs for this machine's own processor: the same on Linux itself and in a virtual machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

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
         [tenants.kept]\nauthorities = \"kept.test\"\nprogram = {counter:?}\nisolation = \"none\"\n\
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
fn without_kvm_a_tenant_answers_503_and_the_others_serve() {
    let Some(hello) = native(&top().join("examples/hello/hello.c")) else { return };
    let configuration = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nthreads = 1\n\
         [tenants.native]\nauthorities = \"native.test\"\nprogram = {hello:?}\n\
         [tenants.constant]\nauthorities = \"constant.test\"\nrespond = {{ body = \"here\" }}\n"
    );
    let Some(server) = Server::without_devices(&configuration) else { return };
    let mut client = Client::connect(server.address());
    for _ in 0..2 {
        assert_eq!(client.ask(&Request::get("native", "/")).status(), 503);
        assert_eq!(client.ask(&Request::get("constant", "/")).text(), "here");
    }
    server.log.wait("the reason", |line| line.contains("this machine has no KVM"));
}

/// A program that is linked dynamically, compiled from this source; `None` where there is no KVM.
fn dynamic(directory: &Path, source: &str) -> Option<PathBuf> {
    let file = directory.join("dynamic.c");
    fs::write(&file, source).expect("the directory is ours");
    native(&file)?;
    let program = directory.join("dynamic");
    let built = Command::new("cc").arg(&file).arg("-o").arg(&program).arg("-lm").status();
    assert!(built.expect("a compiler was found").success());
    Some(program)
}

const DYNAMIC: &str = r#"
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    char own[4096], here[4096];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length < 0 ? 0 : length] = 0;
    double (*loaded)(double) = dlsym(dlopen("libm.so.6", RTLD_NOW), "cbrt");
    printf("%s %s %d %.3f %.3f\n", own, getcwd(here, sizeof here), count, cos(count), loaded(27));
    printf("%s %d\n", arguments[1], open("/etc/shadow", O_RDONLY) < 0);
    return 7;
}
"#;

#[test]
fn a_dynamically_linked_program_finds_its_libraries() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().canonicalize().expect("it is there");
    let Some(program) = dynamic(&path, DYNAMIC) else { return };
    let mut command = sandtide();
    let run = Run::of(command.arg("run").arg(&program).arg("one").current_dir(&path), b"");
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    let here = path.display();
    assert_eq!(run.stdout, format!("{here}/dynamic {here} 2 -0.416 3.000\none 1\n"));
}

#[test]
fn a_fault_names_the_function() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = "__attribute__((noinline)) void falls_over(volatile int *at) { *at = 1; }\n\
                  int main(void) { falls_over((int *)0x10); return 0; }\n";
    let Some(program) = dynamic(directory.path(), source) else { return };
    for program in [program, native(&directory.path().join("dynamic.c")).expect("as before")] {
        let run = Run::of(sandtide().arg("run").arg(program), b"");
        assert_eq!(run.code, Some(139), "{}", run.stderr);
        assert!(run.stderr.contains("falls_over"), "{}", run.stderr);
    }
}

#[test]
fn without_libraries_a_dynamically_linked_program_says_what_it_needs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let Some(program) = dynamic(directory.path(), "int main(void) { return 0; }\n") else { return };
    let mut command = sandtide();
    let run = Run::of(command.args(["run", "--no-libraries"]).arg(&program), b"");
    assert_eq!(run.code, Some(125), "{}", run.stderr);
    assert!(run.stderr.contains("interpreter `/lib64/ld-linux"), "{}", run.stderr);
    assert!(run.stderr.contains("hint: let the program read"), "{}", run.stderr);
}

/// What an interpreter of this machine prints for a program text, in a virtual machine and on Linux
/// itself; `None` where there is no KVM or no such interpreter.
fn interpreted(interpreter: &Path, option: &str, text: &str) -> Option<[(String, i32); 2]> {
    native(&top().join("tests/guests/exit_code.c"))?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut bare = Command::new(interpreter);
    bare.args([option, text]).env_clear().current_dir(directory.path());
    let mut command = sandtide();
    command.args(["run", "--time", "120 s"]).arg(interpreter).args([option, text]);
    Some([ended(command.current_dir(directory.path())), ended(&mut bare)])
}

/// The file behind a name on `PATH`, as the interpreter itself knows it: shims are scripts.
fn interpreter(name: &str, option: &str, text: &str) -> Option<PathBuf> {
    let asked = Command::new(name).args([option, text]).output().ok();
    let path = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let path = path.filter(|path| !path.is_empty()).map(PathBuf::from);
    if path.is_none() {
        assert!(std::env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(), "no {name} here");
        eprintln!("SKIPPED: no `{name}` here");
    }
    path
}

const PYTHON: &str = r#"
import asyncio, hashlib, json, random, re, sys, threading, time, uuid, zlib
print(json.dumps({"a": [1, 2.5, None]}), hashlib.sha256(b"x").hexdigest(), zlib.crc32(b"x"))
lock, total = threading.Lock(), 0
def add(count):
    global total
    for _ in range(count):
        with lock:
            total += 1
    time.sleep(0.01)
threads = [threading.Thread(target=add, args=(100,)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(total, len({uuid.uuid4() for _ in range(100)}), 0 <= random.random() < 1)
with open("/tmp/written", "w") as file:
    file.write("text")
async def sleep():
    return await asyncio.gather(*[asyncio.sleep(0.01, index) for index in range(3)])
print(asyncio.run(sleep()))
print(open("/tmp/written").read(), re.sub("b+", "-", "abbc"), sum(i * i for i in range(100000)))
try:
    1 / 0
except ZeroDivisionError as error:
    print(error)
sys.exit(5)
"#;

#[test]
fn python_does_what_it_does_on_linux() {
    let Some(python) = interpreter("python3", "-c", "import sys; print(sys.executable)") else {
        return;
    };
    if let Some([found, expected]) = interpreted(&python, "-c", PYTHON) {
        assert_eq!(found, expected);
        assert_eq!(found.1, 5);
    }
}

const NODE: &str = r#"
const crypto = require('crypto'), fs = require('fs'), os = require('os');
const { Worker } = require('worker_threads');
const lines = [];
const say = (...words) => lines.push(words.join(' '));
say(crypto.createHash('sha256').update('x').digest('hex'), crypto.randomUUID().length);
let sum = 0;
for (let i = 0; i < 1e7; i++) sum = (sum * 31 + i) | 0;
say('loop', sum, os.EOL.length);
setTimeout(() => say('timer'), 20);
crypto.pbkdf2('a', 'b', 1000, 16, 'sha256', (_, key) => say('pbkdf2', key.toString('hex')));
require('zlib').gzip('x'.repeat(1000), (_, bytes) => say('gzip', bytes.length));
fs.promises.writeFile('/tmp/a', 'text').then(() => say(fs.readFileSync('/tmp/a', 'utf8')));
new Worker("require('worker_threads').parentPort.postMessage(42)", { eval: true })
    .on('message', message => say('worker', message));
const add = [0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3,
    97, 100, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11];
WebAssembly.instantiate(new Uint8Array(add)).then(it => say('wasm', it.instance.exports.add(2, 3)));
process.on('exit', () => { console.log(lines.sort().join('\n')); process.exitCode = 6; });
"#;

#[test]
fn node_does_what_it_does_on_linux() {
    let Some(node) = interpreter("node", "-p", "process.execPath") else { return };
    if let Some([found, expected]) = interpreted(&node, "-e", NODE) {
        assert_eq!(found, expected);
        assert_eq!(found.1, 6);
    }
}
