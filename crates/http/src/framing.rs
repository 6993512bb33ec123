//! Which of a guest's headers go to the client. The framing is the host's: a guest cannot say
//! anything that would make the client see another message than the one that is sent.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What a response may have beside its headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Everything that was answered.
    Body,
    /// Nothing, but the headers speak of what a GET would have got.
    HeadOnly,
    /// Nothing, by its status.
    Never,
}

impl Content {
    /// RFC 9110 §6.4.1.
    pub(crate) fn of(is_head: bool, status: StatusCode) -> Self {
        match status {
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED => {
                Self::Never
            }
            _ if is_head => Self::HeadOnly,
            _ => Self::Body,
        }
    }
}

/// Headers of this connection (RFC 9110 §7.6.1), which are the host's, and `content-length`.
/// `trailer` stays: it is how a guest announces its trailers.
fn is_framing(name: &HeaderName) -> bool {
    matches!(
        *name,
        header::CONTENT_LENGTH
            | header::CONNECTION
            | header::TRANSFER_ENCODING
            | header::UPGRADE
            | header::TE
    ) || *name == KEEP_ALIVE
        || *name == PROXY_CONNECTION
}

/// Takes the framing out of a guest's headers. Returns the length that it announced, if it
/// announced one.
pub(crate) fn take_framing(headers: &mut HeaderMap) -> Option<u64> {
    if headers.keys().any(is_framing) { take(headers) } else { None }
}

#[cold]
fn take(headers: &mut HeaderMap) -> Option<u64> {
    let length = announced_length(headers);
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    let framing: Vec<HeaderName> =
        headers.keys().filter(|name| is_framing(name)).cloned().collect();
    for name in framing.iter().chain(&named) {
        headers.remove(name);
    }
    length
}

/// The length, if there is exactly one and it is a number.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let value = values.next()?.to_str().ok()?;
    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    if values.next().is_some() || !is_number { None } else { value.parse().ok() }
}

/// Takes out of a guest's trailers what would frame a message: a client that reads trailers like
/// headers must not be led astray.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap) {
    take_framing(trailers);
    trailers.remove(header::TRAILER);
}

/// Announces the trailers of a response that is complete.
pub(crate) fn announce(headers: &mut HeaderMap, trailers: &HeaderMap) {
    headers.remove(header::TRAILER);
    for name in trailers.keys() {
        headers.append(header::TRAILER, HeaderValue::from(name.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()))
            .fold(HeaderMap::new(), |mut map, (name, value)| {
                map.append(name, value);
                map
            })
    }

    #[test]
    fn framing_is_taken_and_the_rest_stays() {
        let mut map = headers(&[
            ("content-type", "a/b"),
            ("Content-Length", "12"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("keep-alive", "timeout=5"),
            ("upgrade", "h2c"),
            ("te", "trailers"),
            ("trailer", "x-sum"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ]);
        assert_eq!(take_framing(&mut map), Some(12));
        let expected = [
            ("content-type", "a/b"),
            ("trailer", "x-sum"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
        ];
        assert_eq!(map, headers(&expected));
    }

    #[test]
    fn a_length_that_is_no_length_is_none() {
        for lengths in [
            &["1", "1"][..],
            &["1,1"],
            &["+1"],
            &["-1"],
            &[""],
            &["0x1"],
            &["99999999999999999999"],
        ] {
            let pairs: Vec<_> = lengths.iter().map(|value| ("content-length", *value)).collect();
            let mut map = headers(&pairs);
            assert_eq!(take_framing(&mut map), None, "{lengths:?}");
            assert!(map.is_empty());
        }
    }

    #[test]
    fn trailers_frame_nothing() {
        let mut map =
            headers(&[("x-sum", "1"), ("connection", "x-hop"), ("x-hop", "1"), ("trailer", "x")]);
        clean_trailers(&mut map);
        assert_eq!(map, headers(&[("x-sum", "1")]));
    }

    #[test]
    fn statuses_without_content() {
        assert_eq!(Content::of(false, StatusCode::OK), Content::Body);
        assert_eq!(Content::of(true, StatusCode::OK), Content::HeadOnly);
        assert_eq!(Content::of(true, StatusCode::NO_CONTENT), Content::Never);
        assert_eq!(Content::of(false, StatusCode::NOT_MODIFIED), Content::Never);
    }
}
