use super::*;

/// A query as glibc sends it.
fn query(name: &str, kind: u16) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&[0, 1]);
    bytes
}

const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;

#[test]
fn a_query_is_read() {
    for (kind, wants) in [(A, Wants::V4), (AAAA, Wants::V6), (MX, Wants::Other)] {
        let bytes = query("DB.Internal", kind);
        let query = Query::parse(&bytes).unwrap();
        assert_eq!((query.name.as_deref(), query.wants), (Some("db.internal"), wants));
    }
    let odd = query("a b", A);
    assert_eq!(Query::parse(&odd).unwrap().name, None);
}

#[test]
fn what_is_no_query_has_no_answer() {
    let good = query("example.com", A);
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("a part of a header", good[..11].to_vec()),
        ("no question", good[..12].to_vec()),
        ("a part of a question", good[..good.len() - 1].to_vec()),
        ("an answer", changed(2, 0x81)),
        ("an update", changed(2, 0x28)),
        ("no questions", changed(5, 0)),
        ("two questions", changed(5, 2)),
        ("another class", changed(good.len() - 1, 3)),
        ("a name that points to itself", {
            let mut bytes = good[..12].to_vec();
            bytes.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
            bytes
        }),
    ] {
        assert!(Query::parse(&bytes).is_none(), "{what}");
    }
}

#[test]
fn an_answer_repeats_the_question_and_has_the_addresses() {
    let addresses: [IpAddr; 3] =
        ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap(), [192, 0, 2, 2].into()];
    let bytes = query("Example.com", A);
    let answer = answer_query(&bytes, &addresses).unwrap();
    assert_eq!(answer[..2], [0x12, 0x34]);
    assert_eq!(answer[2..8], [0x81, 0x80, 0, 1, 0, 2], "an answer without error: two of them");
    assert_eq!(answer[12..bytes.len()], bytes[12..], "as it was spelled");
    assert!(answer.ends_with(&[0, 4, 192, 0, 2, 2]));
    let answer = answer_query(&query("example.com", AAAA), &addresses).unwrap();
    assert!(answer.ends_with(&"2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets()));
    let answer = answer_query(&query("example.com", MX), &addresses).unwrap();
    assert_eq!(answer[2..8], [0x81, 0x80, 0, 1, 0, 0]);
}

#[test]
fn every_answer_fits() {
    let label = "a".repeat(63);
    let name = [&label[..], &label, &label, &label[..61]].join(".");
    let many: Vec<IpAddr> = (0..100).map(|n| IpAddr::from([0x2606, 0, 0, 0, 0, 0, 0, n])).collect();
    for name in ["a.example", &name] {
        let answer = answer_query(&query(name, AAAA), &many).unwrap();
        assert_eq!(answer[7], MOST_ADDRESSES as u8);
        assert!(name.len() > 100 || answer.len() <= 512, "{}", answer.len());
    }
}

proptest::proptest! {
    #[test]
    fn wild_bytes_are_answered_or_not(bytes in proptest::collection::vec(0u8.., 0..600)) {
        if let Some(answer) = answer_query(&bytes, &[[1, 1, 1, 1].into()]) {
            assert_eq!(answer[..2], bytes[..2]);
        }
    }
}
