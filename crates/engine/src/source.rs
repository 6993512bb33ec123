//! What a program is made from.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::Network;

/// A read-only view of a host directory or file that a guest may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileGrant {
    /// Where the guest sees it: an absolute path.
    pub guest: String,
    /// What it sees there. Symbolic links and `..` inside cannot lead out of it.
    pub host: PathBuf,
    /// Only what every user of the host may read: this server may itself be allowed more.
    pub public: bool,
}

/// Everything that a program is made from.
#[derive(Debug, Clone)]
pub struct ProgramSource {
    /// For messages: usually the path of the file.
    pub name: String,
    /// The program's file.
    pub image: Bytes,
    /// Its path as the guest sees it: `/proc/self/exe`.
    pub path: String,
    /// Its arguments, `argv[0]` first.
    pub args: Vec<String>,
    /// Its environment, `NAME=value`. Nothing of the server's own environment.
    pub env: Vec<String>,
    /// Whether interpreters, which seed generators of random numbers before the snapshot, are made to
    /// seed them again in each sandbox.
    pub reseed: bool,
    /// The files that it may read.
    pub files: Vec<FileGrant>,
    /// The way out of its sandboxes; without one, all of the outside is refused.
    pub network: Option<Arc<dyn Network>>,
    /// The working directory that it starts in, an absolute guest path: `/` as a rule.
    pub directory: String,
    /// Whether its code is translated. Engines that run programs as they are ignore it.
    pub translate: Translate,
    /// What it answers before its snapshot is taken.
    pub warmup: Warmup,
}

/// Requests that a program answers before its snapshot is taken, after which each sandbox has
/// answered them already.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Warmup {
    /// How many.
    pub requests: Requests,
    /// What is asked for (`GET`), in turns: targets with a path. `/` if there are none.
    pub targets: Vec<String>,
    /// Whom they are addressed to.
    pub host: String,
}

impl Warmup {
    /// The targets of the requests in their order, again and again.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        let targets = self.targets.iter().map(String::as_str);
        let root = self.targets.is_empty().then_some("/");
        targets.chain(root).cycle()
    }
}

/// How many requests a program answers before its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Requests {
    /// So many.
    Exactly(u32),
    /// As many as make it faster.
    UntilSteady,
}

impl Default for Requests {
    fn default() -> Self {
        Self::Exactly(0)
    }
}

/// What has come of the requests of a [`Warmup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Warmed {
    /// How many were answered.
    pub requests: u32,
    /// How long one took at first and at best; `None` if there were too few to say.
    pub times: Option<(Duration, Duration)>,
}

impl fmt::Display for Warmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} requests", self.requests)?;
        match self.times {
            Some((first, best)) => write!(f, ", {first:.1?} -> {best:.1?}"),
            None => Ok(()),
        }
    }
}

/// Whether a program's code is translated to code of the host. What a program does is the same
/// either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Translate {
    /// As far as the host can, and within limits; the rest is interpreted.
    #[default]
    Auto,
    /// No: all is interpreted.
    Off,
}

/// The content hash that identifies a program (SHA-256).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProgramId(pub [u8; 32]);

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramId({self})")
    }
}
