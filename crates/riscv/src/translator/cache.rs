//! Translations on disk, by what they are made from.
//!
//! What is read here runs as part of this process. So the directory must belong to the user that
//! we run as and be writable by nobody else, and so must each file; that is looked at on the open
//! directory and the open files, not on their names. Whoever is that user or root can run code as
//! that user anyway.
//!
//! Files appear whole, by renaming, and never change, so that several servers can share a
//! directory. One that was used is touched; the ones that were not used for longest make room.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use super::{
    file::{decode, encode},
    key::Key,
};
use crate::translate::Artifact;

/// What the names of translations end with.
const SUFFIX: &str = ".translation";

/// What the names of files begin with that are not whole.
const UNFINISHED: &str = ".unfinished-";

/// A file that is not whole after so long never will be.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A file larger than this is none of ours.
const LARGEST: u64 = 2 << 30;

/// Why a directory cannot be the cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It is not there and cannot be made, or cannot be opened.
    #[error("cannot open the cache of translations `{path}`")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Others could put code into it.
    #[error("the cache of translations `{path}` {what}, so that others could put code into it")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

impl CacheError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Open { .. } => "set `server.translation.cache` to a directory, or to `off`",
            Self::Unsafe { .. } => {
                "make it a directory of the server's user alone: `chmod 700`, `chown`"
            }
        }
    }
}

/// A directory of translations.
#[derive(Debug)]
pub struct Cache {
    directory: OwnedFd,
    path: PathBuf,
    /// Bytes of all files together.
    most: u64,
    /// For names of files that are not whole.
    unfinished: AtomicU64,
}

/// What the cache has.
#[derive(Debug)]
pub(super) enum Lookup {
    Hit(Artifact),
    Miss,
    Damaged { file: String, why: String },
}

impl Cache {
    /// Opens a directory, which is made if it is not there, for files of at most `most` bytes
    /// together.
    pub fn open(path: &Path, most: u64) -> Result<Self, CacheError> {
        let failed = |source| CacheError::Open { path: path.to_owned(), source };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let open = || rustix::fs::open(path, flags, Mode::empty());
        let directory = match open() {
            Err(rustix::io::Errno::NOENT) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent).map_err(failed)?;
                }
                match rustix::fs::mkdir(path, Mode::RWXU) {
                    Ok(()) | Err(rustix::io::Errno::EXIST) => open(),
                    Err(error) => Err(error),
                }
            }
            result => result,
        };
        let directory = directory.map_err(|error| failed(error.into()))?;
        let status = rustix::fs::fstat(&directory).map_err(|error| failed(error.into()))?;
        if let Err(what) = belongs_to_us(status.st_uid, status.st_mode) {
            return Err(CacheError::Unsafe { path: path.to_owned(), what });
        }
        Ok(Self { directory, path: path.to_owned(), most, unfinished: AtomicU64::new(0) })
    }

    /// The translation with this key.
    pub(super) fn load(&self, key: &Key) -> Lookup {
        let name = format!("{key}{SUFFIX}");
        let damaged = |why: String| Lookup::Damaged {
            file: self.path.join(&name).display().to_string(),
            why,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.directory, &name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => return Lookup::Miss,
            Err(error) => return damaged(format!("it cannot be opened: {error}")),
        };
        let bytes = match read(&file) {
            Ok(bytes) => bytes,
            Err(why) => return damaged(why),
        };
        match decode(key, &bytes) {
            Ok(artifact) => {
                // Only for the order in which files make room.
                let _ = file.set_modified(SystemTime::now());
                Lookup::Hit(artifact)
            }
            Err(damage) => damaged(damage.to_string()),
        }
    }

    /// Keeps a translation, in place of whatever is there, and makes room for it.
    pub(super) fn store(&self, key: &Key, artifact: &Artifact) -> io::Result<()> {
        let bytes = encode(key, artifact).ok_or(io::ErrorKind::InvalidData)?;
        if bytes.len() as u64 > self.most.min(LARGEST) {
            return Ok(());
        }
        let number = self.unfinished.fetch_add(1, Relaxed);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let unfinished = format!("{UNFINISHED}{}-{number}-{now}", std::process::id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut file = File::from(rustix::fs::openat(&self.directory, &unfinished, flags, mode)?);
        let result = file.write_all(&bytes).and_then(|()| {
            let name = format!("{key}{SUFFIX}");
            Ok(rustix::fs::renameat(&self.directory, &unfinished, &self.directory, name)?)
        });
        if result.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, &unfinished, AtFlags::empty());
        }
        result.and_then(|()| self.make_room())
    }

    /// Removes the files that were not used for longest, until the rest is within the limit.
    fn make_room(&self) -> io::Result<()> {
        let mut files: Vec<(Duration, u64, CString)> = Vec::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            // Another server may have removed it meanwhile.
            let Ok(status) = rustix::fs::statat(&self.directory, name, flags) else { continue };
            let modified = Duration::from_secs(status.st_mtime.try_into().unwrap_or(0));
            let modified = modified + Duration::from_nanos(status.st_mtime_nsec);
            let text = name.to_string_lossy();
            if text.starts_with(UNFINISHED) && modified + ABANDONED < now {
                self.remove(name);
            } else if text.ends_with(SUFFIX) {
                files.push((modified, status.st_size.try_into().unwrap_or(0), name.to_owned()));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, name) in files {
            if total <= self.most {
                break;
            }
            self.remove(&name);
            total -= size;
        }
        Ok(())
    }

    /// Another server may be faster.
    fn remove(&self, name: &CStr) {
        let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
    }
}

