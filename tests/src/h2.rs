//! HTTP/2 frames over a plain socket, each byte of them the test's (RFC 9113).
//!
//! Heads are encoded as literals without indexing, and responses are asked for without the dynamic table
//! (RFC 7541), so that all that has to be decoded of them is the status.

use std::{
    io::{self, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
};

use crate::PATIENCE;

/// What an HTTP/2 connection begins with.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames (RFC 9113 §6).
pub mod kind {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const NONE: u8 = 0;
    pub const ACK: u8 = 1;
    pub const END_STREAM: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 0x20;
}

/// Error codes (RFC 9113 §7).
pub mod code {
    #![allow(missing_docs, reason = "the names are the standard's")]
    pub const NO_ERROR: u32 = 0;
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const FLOW_CONTROL_ERROR: u32 = 3;
    pub const STREAM_CLOSED: u32 = 5;
    pub const FRAME_SIZE_ERROR: u32 = 6;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
    pub const COMPRESSION_ERROR: u32 = 9;
    pub const ENHANCE_YOUR_CALM: u32 = 11;
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: u8,
    /// Its flags.
    pub flags: u8,
    /// Its stream; 0 for the connection.
    pub stream: u32,
    /// What is in it.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Any frame.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    /// A whole head.
    pub fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Self {
        Self::new(kind::HEADERS, flags | flag::END_HEADERS, stream, block(fields))
    }

    /// Settings, from pairs of number and value.
    pub fn settings(values: &[(u16, u32)]) -> Self {
        let bytes = values.iter().flat_map(|(id, value)| {
            let mut entry = id.to_be_bytes().to_vec();
            entry.extend(value.to_be_bytes());
            entry
        });
        Self::new(kind::SETTINGS, 0, 0, bytes.collect::<Vec<_>>())
    }

    /// The bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.payload.len()).expect("a frame's length has 24 bits");
        let mut bytes = length.to_be_bytes()[1..].to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_be_bytes());
        bytes.extend(&self.payload);
        bytes
    }

    /// The code in a RST_STREAM or GOAWAY.
    pub fn code(&self) -> Option<u32> {
        let at = match self.kind {
            kind::RST_STREAM => 0,
            kind::GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?;
        bytes.try_into().ok().map(u32::from_be_bytes)
    }

    /// Whether it is the last of its stream.
    pub fn is_last(&self) -> bool {
        matches!(self.kind, kind::DATA | kind::HEADERS) && self.flags & flag::END_STREAM != 0
    }

    /// The status in a head, which comes first.
    pub fn status(&self) -> Option<u16> {
        if self.kind != kind::HEADERS {
            return None;
        }
        let block = match self.payload.as_slice() {
            // A change of the table's size, which answers ours.
            [first, rest @ ..] if first & 0xe0 == 0x20 => rest,
            all => all,
        };
        match block {
            // RFC 7541 appendix A: the static table knows some.
            [first @ 0x88..=0x8e, ..] => {
                Some([200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)])
            }
            [0x08 | 0x18 | 0x48, length, digits @ ..] if length & 0x80 == 0 => {
                std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok()
            }
            [0x08 | 0x18 | 0x48, length, digits @ ..] => {
                number(digits.get(..usize::from(length & 0x7f))?)
            }
            _ => None,
        }
    }
}

/// Three digits in the code of RFC 7541 appendix B.
fn number(bytes: &[u8]) -> Option<u16> {
    let bits = bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let mut left = 8 * u32::try_from(bytes.len()).ok()?;
    let mut number = 0;
    for _ in 0..3 {
        let take =
            |count: u32| left.checked_sub(count).map(|rest| bits >> rest & ((1 << count) - 1));
        let (digit, used) = match take(5)? {
            short @ 0..=2 => (short, 5),
            _ => (take(6)?.checked_sub(0b01_1001)? + 3, 6),
        };
        left -= used;
        number = number * 10 + u16::try_from(digit).ok()?;
    }
    Some(number)
}

/// Fields as literals without indexing. Nothing is checked.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// RFC 7541 §5.1, with a prefix of 7 bits.
fn integer(to: &mut Vec<u8>, value: usize) {
    let Some(mut rest) = value.checked_sub(127) else {
        to.push(value as u8);
        return;
    };
    to.push(127);
    while rest >= 128 {
        to.push(rest as u8 | 128);
        rest >>= 7;
    }
    to.push(rest as u8);
}

/// The head of a `GET`.
pub fn get<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    request("GET", authority, path)
}

/// The head of a request.
pub fn request<'a>(method: &'a str, authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", authority), (":path", path)]
}

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With a whole response.
    Response {
        /// Its status.
        status: u16,
        /// Its body.
        body: Vec<u8>,
    },
    /// With RST_STREAM and this code.
    Reset(u32),
    /// With the connection: GOAWAY and this code, if there was one.
    Closed(Option<u32>),
}

