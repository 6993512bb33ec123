//! Snapshots that are kept on disk, as they cross the seam.
//!
//! ```text
//!   Program::to_keep ─▶ ToKeep ─▶ a file ─▶ Kept ─▶ Engine::restore ─▶ Program
//! ```
//!
//! What the file looks like, whether it is whole, and for which program it is, is the business of
//! whoever keeps it. An engine knows what is in it.

use std::{borrow::Cow, fmt, fs::File, sync::Arc};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{FileGrant, Limits, ProgramSource, Translate, Warmup};

/// What a snapshot depends on of the machine and of this build: it can be used where the same is
/// said under the same names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What it is about, for people: `processor`.
    pub name: String,
    /// How that is here.
    pub value: String,
}

impl Condition {
    /// Something by its name.
    pub fn new(name: &str, value: impl fmt::Display) -> Self {
        Self { name: name.to_owned(), value: value.to_string() }
    }
}

/// A program's snapshot, to be kept.
pub struct ToKeep<'a> {
    /// Everything but memory.
    pub state: Vec<u8>,
    /// Memory: multiples of 4096 bytes, to lie one behind the other.
    pub pages: Vec<Cow<'a, [u8]>>,
    /// Files of the host that the program has looked at, by the guest's path; for people.
    pub files: Vec<String>,
}

/// A snapshot that was kept.
pub struct Kept {
    /// What the program was made from, without its image.
    pub source: ProgramSource,
    /// Its limits.
    pub limits: Limits,
    /// Everything but memory.
    pub state: Bytes,
    /// The file with its memory, which nobody changes.
    pub file: Arc<File>,
    /// Where memory begins in it, a multiple of 4096.
    pub pages_start: u64,
    /// How much there is, a multiple of 4096.
    pub pages_length: u64,
}

/// Why a snapshot cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The program's engine has no form for it.
    #[error("the engine of this program cannot keep snapshots")]
    Unsupported,
    /// Something of it cannot be kept.
    #[error("{0}")]
    Refused(String),
}

impl KeepError {
    /// What to do about it, if there is something to say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unsupported => Some("snapshots on disk are for programs for x86-64"),
            Self::Refused(_) => None,
        }
    }
}

/// How a program was made: everything of its source but the image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// [`ProgramSource::name`].
    pub name: String,
    /// [`ProgramSource::path`].
    pub path: String,
    /// [`ProgramSource::args`].
    pub args: Vec<String>,
    /// [`ProgramSource::env`].
    pub env: Vec<String>,
    /// [`ProgramSource::reseed`].
    pub reseed: bool,
    /// [`ProgramSource::files`].
    pub files: Vec<FileGrant>,
    /// [`ProgramSource::directory`].
    pub directory: String,
    /// [`ProgramSource::warmup`].
    pub warmup: Warmup,
    /// Its limits.
    pub limits: Limits,
}

impl Recipe {
    /// Of a program.
    pub fn of(source: &ProgramSource, limits: &Limits) -> Self {
        let ProgramSource { name, path, args, env, reseed, files, directory, warmup, .. } =
            source.clone();
        Self { name, path, args, env, reseed, files, directory, warmup, limits: limits.clone() }
    }

    /// A source without an image, and without a way out.
    pub fn source(&self) -> ProgramSource {
        let Self { name, path, args, env, reseed, files, directory, warmup, .. } = self.clone();
        let (image, translate) = (Bytes::new(), Translate::default());
        let network = None;
        ProgramSource {
            name,
            image,
            path,
            args,
            env,
            reseed,
            files,
            network,
            directory,
            translate,
            warmup,
        }
    }
}
