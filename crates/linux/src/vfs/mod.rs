//! The one tree of files that a guest sees: grants, scratch area, devices and a few texts.

mod exchange;
mod grants;
mod listing;
mod path;
mod scratch;
mod stat;
mod synthetic;

use std::{
    fs, io,
    path::{Component, Path},
    sync::Arc,
};

use sandtide_engine::{FileGrant, Stream};
use serde::{Deserialize, Serialize};

pub(crate) use exchange::ExchangeFile;
pub(crate) use grants::{Grant, HostFile, Seen};
pub(crate) use listing::{Listing, Origin, write_entries};
pub(crate) use path::{Place, Target, join, split};
pub(crate) use scratch::{NodeId, Scratch};
pub(crate) use stat::{FileType, Stat};
pub(crate) use synthetic::{Device, Text};

use crate::{Errno, StartError};

/// What an open description refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Node {
    Stdin,
    Console(Stream),
    Device(Device),
    /// A part of the exchange that the sandbox serves.
    Exchange(ExchangeFile),
    /// A text that was made when it was opened.
    Text(Arc<Vec<u8>>),
    #[serde(with = "crate::saved::host_file")]
    Host(Arc<HostFile>),
    Scratch(NodeId),
    /// A directory that is only there because something is mounted below it.
    MountDirectory,
    PipeReader(usize),
    PipeWriter(usize),
    /// An eventfd.
    Counter(usize),
    Epoll(usize),
    /// A timerfd.
    Timer(usize),
    /// A signalfd, for the signals of a mask.
    Signals(u64),
    /// One end of a pair.
    Socket(usize),
    /// A socket that can have an address.
    Endpoint(usize),
}

/// What is mounted at a path.
#[derive(Debug)]
pub(crate) enum Source {
    Grant(Grant),
    Scratch,
    Device(Device),
    Exchange(ExchangeFile),
    Text(Text),
    /// A symbolic link.
    Link(Vec<u8>),
}

/// A mounted file or directory.
#[derive(Debug)]
pub(crate) struct Mount {
    /// The components of its path; none for `/`.
    pub(crate) path: Vec<Vec<u8>>,
    pub(crate) source: Source,
}

/// Everything that is mounted.
#[derive(Debug)]
pub(crate) struct Mounts {
    list: Vec<Mount>,
}

/// What a granted file that is a symbolic link says, where it leads the guest to the same file of
/// another grant: programs look at `/etc/localtime` for the name of the time zone.
fn link(grant: &FileGrant, grants: &[FileGrant]) -> Option<Vec<u8>> {
    let is_same = |grant: &FileGrant| Path::new(&grant.guest) == grant.host;
    if !is_same(grant) {
        return None;
    }
    let target = grant.host.parent()?.join(fs::read_link(&grant.host).ok()?);
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let leads_to = |other: &FileGrant| {
        is_same(other) && other.host != grant.host && target.starts_with(&other.host)
    };
    let is_seen = target.components().all(is_plain) && grants.iter().any(leads_to);
    is_seen.then(|| target.into_os_string().into_encoded_bytes())
}

impl Mounts {
    /// Opens the grants. They win over what every guest has at the same path. `program` is the path
    /// of the program; `libraries` says whether it loads any, `reseed` whether it gets hooks.
    pub(crate) fn open(
        grants: &[FileGrant],
        program: &[u8],
        libraries: bool,
        reseed: bool,
    ) -> Result<Self, StartError> {
        let mut list: Vec<Mount> = Vec::new();
        for grant in grants {
            let bad = |what| StartError::BadGrant { guest: grant.guest.clone(), what };
            let path = path::mount_point(&grant.guest)
                .ok_or(bad("the guest path must be absolute, without `.`, `..` and NUL"))?;
            if list.iter().any(|mount| mount.path == path) {
                return Err(bad("another grant has the same guest path"));
            }
            let opened = Grant::open(&grant.host, grant.public).map_err(|source| {
                StartError::Grant { path: grant.host.display().to_string(), source }
            })?;
            let source = match link(grant, grants) {
                Some(text) if !opened.is_directory() => Source::Link(text),
                _ => Source::Grant(opened),
            };
            list.push(Mount { path, source });
        }
        for (path, source) in synthetic::mounts(program, libraries, reseed) {
            let path = path::split(path.as_bytes());
            if !list.iter().any(|mount| mount.path == path) {
                list.push(Mount { path, source });
            }
        }
        Ok(Self { list })
    }

    pub(crate) fn get(&self, index: usize) -> &Mount {
        &self.list[index]
    }

    /// The deepest mount at or above a path.
    pub(crate) fn above(&self, path: &[Vec<u8>]) -> Option<usize> {
        (0..self.list.len())
            .filter(|index| path.starts_with(&self.list[*index].path))
            .max_by_key(|index| self.list[*index].path.len())
    }

    /// Whether something is mounted below a path.
    pub(crate) fn any_below(&self, path: &[Vec<u8>]) -> bool {
        self.list.iter().any(|mount| mount.path.len() > path.len() && mount.path.starts_with(path))
    }

    /// The names in a directory that come from mounts, with whether the mount itself is there.
    pub(crate) fn children(&self, path: &[Vec<u8>]) -> Vec<(&[u8], FileType)> {
        let mut children: Vec<(&[u8], FileType)> = Vec::new();
        for mount in &self.list {
            if mount.path.len() > path.len() && mount.path.starts_with(path) {
                let name = mount.path[path.len()].as_slice();
                let kind = if mount.path.len() == path.len() + 1 {
                    mount.source.file_type()
                } else {
                    FileType::Directory
                };
                match children.iter_mut().find(|child| child.0 == name) {
                    Some(child) if mount.path.len() == path.len() + 1 => child.1 = kind,
                    Some(_) => {}
                    None => children.push((name, kind)),
                }
            }
        }
        children
    }
}

impl Mounts {
    /// Opens the file of the host that a guest finds at an absolute path.
    pub(crate) fn open_host_file(&self, path: &[u8]) -> Result<HostFile, Errno> {
        let place = self.resolve(&[], path, true)?;
        let Target::Grant { mount, inside } = &place.target else { return Err(Errno::NOENT) };
        let Source::Grant(grant) = &self.get(*mount).source else { return Err(Errno::NOENT) };
        Ok(grant.open_file(inside)?.at(place.path))
    }
}

/// Reads a whole file, of at most `longest` bytes, as a guest with these grants would find it.
pub fn read_granted(grants: &[FileGrant], path: &str, longest: u64) -> io::Result<Vec<u8>> {
    let mounts = Mounts::open(grants, b"/", true, false).map_err(io::Error::other)?;
    let file = mounts.open_host_file(path.as_bytes())?;
    let length = file.stat()?.size;
    if length > longest {
        return Err(Errno::FBIG.into());
    }
    let mut bytes = vec![0; length as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], filled as u64)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(bytes)
}

impl Source {
    fn file_type(&self) -> FileType {
        match self {
            Self::Grant(grant) if grant.is_directory() => FileType::Directory,
            Self::Scratch => FileType::Directory,
            Self::Grant(_) | Self::Text(_) => FileType::Regular,
            Self::Device(_) | Self::Exchange(_) => FileType::Character,
            Self::Link(_) => FileType::Link,
        }
    }
}
