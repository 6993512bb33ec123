//! A server with scripted guests, and a client that sees the bytes.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use sandtide_http::{Certificates, Draining, Listen, Options, Server};
use sandtide_runtime::{Answer, FixedResponse, Route, Runtime, Slot, Table, Tenant, Totals};
use tokio::sync::oneshot;

use crate::fake::{Act, Fake};

/// How long a test waits for what must come. Nothing waits that long unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct TestServer {
    pub address: SocketAddr,
    pub fake: Arc<Fake>,
    draining: Draining,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Totals>>,
}

/// Serves the scripts for `Host: shop.test`, and a fixed response for `fixed.test`.
pub fn serve(
    scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>,
    change: impl FnOnce(&mut Tenant, &mut Options),
) -> TestServer {
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    serve_on(address.into(), None, scripts, change)
}

/// The same on another listener.
pub fn serve_on(
    listen: Listen,
    certificates: Option<Arc<Certificates>>,
    scripts: impl IntoIterator<Item = (&'static str, Vec<Act>)>,
    change: impl FnOnce(&mut Tenant, &mut Options),
) -> TestServer {
    let fake = Fake::new(scripts);
    let routes = vec![Route::new("shop.test", "/").unwrap()];
    let mut shop = Tenant::new("shop", routes, Answer::Program(Slot::loaded(fake.clone())));
    let mut options = Options { threads: 1, ..Options::default() };
    change(&mut shop, &mut options);
    let fixed = Answer::Fixed(FixedResponse::text("fixed"));
    let fixed = Tenant::new("fixed", vec![Route::new("fixed.test", "/").unwrap()], fixed);
    let down = Answer::Program(Slot::failed("a secret"));
    let down = Tenant::new("down", vec![Route::new("down.test", "/").unwrap()], down);
    let table = Table::build([shop, fixed, down].map(Arc::new)).unwrap();
    let runtime = Runtime::new(table, Default::default());
    let server = Server::bind(&[listen], certificates, options).unwrap();
    // A Unix socket has none.
    let unspecified = ([0, 0, 0, 0], 0).into();
    let address = server.addresses().first().copied().unwrap_or(unspecified);
    let draining = server.draining();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let stopped = async {
            let _ = stopped.await;
        };
        server.run(runtime, stopped).unwrap()
    });
    TestServer { address, fake, draining, stop: Some(stop), thread: Some(thread) }
}

impl TestServer {
    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, ahead: Vec::new() }
    }

    /// One GET on a new connection.
    pub fn get(&self, path: &str) -> Message {
        let mut client = self.connect();
        client.send(get(path));
        client.response()
    }

    pub fn draining(&self) -> Draining {
        self.draining.clone()
    }

    /// Begins the shutdown.
    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Shuts down and waits for it.
    pub fn stop(mut self) -> Totals {
        self.begin_stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the server panicked");
        }
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: shop.test\r\n\r\n")
}

pub struct Client {
    pub stream: TcpStream,
    ahead: Vec<u8>,
}

/// A response as it came.
#[derive(Debug)]
pub struct Message {
    pub status: u16,
    /// Lines as they were sent, in lower case up to the colon by the server itself.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name);
        let value = values.next();
        assert!(values.next().is_none(), "`{name}` came twice");
        value.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn close_write(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// A response to GET.
    pub fn response(&mut self) -> Message {
        self.try_response(true).expect("a complete response")
    }

    /// A response to HEAD.
    pub fn head_response(&mut self) -> Message {
        self.try_response(false).expect("a complete response")
    }

    /// A response, or how it ended before its end.
    pub fn try_response(&mut self, has_body: bool) -> Result<Message, ErrorKind> {
        let status_line = self.line()?;
        assert!(status_line.starts_with("HTTP/1."), "{status_line}");
        let status = status_line[9..12].parse().unwrap();
        let headers = self.fields()?;
        let mut message = Message { status, headers, body: Vec::new(), trailers: Vec::new() };
        let has_body = has_body && !matches!(status, 100..200 | 204 | 304);
        let length = message.header("content-length").map(|length| length.parse().unwrap());
        match (message.header("transfer-encoding"), length) {
            _ if !has_body => {}
            (Some("chunked"), None) => loop {
                let size = usize::from_str_radix(&self.line()?, 16).unwrap();
                if size == 0 {
                    message.trailers = self.fields()?;
                    break;
                }
                let chunk = self.take(size)?;
                message.body.extend(chunk);
                assert_eq!(self.line()?, "");
            },
            (None, Some(length)) => message.body = self.take(length)?,
            (None, None) => panic!("a response without framing: {message:?}"),
            framing => panic!("two framings: {framing:?}"),
        }
        Ok(message)
    }

    fn fields(&mut self) -> Result<Vec<(String, String)>, ErrorKind> {
        let mut fields = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(fields);
            }
            let (name, value) = line.split_once(':').unwrap();
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> Result<String, ErrorKind> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.ahead.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8(line).unwrap());
            }
            self.fill()?;
        }
    }

    pub fn take(&mut self, length: usize) -> Result<Vec<u8>, ErrorKind> {
        while self.ahead.len() < length {
            self.fill()?;
        }
        Ok(self.ahead.drain(..length).collect())
    }

    /// Everything up to this, and it.
    pub fn take_until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.ahead.windows(end.len()).position(|w| w == end.as_bytes()) {
                return String::from_utf8(self.ahead.drain(..at + end.len()).collect()).unwrap();
            }
            self.fill().unwrap();
        }
    }

    /// Waits for the end of the connection: `Ok` if it was closed, with no more bytes.
    pub fn end(&mut self) -> Result<(), ErrorKind> {
        match self.fill() {
            Err(ErrorKind::UnexpectedEof) => Ok(()),
            Err(other) => Err(other),
            Ok(()) => panic!("more bytes: {:?}", String::from_utf8_lossy(&self.ahead)),
        }
    }

    fn fill(&mut self) -> Result<(), ErrorKind> {
        let mut buffer = [0; 16 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof),
            Ok(n) => {
                self.ahead.extend(&buffer[..n]);
                Ok(())
            }
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::WouldBlock, "nothing came");
                Err(error.kind())
            }
        }
    }
}
