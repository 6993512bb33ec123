//! The places a tenant answers at.

use std::{fmt, str::FromStr};

/// The longest host name that exists (RFC 1035 §2.3.4). A longer authority matches no name.
pub(crate) const MAX_HOST: usize = 253;

/// Which authorities a route is for. Names are kept in lower case, without port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Authority {
    /// One host name or address.
    Exact(String),
    /// Every name below this one, at any depth; not the name itself.
    Wildcard(String),
    /// Every authority that no other route names.
    Default,
}

/// A place that a tenant answers at: an authority and a path prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// The authorities.
    pub(crate) authority: Authority,
    /// Empty for the whole authority, or `/a/b` without a slash at the end.
    pub(crate) prefix: String,
}

/// A route that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Not a host name, an address, `*.name` or `*`.
    #[error("`{0}` is not a host name, `*.name` or `*`")]
    Authority(String),
    /// Not an absolute path.
    #[error("`{0}` is not a path prefix: it starts with `/` and has no `?`, `#` or `//`")]
    Prefix(String),
}

impl RouteError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Authority(_) => "write the name without scheme, port or path: `shop.example.com`",
            Self::Prefix(_) => "write the path as clients send it: `/shop`",
        }
    }
}

impl Route {
    /// A route for `authority` (`name`, `*.name`, or `*` for all others) and the paths below
    /// `prefix` (`/` for all). Prefixes match whole segments: `/shop` is for `/shop` and
    /// `/shop/cart`, not for `/shopping`. Case counts in paths and not in names.
    pub fn new(authority: &str, prefix: &str) -> Result<Self, RouteError> {
        let authority = authority.parse()?;
        let trimmed = prefix.strip_suffix('/').unwrap_or(prefix);
        let sound = prefix.starts_with('/')
            && !trimmed.contains("//")
            && !trimmed.ends_with('/')
            && trimmed.bytes().all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#');
        if !sound {
            return Err(RouteError::Prefix(prefix.to_owned()));
        }
        Ok(Self { authority, prefix: trimmed.to_owned() })
    }

    /// The route of everything that no other route names.
    pub fn everything() -> Self {
        Self { authority: Authority::Default, prefix: String::new() }
    }

    /// The authorities that it is for.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.prefix.is_empty() { "/" } else { &self.prefix };
        write!(f, "{}{path}", self.authority)
    }
}

impl FromStr for Authority {
    type Err = RouteError;

    fn from_str(text: &str) -> Result<Self, RouteError> {
        let bad = || RouteError::Authority(text.to_owned());
        if text == "*" {
            return Ok(Self::Default);
        }
        let (wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let is_address = name.starts_with('[') && name.ends_with(']') && !wildcard;
        let sound = if is_address {
            name[1..name.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
        } else {
            name.len() <= MAX_HOST
                && name.split('.').all(|label| {
                    !label.is_empty()
                        && label
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                })
        };
        match sound {
            false => Err(bad()),
            true if wildcard => Ok(Self::Wildcard(name.to_owned())),
            true => Ok(Self::Exact(name.to_owned())),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Wildcard(name) => write!(f, "*.{name}"),
            Self::Default => f.write_str("*"),
        }
    }
}
