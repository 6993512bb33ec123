//! `sandtide serve` and `sandtide call` with real programs.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Stdio},
};

use insta::assert_snapshot;
use rustix::process::{Pid, Signal, kill_process};

use crate::{guest, support::Place};

/// Answers every request with status 200.
fn answering() -> Vec<u8> {
    let round = [guest::next_request(), guest::respond()].concat();
    // The stack pointer moves down once.
    let again = guest::back(round.len() as u32 - 1);
    guest::elf(&[&round[..], &[again]].concat(), b"")
}

/// Takes a request and traps.
fn trapping() -> Vec<u8> {
    guest::elf(&[&guest::next_request()[..], &[guest::EBREAK]].concat(), b"")
}

const CONFIG: &str = r#"
[server]
threads = 1
[tenants.answer]
authorities = ["answer.localhost", "*.answer.localhost"]
program = "answer.elf"
load = "start"
[tenants.trap]
authorities = "trap.localhost"
program = "trap.elf"
[tenants.missing]
authorities = "missing.localhost"
path = "/api"
program = "missing.elf"
[tenants.constant]
default = true
respond = { body = "constant\n" }
"#;

fn place() -> Place {
    Place::new()
        .file("sandtide.toml", CONFIG)
        .file("answer.elf", answering())
        .file("trap.elf", trapping())
        .file("exit.elf", guest::elf(&guest::exit(3), b""))
}

/// A server that is ready, and what it said until then.
struct Served {
    child: Child,
    address: String,
    said: String,
}

impl Served {
    fn start(place: &Place, args: &[&str]) -> Self {
        let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
        let mut child = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let line = lines.next().expect("the server ended").unwrap();
            said.push_str(&line);
            said.push('\n');
            if let Some(address) = line.strip_prefix("ready: http://") {
                break address.to_owned();
            }
        };
        // A full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        let port = address.rsplit_once(':').unwrap().1;
        Self { said: said.replace(port, "PORT"), child, address }
    }

    /// The status of an answer to a request for this host.
    fn status(&self, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split_whitespace().nth(1).unwrap().to_owned()
    }

    /// Sends a signal; the exit code.
    fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn tenants_that_load_are_served_and_the_others_answer_503() {
    let place = place();
    let served = Served::start(&place, &["--translate", "off"]);
    // The times differ from run to run.
    let untimed = served.said.lines().map(|line| match line.split_once("loaded in") {
        Some((before, _)) => format!("{before}loaded in TIME)"),
        None => line.to_owned(),
    });
    assert_snapshot!(untimed.collect::<Vec<_>>().join("\n"), @"
    error: cannot load tenant `missing`
      caused by: cannot read `missing.elf`
      caused by: No such file or directory (os error 2)

    hint: check the path, or make the program: `sandtide build SOURCE -o PROGRAM`
    tenant answer: http://answer.localhost:PORT/ http://*.answer.localhost:PORT/ (loaded in TIME)
    tenant trap: http://trap.localhost:PORT/ (loads on first use)
    tenant missing: http://missing.localhost:PORT/api (answers 503: its program could not be loaded)
    tenant constant: http://127.0.0.1:PORT/ (constant)
    ready: http://127.0.0.1:PORT
    ");
    assert_eq!(served.status("answer.localhost", "/"), "200");
    assert_eq!(served.status("a.b.answer.localhost", "/"), "200");
    assert_eq!(served.status("trap.localhost", "/"), "502");
    assert_eq!(served.status("missing.localhost", "/api/x"), "503");
    assert_eq!(served.status("elsewhere", "/"), "200");
    assert_eq!(served.stop(Signal::TERM), Some(0));
}

#[test]
fn a_program_is_served_without_a_configuration() {
    let place = place();
    let served = Served::start(&place, &["answer.elf"]);
    assert_eq!(served.status("any.name", "/any/path"), "200");
    assert_eq!(served.stop(Signal::INT), Some(0));
}

#[test]
fn a_program_that_ends_before_its_first_request_is_not_served() {
    assert_snapshot!(place().run(&["serve", "exit.elf", "--listen", "127.0.0.1:0"]), @"
    exit: 1
    --- stdout
    --- stderr
    error: cannot load tenant `exit`
      caused by: the program failed before it asked for its first request: exited with code 3

    hint: a program that serves requests must wait for connections on a socket, or call `sandtide_next_request` in a loop (sdk/c/sandtide.h), and not return from main
    ");
}

#[test]
fn a_call_is_answered_or_shows_the_fault() {
    let place = place();
    assert_snapshot!(place.run(&["call", "-i", "answer", "GET", "/"]), @"
    exit: 0
    --- stdout
    HTTP/1.1 200 OK

    --- stderr
    ");
    assert_snapshot!(place.run(&["call", "trap", "POST", "/x?y", "-d", "body"]), @"
    exit: 1
    --- stdout
    --- stderr
    error: tenant `trap` did not answer well
      caused by: breakpoint at 0x10090
        at 0x10090
      used: 0 instructions, 1 pages written, 0 calls
    ");
    assert_snapshot!(place.run(&["call", "missing", "GET", "/api"]), @"
    exit: 1
    --- stdout
    --- stderr
    error: cannot load tenant `missing`
      caused by: cannot read `missing.elf`
      caused by: No such file or directory (os error 2)

    hint: check the path, or make the program: `sandtide build SOURCE -o PROGRAM`
    ");
}
