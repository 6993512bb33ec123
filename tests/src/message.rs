//! HTTP/1.1 responses, read strictly: what a lenient client would let pass, a test must see.

use std::{
    io::{self, BufRead, Read as _},
    str,
};

/// Status line and header fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Header fields in their order; names in lower case.
    pub headers: Vec<(String, String)>,
}

/// A whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status and header fields.
    pub head: Head,
    /// The body.
    pub body: Vec<u8>,
    /// Trailer fields; names in lower case.
    pub trailers: Vec<(String, String)>,
}

/// How the rest of a response is delimited (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// In chunks.
    Chunked,
    /// Until the connection closes.
    Close,
}

impl Head {
    /// The value of a header field; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// How the body is delimited, for a request with this method.
    pub fn framing(&self, method: &str) -> io::Result<Framing> {
        let bodiless = method == "HEAD" || matches!(self.status, 100..200 | 204 | 304);
        let lengths = self.headers.iter().filter(|(name, _)| name == "content-length").count();
        match (self.header("transfer-encoding"), self.header("content-length")) {
            _ if bodiless => Ok(Framing::Length(0)),
            _ if lengths > 1 => Err(wrong("more than one content-length")),
            (Some(_), Some(_)) => Err(wrong("both transfer-encoding and content-length")),
            (Some("chunked"), None) => Ok(Framing::Chunked),
            (Some(other), None) => Err(wrong(format!("transfer-encoding: {other}"))),
            (None, Some(length)) => {
                let length = length.parse().map_err(|_| wrong("content-length is no number"))?;
                Ok(Framing::Length(length))
            }
            (None, None) => Ok(Framing::Close),
        }
    }
}

impl Response {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The value of a header field; the first if there are several.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    /// The value of a trailer field.
    pub fn trailer(&self, name: &str) -> Option<&str> {
        find(&self.trailers, name)
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("a body that is text")
    }

    /// The correlation id that an error page carries.
    ///
    /// # Panics
    /// If there is none.
    pub fn id(&self) -> &str {
        self.header("x-request-id").unwrap_or_else(|| panic!("no x-request-id in {self:?}"))
    }
}

fn find<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
}

pub(crate) fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads a head.
pub fn read_head(stream: &mut impl BufRead) -> io::Result<Head> {
    let line = read_line(stream)?;
    let status = line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| wrong(format!("not a status line: {line:?}")))?;
    Ok(Head { status, headers: read_fields(stream)? })
}

/// Reads header or trailer fields and the empty line behind them.
pub fn read_fields(stream: &mut impl BufRead) -> io::Result<Vec<(String, String)>> {
    let mut fields = Vec::new();
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            return Ok(fields);
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| wrong(format!("not a field: {line:?}")))?;
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

/// Reads a chunk; an empty one is the last.
pub fn read_chunk(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let line = read_line(stream)?;
    let length = u64::from_str_radix(&line, 16)
        .map_err(|_| wrong(format!("not the length of a chunk: {line:?}")))?;
    let chunk = read_exactly(stream, length)?;
    if length > 0 && !read_line(stream)?.is_empty() {
        return Err(wrong("a chunk does not end where it says"));
    }
    Ok(chunk)
}

/// Reads so many bytes.
pub fn read_exactly(stream: &mut impl BufRead, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        let what = format!("{} of {length} bytes, then the end", bytes.len());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
    }
    Ok(bytes)
}

/// Reads a line, and takes its end off.
pub fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\r\n").ok_or_else(|| {
        if line.is_empty() {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")
        } else {
            wrong(format!("not a line: {:?}", String::from_utf8_lossy(&line)))
        }
    })?;
    String::from_utf8(line.to_vec()).map_err(|_| wrong("a line that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        read_head(&mut text.as_bytes()).unwrap()
    }

    #[test]
    fn framing_follows_the_standard() {
        let with = |fields: &str| head(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        assert_eq!(with("Content-Length: 3\r\n").framing("GET").unwrap(), Framing::Length(3));
        assert_eq!(with("Content-Length: 3\r\n").framing("HEAD").unwrap(), Framing::Length(0));
        let chunked = with("Transfer-Encoding: chunked\r\n");
        assert_eq!(chunked.framing("GET").unwrap(), Framing::Chunked);
        assert_eq!(with("").framing("GET").unwrap(), Framing::Close);
        let both = with("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n");
        assert!(both.framing("GET").is_err());
        assert!(with("Content-Length: 3\r\nContent-Length: 3\r\n").framing("GET").is_err());
    }

    #[test]
    fn chunks_end_where_they_say() {
        let mut good = &b"3\r\nabc\r\n0\r\n"[..];
        assert_eq!(read_chunk(&mut good).unwrap(), b"abc");
        assert_eq!(read_chunk(&mut good).unwrap(), b"");
        assert!(read_chunk(&mut &b"3\r\nabcd\r\n"[..]).is_err());
        assert!(read_chunk(&mut &b"3\r\nab"[..]).is_err());
        assert!(read_head(&mut &b"HTTP/1.1 200 OK\n"[..]).is_err());
    }
}
