//! From a path to what it names.
//!
//! A path is resolved against the mounts, component by component. What lies inside a grant is
//! left to the host kernel, which resolves symbolic links and `..` there as if the grant were the
//! root, so that nothing inside leads out. The scratch area has no links.

use crate::{Errno, kernel::Kernel, vfs::Source};

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The components of the path as the guest would write it.
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

/// The components of a path without `.` and `..` and empty ones.
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

impl Kernel {
    /// Resolves a path that starts at the directory `base` unless it is absolute.
    pub(crate) fn resolve(&self, base: &[Vec<u8>], path: &[u8]) -> Result<Place, Errno> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut walk = Walk { kernel: self, stack: Vec::new(), inside: None };
        walk.locate();
        if path[0] != b'/' {
            for name in base {
                walk.down(name)?;
            }
        }
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => walk.up(),
                name => walk.down(name)?,
            }
        }
        let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        Ok(walk.end(matches!(last, b"" | b"." | b"..")))
    }
}

/// A path so far.
struct Walk<'a> {
    kernel: &'a Kernel,
    stack: Vec<Vec<u8>>,
    /// The mount that the path is in, and the path from there as the host must follow it.
    inside: Option<(usize, Vec<Vec<u8>>)>,
}

impl Walk<'_> {
    /// Finds the mount from the stack alone.
    fn locate(&mut self) {
        let mounts = &self.kernel.fixed.mounts;
        self.inside = mounts
            .above(&self.stack)
            .map(|mount| (mount, self.stack[mounts.get(mount).path.len()..].to_vec()));
    }

    fn is_in_grant(&self) -> bool {
        let mounts = &self.kernel.fixed.mounts;
        matches!(&self.inside, Some((mount, _))
            if matches!(mounts.get(*mount).source, Source::Grant(_)))
    }

    fn down(&mut self, name: &[u8]) -> Result<(), Errno> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        let mounts = &self.kernel.fixed.mounts;
        self.stack.push(name.to_vec());
        let above = mounts.above(&self.stack);
        match &mut self.inside {
            // Still in the same mount.
            Some((mount, inside)) if above == Some(*mount) => {
                let is_file =
                    !matches!(&mounts.get(*mount).source, Source::Scratch | Source::Grant(_));
                if is_file {
                    return Err(Errno::NOTDIR);
                }
                inside.push(name.to_vec());
            }
            _ => self.locate(),
        }
        Ok(())
    }

    fn up(&mut self) {
        let mounts = &self.kernel.fixed.mounts;
        let depth = match &self.inside {
            Some((mount, _)) => self.stack.len() - mounts.get(*mount).path.len(),
            None => 0,
        };
        let in_grant = self.is_in_grant();
        self.stack.pop();
        match &mut self.inside {
            // What is above `link/..` only the host knows.
            Some((_, inside)) if in_grant && depth > 0 => inside.push(b"..".to_vec()),
            _ => self.locate(),
        }
    }

    fn end(self, must_be_directory: bool) -> Place {
        let mounts = &self.kernel.fixed.mounts;
        let target = match self.inside {
            None if mounts.any_below(&self.stack) || self.stack.is_empty() => {
                Target::MountDirectory
            }
            None => Target::Nothing,
            Some((mount, inside)) => match &mounts.get(mount).source {
                Source::Grant(_) => Target::Grant { mount, inside: inside.join(&b'/') },
                Source::Scratch => Target::Scratch(inside),
                Source::Device(_) | Source::Text(_) | Source::ProgramLink => Target::File { mount },
            },
        };
        Place { path: self.stack, target, must_be_directory }
    }
}
