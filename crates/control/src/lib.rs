//! The control plane: makes a runtime from a configuration, and keeps it true.
//!
//! ```text
//!   Config ─▶ Control::prepare ─▶ Runtime ─────────────▶ reactors
//!                │                   ▲  │ an empty slot, a rollback
//!                ▼                   │  ▼
//!   files ─▶ watch ─▶ control thread ─▶ queue ─▶ loader threads: load, warm, install
//!   SIGHUP ─────────┘   └─ every second: what is cold, what is unused
//! ```
//!
//! | file | what |
//! |---|---|
//! | `choose` | which engine runs a file |
//! | `libraries` | what a dynamically linked program reads of this machine |
//! | `load` | a file to a program |
//! | `keeping` | snapshots that are kept by themselves |
//! | `kept` | a program to a snapshot on disk, and back |
//! | `warm` | is a program fit to serve? |
//! | `table` | a tenant of the configuration to one of the runtime |
//! | `entry` | what is known of a tenant's program: its file, its content, its slot |
//! | `queue` | whose program is to be loaded, one job for a tenant at a time |
//! | `reload` | one such job, from the file to the slot |
//! | `configure` | a new configuration beside the old one |
//! | `watch` | which files have changed |
//! | `room` | how many programs may be loaded at a time |
//! | `unrest` | when files that change are whole |
//! | `hook` | other parts of the server that depend on files |
//! | `prepare` | what becomes of a tenant before anything is served |
//! | `control` | a runtime for a configuration, and its threads: begun and ended |
//! | `shared` | what these threads share |
//! | `loaders` | the threads that load |
//! | `keeper` | the control thread: what has happened, and what is done about it |
//! | `report` | one log line for each of these |
//! | `translated` | what becomes of the translation of a version |
//! | `tally` | how often each of these has happened |
//! | `admin` | the listener that shows health, metrics and tenants |
#![forbid(unsafe_code)]

mod admin;
pub mod choose;
mod configure;
mod control;
mod entry;
mod hook;
mod keeper;
mod keeping;
mod kept;
pub mod libraries;
mod load;
mod loaders;
mod prepare;
mod queue;
mod reload;
mod report;
mod room;
mod shared;
mod table;
mod tally;
mod translated;
mod unrest;
mod warm;
mod watch;

pub use admin::{Admin, Readiness, Sources};
pub use configure::ConfigureError;
pub use control::{Control, Handle};
pub use hook::{Apply, FilesOf, Hook, Reread, Settings};
pub use keeping::{DirectoryError, SnapshotDirectory};
pub use kept::{KeepFailed, RestoreFailed, keep};
pub use load::{LoadFailed, Loaded, load, try_all};
pub use prepare::{Prepared, Ready};
pub use report::{CONTROL_TARGET, unknown_calls};
pub use table::Content;
pub use tally::{Deed, Tally};
pub use warm::WarmError;
