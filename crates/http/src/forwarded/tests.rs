use sandtide_engine::{Exchange, ExchangeId, Incoming, RequestBody};

use super::*;

fn policy(trust: &[&str], headers: ForwardedHeaders) -> Arc<ForwardedPolicy> {
    let trust = trust.iter().map(|network| network.parse().unwrap()).collect();
    Arc::new(ForwardedPolicy { trust, headers })
}

/// The headers that a guest gets, and the client's address.
fn applied(
    forwarder: &Forwarder,
    headers: &[(&str, &str)],
) -> (Vec<(String, String)>, Option<IpAddr>) {
    let mut request = http::Request::get("/").header("host", "shop.test:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (mut parts, ()) = request.body(()).unwrap().into_parts();
    let found = parts.headers.keys().any(|name| is_forwarding(name.as_str()));
    let (client, added) = if found {
        (forwarder.renew(&mut parts), None)
    } else {
        let added = forwarder.tell(&mut parts);
        (forwarder.peer(), added)
    };
    let incoming = Incoming { body: RequestBody::empty(), added, connection: None };
    let exchange = Exchange::new(ExchangeId(1), parts, incoming, 0);
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    let mut got: Vec<_> = exchange
        .headers()
        .filter(|(name, _)| *name != "host")
        .map(|(name, value)| (name.to_owned(), text(value)))
        .collect();
    got.sort();
    (got, client)
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_stranger_is_not_believed() {
    let policy = policy(&["10.0.0.0/8"], ForwardedHeaders::XForwarded);
    let forwarder = Forwarder::new(&policy, Some(ip("192.0.2.1")), false);
    let lies = [
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "bank.test"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-prefix", "/admin"),
        ("X-Real-IP", "127.0.0.1"),
        ("forwarded", "for=127.0.0.1"),
        ("x-other", "stays"),
    ];
    let expected = pairs(&[
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-host", "shop.test:8080"),
        ("x-forwarded-proto", "http"),
        ("x-other", "stays"),
    ]);
    assert_eq!(applied(&forwarder, &lies), (expected, Some(ip("192.0.2.1"))));
}

#[test]
fn the_chain_of_a_trusted_proxy_is_kept_and_added_to() {
    let policy = policy(&["10.0.0.0/8", "fd00::/8"], ForwardedHeaders::XForwarded);
    let forwarder = Forwarder::new(&policy, Some(ip("::ffff:10.0.0.1")), false);
    let told = [
        ("x-forwarded-for", "203.0.113.9, 192.0.2.1"),
        ("x-forwarded-for", "fd00::1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "public.test"),
        ("x-real-ip", "192.0.2.1"),
        ("forwarded", "for=127.0.0.1"),
    ];
    let expected = pairs(&[
        ("x-forwarded-for", "203.0.113.9, 192.0.2.1, fd00::1, 10.0.0.1"),
        ("x-forwarded-host", "public.test"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "192.0.2.1"),
    ]);
    assert_eq!(applied(&forwarder, &told), (expected, Some(ip("192.0.2.1"))));
}

#[test]
fn the_client_is_the_rightmost_address_that_is_not_trusted() {
    let policy = policy(&["10.0.0.0/8"], ForwardedHeaders::XForwarded);
    let forwarder = Forwarder::new(&policy, Some(ip("10.0.0.1")), false);
    for (chain, client) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.7, 192.0.2.1, 10.0.0.9", "192.0.2.1"),
        ("10.0.0.7, 10.0.0.8", "10.0.0.7"),
        ("192.0.2.1, unknown", "10.0.0.1"),
        ("192.0.2.1, _secret, 10.0.0.9", "10.0.0.9"),
        ("<script>", "10.0.0.1"),
        (" , ,", "10.0.0.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
    ] {
        let (_, got) = applied(&forwarder, &[("x-forwarded-for", chain)]);
        assert_eq!(got, Some(ip(client)), "{chain}");
    }
}

#[test]
fn forwarded_is_written_and_kept_in_its_own_form() {
    let policy = policy(&["2001:db8::/32"], ForwardedHeaders::Forwarded);
    let stranger = Forwarder::new(&policy, Some(ip("2001:dead::1")), true);
    let own = "for=\"[2001:dead::1]\";host=\"shop.test:8080\";proto=https";
    let (got, _) = applied(&stranger, &[("forwarded", "for=127.0.0.1")]);
    assert_eq!(got, pairs(&[("forwarded", own)]));

    let proxy = Forwarder::new(&policy, Some(ip("2001:db8::1")), false);
    let told = [("forwarded", "for=192.0.2.1;proto=https"), ("x-forwarded-for", "127.0.0.1")];
    let own = "for=\"[2001:db8::1]\";host=\"shop.test:8080\";proto=http";
    let chain = format!("for=192.0.2.1;proto=https, {own}");
    let expected = pairs(&[("forwarded", &chain)]);
    assert_eq!(applied(&proxy, &told), (expected, Some(ip("192.0.2.1"))));

    // An open quote would swallow what is added.
    let (got, client) = applied(&proxy, &[("forwarded", "for=192.0.2.1;host=\"open")]);
    assert_eq!((got, client), (pairs(&[("forwarded", own)]), Some(ip("2001:db8::1"))));
}

#[test]
fn both_and_none() {
    let both = Forwarder::new(&policy(&[], ForwardedHeaders::Both), Some(ip("192.0.2.1")), false);
    let (got, _) = applied(&both, &[]);
    let names: Vec<_> = got.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]);

    let policy = policy(&["10.0.0.1/32"], ForwardedHeaders::None);
    let none = Forwarder::new(&policy, Some(ip("10.0.0.1")), false);
    let told = [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.2")];
    assert_eq!(applied(&none, &told), (vec![], Some(ip("192.0.2.1"))));
}

#[test]
fn a_unix_socket_is_trusted_like_loopback() {
    let told = [("x-forwarded-for", "192.0.2.1")];
    let untrusted = policy(&[], ForwardedHeaders::XForwarded);
    let (got, client) = applied(&Forwarder::new(&untrusted, None, false), &told);
    assert_eq!((got[0].1.as_str(), client), ("unknown", None));
    let trusted = policy(&["127.0.0.0/8"], ForwardedHeaders::XForwarded);
    let (got, client) = applied(&Forwarder::new(&trusted, None, false), &told);
    assert_eq!((got[0].1.as_str(), client), ("192.0.2.1, unknown", Some(ip("192.0.2.1"))));
}
