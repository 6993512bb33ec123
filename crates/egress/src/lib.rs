//! The way out of sandboxes: what a tenant may reach ([`Policy`]), and the connections and lookups
//! themselves ([`Way`]), which the host makes.
//!
//! ```text
//!   guest's query   ─▶ dns      ─▶ Policy: is the name allowed? ─▶ Names: its addresses ─▶ answer
//!   guest's connect ─▶ Policy: the address itself, or a name that it belongs to? ─▶ TCP
//! ```
//!
//! Everything is denied that no rule names. A name that leads to a private address leads nowhere,
//! unless that address is named too: who owns a name must not choose whom of the operator's own
//! network a guest talks to.
#![forbid(unsafe_code)]

mod allowance;
mod dns;
mod driver;
mod link;
mod names;
mod policy;
mod report;
mod way;

pub use dns::answer_query;
pub use policy::{Policy, Verdict, is_special};
pub use report::{Denied, Reason};
pub use way::{Lookups, Way};
