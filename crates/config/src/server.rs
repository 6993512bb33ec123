//! `[server]`: what the operator sets.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    time::Duration,
};

use crate::{
    problem::{Mistakes, all},
    reader::{Reader, Value},
};

/// The server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `listen`: an address or an array of addresses to accept connections on. Port 0 takes a
    /// free one. Default `"127.0.0.1:8080"`.
    pub listen: Vec<SocketAddr>,
    /// `threads`: reactor threads, 1 to 1024. Default: one for each core that the server may use.
    pub threads: Option<NonZeroUsize>,
    /// `slice`: how long a sandbox may run before it lets others on its thread run, 50 us to 1 s.
    /// `None`: as the runtime has it.
    pub slice: Option<Duration>,
    /// `drain`: how long exchanges may go on after the server was told to stop, up to 1 h.
    /// Default `"10 s"`.
    pub drain: Duration,
}

impl Server {
    /// Where the server listens when nothing says otherwise.
    pub const DEFAULT_LISTEN: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
    const MAX_THREADS: u64 = 1024;
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: vec![Self::DEFAULT_LISTEN],
            threads: None,
            slice: None,
            drain: Duration::from_secs(10),
        }
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

/// Reads an address to listen on: an IP address and a port.
pub fn parse_listen(text: &str) -> Result<SocketAddr, ListenError> {
    text.parse().map_err(|_| {
        let hint = match text.rsplit_once(':') {
            Some(("localhost", port)) => format!("write `127.0.0.1:{port}`"),
            Some(("" | "*", port)) => format!("write `0.0.0.0:{port}` for every address"),
            None if text.parse::<u16>().is_ok() => format!("write `127.0.0.1:{text}`"),
            _ => "write an IP address and a port, such as `127.0.0.1:8080`".to_owned(),
        };
        ListenError { text: text.to_owned(), hint }
    })
}

pub(crate) fn read(mut table: Reader<'_>) -> Server {
    let default = Server::default();
    let server = Server {
        listen: table.read("listen", listen).unwrap_or(default.listen),
        threads: table
            .read("threads", |value| value.integer(1..=Server::MAX_THREADS))
            .and_then(|threads| NonZeroUsize::new(usize::try_from(threads).ok()?)),
        slice: table.read("slice", |value| {
            value.duration(Duration::from_micros(50)..=Duration::from_secs(1))
        }),
        drain: table
            .read("drain", |value| value.duration(Duration::ZERO..=Duration::from_secs(3600)))
            .unwrap_or(default.drain),
    };
    table.finish();
    server
}

fn listen(value: &Value<'_>) -> Result<Vec<SocketAddr>, Mistakes> {
    let mut seen = HashSet::new();
    let read = |element: &Value<'_>| {
        let address =
            parse_listen(element.string()?).map_err(|e| element.mistake(&e).hint(e.hint))?;
        // Port 0 twice is two ports.
        if address.port() != 0 && !seen.insert(address) {
            return Err(element.mistake(format_args!("{address} is there twice")));
        }
        Ok(address)
    };
    let addresses = all(value.one_or_more()?.iter().map(read))?;
    if addresses.is_empty() {
        return Err(value.mistake("needs at least one address").into());
    }
    Ok(addresses)
}
