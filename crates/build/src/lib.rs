//! `sandtide build SOURCE`: from C, C++ or Python to a program that a sandbox runs.
//!
//! ```text
//! hello.c ──────────────────────────────▶ C compiler ──▶ hello.elf
//! shop.cpp ─────────────────────────────▶ C++ compiler ─▶ shop.elf
//! page.py ─▶ Pythran ─▶ C++, glue.cpp ──▶ C++ compiler ─▶ page.elf
//! ```
//!
//! The output is a static RV64GC Linux executable with symbols (backtraces have names) and without
//! debug information. The SDK that programs include is embedded in this crate, so that an installed
//! `sandtide` needs no checkout. Outputs are cached by the hash of everything that they were made
//! from.
//!
//! A developer's job: no server depends on this crate. It runs compilers, with the developer's
//! rights, on the developer's own sources; it is no place for a stranger's source.

#![forbid(unsafe_code)]

mod cache;
mod compile;
mod error;
mod python;
mod sdk;
mod source;
mod strip;
mod toolchain;

use std::path::{Path, PathBuf};

pub use error::BuildError;
pub use toolchain::CompilerChoice;

/// How to build. The default is what `sandtide build SOURCE` does.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// Where the program goes; the source's path with the extension `.elf` if `None`.
    pub output: Option<PathBuf>,
    /// Which compiler: `--compiler`.
    pub compiler: CompilerChoice,
    /// A directory with `c/sandtide.h`, `cpp/` and `python/` to use instead of the embedded SDK;
    /// `$SANDTIDE_SDK` if `None`.
    pub sdk: Option<PathBuf>,
    /// Where outputs and the extracted SDK are kept; `$XDG_CACHE_HOME/sandtide` or
    /// `~/.cache/sandtide` if `None`.
    pub cache: Option<PathBuf>,
    /// Where to look for `build/venv` and `.venv`; the working directory if `None`.
    pub project: Option<PathBuf>,
}

/// What a build made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The program.
    pub program: PathBuf,
    /// The compiler that made it, for messages: `zig 0.15.1`.
    pub compiler: String,
    /// Whether it was made before, from the same source in the same way.
    pub cached: bool,
}

/// Builds one program. `progress` is told, line by line, what is being done and what the compilers
/// say; blocks until it is done.
///
/// # Errors
/// [`BuildError`] says what is wrong with the source or missing on this machine, and
/// [`BuildError::hint`] what to do about it.
pub fn build(
    source: &Path,
    options: &BuildOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<Output, BuildError> {
    let source = source::Source::read(source)?;
    let cache = cache::Cache::open(options.cache.as_deref())?;
    let project = options.project.as_deref().unwrap_or(Path::new("."));
    let pythons = toolchain::pythons(project);
    let compiler = toolchain::find(options.compiler, source.language, &pythons)?;
    let sdk = sdk::locate(options.sdk.as_deref(), &cache)?;
    let pythran = match source.language {
        source::Language::Python => Some(python::find(&pythons)?),
        _ => None,
    };
    let job =
        compile::Job { source: &source, sdk: &sdk, compiler: &compiler, pythran: pythran.as_ref() };
    let key = job.key(progress)?;
    let output = options.output.clone().unwrap_or_else(|| source.path.with_extension("elf"));
    let cached = if let Some(found) = cache.program(&key) {
        cache::copy(&found, &output)?;
        true
    } else {
        let program = job.run(&cache, progress)?;
        cache::copy(program.path(), &output)?;
        cache.keep(program, &key)?;
        false
    };
    Ok(Output { program: output, compiler: compiler.to_string(), cached })
}
