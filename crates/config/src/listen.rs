//! `listen`: where connections are accepted.

use std::{
    collections::HashSet,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use crate::{
    problem::{Mistake, Mistakes, all},
    reader::Value,
};

/// A place where connections are accepted, and what is spoken there. Written as an address, or as
/// a table of these keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// `address`.
    pub address: ListenAddress,
    /// `tls`: whether connections begin with a TLS handshake. Default `false`.
    pub tls: bool,
    /// `proxy_protocol`: whether connections begin with a PROXY protocol header that says who the
    /// client is. Default `false`.
    pub proxy_protocol: bool,
}

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An IP address and a port; port 0 takes a free one.
    Tcp(SocketAddr),
    /// `unix:` and the path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<ListenAddress> for Listen {
    /// Plain HTTP.
    fn from(address: ListenAddress) -> Self {
        Self { address, tls: false, proxy_protocol: false }
    }
}

impl Default for Listen {
    /// Plain HTTP at `127.0.0.1:8080`.
    fn default() -> Self {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
        ListenAddress::Tcp(address).into()
    }
}

/// Why a text is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address to listen on")]
pub struct ListenError {
    text: String,
    /// What to write instead.
    pub hint: String,
}

impl ListenAddress {
    /// Reads an IP address and a port, or `unix:` and a path.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        let error = |hint: String| ListenError { text: text.to_owned(), hint };
        if let Some(path) = text.strip_prefix("unix:") {
            // sockaddr_un holds 108 bytes, the last of them NUL.
            return match path.len() {
                0 => Err(error("write a path, such as `unix:/run/sandtide.sock`".to_owned())),
                1..=107 if !path.contains('\0') => Ok(Self::Unix(path.into())),
                _ => Err(error("the path of a Unix socket has up to 107 bytes".to_owned())),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            error(match text.rsplit_once(':') {
                Some(("localhost", port)) => format!("write `127.0.0.1:{port}`"),
                Some(("" | "*", port)) => format!("write `0.0.0.0:{port}` for every address"),
                None if text.parse::<u16>().is_ok() => format!("write `127.0.0.1:{text}`"),
                _ if text.starts_with('/') => format!("write `unix:{text}` for a Unix socket"),
                _ => "write an IP address and a port, such as `127.0.0.1:8080`".to_owned(),
            })
        })
    }
}

/// Reads `listen`: an address, a table, or an array of them.
pub(crate) fn read(value: &Value<'_>) -> Result<Vec<Listen>, Mistakes> {
    let mut seen = HashSet::new();
    let listeners = value.one_or_more()?.into_iter().map(|element| one(&element, &mut seen));
    let listeners = all(listeners)?;
    if listeners.is_empty() {
        return Err(value.mistake("needs at least one address").into());
    }
    Ok(listeners)
}

fn one(value: &Value<'_>, seen: &mut HashSet<ListenAddress>) -> Result<Listen, Mistake> {
    if !value.is_table() {
        return address(value, seen).map(Listen::from);
    }
    let mut table = value.reader()?;
    let address = match table.get("address") {
        Some(value) => address(&value, seen),
        None => Err(value.mistake("needs an `address`")),
    };
    let tls = table.read("tls", Value::boolean).unwrap_or_default();
    let proxy_protocol = table.read("proxy_protocol", Value::boolean).unwrap_or_default();
    table.finish();
    Ok(Listen { address: address?, tls, proxy_protocol })
}

fn address(value: &Value<'_>, seen: &mut HashSet<ListenAddress>) -> Result<ListenAddress, Mistake> {
    let address =
        ListenAddress::parse(value.string()?).map_err(|e| value.mistake(&e).hint(e.hint))?;
    // Port 0 twice is two ports.
    let free = matches!(&address, ListenAddress::Tcp(address) if address.port() == 0);
    if !free && !seen.insert(address.clone()) {
        return Err(value.mistake(format_args!("{address} is there twice")));
    }
    Ok(address)
}
