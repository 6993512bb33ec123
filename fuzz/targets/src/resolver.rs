//! `resolver`: what a guest sends to its name server.
//!
//! The input is the message.
//!
//! Must hold: what is answered is a query; the answer has its number, says that it is one, repeats its
//! question, and has no more addresses than were found, and no more bytes than fit into a datagram that
//! every resolver takes, beside a long name.

use std::net::IpAddr;

use sandtide_egress::answer_query;

/// The addresses that every name has.
const ADDRESSES: [IpAddr; 3] = [
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)),
    IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
];

pub(crate) fn run(data: &[u8]) {
    let Some(answer) = answer_query(data, &ADDRESSES) else { return };
    assert_eq!(answer[..2], data[..2], "the number");
    assert_eq!((data[2] & 0x80, answer[2] & 0x80), (0, 0x80), "a query, and an answer");
    assert_eq!(answer[4..6], [0, 1], "one question");
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    assert!(count <= 2, "{count} addresses");
    assert!(answer.len() <= 12 + 259 + 2 * (255 + 26), "{} bytes", answer.len());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let query = |name: &[u8], kind: u8| {
        [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &[0, 0, kind, 0, 1]].concat()
    };
    let extended =
        [&query(b"\x02db\x08internal", 28)[..], &[0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0]].concat();
    vec![
        query(b"\x09localhost", 1),
        query(b"\x02db\x08internal", 28),
        query(b"\x01a\x07example\x03com", 15),
        query(b"\x03a.b\xc0\x0c", 1),
        extended,
    ]
}
