//! What hyper lets through and HTTP does not: requests that others may read in another way than we do.

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, header, request::Parts};
use http_body::Body;
use hyper::body::Incoming;

/// Says what is wrong with an HTTP/1 request, in words for its client.
pub(crate) fn check(request: &Parts, body: &Incoming) -> Result<(), &'static str> {
    if request.method == Method::CONNECT {
        return Err("this is not a proxy");
    }
    let mut hosts = request.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_authority(host.as_bytes()) => {}
        (None, _) if request.version < Version::HTTP_11 => {}
        (None, _) => return Err("the request has no host header"),
        (Some(_), None) => return Err("the host header is malformed"),
        (Some(_), Some(_)) => return Err("the request has more than one host header"),
    }
    if !request.uri.path().starts_with('/') || request.uri.authority().is_some() {
        check_form(&request.method, &request.uri)?;
    }
    // Only a chunked body has no length in advance.
    if !body.is_end_stream() && body.size_hint().exact().is_none() {
        check_coding(request)?;
    }
    Ok(())
}

/// Says what is wrong with an HTTP/2 request, which h2 has found to be well formed. What is right
/// looks like HTTP/1 afterwards: a guest need not know what its client speaks.
pub(crate) fn check_stream(
    request: &mut Parts,
    max_headers: usize,
) -> Result<(), (StatusCode, &'static str)> {
    let bad = |text| Err((StatusCode::BAD_REQUEST, text));
    if request.method == Method::CONNECT {
        return bad("this is not a proxy");
    }
    if request.headers.len() > max_headers {
        return Err((StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers"));
    }
    let mut hosts = request.headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), request.uri.authority()) {
        _ if hosts.next().is_some() => return bad("the request has more than one host header"),
        (None, None) => return bad("the request has no authority"),
        (_, Some(name)) if !is_authority(name.as_str().as_bytes()) => {
            return bad("the authority is malformed");
        }
        (Some(host), None) if !is_authority(host.as_bytes()) => {
            return bad("the host header is malformed");
        }
        // RFC 9113 §8.3.1.
        (Some(host), Some(name))
            if !host.as_bytes().eq_ignore_ascii_case(name.as_str().as_bytes()) =>
        {
            return bad("authority and host header differ");
        }
        (None, Some(name)) => HeaderValue::from_str(name.as_str()).ok(),
        (Some(_), _) => None,
    };
    let path = request.uri.path();
    let is_server = path == "*" && request.method == Method::OPTIONS;
    if !is_server && !path.starts_with('/') {
        return bad("the path is malformed");
    }
    if let Some(host) = host {
        request.headers.insert(header::HOST, host);
    }
    let mut uri = std::mem::take(&mut request.uri).into_parts();
    (uri.scheme, uri.authority) = (None, None);
    request.uri = Uri::from_parts(uri).unwrap_or_default();
    join_cookies(&mut request.headers);
    Ok(())
}

/// RFC 9113 §8.2.3: HTTP/2 may split what is one header elsewhere.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if cookies.next().is_none() || cookies.next().is_none() {
        return;
    }
    let all: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(header::COOKIE, joined);
    }
}

/// RFC 9112 §3.2: `*` is for OPTIONS, a bare authority for CONNECT, and an absolute target is a
/// web address without a user's name (RFC 9110 §4.2.4).
#[cold]
fn check_form(method: &Method, uri: &Uri) -> Result<(), &'static str> {
    match (uri.scheme_str(), uri.authority()) {
        (None, None) if uri.path() == "*" && method == Method::OPTIONS => Ok(()),
        (Some("http" | "https"), Some(name)) if is_authority(name.as_str().as_bytes()) => Ok(()),
        _ => Err("the target is malformed"),
    }
}

/// One `chunked` and nothing else: no other coding is undone here, and a guest must not get bytes
/// that are not what the client meant.
#[cold]
fn check_coding(request: &Parts) -> Result<(), &'static str> {
    let mut codings = request.headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            Ok(())
        }
        _ => Err("the transfer coding is not supported"),
    }
}

/// A host, and a port if there is one (RFC 9112 §3.2). Empty is well formed; a comma is not taken, since
/// it is how some join two headers.
fn is_authority(bytes: &[u8]) -> bool {
    // Nearly all are plain names, perhaps with a port; one look at each byte says so.
    match bytes.iter().position(|b| !PLAIN[usize::from(*b)]) {
        None => true,
        Some(end) if bytes[end] == b':' => is_port(&bytes[end + 1..]),
        Some(end) => is_unusual_authority(bytes, end),
    }
}

/// Letters, digits, `-` and `.`.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        plain[byte] = matches!(byte as u8, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.');
        byte += 1;
    }
    plain
};

/// Digits of a number that is a port, or nothing.
fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0u32, |sum, b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        Some(sum * 10 + digit).filter(|sum| *sum <= u32::from(u16::MAX))
    });
    number.is_some()
}

fn is_unusual_authority(bytes: &[u8], plain: usize) -> bool {
    let host_end = match bytes.first() {
        Some(b'[') => {
            let address = |b: &u8| b.is_ascii_hexdigit() || *b == b':' || *b == b'.';
            match bytes.iter().position(|b| *b == b']') {
                Some(end) if end > 1 && bytes[1..end].iter().all(address) => end + 1,
                _ => return false,
            }
        }
        _ => {
            let rest = &bytes[plain..];
            let of_name = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=".contains(b);
            plain + rest.iter().position(|b| !of_name(b)).unwrap_or(rest.len())
        }
    };
    match &bytes[host_end..] {
        [] => true,
        [b':', port @ ..] => is_port(port),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for good in [
            "",
            "a",
            "a.example",
            "A.Example:80",
            "a.example.",
            "a:",
            "a_b.test:65535",
            "[::1]",
            "[::1]:8080",
            "127.0.0.1:1",
            "a%20b",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "a b",
            "a, b",
            "a@b",
            "a/b",
            "a:b",
            "a:65536",
            "a:99999999999",
            "a:80:80",
            "[::1",
            "[]",
            "[::1]a",
            "[a]b:1",
            "[x]",
            "a?b",
            "a#b",
            "a\\b",
            "a\tb",
            "é",
            "a:8 0",
            "[::1]:x",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn targets() {
        let form = |method: Method, target: &str| check_form(&method, &target.parse().unwrap());
        assert!(form(Method::OPTIONS, "*").is_ok());
        assert!(form(Method::GET, "*").is_err());
        assert!(form(Method::GET, "http://a.example/").is_ok());
        assert!(form(Method::GET, "https://a.example:1").is_ok());
        assert!(form(Method::GET, "ftp://a.example/").is_err());
        assert!(form(Method::GET, "http://me@a.example/").is_err());
        assert!(form(Method::GET, "a.example").is_err());
    }
}
