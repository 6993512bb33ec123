//! Host files that a guest may read.
//!
//! Every path inside a grant is resolved by the host kernel with `RESOLVE_IN_ROOT` and
//! `RESOLVE_NO_SYMLINKS`: nothing in it can leave the grant, and a path with a link is not followed
//! at all (see `path`). Only regular files and directories of real file systems are opened, and only
//! for reading.

use std::{io, path::Path};

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{self, AtFlags, Dir, FileType as HostType, Mode, OFlags, ResolveFlags},
};

use crate::{
    Errno,
    vfs::{FileType, Stat},
};

/// The most entries that a listing has.
const MAX_ENTRIES: usize = 65536;

/// File systems whose files are not data but the host's state (`statfs(2)`).
const STATE_FILE_SYSTEMS: [u64; 8] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0x7363_6673, // securityfs
];

/// A mounted host file or directory.
#[derive(Debug)]
pub(crate) struct Grant {
    root: OwnedFd,
    is_directory: bool,
    /// Only what every user of the host may read.
    public: bool,
}

/// An open file or directory of a grant.
#[derive(Debug)]
pub(crate) struct HostFile {
    fd: OwnedFd,
    pub(crate) is_directory: bool,
    /// Where the guest has found it, for who opens it again; empty where nobody does.
    pub(crate) path: Vec<Vec<u8>>,
}

/// Two are the same if they are one: each has a descriptor of its own.
impl PartialEq for HostFile {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for HostFile {}

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Directory,
    /// A symbolic link with this text.
    Link(Vec<u8>),
    Other,
}

/// How often the host may say that a rename came between.
const RETRIES: u32 = 3;

impl Grant {
    pub(crate) fn open(path: &Path, public: bool) -> io::Result<Self> {
        let seen = fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let kind = HostType::from_raw_mode(fs::fstat(&seen)?.st_mode);
        match kind {
            HostType::Directory => Ok(Self { root: seen, is_directory: true, public }),
            HostType::RegularFile => {
                let root = fs::open(path, read_flags(), Mode::empty())?;
                if HostType::from_raw_mode(fs::fstat(&root)?.st_mode) != HostType::RegularFile {
                    return Err(Errno::ACCESS.into());
                }
                Ok(Self { root, is_directory: false, public })
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "only regular files and directories can be granted",
            )),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// What a path inside names.
    pub(crate) fn see(&self, inside: &[u8]) -> Result<Seen, Errno> {
        if !self.is_directory {
            return if inside.is_empty() { Ok(Seen::Other) } else { Err(Errno::NOTDIR) };
        }
        let seen = self.look(inside)?;
        Ok(match HostType::from_raw_mode(fs::fstat(&seen)?.st_mode) {
            HostType::Directory => Seen::Directory,
            HostType::Symlink => Seen::Link(fs::readlinkat(&seen, c"", Vec::new())?.into_bytes()),
            _ => Seen::Other,
        })
    }

    /// Opens what a path inside names, for reading.
    pub(crate) fn open_file(&self, inside: &[u8]) -> Result<HostFile, Errno> {
        if !self.is_directory {
            return if inside.is_empty() {
                if self.public && !self.is_public(inside, fs::fstat(&self.root)?.st_mode)? {
                    return Err(Errno::ACCESS);
                }
                let fd = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
                Ok(HostFile { fd, is_directory: false, path: Vec::new() })
            } else {
                Err(Errno::NOTDIR)
            };
        }
        // Look first: to open a device or a FIFO can have effects.
        let seen = self.look(inside)?;
        let expected = fs::fstat(&seen)?;
        let is_directory = match HostType::from_raw_mode(expected.st_mode) {
            HostType::RegularFile => false,
            HostType::Directory => true,
            HostType::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::ACCESS),
        };
        if self.public && !self.is_public(inside, expected.st_mode)? {
            return Err(Errno::ACCESS);
        }
        if STATE_FILE_SYSTEMS.contains(&(fs::fstatfs(&seen)?.f_type as u64)) {
            return Err(Errno::ACCESS);
        }
        let fd = self.open_at(inside, read_flags())?;
        let found = fs::fstat(&fd)?;
        if (found.st_dev, found.st_ino) != (expected.st_dev, expected.st_ino) {
            return Err(Errno::ACCESS);
        }
        Ok(HostFile { fd, is_directory, path: Vec::new() })
    }

