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
//! | `load` | a file to a program |
//! | `warm` | is a program fit to serve? |
//! | `table` | a tenant of the configuration to one of the runtime |
//! | `entry` | what is known of a tenant's program: its file, its content, its slot |
//! | `queue` | whose program is to be loaded, one job for a tenant at a time |
//! | `reload` | one such job, from the file to the slot |
//! | `configure` | a new configuration beside the old one |
//! | `watch` | which files have changed |
//! | `control` | the thread that all of it comes together in |
//! | `report` | one log line for each of these |
//! | `tally` | how often each of these has happened |
//! | `admin` | the listener that shows health, metrics and tenants |
#![forbid(unsafe_code)]

mod admin;
pub mod choose;
mod configure;
mod control;
mod entry;
mod load;
mod queue;
mod reload;
mod report;
mod table;
mod tally;
mod warm;
mod watch;

pub use admin::{Admin, Readiness, Sources};
pub use configure::ConfigureError;
pub use control::{Apply, Control, FilesOf, Handle, Hook, Prepared, Ready, Reread, Settings};
pub use load::{LoadFailed, Loaded, load, try_all};
pub use report::{CONTROL_TARGET, unknown_calls};
pub use table::Content;
pub use tally::{Deed, Tally};
pub use warm::WarmError;
