use super::*;

fn policy(rules: &[&str], hosts: &[(&str, &str)]) -> Policy {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    let host = |(name, ip): &(&str, &str)| ((*name).to_owned(), ip.parse().unwrap());
    Policy::new(rules, hosts.iter().map(host).collect())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn check(policy: &Policy, to: &str) -> Verdict {
    policy.check(to.parse().unwrap())
}

#[test]
fn addresses_are_allowed_that_are_named_with_the_port() {
    let policy =
        policy(&["10.0.0.5:6379", "192.0.2.0/24:8080", "[fd00::]/8:443", "127.0.0.1:5432"], &[]);
    for (to, expected) in [
        ("10.0.0.5:6379", Verdict::Allowed),
        ("[::ffff:10.0.0.5]:6379", Verdict::Allowed),
        ("10.0.0.5:6380", Verdict::Denied),
        ("10.0.0.6:6379", Verdict::Denied),
        ("192.0.2.0:8080", Verdict::Allowed),
        ("192.0.2.255:8080", Verdict::Allowed),
        ("192.0.3.0:8080", Verdict::Denied),
        ("[fd12:3456::1]:443", Verdict::Allowed),
        ("[fe80::1]:443", Verdict::Denied),
        ("127.0.0.1:5432", Verdict::Allowed),
        ("127.0.0.2:5432", Verdict::Denied),
        ("[::1]:5432", Verdict::Denied),
        ("[::ffff:127.0.0.1]:5432", Verdict::Allowed),
        // The IPv4-compatible form is another address, and leads nowhere.
        ("[::127.0.0.1]:5432", Verdict::Denied),
    ] {
        assert_eq!(check(&policy, to), expected, "{to}");
    }
}

#[test]
fn nothing_is_allowed_without_rules() {
    let policy = Policy::default();
    assert!(policy.is_empty());
    for to in ["1.1.1.1:443", "127.0.0.1:80", "[::1]:80", "[2606:4700::1]:443"] {
        assert_eq!(check(&policy, to), Verdict::Denied);
    }
    assert!(!policy.allows_name("example.com") && !policy.allows_name("localhost"));
}

#[test]
fn names_are_allowed_as_they_are_named() {
    let policy = policy(&["db.internal:5432", "*.example.com:443", "api.example.com:80"], &[]);
    for (name, allowed) in [
        ("db.internal", true),
        ("x.db.internal", false),
        ("internal", false),
        ("example.com", false),
        ("a.example.com", true),
        ("a.b.example.com", true),
        ("badexample.com", false),
        (".example.com", false),
        ("api.example.com", true),
        ("", false),
    ] {
        assert_eq!(policy.allows_name(name), allowed, "{name}");
    }
    let names = |exact: &[&str], below: &[&str]| {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Verdict::Names { exact: own(exact), below: own(below) }
    };
    assert_eq!(check(&policy, "1.1.1.1:5432"), names(&["db.internal"], &[]));
    assert_eq!(check(&policy, "1.1.1.1:443"), names(&[], &["example.com"]));
    assert_eq!(check(&policy, "1.1.1.1:80"), names(&["api.example.com"], &[]));
    assert_eq!(check(&policy, "1.1.1.1:81"), Verdict::Denied);
}

#[test]
fn a_name_leads_to_public_addresses_on_its_own_ports() {
    let policy = policy(&["db.internal:5432", "*.example.com:443"], &[]);
    assert!(policy.accepts("db.internal", ip("1.1.1.1"), Some(5432)));
    assert!(policy.accepts("db.internal", ip("1.1.1.1"), None));
    assert!(!policy.accepts("db.internal", ip("1.1.1.1"), Some(443)));
    assert!(policy.accepts("a.example.com", ip("2606:4700::1"), Some(443)));
    assert!(!policy.accepts("example.com", ip("1.1.1.1"), Some(443)));
}

#[test]
fn a_name_does_not_lead_to_special_addresses() {
    let policy = policy(&["evil.example:80", "*.example.com:80"], &[]);
    for name in ["evil.example", "a.example.com"] {
        for address in SPECIAL {
            assert!(!policy.accepts(name, ip(address), Some(80)), "{name} at {address}");
            assert!(!policy.accepts(name, ip(address), None), "{name} at {address}");
        }
    }
}

#[test]
fn special_addresses_are_reached_by_name_if_they_are_named_too() {
    let named = policy(&["db.internal:5432", "10.0.0.0/8:5432", "10.0.0.0/8:80"], &[]);
    assert!(named.accepts("db.internal", ip("10.1.2.3"), Some(5432)));
    assert!(named.accepts("db.internal", ip("::ffff:10.1.2.3"), None));
    assert!(!named.accepts("db.internal", ip("10.1.2.3"), Some(80)), "another port");
    assert!(!named.accepts("db.internal", ip("192.168.0.1"), Some(5432)));
    let other = policy(&["db.internal:5432", "10.0.0.0/8:80"], &[]);
    assert!(!other.accepts("db.internal", ip("10.1.2.3"), Some(5432)));
}

#[test]
fn the_operators_own_addresses_are_named() {
    let own = policy(&["db.internal:5432"], &[("DB.internal", "10.0.0.5"), ("x", "10.0.0.6")]);
    assert_eq!(own.hosts_of("db.internal"), [ip("10.0.0.5")]);
    assert!(own.accepts("db.internal", ip("10.0.0.5"), Some(5432)));
    assert!(!own.accepts("db.internal", ip("10.0.0.6"), Some(5432)), "of another name");
    assert!(!own.allows_name("x"), "a host is no rule");
    assert!(!own.accepts("x", ip("10.0.0.6"), None));
}

#[test]
fn localhost_is_this_machine_and_nothing_else_is() {
    let policy = policy(&["localhost:5432", "local:80"], &[]);
    assert!(policy.accepts("localhost", ip("127.0.0.1"), Some(5432)));
    assert!(policy.accepts("localhost", ip("::1"), Some(5432)));
    assert!(!policy.accepts("localhost", ip("10.0.0.1"), Some(5432)));
    assert!(!policy.accepts("localhost", ip("127.0.0.1"), Some(80)));
    assert!(!policy.accepts("local", ip("127.0.0.1"), Some(80)));
}

/// One address of each range that is not the public internet's.
const SPECIAL: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.168.255.255",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "4000::1",
];

#[test]
fn special_addresses_are_known() {
    for address in SPECIAL {
        assert!(is_special(ip(address)), "{address}");
    }
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",
        "2001:200::1",
        "2002:101:101::1",
        "2003::1",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "3ffe::1",
    ] {
        assert!(!is_special(ip(address)), "{address}");
    }
}
