//! The engine behind the seam.

use std::{io::Read, sync::Arc};

use sandtide_engine::{Console, Engine, Fault, Limits, LoadError, Profile, Program, ProgramSource};

use crate::{boot, elf, program};

/// Runs RV64GC programs: static or static-PIE Linux ELF.
#[derive(Debug, Clone, Copy, Default)]
pub struct RiscvEngine;

impl RiscvEngine {
    /// The engine. It keeps no state of its own.
    pub fn new() -> Self {
        Self
    }
}

impl Engine for RiscvEngine {
    fn name(&self) -> &'static str {
        "riscv"
    }

    fn recognises(&self, image: &[u8]) -> bool {
        elf::is_riscv(image)
    }

    fn load(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        console: Arc<dyn Console>,
    ) -> Result<Arc<dyn Program>, LoadError> {
        let program = program::load(source, limits, &*console)?;
        Ok(Arc::new(program::SharedProgram(program)))
    }

    fn execute(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
    ) -> Result<Result<u8, Fault>, LoadError> {
        boot::execute(source, limits, stdin, &*console, None)
    }

    fn profile(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
        profile: &mut Profile,
    ) -> Result<Result<u8, Fault>, LoadError> {
        boot::execute(source, limits, stdin, &*console, Some(profile))
    }
}
