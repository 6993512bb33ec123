//! The files of the host that a program has looked at before its snapshot.
//!
//! What it has read of them is in the snapshot. One that is kept on disk is right as long as they are
//! as they were, so a list of them is kept with it.
//!
//! A file counts as unchanged if size, times and inode say so, as for `git`; a file with other
//! times may have been copied or touched, and is compared by its content.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use sandtide_engine::FileGrant;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    Errno,
    vfs::{HostFile, Mounts, Place, Source, Target, join, split},
};

/// So many files are kept track of.
const MOST_FILES: usize = 1 << 16;

/// Bytes of a file that are read at a time.
const PIECE: usize = 1 << 20;

/// The files that a process looks at, while somebody wants to know.
#[derive(Debug, Default)]
pub struct Reads(Option<Box<Mutex<List>>>);

#[derive(Debug, Default)]
struct List {
    /// By the path that the guest has named, absolute.
    files: BTreeMap<Vec<u8>, Stamp>,
    /// There were more.
    is_full: bool,
}

/// A clone is a snapshot, or a sandbox: what those read is nobody's business.
impl Clone for Reads {
    fn clone(&self) -> Self {
        Self(None)
    }
}

/// What tells a file that was changed from one that was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A file as it was when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRead {
    /// Where the guest found it, absolute.
    path: Vec<u8>,
    stamp: Stamp,
    /// SHA-256.
    content: [u8; 32],
}

/// Why a file is not what it was.
#[derive(Debug, thiserror::Error)]
pub enum FileChanged {
    /// It cannot be opened any more.
    #[error("`{path}`, which it has read, cannot be opened any more: {source}")]
    Gone {
        /// The guest's path.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// It has another content.
    #[error("`{path}`, which it has read, has changed")]
    Content {
        /// The guest's path.
        path: String,
    },
    /// There are too many to keep track of.
    #[error("it has looked at more than {MOST_FILES} files")]
    TooMany,
}

impl Stamp {
    fn of(file: &HostFile) -> Result<Self, Errno> {
        let stat = file.host_stat()?;
        Ok(Self {
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            changed: (stat.st_ctime, stat.st_ctime_nsec as i64),
        })
    }
}

impl fmt::Display for FileRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.path).fmt(f)
    }
}

impl Reads {
    pub(crate) fn begin() -> Self {
        Self(Some(Box::default()))
    }

    /// The guest has named this path, and it leads to this place.
    #[inline]
    pub(crate) fn note(&self, mounts: &Mounts, base: &[Vec<u8>], path: &[u8], place: &Place) {
        if let (Some(list), Target::Grant { mount, inside }) = (&self.0, &place.target) {
            let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
            list.note(mounts, (base, path), (*mount, inside));
        }
    }

    /// The engine has read this file for the program.
    pub(crate) fn note_path(&self, mounts: &Mounts, path: &[u8]) {
        if let Ok(place) = mounts.resolve(&[], path, true) {
            self.note(mounts, &[], path, &place);
        }
    }

    /// Where the files lie on the host, given what the program may read.
    pub fn on_host(&self, grants: &[FileGrant]) -> Vec<PathBuf> {
        let Some(list) = &self.0 else { return Vec::new() };
        let list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let host = |path: &Vec<u8>| {
            let path = Path::new(OsStr::from_bytes(path));
            let granted = grants
                .iter()
                .filter_map(|grant| Some((&grant.host, path.strip_prefix(&grant.guest).ok()?)));
            // The deepest grant is the one that was looked into.
            let (host, inside) = granted.min_by_key(|(_, inside)| inside.components().count())?;
            let is_grant = inside.as_os_str().is_empty();
            Some(if is_grant { host.clone() } else { host.join(inside) })
        };
        list.files.keys().filter_map(host).collect()
    }

    /// The files as they are, which must be as they were.
    pub(crate) fn list(&self, mounts: &Mounts) -> Result<Vec<FileRead>, FileChanged> {
        let Some(list) = &self.0 else { return Ok(Vec::new()) };
        let list = list.lock().unwrap_or_else(PoisonError::into_inner);
        if list.is_full {
            return Err(FileChanged::TooMany);
        }
        let read = |(path, stamp): (&Vec<u8>, &Stamp)| {
            let (file, now) = open(mounts, path).map_err(|source| gone(path, source))?;
            let content = hash(&file).map_err(|source| gone(path, source))?;
            match now == *stamp {
                true => Ok(FileRead { path: path.clone(), stamp: *stamp, content }),
                false => Err(FileChanged::Content { path: lossy(path) }),
            }
        };
        list.files.iter().map(read).collect()
    }
}

impl List {
    #[cold]
    fn note(
        &mut self,
        mounts: &Mounts,
        (base, path): (&[Vec<u8>], &[u8]),
        (mount, inside): (usize, &[u8]),
    ) {
        let base = if path.first() == Some(&b'/') { &[] } else { base };
        let path = join(&[base, &split(path)].concat());
        if self.files.contains_key(&path) {
            return;
        }
        let Source::Grant(grant) = &mounts.get(mount).source else { return };
        let Ok(file) = grant.open_file(inside) else { return };
        if file.is_directory {
            return;
        }
        if self.files.len() == MOST_FILES {
            self.is_full = true;
        } else if let Ok(stamp) = Stamp::of(&file) {
            self.files.insert(path, stamp);
        }
    }
}

impl FileRead {
    /// Whether the file is what it was.
    pub(crate) fn check(&self, mounts: &Mounts) -> Result<(), FileChanged> {
        let (file, now) = open(mounts, &self.path).map_err(|source| gone(&self.path, source))?;
        if now == self.stamp {
            return Ok(());
        }
        let is_same = now.size == self.stamp.size
            && hash(&file).map_err(|source| gone(&self.path, source))? == self.content;
        if is_same { Ok(()) } else { Err(FileChanged::Content { path: lossy(&self.path) }) }
    }
}

fn gone(path: &[u8], errno: Errno) -> FileChanged {
    FileChanged::Gone { path: lossy(path), source: errno.into() }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn open(mounts: &Mounts, path: &[u8]) -> Result<(HostFile, Stamp), Errno> {
    let file = mounts.open_host_file(path)?;
    let stamp = Stamp::of(&file)?;
    Ok((file, stamp))
}

fn hash(file: &HostFile) -> Result<[u8; 32], Errno> {
    let mut hash = Sha256::new();
    let (mut piece, mut at) = (vec![0; PIECE], 0);
    loop {
        match file.read_at(&mut piece, at)? {
            0 => return Ok(hash.finalize().into()),
            length => {
                hash.update(&piece[..length]);
                at += length as u64;
            }
        }
    }
}
