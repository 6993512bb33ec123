//! What a tenant says that it may reach: the entries of `egress`.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

/// Somebody outside whom a tenant may reach: `db.internal:5432`, `*.example.com:443`,
/// `10.0.0.0/8:6379`, `[2001:db8::1]:443`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EgressRule {
    /// Who.
    pub to: EgressTarget,
    /// The TCP port, not 0.
    pub port: u16,
}

/// Whom a rule names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EgressTarget {
    /// A name, in lower case.
    Name(String),
    /// The names below a name, in lower case: of `*.example.com`, this has `example.com`.
    Below(String),
    /// Addresses, or one.
    Network(IpNet),
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRuleError {
    /// Nothing says which port.
    #[error("`{0}` has no port")]
    NoPort(String),
    /// What stands behind the last colon is no port.
    #[error("`{0}` is not a port")]
    BadPort(String),
    /// A `*` that is not the whole first label of a longer name.
    #[error("`{0}` has a `*` where none can be")]
    Wildcard(String),
    /// The part behind the slash does not fit the address, or the address has bits behind it.
    #[error("`{0}` is not a range of addresses")]
    BadRange(String),
    /// An IPv6 address without brackets.
    #[error("`{0}` has more than one colon")]
    NoBrackets(String),
    /// Neither a name nor an address.
    #[error("`{0}` is neither a host name nor an address")]
    BadHost(String),
}

impl EgressRuleError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoPort(_) => "write host and port, such as `db.internal:5432`",
            Self::BadPort(_) => {
                "a port is a number from 1 to 65535; each port has an entry of its own"
            }
            Self::Wildcard(_) => "write `*.` in front of a name, such as `*.example.com:443`",
            Self::BadRange(_) => {
                "write the first address and the length of the prefix, such as `10.0.0.0/8:5432`"
            }
            Self::NoBrackets(_) => "write an IPv6 address in brackets, such as `[2001:db8::1]:443`",
            Self::BadHost(_) => {
                "write a name, such as `db.internal:5432`, or an address, such as `192.0.2.1:5432`"
            }
        }
    }
}

impl FromStr for EgressRule {
    type Err = EgressRuleError;

    fn from_str(text: &str) -> Result<Self, EgressRuleError> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| EgressRuleError::NoPort(text.to_owned()))?;
        let is_bracketed = host.starts_with('[');
        if !is_bracketed && host.contains(':') {
            return Err(EgressRuleError::NoBrackets(text.to_owned()));
        }
        if is_bracketed && text.ends_with(']') {
            return Err(EgressRuleError::NoPort(text.to_owned()));
        }
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = match port.parse() {
            Ok(number) if number != 0 && is_number => number,
            _ => return Err(EgressRuleError::BadPort(port.to_owned())),
        };
        Ok(Self { to: target(host)?, port })
    }
}

fn target(host: &str) -> Result<EgressTarget, EgressRuleError> {
    let bad_range = || EgressRuleError::BadRange(host.to_owned());
    let bad_host = || EgressRuleError::BadHost(host.to_owned());
    let (address, prefix) = match host.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (host, None),
    };
    let bare = match address.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').filter(|ip| ip.contains(':')).ok_or_else(bad_host)?,
        None => address,
    };
    match (bare.parse::<IpAddr>(), prefix) {
        (Ok(ip), None) => Ok(EgressTarget::Network(ip.to_canonical().into())),
        (Ok(ip), Some(prefix)) => {
            let length = prefix.parse().map_err(|_| bad_range())?;
            let range = IpNet::new(ip, length).map_err(|_| bad_range())?;
            if range.trunc() == range && ip.to_canonical() == ip {
                Ok(EgressTarget::Network(range))
            } else {
                Err(bad_range())
            }
        }
        (Err(_), Some(_)) => Err(bad_range()),
        (Err(_), None) => match host.strip_prefix("*.") {
            Some(name) if !name.contains('*') => {
                host_name(name).map(EgressTarget::Below).ok_or_else(bad_host)
            }
            None if !host.contains('*') => {
                host_name(host).map(EgressTarget::Name).ok_or_else(bad_host)
            }
            _ => Err(EgressRuleError::Wildcard(host.to_owned())),
        },
    }
}

