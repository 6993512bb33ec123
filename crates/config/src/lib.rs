//! `sandtide.toml` to validated types.
//!
//! ```text
//!   text ─▶ toml ─▶ Reader ─▶ Server, Defaults, Tenant …  ─▶ routes are unique ─▶ Config
//!                     └─ mistakes, with line and column ──────────────────────────▶ Problems
//! ```
//!
//! A file is either right as a whole or refused with everything that is wrong in it: keys that
//! mean nothing, values of the wrong type or outside their range, tenants that claim the same
//! place. The types are grouped by who sets them: [`Server`] is the operator's, [`Tenant`] the
//! owner's. Every key is described at its field, and in `docs/configuration.md`.
#![forbid(unsafe_code)]

mod authority;
mod forwarded;
mod limits;
mod listen;
mod observe;
mod problem;
mod program;
mod reader;
mod respond;
mod routes;
mod server;
mod tenant;
mod tls;
pub mod units;

use std::{io, path::Path, path::PathBuf};

use toml::de::DeTable;

pub use authority::{Authority, AuthorityError};
pub use forwarded::{Forwarded, ForwardedHeaders};
pub use limits::{LogLimits, Rate};
pub use listen::{Listen, ListenAddress, ListenError};
pub use observe::{AccessLog, AccessLogFile, AccessLogFormat, Admin};
pub use problem::{Problem, Problems};
pub use program::{Program, is_env_name, is_guest_path};
pub use reader::suggest;
pub use respond::Respond;
pub use server::{Server, Trace};
pub use tenant::{Load, Serves, Tenant};
pub use tls::{Certificate, ClientAuth, Tls};

use problem::{Findings, Mistake};
use reader::Reader;

/// A whole configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[server]`: what the operator sets.
    pub server: Server,
    /// `[tls]`: what listeners with `tls = true` need.
    pub tls: Option<Tls>,
    /// `[admin]`: `None` for no such listener.
    pub admin: Option<Admin>,
    /// `[access_log]`: `None` for no such log.
    pub access_log: Option<AccessLog>,
    /// `[tenants.<name>]`, in the order of the file. At least one.
    pub tenants: Vec<Tenant>,
    /// The files that were read, and the directories in which others are looked for: what to watch
    /// to learn of a change.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// The configuration of a server that has one program, which answers to every name.
    pub fn of_program(file: PathBuf) -> Self {
        Self {
            server: Server::default(),
            tls: None,
            admin: None,
            access_log: None,
            tenants: vec![Tenant::of_program(file)],
            files: Vec::new(),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file was read, and is wrong.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

/// Reads and checks a file. Relative paths in it are relative to its directory.
///
/// `engines` are the names that `engine` may have: this crate knows no engine.
pub fn load(path: &Path, engines: &[&str]) -> Result<Config, LoadError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let config = parse(&path.display().to_string(), &text, directory, engines)?;
    Ok(Config { files: vec![path.to_owned()], ..config })
}

/// Checks the text of a file; does no I/O. `name` is for messages, `directory` is what relative
/// paths start from.
pub fn parse(
    name: &str,
    text: &str,
    directory: &Path,
    engines: &[&str],
) -> Result<Config, Problems> {
    let findings = Findings::default();
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let message = error.message().trim().replace('\n', ", ");
        findings.add(Mistake::new(error.span().unwrap_or(0..0), message));
    }
    // What TOML itself could not read would only be found wrong a second time below.
    if !findings.is_empty() {
        return Err(findings.locate(name, text));
    }
    let mut root = Reader::new("", document.get_ref(), &findings);
    let config = read(&mut root, directory, engines, &findings);
    root.finish();
    if findings.is_empty() { Ok(config) } else { Err(findings.locate(name, text)) }
}

fn read(root: &mut Reader<'_>, directory: &Path, engines: &[&str], findings: &Findings) -> Config {
    let server = root.table("server").map(server::read).unwrap_or_default();
    let tls_span = root.get("tls").map(|value| value.span).unwrap_or_default();
    let tls = root.table("tls").map(|table| tls::read(table, tls_span, directory));
    let admin = root.table("admin").map(observe::read_admin);
    let access_log =
        root.table("access_log").map(|table| observe::read_access_log(table, directory));
    let mut defaults = limits::TenantLimits::default();
    if let Some(mut table) = root.table("defaults") {
        if let Some(limits) = table.table("limits") {
            defaults = limits::read(limits, &defaults);
        }
        table.finish();
    }
    let surroundings = tenant::Surroundings { directory, engines, defaults: &defaults };
    let claims: Vec<_> = root
        .table("tenants")
        .map(Reader::named_tables)
        .unwrap_or_default()
        .into_iter()
        .map(|(name, table)| tenant::read(&name, table, &surroundings))
        .collect();
    if claims.is_empty() && findings.is_empty() {
        findings.add(Mistake::new(0..0, "no tenant is configured").hint(
            "add one: `[tenants.hello]` with `program = \"hello.elf\"` and `default = true`",
        ));
    }
    routes::check(&claims, findings);
    let tenants = claims.into_iter().map(|claim| claim.tenant).collect();
    Config { server, tls, admin, access_log, tenants, files: Vec::new() }
}

#[cfg(test)]
mod tests;
