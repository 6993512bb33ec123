//! `[admin]` and `[access_log]`: what the operator sees of the server at work.

use std::{net::SocketAddr, path::PathBuf};

use serde_json::{Value as Json, json};

use crate::{
    kind::{Kind, Shown, Word, integer, parsed, word},
    problem::Mistakes,
    section::{Definitions, section},
    value::Value,
};

section! {
    /// `[admin]`: a listener of its own for `/metrics`, `/healthz`, `/readyz` and `/tenants`.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Admin / AdminLayer {
        /// where the operator asks: an IP address and a port. Whoever reaches it is answered, so it is
        /// not for strangers
        listen: SocketAddr = ([127, 0, 0, 1], 9090).into(), parsed("address", |value| {
            value.string()?.parse().map_err(|_| {
                let mistake = value.mistake("must be an IP address and a port");
                mistake.hint("write `127.0.0.1:9090`, for example")
            })
        });
        /// tenants that have series of their own in `/metrics`; the others are summed up as
        /// `tenant="_other"`
        max_tenants: u32 = 1000, integer(0..=100_000);
    }
}

section! {
    /// `[access_log]`: a line for each exchange.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AccessLog / AccessLogLayer {
        /// where the lines go: a file, which is opened again on SIGHUP, or `"-"` for standard output
        file: AccessLogFile = AccessLogFile::Stdout, LogFile;
        /// how a line looks: the Common Log Format, or a JSON object
        format: AccessLogFormat = AccessLogFormat::Common, word();
    }
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

impl Word for AccessLogFormat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("common", Self::Common), ("json", Self::Json)];
}

/// A path, or `"-"`.
struct LogFile;

impl Kind for LogFile {
    type Value = AccessLogFile;

    fn read(&self, value: &Value<'_>) -> Result<AccessLogFile, Mistakes> {
        if value.string()? == "-" {
            return Ok(AccessLogFile::Stdout);
        }
        Ok(AccessLogFile::Path(value.path()?))
    }

    fn describe(&self) -> String {
        "path, or `\"-\"`".to_owned()
    }

    fn schema(&self, _: &mut Definitions) -> Json {
        json!({ "type": "string" })
    }

    fn show(&self, value: &AccessLogFile) -> Shown {
        Shown::Value(match value {
            AccessLogFile::Stdout => json!("-"),
            AccessLogFile::Path(path) => json!(path.display().to_string()),
        })
    }
}
