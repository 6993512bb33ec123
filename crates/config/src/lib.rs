//! `sandtide.toml` to validated types.
//!
//! ```text
//!   files ─▶ toml ─▶ Reader ─▶ what each table says ─▶ groups, defaults ─▶ routes are unique ─▶ Config
//!    ▲ include          └─ mistakes, with file, line and column ─────────────────────────────▶ Problems
//! ```
//!
//! A configuration is either right as a whole or refused with everything that is wrong in it: keys
//! that mean nothing, values of the wrong type or outside their range, tenants that claim the same
//! place. The types are grouped by who sets them: [`Server`] is the operator's, [`Tenant`] the
//! owner's.
//!
//! Each table is declared once, by `section!`: the keys with their kinds, ranges, defaults and
//! descriptions. Types, reader, JSON Schema and the tables in `docs/` are made from that.
#![forbid(unsafe_code)]

mod authority;
mod context;
mod entry;
mod forwarded;
mod groups;
mod include;
mod kind;
mod limits;
mod listen;
mod load;
mod observe;
mod problem;
mod program;
mod reader;
mod reference;
mod respond;
mod root;
mod routes;
mod running;
mod section;
mod server;
mod shared;
mod tenant;
mod tls;
mod translation;
pub mod units;
mod value;
mod variables;
mod warmup;

use std::path::PathBuf;

use sandtide_engine::ApplicationSource;

pub use authority::{Authority, AuthorityError};
pub use context::Surroundings;
pub use forwarded::{Forwarded, ForwardedHeaders};
pub use limits::{LogLimits, Rate};
pub use listen::{Listen, ListenAddress, ListenError};
pub use load::{LoadError, load, parse};
pub use observe::{AccessLog, AccessLogFile, AccessLogFormat, Admin};
pub use problem::{Problem, Problems};
pub use program::{Program, is_env_name, is_guest_path};
pub use reader::suggest;
pub use reference::{ReferenceError, fill, schema};
pub use respond::Respond;
pub use running::Load;
pub use server::{Server, Trace, VerifyResets};
pub use tenant::{Serves, Tenant};
pub use tls::{Certificate, ClientAuth, Tls};
pub use translation::{Translation, TranslationCache};
pub use warmup::Warmup;

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
    /// `[tenants.<name>]`, in the order of the files. At least one. Each has what its group and
    /// `[defaults]` say.
    pub tenants: Vec<Tenant>,
    /// The files that were read, and the directories in which others are looked for: what to watch
    /// to learn of a change.
    pub files: Vec<PathBuf>,
}

impl Config {
    /// The configuration of a server that has one application, which answers to every name.
    pub fn of_application(source: ApplicationSource) -> Self {
        let tenants = vec![Tenant::of_application(source)];
        Self { tenants, ..Self::of_program(PathBuf::new()) }
    }

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

#[cfg(test)]
mod tests;
