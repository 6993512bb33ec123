//! Interim responses (1xx) of guests. Hyper sends none, so they go to the wire between its messages.

use http::header;
use sandtide_engine::ResponseHead;

use crate::{framing, head};

/// The bytes of an interim response in HTTP/1.1 (RFC 9112 §4). It has no content, so nothing that
/// a guest says about framing stays (RFC 9110 §15.2).
pub(crate) fn encode(mut head: ResponseHead) -> Vec<u8> {
    framing::take_framing(&mut head.headers);
    head.headers.remove(header::TRAILER);
    head::encode(&head)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};

    use super::*;

    #[test]
    fn the_framing_is_not_the_guests() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("link", "</a>; rel=preload"),
            ("content-length", "5"),
            ("transfer-encoding", "chunked"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("trailer", "x-sum"),
            ("link", "</b>"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let hints = ResponseHead { status: StatusCode::EARLY_HINTS, headers };
        let status = StatusCode::from_u16(199).unwrap();
        let other = ResponseHead { status, headers: HeaderMap::new() };
        assert_eq!(
            String::from_utf8(encode(hints)).unwrap(),
            "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\nlink: </b>\r\n\r\n"
        );
        assert_eq!(encode(other), b"HTTP/1.1 199 \r\n\r\n");
    }
}
