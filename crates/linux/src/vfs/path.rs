//! From a path to what it names.
//!
//! A path is resolved against the mounts, component by component, and so is a symbolic link inside
//! a grant: it leads where the guest itself would find its text. What a guest sees as one tree is one
//! tree for links too, and a link to what the guest does not see leads nowhere. The host kernel
//! follows no link for us. The scratch area has no links.

use crate::{
    Errno,
    vfs::{Mounts, Seen, Source},
};

/// The most links that one path may lead through, as in Linux.
const MOST_LINKS: u32 = 40;

/// The most names that one path may lead through, those of links included: each can cost a call.
const MOST_NAMES: u32 = 1024;

/// The longest name, in bytes (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The components of the path, without links but perhaps the last.
    pub(crate) path: Vec<Vec<u8>>,
    pub(crate) target: Target,
    /// The path ended in `/`, or in `.` or `..`: only a directory will do.
    pub(crate) must_be_directory: bool,
}

/// What is there, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing is mounted there or above, but something below.
    MountDirectory,
    /// Inside a mounted grant, at this relative path (empty: the grant itself).
    Grant { mount: usize, inside: Vec<u8> },
    /// In the scratch area, at these components.
    Scratch(Vec<Vec<u8>>),
    /// A mounted file that is no directory.
    File { mount: usize },
    /// Nothing is mounted there, above or below.
    Nothing,
}

/// The components of a path without empty ones.
pub(crate) fn split(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

/// The components of a grant's guest path.
pub(crate) fn mount_point(path: &str) -> Option<Vec<Vec<u8>>> {
    let components = split(path.as_bytes());
    let plain = path.starts_with('/')
        && !path.contains('\0')
        && components.iter().all(|name| name != b"." && name != b"..");
    plain.then_some(components)
}

/// A path from its components.
pub(crate) fn join(components: &[Vec<u8>]) -> Vec<u8> {
    if components.is_empty() {
        return b"/".to_vec();
    }
    components.iter().flat_map(|name| [b"/".as_slice(), name].concat()).collect()
}

impl Mounts {
    /// Resolves a path that starts at the directory `base` unless it is absolute. `base` has no
    /// links. `follow` says what becomes of a link at the end.
    pub(crate) fn resolve(
        &self,
        base: &[Vec<u8>],
        path: &[u8],
        follow: bool,
    ) -> Result<Place, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let must_be_directory = matches!(last, b"" | b"." | b"..");
        let follow = follow || must_be_directory;
        let base = if path[0] == b'/' { &[] } else { base };
        let names: Vec<Vec<u8>> = split(path).into_iter().filter(|name| name != b".").collect();
        if names.iter().any(|name| name.len() > NAME_MAX) {
            return Err(Errno::NAMETOOLONG);
        }
        let plain = [base, &names].concat();
        let path = match names.iter().any(|name| name == b"..") || self.has_link(&plain, follow) {
            true => self.walk(base.to_vec(), names, follow)?,
            false => plain,
        };
        Ok(Place { target: self.target(&path)?, path, must_be_directory })
    }

    /// Whether a path without `..` leads through a link. One call says so for most paths.
    fn has_link(&self, path: &[Vec<u8>], follow: bool) -> bool {
        let Some(mount) = self.above(path) else { return false };
        let inside = &path[self.get(mount).path.len()..];
        match &self.get(mount).source {
            Source::Link(_) => follow || !inside.is_empty(),
            Source::Grant(grant) if !inside.is_empty() => match grant.see(&inside.join(&b'/')) {
                Ok(Seen::Link(_)) => follow,
                Err(Errno::LOOP) => true,
                // Whoever wants to open it is told the error.
                _ => false,
            },
            _ => false,
        }
    }

    /// Follows a path name by name.
    fn walk(
        &self,
        mut path: Vec<Vec<u8>>,
        mut names: Vec<Vec<u8>>,
        follow: bool,
    ) -> Result<Vec<Vec<u8>>, Errno> {
        names.reverse();
        let (mut links, mut steps) = (0, 0);
        while let Some(name) = names.pop() {
            steps += 1;
            if steps > MOST_NAMES {
                return Err(Errno::NAMETOOLONG);
            }
            if name == b".." {
                path.pop();
                continue;
            }
            path.push(name);
            let is_last = names.is_empty();
            match self.see(&path) {
                Ok(Seen::Link(text)) if follow || !is_last => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Errno::LOOP);
                    }
                    match text.first() {
                        None => return Err(Errno::NOENT),
                        Some(b'/') => path.clear(),
                        Some(_) => drop(path.pop()),
                    }
                    names.extend(split(&text).into_iter().rev().filter(|name| name != b"."));
                }
                Ok(Seen::Link(_) | Seen::Directory) => {}
                Ok(Seen::Other) if is_last => {}
                Ok(Seen::Other) => return Err(Errno::NOTDIR),
                // What is not there can still be made, or lead to a mount.
                Err(Errno::NOENT) if is_last || self.any_below(&path) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(path)
    }

    /// What is at a path without links but perhaps the last.
    fn see(&self, path: &[Vec<u8>]) -> Result<Seen, Errno> {
        Ok(match self.target(path)? {
            Target::Grant { mount, inside } => match &self.get(mount).source {
                Source::Grant(grant) => grant.see(&inside)?,
                _ => Seen::Other,
            },
            Target::File { mount } => match &self.get(mount).source {
                Source::Link(text) => Seen::Link(text.clone()),
                _ => Seen::Other,
            },
            // The scratch area says itself what is a directory there.
            Target::Scratch(_) | Target::MountDirectory => Seen::Directory,
            Target::Nothing => return Err(Errno::NOENT),
        })
    }

    /// What a path without links leads to.
    fn target(&self, path: &[Vec<u8>]) -> Result<Target, Errno> {
        let Some(mount) = self.above(path) else {
            let is_directory = self.any_below(path) || path.is_empty();
            return Ok(if is_directory { Target::MountDirectory } else { Target::Nothing });
        };
        let inside = &path[self.get(mount).path.len()..];
        match &self.get(mount).source {
            Source::Grant(_) => Ok(Target::Grant { mount, inside: inside.join(&b'/') }),
            Source::Scratch => Ok(Target::Scratch(inside.to_vec())),
            _ if inside.is_empty() => Ok(Target::File { mount }),
            _ => Err(Errno::NOTDIR),
        }
    }
}
