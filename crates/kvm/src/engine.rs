//! The engine behind the seam.

use std::{io::Read, sync::Arc};

use sandtide_engine::{
    Condition, Console, Engine, Fault, Kept, Limits, LoadError, Program, ProgramSource,
};

use crate::{boot, kept, place, program};

/// Runs x86-64 programs, static or dynamic Linux ELF, in virtual machines.
#[derive(Debug, Clone, Copy, Default)]
pub struct KvmEngine;

impl KvmEngine {
    /// The engine. It looks at the machine's KVM when it loads its first program.
    pub fn new() -> Self {
        Self
    }
}

impl Engine for KvmEngine {
    fn name(&self) -> &'static str {
        "kvm"
    }

    fn recognises(&self, image: &[u8]) -> bool {
        place::is_x86_64(image)
    }

    fn is_dynamic(&self, image: &[u8]) -> bool {
        place::is_dynamic(image)
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

    fn conditions(&self) -> Result<Vec<Condition>, LoadError> {
        kept::conditions()
    }

    fn restore(&self, kept: &Kept) -> Result<Arc<dyn Program>, LoadError> {
        let program = kept::restore(kept)?;
        Ok(Arc::new(program::SharedProgram(program)))
    }

    fn execute(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
    ) -> Result<Result<u8, Fault>, LoadError> {
        boot::execute(source, limits, stdin, &*console)
    }
}
