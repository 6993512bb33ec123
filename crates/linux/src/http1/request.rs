//! A request in HTTP/1.1, for a guest to read.

use http::{HeaderMap, Method};
use sandtide_engine::Exchange;

use super::{is_hop_by_hop, names_in};

/// How the body behind a head is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// That many bytes follow.
    Length(u64),
    /// Chunks follow, and then trailers.
    Chunked,
}

/// Whom a request without an authority is addressed to.
const NOBODY: &str = "localhost";

/// Writes the head of an exchange's request, with the empty line behind it.
///
/// The framing is made anew, and headers about the client's connection stay behind, so that the
/// guest can read the request in one way only. `Expect` stays behind too: it is the host that asks a
/// client for its body, when it wants to pass it on. Names are written as most programs spell
/// them (`Content-Type`), for those that look for them letter by letter.
pub fn head(exchange: &Exchange, out: &mut Vec<u8>) -> Framing {
    let request = &exchange.request;
    let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = Some(exchange.authority()).filter(|name| !name.is_empty()).unwrap_or(NOBODY);
    for part in [request.method.as_str(), " ", target, " HTTP/1.1\r\nHost: ", authority, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let framing = match exchange.body.known_length() {
        Some(0) if !is_about_a_body(&request.method) => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::Chunked,
    };
    let nominated: Vec<&str> = request
        .headers
        .get_all(http::header::CONNECTION)
        .iter()
        .flat_map(|value| names_in(value.as_bytes()))
        .collect();
    for (name, value) in exchange.headers() {
        let is_ours = matches!(name, "host" | "content-length" | "expect")
            || name == "trailer" && framing != Framing::Chunked;
        let stays = is_ours
            || is_hop_by_hop(name)
            || nominated.iter().any(|other| other.eq_ignore_ascii_case(name));
        if !stays {
            field(name, value, out);
        }
    }
    match framing {
        Framing::None => {}
        Framing::Length(length) => {
            out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
    framing
}

/// Whether a request with this method says so when its body is empty (RFC 9110 §8.6).
fn is_about_a_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Writes a header. The types of names and values let no line break through.
fn field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    let mut begins_word = true;
    for byte in &mut out[start..] {
        if begins_word {
            byte.make_ascii_uppercase();
        }
        begins_word = *byte == b'-';
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Writes a piece of a chunked body. It must not be empty: that would end the body.
pub fn chunk(data: &[u8], out: &mut Vec<u8>) {
    debug_assert!(!data.is_empty());
    out.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// Writes the end of a chunked body, with its trailers.
pub fn last_chunk(trailers: Option<&HeaderMap>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers.into_iter().flatten() {
        let frames = matches!(name.as_str(), "host" | "content-length" | "trailer");
        if !frames && !is_hop_by_hop(name.as_str()) {
            field(name.as_str(), value.as_bytes(), out);
        }
    }
    out.extend_from_slice(b"\r\n");
}
