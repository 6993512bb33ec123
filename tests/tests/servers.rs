//! Servers as they are written for any machine, each with what this machine has for its language:
//! docs/sockets.md.

use std::{fs, path::PathBuf, process::Command};

use sandtide_tests::{
    Client, Request, Server,
    binary::top,
    guest::native,
    runtimes::{Set, go_of},
};

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

/// Serves a script with an interpreter of this machine, if there is KVM for it.
fn serve(interpreter: Option<PathBuf>, script: &str, lines: &str) -> Option<Server> {
    serve_within(interpreter, script, lines, "memory = \"1 GiB\"\nthreads = 64\ndescriptors = 256")
}

/// The same, within limits.
fn serve_within(
    interpreter: Option<PathBuf>,
    script: &str,
    lines: &str,
    limits: &str,
) -> Option<Server> {
    // Whether there is KVM, as any native program shows.
    native(&top().join("tests/guests/exit_code.c"))?;
    let interpreter = interpreter?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("script");
    fs::write(&file, script).expect("the directory is ours");
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {interpreter:?}\n\
         args = [\"/srv/script\"]\nfiles = {{ \"/srv/script\" = {file:?} }}\n{lines}\n\
         [tenants.guest.limits]\nboot_time = \"60 s\"\n{limits}\n"
    ));
    // It is loaded with the first request, which needs the file.
    assert_eq!(server.get("guest", "/first").status(), 200);
    Some(server)
}

fn counts(server: &Server, expected: &str) {
    let mut client: Client = server.connect();
    for number in 0..10 {
        let post = Request::new("POST", "guest", &format!("/x?{number}")).body("hello");
        let answer = client.ask(&post);
        assert_eq!((answer.status(), answer.text()), (200, expected), "{answer:?}");
    }
}

const NODE: &str = "
let count = 0;
require('http').createServer((request, response) => {
  count++;
  let body = '';
  request.on('data', data => body += data);
  request.on('end', () => setTimeout(() => response.end(`${count} ${body}`), 1));
}).listen(3000);
";

#[test]
fn node() {
    let node = || found("node", &["-p", "process.execPath"]);
    if let Some(server) = serve(node(), NODE, "") {
        counts(&server, "1 hello");
    }
    if let Some(server) = serve(node(), NODE, "warmup = { requests = 50 }") {
        counts(&server, "51 hello");
    }
}

const NODE_BOMB: &str = "
let count = 0;
require('http').createServer((request, response) => {
  const kept = [];
  while (request.url === '/bomb') kept.push(Buffer.alloc(100000, 1));
  response.end(`${++count} hello`);
}).listen(3000);
";

/// Node's own file is larger than the limit, and counts as little as its libraries do.
#[test]
fn node_is_served_within_the_default_limits_and_ended_beyond_them() {
    let node = found("node", &["-p", "process.execPath"]);
    let Some(server) = serve_within(node, NODE_BOMB, "warmup = { requests = 5 }", "") else {
        return;
    };
    for _ in 0..2 {
        assert_eq!(server.get("guest", "/bomb").status(), 502);
        assert_eq!(server.get("guest", "/").text(), "6 hello");
    }
}

const NODE_WASM: &str = "
const kept = [];
require('http').createServer((request, response) => {
  for (let at = 0; at < 4; at++) {
    const memory = new WebAssembly.Memory({ initial: 16, maximum: 65536 });
    memory.grow(at);
    new Uint8Array(memory.buffer).fill(at, -65536);
    kept.push(memory);
  }
  const sizes = kept.map(memory => memory.buffer.byteLength >> 16);
  response.end(sizes.join(' '));
}).listen(3000);
";

/// V8 reserves 10 GiB for each.
#[test]
fn node_has_several_web_assembly_memories_in_each_request() {
    let node = found("node", &["-p", "process.execPath"]);
    if let Some(server) = serve(node, NODE_WASM, "") {
        (0..3).for_each(|_| assert_eq!(server.get("guest", "/").text(), "16 17 18 19"));
    }
}

const PYTHON: &str = "
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
count = 0
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_POST(self):
        global count
        count += 1
        body = self.rfile.read(int(self.headers.get('content-length', 0)))
        answer = b'%d %s' % (count, body)
        self.send_response(200)
        self.send_header('content-length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
    do_GET = do_POST
    def log_message(self, *_):
        pass
ThreadingHTTPServer(('127.0.0.1', 8000), Handler).serve_forever()
";

#[test]
fn python() {
    let python = found("python3", &["-c", "import sys; print(sys.executable)"]);
    if let Some(server) = serve(python, PYTHON, "") {
        counts(&server, "1 hello");
    }
}

#[test]
fn go() {
    let has_kvm = native(&top().join("tests/guests/exit_code.c")).is_some();
    let sets = [Some(Set::Riscv64), has_kvm.then_some(Set::X86_64)];
    for set in sets.into_iter().flatten() {
        let Some(program) = go_of("go-server", set) else { return };
        let server = Server::start(&format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             [tenants.guest.limits]\nboot_time = \"60 s\"\nwall_time = \"60 s\"\nthreads = 64\n"
        ));
        counts(&server, "1 hello");
        assert_eq!(server.get("guest", "/stream").text(), "0\n1\n2\n", "{set:?}");
        assert_eq!(server.get("guest", "/workers").text(), "5050", "{set:?}");
        // The handler's panic ends the connection, as net/http has it.
        assert_eq!(server.get("guest", "/panic").status(), 502, "{set:?}");
        counts(&server, "1 hello");
    }
}

/// Each request gets two words that no request before it got.
fn never_repeats(server: &Server) {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let answer = server.get("guest", "/");
        let words: Vec<String> = answer.text().split(' ').map(str::to_owned).collect();
        assert_eq!((answer.status(), words.len()), (200, 2), "{answer:?}");
        for word in words {
            assert!(!seen.contains(&word), "{word} comes twice");
            seen.push(word);
        }
    }
}

/// The generator of OpenSSL is seeded when the snapshot is taken.
const NODE_RANDOM: &str = "
const crypto = require('crypto');
crypto.randomBytes(8);
require('http').createServer((request, response) => {
  response.end(`${crypto.randomBytes(16).toString('hex')} ${crypto.randomUUID()}`);
}).listen(3000);
";

#[test]
fn node_draws_other_secrets_for_each_request() {
    if let Some(server) = serve(found("node", &["-p", "process.execPath"]), NODE_RANDOM, "") {
        never_repeats(&server);
    }
}

const PYTHON_RANDOM: &str = "
import secrets, uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = f'{secrets.token_hex(16)} {uuid.uuid4()}'.encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
secrets.token_hex(16), uuid.uuid4()
HTTPServer(('', 8000), Handler).serve_forever()
";

#[test]
fn python_draws_other_secrets_for_each_request() {
    let python = found("python3", &["-c", "import sys; print(sys.executable)"]);
    if let Some(server) = serve(python, PYTHON_RANDOM, "") {
        never_repeats(&server);
    }
}