/// The bytes of a file, if nobody else can have written them.
fn read(file: &File) -> Result<Vec<u8>, String> {
    let failed = |error: io::Error| format!("it cannot be read: {error}");
    let status = rustix::fs::fstat(file).map_err(|error| failed(error.into()))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Err("it is not a file".to_owned());
    }
    belongs_to_us(status.st_uid, status.st_mode).map_err(|what| format!("it {what}"))?;
    let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
    if size > LARGEST {
        return Err(format!("it has {size} bytes"));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether something belongs to our user, and nobody else may write it.
fn belongs_to_us(owner: u32, mode: u32) -> Result<(), &'static str> {
    if owner != rustix::process::geteuid().as_raw() {
        return Err("belongs to another user");
    }
    if Mode::from_raw_mode(mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err("can be written by others");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;
    use crate::translate::tests::artifact;

    const KEY: Key = Key([1; 32]);

    fn cache(most: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("a/b"), most).unwrap();
        (directory, cache)
    }

    fn file(cache: &Cache, key: &Key) -> PathBuf {
        cache.path.join(format!("{key}{SUFFIX}"))
    }

    #[test]
    fn what_is_kept_is_found_again_by_others_too() {
        let (_directory, cache) = cache(1 << 20);
        assert!(matches!(cache.load(&KEY), Lookup::Miss));
        cache.store(&KEY, &artifact()).unwrap();
        let other = Cache::open(&cache.path, 1 << 20).unwrap();
        assert!(matches!(other.load(&KEY), Lookup::Hit(found) if found == artifact()));
        let mode = fs::metadata(&cache.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(fs::read_dir(&cache.path).unwrap().count(), 1, "nothing is left over");
    }

    #[test]
    fn damaged_files_are_told_of_and_replaced() {
        let (_directory, cache) = cache(1 << 20);
        let path = file(&cache, &KEY);
        let whole = encode(&KEY, &artifact()).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() - 1] ^= 1;
        for damaged in [&flipped[..], &whole[..whole.len() - 1], b"", b"#!/bin/sh"] {
            fs::write(&path, damaged).unwrap();
            assert!(matches!(cache.load(&KEY), Lookup::Damaged { .. }));
            cache.store(&KEY, &artifact()).unwrap();
            assert!(matches!(cache.load(&KEY), Lookup::Hit(_)));
        }
    }

    #[test]
    fn what_others_could_have_written_is_not_believed() {
        let (_directory, cache) = cache(1 << 20);
        cache.store(&KEY, &artifact()).unwrap();
        let path = file(&cache, &KEY);
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(cache.load(&KEY), Lookup::Damaged { why, .. } if why.contains("others")));
        let elsewhere = cache.path.with_file_name("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(matches!(cache.load(&KEY), Lookup::Damaged { .. }));
        cache.store(&KEY, &artifact()).unwrap();
        assert!(matches!(cache.load(&KEY), Lookup::Hit(_)), "the link is replaced");
        fs::set_permissions(&cache.path, Permissions::from_mode(0o777)).unwrap();
        let error = Cache::open(&cache.path, 1 << 20).unwrap_err();
        assert!(matches!(error, CacheError::Unsafe { .. }), "{error}");
    }

    #[test]
    fn files_that_were_not_used_for_longest_make_room() {
        let size = encode(&KEY, &artifact()).unwrap().len() as u64;
        let (_directory, cache) = cache(2 * size);
        let key = |number| Key([number; 32]);
        let age = |number: u8, seconds: u64| {
            let file = File::options().write(true).open(file(&cache, &key(number))).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        for number in [2, 3] {
            cache.store(&key(number), &artifact()).unwrap();
            age(number, 10 * u64::from(number));
        }
        assert!(matches!(cache.load(&key(3)), Lookup::Hit(_)), "it is the newest from here on");
        cache.store(&key(4), &artifact()).unwrap();
        let is_there = [2, 3, 4].map(|number| file(&cache, &key(number)).exists());
        assert_eq!(is_there, [false, true, true]);
    }

    #[test]
    fn what_is_larger_than_the_cache_is_not_kept() {
        let (_directory, cache) = cache(10);
        cache.store(&KEY, &artifact()).unwrap();
        assert!(matches!(cache.load(&KEY), Lookup::Miss));
    }
}
