//! A guest's response, read from the bytes that it writes.

use std::mem::MaybeUninit;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use sandtide_engine::Response;

use super::{
    BadResponse,
    chunked::{Chunks, Piece},
    is_hop_by_hop, names_in,
};

/// The most bytes of a head.
const MAX_HEAD: usize = sandtide_abi::field::MAX_BYTES;

/// The most headers of a response.
const MAX_HEADERS: usize = sandtide_abi::field::MAX_COUNT as usize;

/// What is being read.
#[derive(Debug)]
enum Part {
    /// A head, of which these bytes have come.
    Head(Vec<u8>, HeadEnd),
    /// A body of which so many bytes are left.
    Length(u64),
    Chunks(Chunks),
    /// A body that ends where the connection ends.
    UntilClose,
    Over,
}

/// Reads one response, with the interim ones before it.
#[derive(Debug)]
pub struct ResponseReader {
    part: Part,
    /// Whether the request was `HEAD`.
    is_head: bool,
}

impl ResponseReader {
    /// For the answer to a request, which was `HEAD` or not.
    pub fn new(is_head: bool) -> Self {
        Self { part: Part::Head(Vec::new(), HeadEnd::default()), is_head }
    }

    /// Whether the response is complete. What comes behind it is none of it.
    pub fn is_over(&self) -> bool {
        matches!(self.part, Part::Over)
    }

    /// Reads what a guest wrote into the response, and returns how many bytes of it were taken:
    /// all of them, unless the response is over or full.
    pub fn read(&mut self, bytes: &[u8], response: &mut Response) -> Result<usize, BadResponse> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_over() && !response.is_full() {
            taken += self.step(&bytes[taken..], response)?;
        }
        Ok(taken)
    }

    /// The guest will write nothing more.
    pub fn end(&mut self, response: &mut Response) -> Result<(), BadResponse> {
        match &self.part {
            Part::Over => Ok(()),
            Part::UntilClose => self.finish(None, response),
            Part::Head(bytes, _) if bytes.is_empty() => Err(BadResponse::NoAnswer),
            Part::Head(..) | Part::Length(_) | Part::Chunks(_) => Err(BadResponse::Truncated),
        }
    }

    fn step(&mut self, bytes: &[u8], response: &mut Response) -> Result<usize, BadResponse> {
        match &mut self.part {
            Part::Head(before, end) => {
                let Some(length) = end.find(bytes) else {
                    if before.len() + bytes.len() > MAX_HEAD {
                        return Err(BadResponse::HeadTooLong { limit: MAX_HEAD });
                    }
                    before.extend_from_slice(bytes);
                    return Ok(bytes.len());
                };
                let before = std::mem::take(before);
                *end = HeadEnd::default();
                if before.len() + length > MAX_HEAD {
                    return Err(BadResponse::HeadTooLong { limit: MAX_HEAD });
                }
                if before.is_empty() {
                    self.begin(&bytes[..length], response)?;
                } else {
                    self.begin(&[&before[..], &bytes[..length]].concat(), response)?;
                }
                Ok(length)
            }
            Part::Length(left) => {
                let bytes = at_once(bytes);
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                response.write(&bytes[..length])?;
                *left -= length as u64;
                if *left == 0 {
                    self.finish(None, response)?;
                }
                Ok(length)
            }
            Part::UntilClose => {
                let bytes = at_once(bytes);
                response.write(bytes)?;
                Ok(bytes.len())
            }
            Part::Chunks(chunks) => match chunks.next(at_once(bytes))? {
                Piece::Framing(length) => Ok(length),
                Piece::Data(length) => {
                    response.write(&bytes[..length])?;
                    Ok(length)
                }
                Piece::End(length, trailers) => {
                    self.finish(trailers, response)?;
                    Ok(length)
                }
            },
            Part::Over => Ok(0),
        }
    }

    fn finish(
        &mut self,
        trailers: Option<HeaderMap>,
        response: &mut Response,
    ) -> Result<(), BadResponse> {
        response.finish(trailers)?;
        self.part = Part::Over;
        Ok(())
    }

    /// Takes a head.
    fn begin(&mut self, head: &[u8], response: &mut Response) -> Result<(), BadResponse> {
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        match config.parse_response_with_uninit_headers(&mut parsed, head, &mut room) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            // The two do not agree where it ends.
            Ok(_) => return Err(BadResponse::Malformed(httparse::Error::NewLine)),
            Err(httparse::Error::TooManyHeaders) => {
                return Err(BadResponse::TooManyHeaders { limit: MAX_HEADERS });
            }
            Err(error) => return Err(BadResponse::Malformed(error)),
        }
        let status = parsed.code.unwrap_or(0);
        let is_http10 = parsed.version == Some(0);
        let mut headers = fields(parsed.headers)?;
        if status == 101 {
            return Err(BadResponse::Upgrade);
        }
        if (100..200).contains(&status) {
            // 100 is between the guest and us, who did not ask.
            if status != 100 {
                drop_hop_by_hop(&mut headers);
                headers.remove(header::CONTENT_LENGTH);
                response.inform(status, headers)?;
            }
            return Ok(());
        }
        let framing = framing(&headers, is_http10)?;
        drop_hop_by_hop(&mut headers);
        response.begin(status, headers)?;
        self.part = match framing {
            _ if self.is_head || matches!(status, 204 | 304) => Part::Length(0),
            framing => framing,
        };
        if matches!(self.part, Part::Length(0)) {
            self.finish(None, response)?;
        }
        Ok(())
    }
}

