//! Building, running under QEMU user mode, and talking plain HTTP.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Stdio},
    time::Duration,
};

use sandtide_build::{BuildError, BuildOptions, CompilerChoice, Output};

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A build of one source in a cache of its own, and what it said.
pub struct Built {
    pub result: Result<Output, BuildError>,
    pub said: Vec<String>,
}

pub fn build(source: &Path, scratch: &Path, compiler: CompilerChoice) -> Built {
    let mut said = Vec::new();
    let options = BuildOptions {
        output: Some(scratch.join("program.elf")),
        compiler,
        cache: Some(scratch.join("cache")),
        project: Some(root()),
        ..BuildOptions::default()
    };
    let result = sandtide_build::build(source, &options, &mut |line| said.push(line.to_owned()));
    Built { result, said }
}

/// The program, or `None` if a tool is missing on this machine. With `SANDTIDE_REQUIRE_TOOLCHAIN`
/// set, a missing tool is a failure.
pub fn program(source: &Path, scratch: &Path, compiler: CompilerChoice) -> Option<PathBuf> {
    let built = build(source, scratch, compiler);
    match built.result {
        Ok(output) => Some(output.program),
        Err(error @ (BuildError::NoCompiler { .. } | BuildError::NoPythran { .. })) => {
            skip(&error.to_string());
            None
        }
        Err(error) => panic!("{error}\n{}", built.said.join("\n")),
    }
}

/// Whether QEMU user mode is here.
pub fn has_qemu() -> bool {
    let found = Command::new("qemu-riscv64").arg("--version").stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skip("qemu-riscv64 is not installed");
    }
    found
}

fn skip(why: &str) {
    let required = std::env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_some_and(|v| v != "0");
    assert!(!required, "{why}");
    eprintln!("SKIPPED: {why}");
}

/// A program that serves plain HTTP by itself, until it is dropped.
pub struct Server {
    child: Child,
    port: u16,
    /// Open as long as the program may write to it.
    _stderr: BufReader<ChildStderr>,
}

impl Server {
    pub fn start(program: &Path) -> Self {
        let mut child = Command::new("qemu-riscv64")
            .arg(program)
            .env("PORT", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let port = line.trim_end().rsplit(':').next().unwrap().parse().expect(&line);
        Self { child, port, _stderr: stderr }
    }

    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Connection { stream, seen: Vec::new() }
    }

    /// Sends bytes and returns all that comes back until the server closes.
    pub fn exchange(&self, request: &str) -> String {
        let mut connection = self.connect();
        connection.send(request);
        connection.rest()
    }

    /// The first line that the program prints.
    pub fn first_line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct Connection {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Connection {
    pub fn send(&mut self, bytes: &str) {
        // The server may have refused the request already.
        let _ = self.stream.write_all(bytes.as_bytes());
    }

    /// Reads until what came ends with `end`.
    pub fn expect(&mut self, end: &str) {
        let mut byte = [0];
        while !self.seen.ends_with(end.as_bytes()) {
            match self.stream.read(&mut byte) {
                Ok(1) => self.seen.push(byte[0]),
                other => panic!("{other:?} after {}", self.seen.escape_ascii()),
            }
        }
    }

    pub fn rest(mut self) -> String {
        let result = self.stream.read_to_end(&mut self.seen);
        let text = String::from_utf8_lossy(&self.seen).into_owned();
        assert!(result.is_ok(), "{result:?} after {text:?}");
        text
    }
}

/// The status, the head and the body of the only response in `text`.
pub fn split(text: &str) -> (u16, &str, String) {
    let (head, body) = text.split_once("\r\n\r\n").expect(text);
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    if !head.contains("transfer-encoding: chunked") {
        return (status, head, body.to_owned());
    }
    let (mut rest, mut whole) = (body, String::new());
    loop {
        let (size, data) = rest.split_once("\r\n").expect("a chunk's size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            // Trailers stay visible behind the body.
            whole.push_str(data);
            return (status, head, whole);
        }
        whole.push_str(&data[..size]);
        rest = data[size..].strip_prefix("\r\n").expect("a chunk's end");
    }
}
