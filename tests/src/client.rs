//! A client over a plain socket: every byte that it sends is the test's.

use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::{fd::AsFd as _, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags};

use crate::{
    PATIENCE,
    message::{self, Framing, Head, Response},
};

/// A request in the making.
#[derive(Debug, Clone)]
pub struct Request {
    method: String,
    text: String,
    body: Vec<u8>,
    framed: bool,
}

impl Request {
    /// A request to a tenant that answers at `<tenant>.test`, or at the authority itself if the
    /// name has a dot.
    pub fn new(method: &str, tenant: &str, target: &str) -> Self {
        let suffix = if tenant.contains('.') { "" } else { ".test" };
        let text = format!("{method} {target} HTTP/1.1\r\nhost: {tenant}{suffix}\r\n");
        Self { method: method.to_owned(), text, body: Vec::new(), framed: false }
    }

    /// A `GET`.
    pub fn get(tenant: &str, target: &str) -> Self {
        Self::new("GET", tenant, target)
    }

    /// Adds a header field. Nothing is checked.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.framed |= matches!(name, "content-length" | "transfer-encoding");
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{name}: {value}\r\n");
        self
    }

    /// Sets the body. `content-length` is added unless the framing was set by hand.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = self.text.clone();
        if !self.framed && !self.body.is_empty() {
            let _ = write!(text, "content-length: {}\r\n", self.body.len());
        }
        text.push_str("\r\n");
        [text.as_bytes(), &self.body].concat()
    }
}

/// A connected socket.
pub enum Socket {
    /// Of an IP address.
    Tcp(TcpStream),
    /// Of a path.
    Unix(UnixStream),
}

/// Nothing came within the time that was set.
fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Socket {
    fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    fn patient(self) -> io::Result<Self> {
        match &self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
            }
        }
        Ok(self)
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
        })
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(how),
            Self::Unix(stream) => stream.shutdown(how),
        }
    }
}

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl io::Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
        }
    }
}

/// A connection.
pub struct Client {
    stream: BufReader<Socket>,
    /// How what is left of the response that is being read is delimited.
    framing: Framing,
}

impl Client {
    /// Connects.
    ///
    /// # Panics
    /// If nobody listens.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"))
    }

    /// As [`Client::connect`], where there may be nobody.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::over(Socket::Tcp(TcpStream::connect(address)?)))
    }

    /// Connects to a Unix socket.
    ///
    /// # Panics
    /// If nobody listens.
    pub fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {error}", path.display()));
        Self::over(Socket::Unix(stream))
    }

    fn over(socket: Socket) -> Self {
        let socket = socket.patient().expect("a socket has timeouts");
        Self { stream: BufReader::new(socket), framing: Framing::Length(0) }
    }

    /// Sends bytes, which need not be a whole request.
    ///
    /// # Panics
    /// If the server does not take them.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// As [`Client::send`], for a server that may have closed the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Sends a request and reads its response.
    pub fn ask(&mut self, request: &Request) -> Response {
        self.send(&request.bytes());
        self.response(&request.method)
    }

    /// Reads a whole response to a request with this method; interim ones are skipped.
    ///
    /// # Panics
    /// If it is cut off or not well formed.
    pub fn response(&mut self, method: &str) -> Response {
        self.try_response(method).unwrap_or_else(|error| panic!("no response: {error}"))
    }

    /// As [`Client::response`], for one that may be cut off.
    pub fn try_response(&mut self, method: &str) -> io::Result<Response> {
        let head = self.try_head(method)?;
        let mut body = Vec::new();
        loop {
            let piece = self.try_piece()?;
            if piece.is_empty() {
                break;
            }
            body.extend(piece);
        }
        let trailers = match self.framing {
            Framing::Chunked => message::read_fields(&mut self.stream)?,
            Framing::Length(_) | Framing::Close => Vec::new(),
        };
        Ok(Response { head, body, trailers })
    }

    /// Reads the head of a response, and gets ready to read its body.
    pub fn try_head(&mut self, method: &str) -> io::Result<Head> {
        let head = loop {
            let head = message::read_head(&mut self.stream)?;
            if head.status >= 200 {
                break head;
            }
        };
        self.framing = head.framing(method)?;
        Ok(head)
    }

    /// The next piece of the body: a chunk, or what has arrived. Empty at the end, which is where
    /// trailers begin.
    pub fn try_piece(&mut self) -> io::Result<Vec<u8>> {
        match &mut self.framing {
            Framing::Chunked => message::read_chunk(&mut self.stream),
            Framing::Length(0) => Ok(Vec::new()),
            Framing::Length(left) => {
                let mut piece = vec![0; (*left).min(1 << 16) as usize];
                let length = self.stream.read(&mut piece)?;
                if length == 0 {
                    let what = format!("{left} bytes are missing");
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
                *left -= length as u64;
                piece.truncate(length);
                Ok(piece)
            }
            Framing::Close => {
                let mut rest = Vec::new();
                self.stream.read_to_end(&mut rest)?;
                Ok(rest)
            }
        }
    }

    /// Reads body until so many bytes have come.
    ///
    /// # Panics
    /// If the body ends before.
    pub fn body_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < count {
            let piece = self.try_piece().unwrap_or_else(|error| panic!("body: {error}"));
            assert!(!piece.is_empty(), "the body ends after {} of {count} bytes", body.len());
            body.extend(piece);
        }
        body
    }

    /// Reads a line of a head.
    ///
    /// # Panics
    /// If there is none.
    pub fn line(&mut self) -> String {
        message::read_line(&mut self.stream).unwrap_or_else(|error| panic!("no line: {error}"))
    }

    /// Waits up to this long for something to read; `Some` if there is, or if the connection has ended.
    /// How a client that trickles paces itself.
    ///
    /// # Panics
    /// If the socket cannot be set.
    pub fn wait(&mut self, time: Duration) -> Option<()> {
        let set = |stream: &Socket, time| stream.set_read_timeout(time).expect("it can be set");
        set(self.stream.get_ref(), time);
        let ready = match self.stream.fill_buf() {
            Err(error) if is_timeout(&error) => None,
            _ => Some(()),
        };
        set(self.stream.get_ref(), PATIENCE);
        ready
    }

    /// Waits, reading nothing, until the server has ended the connection.
    ///
    /// # Panics
    /// If patience ends before.
    pub fn wait_cut(&self) {
        let socket = match self.stream.get_ref() {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        };
        let mut sockets = [PollFd::new(&socket, PollFlags::RDHUP)];
        let patience = PATIENCE.try_into().expect("a minute");
        let ready = rustix::event::poll(&mut sockets, Some(&patience)).expect("it can be polled");
        assert!(ready > 0, "the server does not end the connection");
    }

    /// Reads so many bytes, whatever they belong to.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        message::read_exactly(&mut self.stream, count as u64)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// The sending side, for a thread of its own.
    ///
    /// # Panics
    /// If the process has too many descriptors.
    pub fn writer(&self) -> Socket {
        self.stream.get_ref().try_clone().expect("a socket can be cloned")
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) {
        // The server may be gone already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// Everything that comes until the server closes; an error counts as that.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset after data is still the end.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }
}