/// What is written to a response before it is asked again whether it is full.
fn at_once(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(Response::HIGH_WATER)]
}

/// Looks for the end of a head, in pieces.
///
/// A head ends with an empty line. Lines may end without a carriage return (RFC 9112 §2.2).
#[derive(Debug, Default)]
struct HeadEnd {
    /// The bytes of the line so far.
    line: usize,
    /// Whether it has something else than carriage returns.
    has_text: bool,
    /// Whether there was a line before it.
    is_behind_a_line: bool,
}

impl HeadEnd {
    /// How many of `bytes` belong to the head; `None` if it goes on behind them.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.is_behind_a_line && !self.has_text && self.line < 2 => {
                    return Some(index + 1);
                }
                b'\n' => *self = Self { is_behind_a_line: true, ..Self::default() },
                byte => {
                    self.line += 1;
                    self.has_text |= *byte != b'\r';
                }
            }
        }
        None
    }
}

/// How the body behind these headers is framed (RFC 9112 §6.3).
fn framing(headers: &HeaderMap, is_http10: bool) -> Result<Part, BadResponse> {
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let length = lengths.next();
    if lengths.next().is_some() {
        return Err(BadResponse::TwoLengths);
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        if length.is_some() {
            return Err(BadResponse::LengthAndCoding);
        }
        if is_http10 {
            return Err(BadResponse::CodingInHttp10);
        }
        if codings.next().is_some() || !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            let text = coding.as_bytes().escape_ascii().to_string();
            return Err(BadResponse::UnknownCoding(text));
        }
        return Ok(Part::Chunks(Chunks::new()));
    }
    let Some(length) = length else { return Ok(Part::UntilClose) };
    let digits = length.to_str().unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(length) if is_number => Ok(Part::Length(length)),
        _ => Err(BadResponse::BadLength(length.as_bytes().escape_ascii().to_string())),
    }
}

/// Headers as a map.
pub(super) fn fields(parsed: &[httparse::Header<'_>]) -> Result<HeaderMap, BadResponse> {
    let mut map = HeaderMap::with_capacity(parsed.len());
    for httparse::Header { name, value } in parsed {
        let bad = || BadResponse::BadHeader { name: (*name).to_owned() };
        let value = HeaderValue::from_bytes(value).map_err(|_| bad())?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        map.append(name, value);
    }
    Ok(map)
}

/// Takes out what was said about the guest's connection. `content-length` stays: for a `HEAD` it
/// speaks of the body that a `GET` would have got.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| names_in(value.as_bytes()))
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .collect();
    let hops: Vec<HeaderName> =
        headers.keys().filter(|name| is_hop_by_hop(name.as_str())).cloned().collect();
    for name in named.iter().chain(&hops).filter(|name| **name != header::CONTENT_LENGTH) {
        headers.remove(name);
    }
}
