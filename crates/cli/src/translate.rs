//! `--translate`: whether programs are translated.

use std::fmt;

use sandtide_config::{Serves, Tenant};
use sandtide_engine::Translate;

/// What may be written behind `--translate`: as in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// As far as the host can, and within limits; the rest is interpreted
    Auto,
    /// Not at all: everything is interpreted
    Off,
}

impl Default for Mode {
    /// What a configuration means that says nothing.
    fn default() -> Self {
        match Translate::default() {
            Translate::Auto => Self::Auto,
            Translate::Off => Self::Off,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Off => "off",
        })
    }
}

impl From<Mode> for Translate {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::Off => Self::Off,
        }
    }
}

/// Lays the option over what a tenant's configuration says.
pub fn set(tenant: &mut Tenant, mode: Option<Mode>) {
    if let (Serves::Program(program), Some(mode)) = (&mut tenant.serves, mode) {
        program.translate = mode.into();
    }
}
