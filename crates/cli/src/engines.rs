//! The engines of this build. The one place that knows them by name.

use std::sync::Arc;

use sandtide_engine::Engine;
use sandtide_riscv::RiscvEngine;

/// All engines, in the order in which they are asked whether they recognise a program.
pub fn all() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(RiscvEngine::new())]
}

/// The names that `engine` may have in a configuration.
pub fn names(engines: &[Arc<dyn Engine>]) -> Vec<&'static str> {
    engines.iter().map(|engine| engine.name()).collect()
}
