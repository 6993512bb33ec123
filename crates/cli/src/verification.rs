//! `--verify-resets`: which sandboxes are compared with their snapshot after a reset.

use sandtide_config as config;
use sandtide_runtime::VerifyResets;

/// What may be written behind `--verify-resets`: as in a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// None
    Never,
    /// Some, in a part
    Sampled,
    /// All, in every part
    Always,
}

/// What the runtime does: the option goes before the configuration.
pub fn which(option: Option<Which>, configured: config::VerifyResets) -> VerifyResets {
    match (option, configured) {
        (Some(Which::Never), _) | (None, config::VerifyResets::Never) => VerifyResets::Never,
        (Some(Which::Sampled), _) | (None, config::VerifyResets::Sampled) => VerifyResets::Sampled,
        (Some(Which::Always), _) | (None, config::VerifyResets::Always) => VerifyResets::Always,
    }
}
