//! The engine behind the seam.

use std::{io::Read, sync::Arc};

use sandtide_engine::{Console, Engine, Fault, Limits, LoadError, Profile, Program, ProgramSource};

use crate::{
    boot, elf, program,
    translator::{TranslationOptions, Translator},
};

/// Runs RV64GC programs: static or static-PIE Linux ELF.
#[derive(Clone)]
pub struct RiscvEngine {
    translator: Arc<Translator>,
}

impl RiscvEngine {
    /// The engine, with nowhere to keep translations.
    pub fn new() -> Self {
        Self::with(TranslationOptions::default())
    }

    /// The engine, with these terms for translations. What is cloned from it shares them.
    pub fn with(options: TranslationOptions) -> Self {
        Self { translator: Translator::new(options) }
    }
}

impl Default for RiscvEngine {
    fn default() -> Self {
        Self::new()
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
        let program = program::load(source, limits, &*console, &self.translator)?;
        Ok(Arc::new(program::SharedProgram(program)))
    }

    fn execute(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
    ) -> Result<Result<u8, Fault>, LoadError> {
        boot::execute(source, limits, stdin, &*console, &self.translator, None)
    }

    fn profile(
        &self,
        source: &ProgramSource,
        limits: &Limits,
        stdin: Box<dyn Read + Send>,
        console: Arc<dyn Console>,
        profile: &mut Profile,
    ) -> Result<Result<u8, Fault>, LoadError> {
        boot::execute(source, limits, stdin, &*console, &self.translator, Some(profile))
    }
}