impl End {
    /// The status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Response { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// A connection.
pub struct Connection {
    stream: BufReader<TcpStream>,
    away: Option<u32>,
}

impl Connection {
    /// Connects, and sends nothing.
    ///
    /// # Panics
    /// If nobody listens.
    pub fn bare(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("cannot connect to {address}: {error}"));
        let set = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
            .and_then(|()| stream.set_nodelay(true));
        set.expect("a socket has timeouts");
        Self { stream: BufReader::new(stream), away: None }
    }

    /// Connects with preface and settings: no dynamic table, and these.
    pub fn with(address: SocketAddr, settings: &[(u16, u32)]) -> Self {
        let mut connection = Self::bare(address);
        let settings = [&[(1, 0)], settings].concat();
        connection.send(PREFACE);
        connection.frame(&Frame::settings(&settings));
        connection
    }

    /// Connects with preface and settings.
    pub fn open(address: SocketAddr) -> Self {
        Self::with(address, &[])
    }

    /// Sends bytes. The server may have closed the connection, which shows when it is read.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends a frame. Whether the server took it.
    pub fn frame(&mut self, frame: &Frame) -> bool {
        self.send(&frame.bytes())
    }

    /// Its socket, for a test that writes what does not wait.
    ///
    /// # Panics
    /// If the process has too many descriptors.
    pub fn socket(&self) -> TcpStream {
        self.stream.get_ref().try_clone().expect("a socket can be cloned")
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&self) {
        // The server may be gone already.
        let _ = self.stream.get_ref().shutdown(Shutdown::Write);
    }

    /// The next frame; `None` at the end of the connection, however it ends. Settings and pings are
    /// answered, and a GOAWAY is remembered.
    pub fn receive(&mut self) -> Option<Frame> {
        let frame = self.read().ok()?;
        match frame.kind {
            kind::SETTINGS if frame.flags & flag::ACK == 0 => {
                self.frame(&Frame::new(kind::SETTINGS, flag::ACK, 0, []));
            }
            kind::PING if frame.flags & flag::ACK == 0 => {
                self.frame(&Frame::new(kind::PING, flag::ACK, 0, frame.payload.clone()));
            }
            kind::GOAWAY => self.away = frame.code(),
            _ => {}
        }
        Some(frame)
    }

    fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.stream.read_exact(&mut payload)?;
        Ok(Frame { kind, flags, stream: u32::from_be_bytes(stream) & 0x7fff_ffff, payload })
    }

    /// Reads until a frame fits; `None` if the connection ends before.
    pub fn until(&mut self, mut fits: impl FnMut(&Frame) -> bool) -> Option<Frame> {
        loop {
            let frame = self.receive()?;
            if fits(&frame) {
                return Some(frame);
            }
        }
    }

    /// Reads a stream to its end, and gives the server room for more of it.
    pub fn end_of(&mut self, stream: u32) -> End {
        let (mut status, mut body) = (0, Vec::new());
        while let Some(frame) = self.receive() {
            if frame.stream != stream {
                continue;
            }
            match frame.kind {
                kind::RST_STREAM => return End::Reset(frame.code().unwrap_or(u32::MAX)),
                kind::HEADERS => status = frame.status().unwrap_or(status),
                kind::DATA if !frame.payload.is_empty() => {
                    let room = (frame.payload.len() as u32).to_be_bytes();
                    self.frame(&Frame::new(kind::WINDOW_UPDATE, 0, 0, room));
                    if !frame.is_last() {
                        self.frame(&Frame::new(kind::WINDOW_UPDATE, 0, stream, room));
                    }
                    body.extend(&frame.payload);
                }
                _ => {}
            }
            if frame.is_last() {
                return End::Response { status, body };
            }
        }
        End::Closed(self.away)
    }

    /// A `GET` on this stream, to its end.
    pub fn get(&mut self, stream: u32, authority: &str, path: &str) -> End {
        self.frame(&Frame::headers(stream, flag::END_STREAM, &get(authority, path)));
        self.end_of(stream)
    }

    /// Reads until the server closes the connection. The code of its GOAWAY, if it sent one.
    pub fn closed(&mut self) -> Option<u32> {
        while self.receive().is_some() {}
        self.away
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_read_in_each_way_they_are_written() {
        let status = |payload: &[u8]| Frame::new(kind::HEADERS, 0, 1, payload).status();
        assert_eq!(status(&[0x88]), Some(200));
        assert_eq!(status(&[0x20, 0x8d, 0x00]), Some(404));
        assert_eq!(status(b"\x08\x03502"), Some(502));
        // RFC 7541 §C.6.1 and §C.6.2.
        assert_eq!(status(&[0x48, 0x82, 0x64, 0x02]), Some(302));
        assert_eq!(status(&[0x48, 0x83, 0x64, 0x0e, 0xff]), Some(307));
    }

    #[test]
    fn long_strings_have_long_lengths() {
        let mut bytes = Vec::new();
        for value in [10, 127, 128, 1337] {
            integer(&mut bytes, value);
        }
        assert_eq!(bytes, [10, 127, 0, 127, 1, 127, 0xba, 0x09]);
    }
}
