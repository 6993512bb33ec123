//! Why a program could not be built.

use std::{io, path::PathBuf};

/// Why a program could not be built. The texts are for its developer.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The source's extension is none of those that are built.
    #[error("`{}` is not a source that can be built", .0.display())]
    UnknownLanguage(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What was tried: `read`, `write`, ….
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No compiler for RISC-V was found.
    #[error("no compiler for riscv64 found{}", asked.map_or(String::new(), |name| format!(" (asked for {name})")))]
    NoCompiler {
        /// The compiler that was asked for, if one was.
        asked: Option<&'static str>,
    },
    /// No Python with Pythran was found.
    #[error("no Python with Pythran found (tried: {tried})")]
    NoPythran {
        /// The interpreters that were tried.
        tried: String,
    },
    /// `SANDTIDE_SDK` or the option does not name an SDK.
    #[error("`{}` is no Sandtide SDK: it has no `c/sandtide.h`", .0.display())]
    NotAnSdk(PathBuf),
    /// Neither an option nor the environment says where to keep the cache.
    #[error("there is no place for the cache: neither XDG_CACHE_HOME nor HOME is set")]
    NoCacheDirectory,
    /// A tool could not be started.
    #[error("cannot run `{tool}`")]
    Start {
        /// The tool.
        tool: String,
        /// Why not.
        source: io::Error,
    },
    /// A tool refused the source. What it said went to the build's progress.
    #[error("`{tool}` could not build `{}` ({status})", path.display())]
    Refused {
        /// The tool.
        tool: String,
        /// The source.
        path: PathBuf,
        /// The tool's exit status.
        status: std::process::ExitStatus,
    },
}

impl BuildError {
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }

    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnknownLanguage(_) => {
                Some("name a file that ends in `.c`, `.cc`, `.cpp`, `.cxx` or `.py`")
            }
            Self::NoCompiler { asked: None | Some("zig") } => Some(
                "`python3 -m venv .venv && .venv/bin/pip install ziglang` brings one; on Debian, \
                 so does `apt-get install g++-riscv64-linux-gnu`",
            ),
            Self::NoCompiler { .. } => Some("`apt-get install g++-riscv64-linux-gnu`"),
            Self::NoPythran { .. } => Some(
                "`python3 -m venv .venv && .venv/bin/pip install 'pythran==0.19.*' ziglang`; \
                 SANDTIDE_PYTHON names another interpreter",
            ),
            Self::NotAnSdk(_) => Some("unset SANDTIDE_SDK to use the SDK that sandtide brings"),
            Self::NoCacheDirectory => Some("set XDG_CACHE_HOME to a directory"),
            _ => None,
        }
    }
}
