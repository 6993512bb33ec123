//! curl as a client: HTTP/1.1 and HTTP/2, over TCP, TLS and Unix sockets.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::{Head, Response, Run, message};

/// A call of curl in the making.
pub struct Curl {
    command: Command,
    body: Vec<u8>,
    url: String,
    files: TempDir,
}

/// What curl got.
#[derive(Debug, Clone)]
pub struct Got {
    /// The version in the status line: `1.1` or `2`.
    pub version: String,
    /// The final response.
    pub response: Response,
    /// The interim responses before it.
    pub interim: Vec<Head>,
}

impl Curl {
    /// A request for `url`, whatever its host, to where a server listens: an address, or
    /// `unix:` and a path.
    ///
    /// # Panics
    /// If there is no place for temporary files.
    pub fn new(address: &str, url: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--no-buffer",
            "--max-time",
            "60",
            "--noproxy",
            "*",
        ]);
        match address.strip_prefix("unix:") {
            Some(path) => command.args(["--unix-socket", path]),
            None => command.args(["--connect-to", &format!("::{address}")]),
        };
        Self { command, body: Vec::new(), url: url.to_owned(), files }
    }

    /// HTTP/2 from the first byte, without TLS.
    #[must_use]
    pub fn h2c(self) -> Self {
        self.arg("--http2-prior-knowledge")
    }

    /// Trusts the authority that signed this certificate.
    #[must_use]
    pub fn trusting(self, certificate: &Path) -> Self {
        self.arg("--cacert").arg(certificate.to_str().expect("a path that is text"))
    }

    /// Any argument of curl's.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(self, field: &str) -> Self {
        self.arg("--header").arg(field)
    }

    /// Sends a body, with POST unless `--request` says otherwise.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.arg("--data-binary").arg("@-")
    }

    /// Sets what its standard input is, for an argument that reads it.
    #[must_use]
    pub fn piped(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.body = input.into();
        self
    }

    /// Runs it; `Err` with curl's exit code and what it says if it got no whole response.
    pub fn run(mut self) -> Result<Got, (i32, String)> {
        let (heads, body) = (self.files.path().join("heads"), self.files.path().join("body"));
        self.command.arg("--dump-header").arg(&heads).arg("--output").arg(&body).arg(&self.url);
        let run = Run::of(&mut self.command, &self.body);
        match run.code {
            Some(0) => {}
            code => return Err((code.unwrap_or(-1), run.stderr)),
        }
        let heads = fs::read_to_string(heads).unwrap_or_default();
        let body = fs::read(body).unwrap_or_default();
        Ok(got(&heads, body))
    }

    /// Runs it.
    ///
    /// # Panics
    /// If it got no whole response.
    pub fn get(self) -> Got {
        self.run().unwrap_or_else(|(code, text)| panic!("curl exited with {code}: {text}"))
    }
}

impl Got {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.response.status()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        self.response.text()
    }
}

/// Takes what `--dump-header` wrote apart: heads, and the trailers behind the last.
fn got(text: &str, body: Vec<u8>) -> Got {
    let mut heads = Vec::new();
    let mut trailers = Vec::new();
    let mut version = String::new();
    for block in text.split("\r\n\r\n").filter(|block| !block.trim().is_empty()) {
        let block = format!("{}\r\n\r\n", block.trim_start_matches("\r\n"));
        if block.starts_with("HTTP/") {
            let (line, fields) = block.split_once("\r\n").expect("lines end");
            let mut words = line.trim_start_matches("HTTP/").split(' ');
            version = words.next().unwrap_or_default().to_owned();
            let status = words.next().and_then(|digits| digits.parse().ok());
            heads.push(Head {
                status: status.unwrap_or_else(|| panic!("not a status line: {line}")),
                headers: message::read_fields(&mut fields.as_bytes()).expect("fields"),
            });
        } else {
            trailers = message::read_fields(&mut block.as_bytes()).expect("fields");
        }
    }
    let head = heads.pop().expect("curl got a head");
    Got { version, response: Response { head, body, trailers }, interim: heads }
}
