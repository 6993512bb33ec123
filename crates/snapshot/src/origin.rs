//! The file of a program, as it was.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Unusable;

/// Bytes that are read at a time.
const STEP: usize = 1 << 20;

/// A file of the host as it was when it was read.
///
/// It counts as unchanged if size, times and inode say so, as for `git`; a file with other times
/// may have been copied or touched, and is compared by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Where it is.
    pub path: PathBuf,
    stamp: Stamp,
    /// SHA-256.
    content: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Origin {
    /// The file at a path, of which `content` was read.
    ///
    /// # Errors
    /// If it cannot be read, or has another content already.
    pub fn of(path: &Path, content: &[u8]) -> io::Result<Self> {
        // For people, and for whoever starts elsewhere.
        let path = std::path::absolute(path)?;
        let content: [u8; 32] = Sha256::digest(content).into();
        let file = File::open(&path)?;
        let stamp = Stamp::of(&file)?;
        if hash(file)? != content {
            return Err(io::Error::other("it has changed while it was loaded"));
        }
        Ok(Self { path, stamp, content })
    }

    /// Whether the file is what it was.
    pub fn check(&self) -> Result<(), Unusable> {
        let failed = |what| Unusable::Program { path: self.path.clone(), what };
        let cannot = |_| failed("cannot be read any more");
        let file = File::open(&self.path).map_err(cannot)?;
        let stamp = Stamp::of(&file).map_err(cannot)?;
        if stamp == self.stamp {
            return Ok(());
        }
        let is_same = stamp.size == self.stamp.size && hash(file).map_err(cannot)? == self.content;
        if is_same { Ok(()) } else { Err(failed("has changed")) }
    }
}

fn hash(mut file: File) -> io::Result<[u8; 32]> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; STEP]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            length => hash.update(&buffer[..length]),
        }
    }
}
