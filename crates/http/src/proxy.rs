//! The PROXY protocol: a load balancer says who its client is, in front of everything else.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use bytes::Bytes;
use ppp::{HeaderResult, PartialResult, v1, v2};
use tokio::io::{AsyncRead, ReadBuf};

use crate::{peer::Peer, transport::Socket};

/// The longest header that is read, with what a balancer adds to it (TLVs).
const LIMIT: usize = 4 << 10;

/// The longest header of version 1, which is a line of text.
const V1_LIMIT: usize = 107;

/// Reads the header, without which there is no connection, and puts its addresses in the peer's
/// place. A balancer that speaks for itself (LOCAL) keeps its own. What follows is given back.
pub(crate) async fn read_header(socket: &mut Socket, peer: &mut Peer) -> io::Result<()> {
    let mut bytes = vec![0; LIMIT];
    let mut filled = 0;
    loop {
        let mut buffer = ReadBuf::new(&mut bytes[filled..]);
        poll_fn(|cx| Pin::new(&mut *socket).poll_read(cx, &mut buffer)).await?;
        let read = buffer.filled().len();
        filled += read;
        match parse(&bytes[..filled])? {
            Some((length, ends)) => {
                if let Some(ends) = ends {
                    peer.client = ends.map(|ends| ends.0);
                    peer.local = ends.map(|ends| ends.1);
                }
                bytes.truncate(filled);
                socket.unread(Bytes::from(bytes).slice(length..));
                return Ok(());
            }
            None if read == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None if filled == LIMIT => return Err(invalid("the header is too long")),
            None => {}
        }
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// How long the header is, and its addresses if it changes them. `None` if it is not all there.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, Option<Ends>)>> {
    let text = &bytes[..bytes.len().min(V1_LIMIT)];
    if bytes.starts_with(b"P") && bytes.len() < V1_LIMIT && !text.contains(&b'\n') {
        return Ok(None);
    }
    match HeaderResult::parse(bytes) {
        HeaderResult::V2(Ok(header)) => Ok(Some((header.len(), of_v2(&header)))),
        HeaderResult::V1(Ok(header)) => Ok(Some((header.header.len(), of_v1(&header.addresses)))),
        header if header.is_incomplete() => Ok(None),
        HeaderResult::V1(Err(error)) => Err(invalid(error)),
        HeaderResult::V2(Err(error)) => Err(invalid(error)),
    }
}

/// Client and destination, of which one that is no TCP connection has none.
type Ends = Option<(SocketAddr, SocketAddr)>;

/// `None` if the header leaves the addresses as they are.
fn of_v2(header: &v2::Header<'_>) -> Option<Ends> {
    if header.command == v2::Command::Local {
        return None;
    }
    match header.addresses {
        v2::Addresses::IPv4(ip) => Some(ends(
            (ip.source_address.into(), ip.source_port),
            (ip.destination_address.into(), ip.destination_port),
        )),
        v2::Addresses::IPv6(ip) => Some(ends(
            (ip.source_address.into(), ip.source_port),
            (ip.destination_address.into(), ip.destination_port),
        )),
        v2::Addresses::Unix(_) => Some(None),
        v2::Addresses::Unspecified => None,
    }
}

fn of_v1(addresses: &v1::Addresses) -> Option<Ends> {
    match addresses {
        v1::Addresses::Tcp4(ip) => Some(ends(
            (ip.source_address.into(), ip.source_port),
            (ip.destination_address.into(), ip.destination_port),
        )),
        v1::Addresses::Tcp6(ip) => Some(ends(
            (ip.source_address.into(), ip.source_port),
            (ip.destination_address.into(), ip.destination_port),
        )),
        v1::Addresses::Unknown => None,
    }
}

fn ends(client: (IpAddr, u16), local: (IpAddr, u16)) -> Ends {
    Some((client.into(), local.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = (rest.len() as u16).to_be_bytes();
        [V2, &[command, family], &length, rest].concat()
    }

    fn tcp4() -> Vec<u8> {
        // And a TLV.
        v2(0x21, 0x11, &[10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0x01, 0xbb, 4, 0, 1, 0])
    }

    #[test]
    fn addresses_are_read_and_the_rest_is_left() {
        let ends = |client: &str, local: &str| {
            Some(Some((client.parse().unwrap(), local.parse().unwrap())))
        };
        let unix = v2(0x21, 0x31, &[&[0; 216][..], &[4, 0, 1, 0]].concat());
        let tcp6 = v2(0x21, 0x21, &[&[0; 15][..], &[1], &[0; 15], &[2], &[0, 1, 0, 2]].concat());
        for (header, ends) in [
            (tcp4(), ends("10.0.0.1:12345", "10.0.0.2:443")),
            (tcp6, ends("[::1]:1", "[::2]:2")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &tcp4()[16..]), None),
            (v2(0x21, 0x00, &[1, 2, 3]), None),
            (unix, Some(None)),
            (
                b"PROXY TCP4 10.0.0.1 10.0.0.2 12345 443\r\n".to_vec(),
                ends("10.0.0.1:12345", "10.0.0.2:443"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
        ] {
            for cut in 0..header.len() {
                assert_eq!(parse(&header[..cut]).unwrap(), None, "{cut} of {header:?}");
            }
            let bytes = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&bytes).unwrap(), Some((header.len(), ends)), "{header:?}");
        }
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        let long = [&b"PROXY TCP4 "[..], &[b'1'; 200]].concat();
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PUT / HTTP/1.1\r\n\r\n",
            b"PROXY TCP4 1.2.3 4.5.6.7 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 4.5.6.7 1 99999\r\n",
            &long,
            &v2(0x31, 0x11, &tcp4()[16..]),
            &v2(0x22, 0x11, &tcp4()[16..]),
            &v2(0x21, 0x11, &[1, 2, 3]),
            &v2(0x21, 0x91, &tcp4()[16..]),
        ] {
            assert!(parse(bytes).is_err(), "{bytes:?}");
        }
    }
}
