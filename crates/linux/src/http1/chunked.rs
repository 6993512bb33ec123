//! The chunked transfer coding (RFC 9112 §7.1), taken apart as it arrives.

use http::HeaderMap;

use super::{BadResponse, response::fields};

/// The longest line with a chunk's size, in bytes: its extensions are ignored.
const MAX_LINE: usize = 1024;

/// The most bytes of trailers.
const MAX_TRAILERS: usize = sandtide_abi::field::MAX_BYTES;

/// Where in a chunked body the next byte lies.
#[derive(Debug)]
enum At {
    /// In the digits of a size.
    Size { value: u64, digits: u32 },
    /// In what follows them on their line, which is so long.
    Extension { value: u64, length: usize },
    /// At the line feed of that line.
    SizeEnd { value: u64 },
    /// In the data of a chunk, of which so much is left.
    Data(u64),
    /// At the carriage return behind the data.
    DataEnd,
    /// At the line feed behind that.
    LineEnd,
    /// In the trailers, up to and with the empty line that ends them.
    Trailers(Vec<u8>),
    /// Behind the end.
    Over,
}

/// Takes a chunked body apart.
#[derive(Debug)]
pub(super) struct Chunks {
    at: At,
}

/// What comes next in a chunked body.
#[derive(Debug)]
pub(super) enum Piece {
    /// So many bytes of what is there were framing.
    Framing(usize),
    /// So many bytes of what is there are data.
    Data(usize),
    /// So many bytes of what is there were framing, and the body ends behind them.
    End(usize, Option<HeaderMap>),
}

impl Chunks {
    pub(super) fn new() -> Self {
        Self { at: At::Size { value: 0, digits: 0 } }
    }

    /// What the first of `bytes` are, which must not be empty. They are taken.
    pub(super) fn next(&mut self, bytes: &[u8]) -> Result<Piece, BadResponse> {
        let mut taken = 0;
        for byte in bytes {
            match &mut self.at {
                At::Data(left) => {
                    if taken > 0 {
                        return Ok(Piece::Framing(taken));
                    }
                    let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= length as u64;
                    if *left == 0 {
                        self.at = At::DataEnd;
                    }
                    return Ok(Piece::Data(length));
                }
                At::Trailers(block) => {
                    block.push(*byte);
                    taken += 1;
                    if block.len() > MAX_TRAILERS {
                        return Err(BadResponse::HeadTooLong { limit: MAX_TRAILERS });
                    }
                    if block.ends_with(b"\r\n\r\n") || block == b"\r\n" {
                        let trailers = trailers(block)?;
                        self.at = At::Over;
                        return Ok(Piece::End(taken, trailers));
                    }
                }
                _ => {
                    self.frame(*byte)?;
                    taken += 1;
                }
            }
        }
        Ok(Piece::Framing(taken))
    }

    /// Takes a byte of framing.
    fn frame(&mut self, byte: u8) -> Result<(), BadResponse> {
        let bad = |what| Err(BadResponse::BadChunk(what));
        self.at = match (&self.at, byte) {
            (At::Size { value, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if *digits == 15 {
                    return bad("its size has too many digits");
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                At::Size { value: value << 4 | u64::from(digit), digits: digits + 1 }
            }
            (At::Size { digits: 0, .. }, _) => return bad("its size is no number"),
            (At::Size { value, .. } | At::Extension { value, .. }, b'\r') => {
                At::SizeEnd { value: *value }
            }
            (At::Size { value, .. }, b';' | b' ' | b'\t') => {
                At::Extension { value: *value, length: 1 }
            }
            (At::Size { .. }, _) => return bad("its size is no number"),
            (At::Extension { length, .. }, _) if *length == MAX_LINE => {
                return bad("its extensions are too long");
            }
            (At::Extension { .. }, 0..=8 | 10..=31 | 127) => {
                return bad("its extensions have a control character");
            }
            (At::Extension { value, length }, _) => {
                At::Extension { value: *value, length: length + 1 }
            }
            (At::SizeEnd { value: 0 }, b'\n') => At::Trailers(Vec::new()),
            (At::SizeEnd { value }, b'\n') => At::Data(*value),
            (At::DataEnd, b'\r') => At::LineEnd,
            (At::LineEnd, b'\n') => At::Size { value: 0, digits: 0 },
            (At::DataEnd | At::LineEnd, _) => return bad("it is longer than its size"),
            _ => return bad("its line does not end with CR LF"),
        };
        Ok(())
    }
}

/// The trailers in a block with its empty line.
fn trailers(block: &[u8]) -> Result<Option<HeaderMap>, BadResponse> {
    if block == b"\r\n" {
        return Ok(None);
    }
    let mut room = [httparse::EMPTY_HEADER; 64];
    match httparse::parse_headers(block, &mut room) {
        Ok(httparse::Status::Complete((length, headers))) if length == block.len() => {
            fields(headers).map(Some)
        }
        Ok(_) => Err(BadResponse::Malformed(httparse::Error::HeaderName)),
        Err(httparse::Error::TooManyHeaders) => Err(BadResponse::TooManyHeaders { limit: 64 }),
        Err(error) => Err(BadResponse::Malformed(error)),
    }
}
