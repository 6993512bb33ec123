//! What a tenant may reach: the one place that decides it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sandtide_engine::{EgressRule, EgressTarget};

/// The name of this machine for itself.
const LOCALHOST: &str = "localhost";

/// What a tenant may reach.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<EgressRule>,
    /// Names with addresses of the operator's own. The names are in lower case.
    hosts: Vec<(String, IpAddr)>,
}

/// What is to be said of a connection to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A rule names the address.
    Allowed,
    /// Only if it is an address of one of these names, or of one below these.
    Names {
        /// Names.
        exact: Vec<String>,
        /// Names whose subdomains are meant.
        below: Vec<String>,
    },
    /// No rule can allow it.
    Denied,
}

impl Policy {
    /// Allows what one of the rules names. `hosts` has addresses of names, which nobody else is
    /// asked for then.
    pub fn new(rules: Vec<EgressRule>, hosts: Vec<(String, IpAddr)>) -> Self {
        let canonical =
            |(name, ip): (String, IpAddr)| (name.to_ascii_lowercase(), ip.to_canonical());
        Self { rules, hosts: hosts.into_iter().map(canonical).collect() }
    }

    /// Whether a connection to an address may be made.
    pub fn check(&self, to: SocketAddr) -> Verdict {
        let (ip, port) = (to.ip().to_canonical(), to.port());
        let (mut exact, mut below) = (Vec::new(), Vec::new());
        for rule in self.rules.iter().filter(|rule| rule.port == port) {
            match &rule.to {
                EgressTarget::Network(range) if range.contains(&ip) => return Verdict::Allowed,
                EgressTarget::Network(_) => {}
                EgressTarget::Name(name) => exact.push(name.clone()),
                EgressTarget::Below(name) => below.push(name.clone()),
            }
        }
        if exact.is_empty() && below.is_empty() {
            return Verdict::Denied;
        }
        Verdict::Names { exact, below }
    }

    /// Whether a rule names a name, which is in lower case.
    pub fn allows_name(&self, name: &str) -> bool {
        self.ports_of(name).next().is_some()
    }

    /// Whether an address that a name has leads to where the tenant may go, at this port or, without
    /// one, at any that a rule has for the name.
    pub fn accepts(&self, name: &str, ip: IpAddr, port: Option<u16>) -> bool {
        let ip = ip.to_canonical();
        let is_named = |port: u16| {
            self.rules
                .iter()
                .filter(|rule| rule.port == port)
                .any(|rule| matches!(&rule.to, EgressTarget::Network(range) if range.contains(&ip)))
        };
        let is_own = self.hosts.iter().any(|(host, own)| host == name && *own == ip)
            || name == LOCALHOST && ip.is_loopback();
        let ports = self.ports_of(name).filter(|of_rule| port.is_none_or(|port| port == *of_rule));
        ports.into_iter().any(|port| !is_special(ip) || is_own || is_named(port))
    }

    /// The addresses of a name that the operator has given it, if there are any.
    pub fn hosts_of(&self, name: &str) -> Vec<IpAddr> {
        let own = self.hosts.iter().filter(|(host, _)| host == name).map(|(_, ip)| *ip);
        own.collect()
    }

    /// Whether nothing at all is allowed.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn ports_of(&self, name: &str) -> impl Iterator<Item = u16> {
        let names = move |rule: &&EgressRule| match &rule.to {
            EgressTarget::Name(of_rule) => of_rule == name,
            EgressTarget::Below(of_rule) => is_below(name, of_rule),
            EgressTarget::Network(_) => false,
        };
        self.rules.iter().filter(names).map(|rule| rule.port)
    }
}

/// Whether a name is below another: `a.b.example.com` is below `example.com`.
pub(crate) fn is_below(name: &str, other: &str) -> bool {
    name.strip_suffix(other).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

/// Whether an address is not one of the public internet: of this machine, of a private network, of
/// documentation, reserved, or for many (IANA IPv4 and IPv6 Special-Purpose Address Registries). One
/// that has another inside is what that one is.
pub fn is_special(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => is_special_v4(ip),
        IpAddr::V6(ip) => is_special_v6(ip),
    }
}

fn is_special_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_loopback()
        || ip.is_private()
        // 169.254.169.254, where clouds tell machines their secrets, is one of these.
        || ip.is_link_local()
        || ip.is_documentation()
        || a == 0
        || a == 100 && b & 0xc0 == 64
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || a == 198 && b & 0xfe == 18
        // Multicast, reserved and broadcast.
        || a >= 224
}

fn is_special_v6(ip: Ipv6Addr) -> bool {
    let parts = ip.segments();
    let octets = ip.octets();
    let v4_at =
        |at: usize| Ipv4Addr::new(octets[at], octets[at + 1], octets[at + 2], octets[at + 3]);
    match parts {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056).
        [0x64, 0xff9b, 0, 0, 0, 0, _, _] => is_special_v4(v4_at(12)),
        [0x2002, ..] => is_special_v4(v4_at(2)),
        // Teredo, ORCHID and others that are no addresses of machines (2001::/23), documentation.
        [0x2001, second, ..] if second < 0x200 => true,
        [0x2001, 0xdb8, ..] => true,
        [0x3fff, second, ..] if second < 0x1000 => true,
        // All other public ones are in 2000::/3.
        [first, ..] => first & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests;
