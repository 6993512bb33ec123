//! `listen`: where connections are accepted.

use std::{
    collections::HashSet,
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use serde_json::{Value as Json, json};

use crate::{
    kind::{Kind, Parsed, Several, Shown, boolean, one_or_more, parsed, required, table},
    problem::{Mistakes, all},
    section::{Definitions, Key, section},
    value::Value,
};

section! {
    /// A place where connections are accepted, and what is spoken there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Listen / ListenLayer {
        /// an IP address and a port, or `unix:` and a path
        address: ListenAddress = ListenAddress::Unix(PathBuf::new()), required(address());
        /// whether connections begin with a TLS handshake, for which `[tls]` has the certificates;
        /// HTTP/2 is offered in it
        tls: bool = false, Tls;
        /// whether connections begin with a PROXY protocol header (version 1 or 2), which says who the
        /// client is. One without is closed
        proxy_protocol: bool = false, boolean();
    }
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

/// `sockaddr_un` holds 108 bytes, the last of them NUL.
const MAX_UNIX_PATH: usize = 107;

fn too_long() -> String {
    format!("the path of a Unix socket has up to {MAX_UNIX_PATH} bytes")
}

impl ListenAddress {
    /// Reads an IP address and a port, or `unix:` and a path.
    pub fn parse(text: &str) -> Result<Self, ListenError> {
        let error = |hint: String| ListenError { text: text.to_owned(), hint };
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err(error("write a path, such as `unix:/run/sandtide.sock`".to_owned())),
                1..=MAX_UNIX_PATH if !path.contains('\0') => Ok(Self::Unix(path.into())),
                _ => Err(error(too_long())),
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

impl ListenAddress {
    /// Whether it may stand there twice: port 0 twice is two ports, and what is missing is nowhere.
    pub(crate) fn is_free(&self) -> bool {
        match self {
            Self::Tcp(address) => address.port() == 0,
            Self::Unix(path) => path.as_os_str().is_empty(),
        }
    }
}

fn address() -> Parsed<ListenAddress> {
    parsed("address", |value| {
        let wrong = |error: ListenError| value.mistake(&error).hint(error.hint);
        match ListenAddress::parse(&value.string()?).map_err(wrong)? {
            ListenAddress::Unix(path) => {
                let path = value.origin.directory.join(path);
                if path.as_os_str().len() > MAX_UNIX_PATH {
                    let text = format!("unix:{}", path.display());
                    return Err(wrong(ListenError { text, hint: too_long() }));
                }
                Ok(ListenAddress::Unix(path))
            }
            tcp => Ok(tcp),
        }
    })
}

/// `tls`, which remembers where it is set: there have to be certificates.
struct Tls;

impl Kind for Tls {
    type Value = bool;

    fn read(&self, value: &Value<'_>) -> Result<bool, Mistakes> {
        let tls = value.boolean()?;
        if tls {
            value.origin.context.tls_listeners.borrow_mut().push(value.place);
        }
        Ok(tls)
    }

    fn describe(&self) -> String {
        boolean().describe()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        boolean().schema(definitions)
    }

    fn show(&self, value: &bool) -> Shown {
        boolean().show(value)
    }
}

/// `listen`: an address, a table, or an array of them.
pub(crate) struct Listeners;

/// One of them.
struct Listener;

impl Listeners {
    fn kind() -> Several<Listener> {
        one_or_more(Listener, ("address", "addresses")).not_empty()
    }
}

impl Kind for Listeners {
    type Value = Vec<Listen>;

    fn read(&self, value: &Value<'_>) -> Result<Vec<Listen>, Mistakes> {
        let listeners = Self::kind().read(value)?;
        let mut seen = HashSet::new();
        let twice = value
            .one_or_more()
            .into_iter()
            .zip(&listeners)
            .filter(|(_, listen)| !listen.address.is_free() && !seen.insert(&listen.address));
        all(twice.map(|(element, Listen { address, .. })| {
            Err::<(), _>(element.mistake(format_args!("{address} is there twice")).into())
        }))?;
        Ok(listeners)
    }

    fn describe(&self) -> String {
        "address, table, or array of them".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        Self::kind().schema(definitions)
    }

    fn show(&self, value: &Vec<Listen>) -> Shown {
        Self::kind().show(value)
    }

    fn below(&self) -> Vec<Key> {
        Self::kind().below()
    }
}

impl Kind for Listener {
    type Value = Listen;

    fn read(&self, value: &Value<'_>) -> Result<Listen, Mistakes> {
        if value.is_table() { table().read(value) } else { address().read(value).map(Listen::from) }
    }

    fn describe(&self) -> String {
        "address or table".to_owned()
    }

    fn schema(&self, definitions: &mut Definitions) -> Json {
        let table = table::<Listen>().schema(definitions);
        json!({ "anyOf": [{ "type": "string" }, table] })
    }

    fn show(&self, value: &Listen) -> Shown {
        Shown::Value(json!(value.address.to_string()))
    }

    fn below(&self) -> Vec<Key> {
        table::<Listen>().below()
    }
}
