//! Where a program spends its instructions.

use std::time::Duration;

/// What [`crate::Engine::profile`] has seen of a run: samples of where the program was, each
/// standing for the instructions since the one before.
#[derive(Debug, Default)]
pub struct Profile {
    /// How long the program ran, loading not included.
    pub time: Duration,
    /// Instructions that it executed.
    pub instructions: u64,
    /// Those of them in code that was translated to host code.
    pub translated: u64,
    /// Samples taken.
    pub samples: u64,
    /// Each chain of callers that was seen, once.
    pub stacks: Vec<SampledStack>,
}

/// A chain of callers, and what was spent in it.
#[derive(Debug)]
pub struct SampledStack {
    /// Functions, innermost first: their names, or where the program has none their addresses.
    pub functions: Vec<String>,
    /// Instructions that its samples stand for.
    pub instructions: u64,
    /// Those of them in translated code, as far as can be told: the share of the few thousand
    /// instructions in front of each sample.
    pub translated: u64,
}
