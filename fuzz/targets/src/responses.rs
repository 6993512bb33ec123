//! `responses`: what a server inside a sandbox writes to its connection.
//!
//! The input is whether the request was `HEAD` and the connection closes, then sizes of pieces,
//! then the bytes of the response.
//!
//! Must hold: the response that the host gets is one that HTTP can carry, within its limit; how
//! the bytes are cut into pieces changes nothing, and neither does when the host takes them.

use arbitrary::Unstructured;
use http::HeaderMap;
use sandtide_engine::{Exchange, ExchangeId, RequestBody, Response};
use sandtide_linux::http1::{BadResponse, ResponseReader};

use crate::{exchange::head, guest_calls::check_fields, input::next};

/// What a host has got.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    interim: Vec<(u16, HeaderMap)>,
    head: Option<(u16, HeaderMap)>,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
}

impl Taken {
    fn take(&mut self, response: &mut Response, limit: u64) {
        for head in response.take_interim() {
            assert!((102..200).contains(&head.status.as_u16()), "status {}", head.status);
            check_fields(&head.headers);
            self.interim.push((head.status.as_u16(), head.headers));
        }
        if let Some(head) = response.take_head() {
            assert!((200..600).contains(&head.status.as_u16()), "status {}", head.status);
            check_fields(&head.headers);
            for name in ["connection", "transfer-encoding", "upgrade", "keep-alive"] {
                assert!(!head.headers.contains_key(name), "`{name}` is the host's");
            }
            self.head = Some((head.status.as_u16(), head.headers));
        }
        while let Some(data) = response.take_data() {
            self.body.extend_from_slice(&data);
        }
        assert!(self.body.len() as u64 <= limit);
        if let Some(trailers) = response.take_trailers() {
            check_fields(&trailers);
            self.trailers = Some(trailers);
        }
    }
}

/// What pieces of output come to. With an error, what was taken before it is not told: a host that
/// takes early has more of it.
fn read<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    is_head: bool,
    closes: bool,
    limit: u64,
) -> Result<(Taken, usize), BadResponse> {
    let exchange = Exchange::new(ExchangeId(1), head("GET", "/"), RequestBody::empty(), limit);
    let (mut response, mut taken) = (exchange.response, Taken::default());
    let mut reader = ResponseReader::new(is_head);
    let mut used = 0;
    for mut piece in pieces {
        while !piece.is_empty() && !reader.is_over() {
            let length = reader.read(piece, &mut response)?;
            assert!(length > 0 || response.is_full(), "nothing is taken, and there is room");
            used += length;
            piece = &piece[length..];
            taken.take(&mut response, limit);
        }
    }
    if closes {
        reader.end(&mut response)?;
    }
    taken.take(&mut response, limit);
    assert_eq!(reader.is_over(), response.is_finished());
    Ok((taken, used))
}

pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let flags: u8 = next(&mut input);
    let limit = u64::from(next::<u16>(&mut input));
    let sizes: [u8; 4] = next(&mut input);
    let bytes = input.take_rest();
    let (is_head, closes) = (flags & 1 != 0, flags & 2 != 0);
    let whole = read([bytes].into_iter(), is_head, closes, limit);
    let mut rest = bytes;
    let pieces = sizes.iter().cycle().map_while(|size| {
        let (piece, behind) = rest.split_at_checked(usize::from(*size) + 1).unwrap_or((rest, &[]));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    });
    let cut = read(pieces, is_head, closes, limit);
    // Long heads are refused where they are seen to be long.
    let is_long = |error: &BadResponse| matches!(error, BadResponse::HeadTooLong { .. });
    if !whole.as_ref().is_err_and(is_long) && !cut.as_ref().is_err_and(is_long) {
        assert_eq!(whole, cut, "cuts at {sizes:?}");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let start = [2, 0xff, 0xff, 3, 200, 0, 17];
    let texts: [&[u8]; 5] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: 1\r\n\r\n",
        b"HTTP/1.0 200 OK\nServer: old\n\nuntil the end",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n\
          HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    texts.iter().map(|text| [&start[..], text].concat()).collect()
}