/// A host name in the one way to write it: in lower case, without the final dot. `None` if it is none,
/// which what could be read as an address is not.
pub fn host_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        let is_character = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(is_character)
    };
    // The C library reads `127.1` and `0x7f000001` as addresses.
    let is_number = |label: &str| label.starts_with(|first: char| first.is_ascii_digit());
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = name.len() <= 253 && name.split('.').all(is_label) && !is_number(last);
    is_name.then(|| name.to_ascii_lowercase())
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, port } = self;
        match to {
            EgressTarget::Name(name) => write!(f, "{name}:{port}"),
            EgressTarget::Below(name) => write!(f, "*.{name}:{port}"),
            EgressTarget::Network(range) => {
                let (ip, length) = (range.addr(), range.prefix_len());
                match ip {
                    IpAddr::V4(ip) => write!(f, "{ip}")?,
                    IpAddr::V6(ip) => write!(f, "[{ip}]")?,
                }
                if length < range.max_prefix_len() {
                    write!(f, "/{length}")?;
                }
                write!(f, ":{port}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_in_one_way() {
        for (text, written) in [
            ("db.internal:5432", "db.internal:5432"),
            ("DB.Internal.:5432", "db.internal:5432"),
            ("localhost:80", "localhost:80"),
            ("_x.a-b:1", "_x.a-b:1"),
            ("*.example.com:443", "*.example.com:443"),
            ("10.0.0.5:6379", "10.0.0.5:6379"),
            ("192.0.2.0/24:8080", "192.0.2.0/24:8080"),
            ("0.0.0.0/0:443", "0.0.0.0/0:443"),
            ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
            ("[2001:db8::]/32:443", "[2001:db8::]/32:443"),
            ("[::ffff:10.0.0.5]:6379", "10.0.0.5:6379"),
        ] {
            let rule: EgressRule = text.parse().unwrap();
            assert_eq!(rule.to_string(), written);
            assert_eq!(written.parse(), Ok(rule));
        }
    }

    #[test]
    fn what_is_no_rule_is_explained() {
        for (text, message) in [
            ("db.internal", "`db.internal` has no port"),
            ("", "`` has no port"),
            ("[2001:db8::1]", "`[2001:db8::1]` has no port"),
            ("db:0", "`0` is not a port"),
            ("db:65536", "`65536` is not a port"),
            ("db:+80", "`+80` is not a port"),
            ("db:", "`` is not a port"),
            ("db:http", "`http` is not a port"),
            ("*:443", "`*` has a `*` where none can be"),
            ("a.*.com:443", "`a.*.com` has a `*` where none can be"),
            ("*a.com:443", "`*a.com` has a `*` where none can be"),
            ("*.*.com:443", "`*.*.com` has a `*` where none can be"),
            ("10.0.0.5/8:80", "`10.0.0.5/8` is not a range of addresses"),
            ("10.0.0.0/33:80", "`10.0.0.0/33` is not a range of addresses"),
            ("db/8:80", "`db/8` is not a range of addresses"),
            ("[::ffff:10.0.0.0]/104:80", "`[::ffff:10.0.0.0]/104` is not a range of addresses"),
            ("2001:db8::1:443", "`2001:db8::1:443` has more than one colon"),
            (":80", "`` is neither a host name nor an address"),
            ("*.:80", "`*.` is neither a host name nor an address"),
            ("a..b:80", "`a..b` is neither a host name nor an address"),
            ("a b:80", "`a b` is neither a host name nor an address"),
            ("127.1:80", "`127.1` is neither a host name nor an address"),
            ("0x7f000001:80", "`0x7f000001` is neither a host name nor an address"),
            ("[10.0.0.1]:80", "`[10.0.0.1]` is neither a host name nor an address"),
        ] {
            let error = text.parse::<EgressRule>().unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.hint().is_empty());
        }
    }
}
