//! The nodes that a request came by, as `Forwarded` and `X-Forwarded-For` name them.

use std::net::{IpAddr, Ipv6Addr};

/// The nodes of `x-forwarded-for`; `None` for those that are no address.
pub(super) fn x_nodes(text: &str) -> Vec<Option<IpAddr>> {
    text.split(',').map(|node| address(node.trim())).collect()
}

/// The nodes of `forwarded`: the `for` of each element (RFC 7239 §4). `None` if the whole is
/// malformed: then nothing may be added to it, which an open quote would swallow.
pub(super) fn nodes(text: &str) -> Option<Vec<Option<IpAddr>>> {
    let mut nodes = Vec::new();
    let mut rest = text;
    loop {
        let (node, after) = element(rest)?;
        nodes.push(node);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some(nodes),
        }
    }
}

/// One element, up to a comma or the end.
fn element(text: &str) -> Option<(Option<IpAddr>, &str)> {
    let (mut node, mut rest) = (None, text);
    let mut has_for = false;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with([',', ';']) {
            let (name, after) = token(rest)?;
            let (value, after) = value(after.strip_prefix('=')?)?;
            if name.eq_ignore_ascii_case("for") {
                // Each parameter at most once.
                if std::mem::replace(&mut has_for, true) {
                    return None;
                }
                node = address(&value);
            }
            rest = after.trim_start_matches([' ', '\t']);
        }
        match rest.as_bytes().first() {
            None | Some(b',') => return Some((node, rest)),
            Some(b';') => rest = &rest[1..],
            Some(_) => return None,
        }
    }
}

/// RFC 9110 §5.6.2.
fn token(text: &str) -> Option<(&str, &str)> {
    let of_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let end = text.bytes().position(|b| !of_token(b)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// A token or a quoted string, without its quotes.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        return token(text).map(|(value, rest)| (value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

/// An address, with or without a port. Obfuscated nodes and `unknown` have none.
fn address(node: &str) -> Option<IpAddr> {
    let address = match node.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            if !is_port {
                return None;
            }
            IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)
        }
        None => match node.split_once(':') {
            // An address of version 6 has at least two colons.
            Some((address, port)) if !port.contains(':') => {
                if !is_port(port) {
                    return None;
                }
                IpAddr::V4(address.parse().ok()?)
            }
            _ => node.parse().ok()?,
        },
    };
    Some(address.to_canonical())
}

/// A port or an obfuscated one (RFC 7239 §6).
fn is_port(text: &str) -> bool {
    let of_name = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match text.strip_prefix('_') {
        Some(name) => !name.is_empty() && name.bytes().all(of_name),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn forms_of_addresses() {
        for (node, expected) in [
            ("192.0.2.1", ip("192.0.2.1")),
            ("192.0.2.1:80", ip("192.0.2.1")),
            ("192.0.2.1:_x", ip("192.0.2.1")),
            ("2001:db8::1", ip("2001:db8::1")),
            ("[2001:db8::1]", ip("2001:db8::1")),
            ("[2001:db8::1]:8080", ip("2001:db8::1")),
            ("::ffff:192.0.2.1", ip("192.0.2.1")),
            ("unknown", None),
            ("_hidden", None),
            ("", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:123456", None),
            ("192.0.2.256", None),
            ("[192.0.2.1]", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]80", None),
            ("fe80::1%eth0", None),
            ("evil.example", None),
        ] {
            assert_eq!(address(node), expected, "{node}");
        }
    }

    #[test]
    fn elements_of_forwarded() {
        // RFC 7239 §4, §6 and §7.4.
        for (text, expected) in [
            ("for=\"_gazonk\"", vec![None]),
            ("For=\"[2001:db8:cafe::17]:4711\"", vec![ip("2001:db8:cafe::17")]),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", vec![ip("192.0.2.60")]),
            ("for=192.0.2.43, for=198.51.100.17", vec![ip("192.0.2.43"), ip("198.51.100.17")]),
            ("for=192.0.2.43,for=unknown", vec![ip("192.0.2.43"), None]),
            ("proto=https, for = 1", vec![]),
            ("host=\"a, for=192.0.2.1\";for=192.0.2.2", vec![ip("192.0.2.2")]),
            ("host=\"a\\\"b\"", vec![None]),
            ("for=\"192.0.2.1", vec![]),
            ("for=\"192.0.2.1\\", vec![]),
            ("for", vec![]),
            ("for=", vec![]),
            ("for=1;for=2", vec![]),
            ("for=192.0.2.1 for=192.0.2.2", vec![]),
            (";;for=192.0.2.1;", vec![ip("192.0.2.1")]),
            ("é=1", vec![]),
        ] {
            let expected = Some(expected).filter(|nodes| !nodes.is_empty());
            assert_eq!(nodes(text), expected, "{text}");
        }
    }

    proptest! {
        /// What was taken for well formed keeps its meaning when an element is added.
        #[test]
        fn an_added_element_is_the_last(text in "[ -~]{0,40}|([a-z\"=;,\\\\ ]|for=1){0,12}") {
            if let Some(mut expected) = nodes(&text) {
                expected.push(ip("192.0.2.1"));
                prop_assert_eq!(nodes(&format!("{text}, for=192.0.2.1")), Some(expected));
            }
        }
    }
}
