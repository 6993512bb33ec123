//! Why a snapshot cannot be used.

use std::{io, path::PathBuf};

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("cannot read `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else could have written it.
    #[error("`{path}` {what}, so that others could decide what the program does")]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// It is none, or not as it was written.
    #[error("`{path}` is damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// It is of another time.
    #[error("`{path}` has format {found}, this build reads {known}")]
    Format {
        /// The file.
        path: PathBuf,
        /// The one that it has.
        found: u64,
        /// The one that is known.
        known: u64,
    },
    /// It was made elsewhere.
    #[error("the snapshot was made with {name} `{made}`, here it is `{here}`")]
    Condition {
        /// What is different.
        name: String,
        /// What it was where the snapshot was made.
        made: String,
        /// What it is here.
        here: String,
    },
    /// Its program is another one now.
    #[error("the program's file `{path}` {what} since the snapshot was made")]
    Program {
        /// The program's file.
        path: PathBuf,
        /// What became of it.
        what: &'static str,
    },
}

impl Unusable {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => "check the path, or make one: `sandtide snapshot -- PROGRAM`",
            Self::Unsafe { .. } => {
                "let it belong to the server's user alone: `chmod go-w`, `chown`"
            }
            Self::Damaged { .. }
            | Self::Format { .. }
            | Self::Condition { .. }
            | Self::Program { .. } => "make it anew: `sandtide snapshot`",
        }
    }
}
