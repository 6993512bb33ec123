//! Random numbers are other ones in each request, whoever draws them: docs/sockets.md.

use std::{collections::HashSet, fs, path::PathBuf, process::Command};

use sandtide_tests::{
    Client, Request, Server, binary::top, guest, guest::native, tools::installed,
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
    serve_with(interpreter, &[], script, lines)
}

fn serve_with(
    interpreter: Option<PathBuf>,
    args: &[&str],
    script: &str,
    lines: &str,
) -> Option<Server> {
    // Whether there is KVM, as any native program shows.
    native(&top().join("tests/guests/exit_code.c"))?;
    let interpreter = interpreter?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("script"), script).expect("the directory is ours");
    let path = directory.path();
    let args = [args, &["/srv/script"]].concat();
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {interpreter:?}\n\
         args = {args:?}\nfiles = {{ \"/srv\" = {path:?} }}\n\
         warmup = {{ requests = 20 }}\n{lines}\n\
         [tenants.guest.limits]\nboot_time = \"60 s\"\nmemory = \"1 GiB\"\nthreads = 64\n\
         descriptors = 256\n"
    ));
    // It is loaded with the first request, which needs the file.
    assert_eq!(server.get("guest", "/first").status(), 200);
    Some(server)
}

fn node() -> Option<PathBuf> {
    found("node", &["-p", "process.execPath"])
}

fn python() -> Option<PathBuf> {
    found("python3", &["-c", "import sys; print(sys.executable)"])
}

/// The words of so many answers, all of the same number.
fn words(server: &Server, target: &str, requests: usize) -> Vec<Vec<String>> {
    let mut client: Client = server.connect();
    let mut all: Vec<Vec<String>> = Vec::new();
    for _ in 0..requests {
        let answer = client.ask(&Request::get("guest", target));
        let words: Vec<String> = answer.text().split(' ').map(str::to_owned).collect();
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert!(all.first().is_none_or(|first| first.len() == words.len()), "{words:?}");
        all.push(words);
    }
    all
}

fn never_repeats(server: &Server, target: &str, requests: usize) {
    let mut seen = HashSet::new();
    for word in words(server, target, requests).into_iter().flatten() {
        assert!(!seen.contains(&word), "{word} comes twice");
        seen.insert(word);
    }
}

const NODE: &str = "
const crypto = require('crypto');
const { random } = Math;
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) {
  parentPort.on('message', () => parentPort.postMessage([Math.random(), crypto.randomUUID()]));
} else {
  const worker = new Worker(__filename);
  require('http').createServer((request, response) => {
    const drawn = [
      Math.random(), random(), crypto.randomUUID(), globalThis.crypto.randomUUID(),
      crypto.randomUUID({ disableEntropyCache: true }), crypto.randomInt(2 ** 47),
      crypto.randomInt(5, 2 ** 47), crypto.randomBytes(16).toString('hex'),
      Buffer.from(globalThis.crypto.getRandomValues(new Uint8Array(16))).toString('hex'),
    ];
    crypto.randomInt(2 ** 47, (error, number) => {
      if (request.url === '/') return response.end([...drawn, number].join(' '));
      worker.once('message', more => response.end([...drawn, number, ...more].join(' ')));
      worker.postMessage('');
    });
  }).listen(3000);
}
";

#[test]
fn node_draws_other_numbers_in_each_of_a_thousand_requests() {
    if let Some(server) = serve(node(), NODE, "") {
        never_repeats(&server, "/", 1000);
        never_repeats(&server, "/with-a-worker", 20);
    }
}

