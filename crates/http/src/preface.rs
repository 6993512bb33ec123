//! Which HTTP is spoken on a plaintext connection: HTTP/2 has a preface (RFC 9113 §3.4), and
//! clients that know that we speak it begin with it.

use std::{future::poll_fn, io, pin::Pin, task::Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

use crate::{
    connections::{Entry, Order},
    transport::Socket,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Most requests arrive in one read.
const AHEAD: usize = 4 << 10;

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Reads as much as is needed to know, and gives it back to the socket. `None` if there is nobody
/// to serve.
pub(crate) async fn detect(socket: &mut Socket, entry: &Entry) -> io::Result<Option<Protocol>> {
    let mut ahead = vec![0; AHEAD];
    let mut filled = 0;
    let protocol = loop {
        let read = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut ahead[filled..]);
            match Pin::new(&mut *socket).poll_read(cx, &mut buffer) {
                Poll::Ready(read) => Poll::Ready(read.map(|()| buffer.filled().len())),
                // Nothing has begun that would have to end.
                Poll::Pending if filled == 0 && entry.order() == Some(Order::Close) => {
                    Poll::Ready(Ok(0))
                }
                Poll::Pending => Poll::Pending,
            }
        });
        let read = read.await?;
        if read == 0 {
            return Ok(None);
        }
        filled += read;
        entry.received();
        match spoken(&ahead[..filled]) {
            Some(protocol) => break protocol,
            None => continue,
        }
    };
    ahead.truncate(filled);
    socket.unread(Bytes::from(ahead));
    Ok(Some(protocol))
}

/// `None` if it can be either.
fn spoken(bytes: &[u8]) -> Option<Protocol> {
    if bytes.starts_with(PREFACE) {
        Some(Protocol::Http2)
    } else if PREFACE.starts_with(bytes) {
        None
    } else {
        Some(Protocol::Http1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_http2_and_nothing_else() {
        for length in 0..PREFACE.len() {
            assert_eq!(spoken(&PREFACE[..length]), None);
        }
        assert_eq!(spoken(PREFACE), Some(Protocol::Http2));
        assert_eq!(spoken(&[PREFACE, b"\0\0\0\x04"].concat()), Some(Protocol::Http2));
        for other in ["POST / HTTP/1.1", "PRI / HTTP/2.0", "PRI * HTTP/2.0\r\nhost: x", "\r\n", "G"]
        {
            assert_eq!(spoken(other.as_bytes()), Some(Protocol::Http1), "{other}");
        }
    }
}
