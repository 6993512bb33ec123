//! `[admin]` and `[access_log]`: what the operator sees of the server at work.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use crate::reader::{Reader, Value};

/// `[admin]`: a listener of its own for `/metrics`, `/healthz`, `/readyz` and `/tenants`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// `listen`: an IP address and a port. Default `"127.0.0.1:9090"`.
    pub listen: SocketAddr,
    /// `max_tenants`: tenants with series of their own in `/metrics`, 0 to 100,000; the others are
    /// summed up. Default 1000.
    pub max_tenants: u32,
}

/// `[access_log]`: a line for each exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// `file`. Default `"-"`.
    pub file: AccessLogFile,
    /// `format`. Default [`AccessLogFormat::Common`].
    pub format: AccessLogFormat,
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogFile {
    /// `"-"`: standard output.
    Stdout,
    /// A file, which is appended to.
    Path(PathBuf),
}

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// `"common"`: the Common Log Format.
    Common,
    /// `"json"`: one JSON object.
    Json,
}

impl AccessLogFormat {
    const WORDS: [(&'static str, Self); 2] = [("common", Self::Common), ("json", Self::Json)];
}

pub(crate) fn read_admin(mut table: Reader<'_>) -> Admin {
    let listen = |value: &Value<'_>| {
        value.string()?.parse().map_err(|_| {
            let mistake = value.mistake("must be an IP address and a port");
            mistake.hint("write `127.0.0.1:9090`, for example")
        })
    };
    let admin = Admin {
        listen: table.read("listen", listen).unwrap_or(([127, 0, 0, 1], 9090).into()),
        max_tenants: table
            .read("max_tenants", |value| value.small_integer(0..=100_000))
            .unwrap_or(1000),
    };
    table.finish();
    admin
}

pub(crate) fn read_access_log(mut table: Reader<'_>, directory: &Path) -> AccessLog {
    let file = |value: &Value<'_>| match value.string_without_nul()? {
        "" => Err(value.mistake("is empty")),
        "-" => Ok(AccessLogFile::Stdout),
        path => Ok(AccessLogFile::Path(directory.join(path))),
    };
    let log = AccessLog {
        file: table.read("file", file).unwrap_or(AccessLogFile::Stdout),
        format: table
            .read("format", |value| value.word(&AccessLogFormat::WORDS))
            .unwrap_or(AccessLogFormat::Common),
    };
    table.finish();
    log
}