/// What a program sees of it is what it sees without.
const NODE_SHAPES: &str = "
const crypto = require('crypto');
const assert = require('assert');
const descriptor = (object, name) => {
  const { value, ...rest } = Object.getOwnPropertyDescriptor(object, name);
  return { ...rest, type: typeof value, name: value.name, length: value.length };
};
for (const name of ['randomInt', 'randomUUID']) {
  const same = { writable: true, enumerable: true, configurable: true, type: 'function', name };
  assert.deepStrictEqual(descriptor(crypto, name), { ...same, length: name === 'randomInt' ? 3 : 1 });
}
assert.deepStrictEqual(descriptor(Math, 'random'), {
  writable: true, enumerable: false, configurable: true, type: 'function', name: 'random', length: 0,
});
for (const wrong of [['5'], [2, 1], [0.5], [2 ** 49], [], [1, 2, 3], [5, 'x']]) {
  assert.throws(() => crypto.randomInt(...wrong), { code: /^ERR_(INVALID_ARG_TYPE|OUT_OF_RANGE)$/ });
}
assert.throws(() => crypto.randomUUID(1), { code: 'ERR_INVALID_ARG_TYPE' });
assert.throws(() => crypto.randomUUID({ disableEntropyCache: 1 }), { code: 'ERR_INVALID_ARG_TYPE' });
assert.throws(() => globalThis.crypto.randomUUID.call({}));
assert.match(globalThis.crypto.randomUUID(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
const counts = [0, 0, 0, 0];
for (let i = 0; i < 40000; i++) {
  const number = Math.random();
  assert(number >= 0 && number < 1);
  counts[Math.floor(number * 4)]++;
  assert.strictEqual(crypto.randomInt(7, 8), 7);
  const die = crypto.randomInt(6);
  assert(Number.isInteger(die) && die >= 0 && die < 6);
}
assert(counts.every(count => Math.abs(count - 10000) < 500), String(counts));
assert.strictEqual(process.env.NODE_OPTIONS.split(' ')[1], '--no-warnings');
import('node:crypto').then(({ randomUUID }) => assert.strictEqual(randomUUID, crypto.randomUUID));
require('http').createServer((request, response) => response.end('ok')).listen(3000);
";

#[test]
fn nodes_functions_are_what_they_were() {
    let lines = "env = { NODE_OPTIONS = \"--no-warnings\" }";
    if let Some(server) = serve(node(), NODE_SHAPES, lines) {
        assert_eq!(server.get("guest", "/").text(), "ok");
    }
}

const BUN: &str = "
const crypto = require('crypto');
const web = globalThis.crypto;
Bun.serve({ port: 3000, fetch() {
  return new Response([
    Math.random(), crypto.randomUUID(), crypto.randomBytes(8).toString('hex'),
    crypto.randomInt(2 ** 47), web.randomUUID(),
    Buffer.from(web.getRandomValues(new Uint8Array(8))).toString('hex'),
  ].join(' '));
} });
";

#[test]
fn bun_draws_other_numbers_in_each_request() {
    if let Some(server) = serve(installed("npm/bin/bun"), BUN, "") {
        never_repeats(&server, "/", 300);
    }
}

const DENO: &str = "
import crypto from 'node:crypto';
Deno.serve(() => new Response([
  Math.random(), crypto.randomUUID(), crypto.randomBytes(8).toString('hex'),
  crypto.randomInt(2 ** 47), globalThis.crypto.randomUUID(),
  Array.from(globalThis.crypto.getRandomValues(new Uint8Array(8))).join('.'),
].join(' ')));
";

#[test]
fn deno_does_so_when_it_is_given_the_hook() {
    let lines = "env = { DENO_DIR = \"/tmp\" }";
    let args = ["run", "--preload=/sandtide/fresh.cjs", "--allow-read=/sandtide/fresh", "-N", "-E"];
    if let Some(server) = serve_with(installed("npm/bin/deno"), &args, DENO, lines) {
        never_repeats(&server, "/", 300);
    }
}

const PYTHON: &str = "
import os, random, secrets, ssl, uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from random import random as captured
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        drawn = [
            random.random(), captured(), random.getrandbits(64), random.gauss(0, 1),
            random.randbytes(8).hex(), random.choice(range(10 ** 15)), uuid.uuid4(),
            secrets.token_hex(8), os.urandom(8).hex(), ssl.RAND_bytes(8).hex(),
        ]
        body = ' '.join(map(str, drawn)).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
HTTPServer(('', 8000), Handler).serve_forever()
";

#[test]
fn python_draws_other_numbers_in_each_of_a_thousand_requests() {
    if let Some(server) = serve(python(), PYTHON, "") {
        never_repeats(&server, "/", 1000);
    }
}

/// A seed that is set in a request is kept, and the program's own `sitecustomize` is loaded.
const PYTHON_SEEDED: &str = "
import os, random, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import sitecustomize
random.seed(1)
class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        random.seed(5)
        first, state = random.random(), random.getstate()
        again = random.random()
        random.setstate(state)
        drawn = [first, again == random.random(), sitecustomize.OURS, os.environ.get('PYTHONPATH'),
                 any('sandtide' in path for path in sys.path)]
        body = ' '.join(map(str, drawn)).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
HTTPServer(('', 8000), Handler).serve_forever()
";

#[test]
fn pythons_own_seeds_and_hooks_are_kept() {
    let own = tempfile::tempdir().expect("a temporary directory");
    fs::write(own.path().join("sitecustomize.py"), "OURS = 'ours'").expect("the directory is ours");
    let Some(python) = python() else { return };
    let script = own.path().join("script");
    fs::write(&script, PYTHON_SEEDED).expect("the directory is ours");
    if native(&top().join("tests/guests/exit_code.c")).is_none() {
        return;
    }
    let directory = own.path();
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {python:?}\n\
         args = [\"/own/script\"]\nfiles = {{ \"/own\" = {directory:?} }}\n\
         env = {{ PYTHONPATH = \"/own\" }}\n\
         [tenants.guest.limits]\nboot_time = \"60 s\"\nmemory = \"1 GiB\"\n"
    ));
    for _ in 0..3 {
        let answer = server.get("guest", "/");
        assert_eq!(answer.text(), "0.6229016948897019 True ours /own False", "{answer:?}");
    }
}

/// Without it, the tests above would see what they look for.
#[test]
fn a_tenant_can_do_without() {
    let script = "
require('http').createServer((request, response) => {
  response.end(`${Math.random()} ${process.env.NODE_OPTIONS}`);
}).listen(3000);
";
    let Some(server) = serve(node(), script, "reseed = false") else { return };
    let all = words(&server, "/", 3);
    assert!(all.iter().all(|words| *words == all[0] && words[1] == "undefined"), "{all:?}");
}

#[test]
fn any_program_can_have_memory_kept_fresh_or_wiped() {
    let source = top().join("tests/guests/suite_sockets.c");
    let programs = [("riscv", guest("suite_sockets.c")), ("kvm", native(&source))];
    for (engine, program) in programs {
        let Some(program) = program else { continue };
        let server = Server::start(&format!(
            "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {program:?}\n\
             env = {{ MODE = \"epoll\" }}\n"
        ));
        let mut seen = HashSet::new();
        for _ in 0..100 {
            let answer = server.get("guest", "/fresh");
            let (bytes, rest) = answer.text().split_once(' ').expect("two words");
            assert_eq!((bytes.len(), rest), (32, " kept"), "{engine}: {answer:?}");
            assert!(!bytes.starts_with("00") && seen.insert(bytes.to_owned()), "{engine}: {bytes}");
        }
    }
}
