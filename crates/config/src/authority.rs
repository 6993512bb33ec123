//! The names that a tenant answers to.

use std::fmt;

/// A host name, or a pattern for the names below one. Compared without case and without port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Authority {
    /// This name or IP address, in lower case.
    Exact(String),
    /// Every name that ends in a dot and this one, in lower case: `*.example.com` holds
    /// `example.com`. The name itself is not among them.
    Below(String),
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

/// Why a text is not an authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` {reason}")]
pub struct AuthorityError {
    text: String,
    reason: &'static str,
    /// What to write instead.
    pub hint: String,
}

impl Authority {
    /// Reads a host name (RFC 1123 §2.1, underscores allowed), an IP address, or `*.` and a name.
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        let error = |reason, hint: String| AuthorityError { text: text.to_owned(), reason, hint };
        let name = text.to_ascii_lowercase();
        if let Some(host) = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            return match host.parse::<std::net::Ipv6Addr>() {
                Ok(_) => Ok(Self::Exact(name)),
                Err(_) => Err(error("is not an IPv6 address", example())),
            };
        }
        if let Some((_, rest)) = name.split_once("://") {
            let host = rest.split('/').next().unwrap_or(rest);
            return Err(error("is a URL, not a host name", format!("write `{host}`")));
        }
        match name.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err(error("is not a host name", format!("write `[{name}]`")));
            }
            Some((host, _)) => {
                let hint = format!("write `{host}`: the port is the listener's business");
                return Err(error("has a port", hint));
            }
            None => {}
        }
        if let Some((host, path)) = name.split_once('/') {
            let hint = format!("write `{host}`, and `path = \"/{path}\"` beside it");
            return Err(error("has a path", hint));
        }
        if name == "*" {
            return Err(error("is not a host name", "write `default = true`".to_owned()));
        }
        let (below, host) = match name.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, name.as_str()),
        };
        if host.contains('*') {
            let hint = "only the first label may be `*`, as in `*.example.com`".to_owned();
            return Err(error("has `*` in a place that it cannot have", hint));
        }
        if host.len() > 253 || !host.split('.').all(is_label) {
            return Err(error("is not a host name", example()));
        }
        Ok(if below { Self::Below(host.to_owned()) } else { Self::Exact(host.to_owned()) })
    }
}

fn example() -> String {
    "write a name such as `shop.example.com`, or `*.example.com`".to_owned()
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_wildcards_and_addresses_are_authorities() {
        let exact = |name: &str| Ok(Authority::Exact(name.to_owned()));
        assert_eq!(Authority::parse("Hello.LOCALHOST"), exact("hello.localhost"));
        assert_eq!(Authority::parse("127.0.0.1"), exact("127.0.0.1"));
        assert_eq!(Authority::parse("[::1]"), exact("[::1]"));
        assert_eq!(Authority::parse("my_shop"), exact("my_shop"));
        assert_eq!(Authority::parse("*.A.b"), Ok(Authority::Below("a.b".to_owned())));
    }

    #[test]
    fn everything_else_is_refused() {
        let long = "a".repeat(64);
        let longer = ["a"; 128].join(".");
        for bad in [
            "",
            "*",
            "*.",
            "a..b",
            ".a",
            "a.",
            "-a",
            "a-",
            "a b",
            "a/b",
            "a:80",
            "::1",
            "[::g]",
            "*.*.a",
            "a.*",
            "*a.b",
            "http://a",
            "ä.example",
            &long,
            &longer,
        ] {
            assert!(Authority::parse(bad).is_err(), "{bad}");
        }
    }
}
