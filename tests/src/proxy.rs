//! PROXY protocol headers, version 2: what a proxy says of the client before the client's first byte.

use std::net::{IpAddr, SocketAddr};

/// The signature that each header begins with.
pub const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A header for a connection from `source` to `destination`, which are of one family.
pub fn header(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let (family, addresses) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (0x11, [from.octets(), to.octets()].concat()),
        (IpAddr::V6(from), IpAddr::V6(to)) => (0x21, [from.octets(), to.octets()].concat()),
        mixed => panic!("two families: {mixed:?}"),
    };
    let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
    raw(0x21, family, &[addresses, ports].concat())
}

/// A header of a proxy that speaks for itself, as for a health check.
pub fn local() -> Vec<u8> {
    raw(0x20, 0, &[])
}

/// A header with this version and command, family and rest.
pub fn raw(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("16 bits").to_be_bytes();
    [SIGNATURE, &[command, family], &length, rest].concat()
}