    /// Whether every user of the host may read what is at a path with this mode: it, and the
    /// directories on the way.
    fn is_public(&self, inside: &[u8], mode: u32) -> Result<bool, Errno> {
        const READ: u32 = 0o4;
        const SEARCH: u32 = 0o1;
        let ends = inside.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let root = (!inside.is_empty()).then_some(0);
        for end in root.into_iter().chain(ends) {
            let above = fs::fstat(self.look(&inside[..end])?)?;
            if above.st_mode & SEARCH == 0 {
                return Ok(false);
            }
        }
        Ok(mode & READ != 0)
    }

    /// The metadata of what a path inside names.
    pub(crate) fn stat(&self, inside: &[u8]) -> Result<Stat, Errno> {
        if !self.is_directory {
            let file = self.open_file(inside)?;
            return file.stat();
        }
        Ok(Stat::of_host(&fs::fstat(self.look(inside)?)?))
    }

    /// Where a symbolic link leads.
    pub(crate) fn read_link(&self, inside: &[u8]) -> Result<Vec<u8>, Errno> {
        match self.see(inside)? {
            Seen::Link(text) => Ok(text),
            _ => Err(Errno::INVAL),
        }
    }

    /// Whether the host lets us read what a path inside names (and search or execute it).
    pub(crate) fn access(&self, inside: &[u8], execute: bool) -> Result<(), Errno> {
        if !self.is_directory {
            return self.open_file(inside).map(drop);
        }
        let seen = self.look(inside)?;
        let mode = if execute { fs::Access::EXEC_OK } else { fs::Access::READ_OK };
        fs::accessat(&seen, c"", mode, AtFlags::EMPTY_PATH).or_else(|error| match error {
            // Older hosts do not take an empty path; the mode bits then say it well enough.
            Errno::NOSYS | Errno::INVAL => {
                let bits = if execute { 0o111 } else { 0o444 };
                let mode = fs::fstat(&seen)?.st_mode;
                if mode & bits == 0 { Err(Errno::ACCESS) } else { Ok(()) }
            }
            error => Err(error),
        })
    }

    fn look(&self, inside: &[u8]) -> Result<OwnedFd, Errno> {
        self.open_at(inside, OFlags::PATH | OFlags::CLOEXEC)
    }

    fn open_at(&self, inside: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW;
        let inside = if inside.is_empty() { b"." } else { inside };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
        let mut tries = 0;
        loop {
            match fs::openat2(&self.root, inside, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN) if tries < RETRIES => tries += 1,
                // What a race or a server without descriptors means to the guest.
                Err(Errno::AGAIN | Errno::MFILE) => return Err(Errno::NFILE),
                result => return result,
            }
        }
    }
}

fn read_flags() -> OFlags {
    OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK
}

impl AsFd for HostFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl HostFile {
    /// With the path where the guest has found it.
    pub(crate) fn at(self, path: Vec<Vec<u8>>) -> Self {
        Self { path, ..self }
    }

    /// The metadata as the host has it.
    pub(crate) fn host_stat(&self) -> Result<fs::Stat, Errno> {
        fs::fstat(&self.fd)
    }

    /// Reads at an offset.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if self.is_directory {
            return Err(Errno::ISDIR);
        }
        if offset > i64::MAX as u64 {
            return Err(Errno::INVAL);
        }
        rustix::io::pread(self.fd.as_fd(), buffer, offset)
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        Ok(Stat::of_host(&fs::fstat(&self.fd)?))
    }

    /// The entries of a directory, without `.` and `..`.
    pub(crate) fn entries(&self) -> Result<Vec<(Vec<u8>, FileType)>, Errno> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.fd)?.take(MAX_ENTRIES) {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                entries.push((name.to_vec(), FileType::of_host(entry.file_type())));
            }
        }
        Ok(entries)
    }
}
