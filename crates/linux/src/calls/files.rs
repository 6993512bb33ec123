//! Opening files, directories, and changes to the scratch area.

use std::sync::Arc;

use crate::{
    Errno, Host,
    files::{Description, flags},
    guest,
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail, value},
    vfs::{Node, NodeId, Origin, Place, Source, Target, write_entries},
};

use super::metadata::now;

/// `AT_FDCWD`.
pub(super) const WORKING_DIRECTORY: u64 = -100i64 as u64;

/// The longest `getdents64` answer, in bytes.
const LISTING_CHUNK: u64 = 64 << 10;

impl Kernel {
    /// Resolves the path at `address` from the directory `fd`. `follow` says what becomes of a
    /// link at the end.
    pub(super) fn resolve_at(
        &self,
        host: &Host<'_>,
        fd: u64,
        address: u64,
        follow: bool,
    ) -> Result<Place, Stop> {
        let path = guest::path(host.memory, address)?;
        let base = if path.first() == Some(&b'/') { &[] } else { self.directory_at(fd)? };
        let place = self.fixed.mounts.resolve(base, &path, follow)?;
        self.reads.note(&self.fixed.mounts, base, &path, &place);
        Ok(place)
    }

    /// The path of the directory that `fd` is.
    pub(super) fn directory_at(&self, fd: u64) -> Result<&[Vec<u8>], Errno> {
        if fd as u32 == WORKING_DIRECTORY as u32 {
            return Ok(&self.files.directory);
        }
        let description = self.files.get(fd)?;
        if self.node_is_directory(&description.node) {
            Ok(&description.path)
        } else {
            Err(Errno::NOTDIR)
        }
    }

    pub(super) fn node_is_directory(&self, node: &Node) -> bool {
        match node {
            Node::MountDirectory => true,
            Node::Host(file) => file.is_directory,
            Node::Scratch(id) => self.scratch.is_directory(*id),
            _ => false,
        }
    }

    /// Makes a file or directory of the scratch area.
    fn create(&mut self, path: &[Vec<u8>], directory: bool, mode: u64) -> Result<NodeId, Errno> {
        let permissions = mode as u32 & !self.files.umask;
        let id = self.scratch.change().create(path, directory, now())?;
        self.scratch.change().set_permissions(id, permissions);
        Ok(id)
    }

    /// Opens a place.
    fn open(
        &mut self,
        place: &Place,
        given: u32,
        mode: u64,
        available: u64,
    ) -> Result<Node, Errno> {
        let writes = given & flags::ACCESS != 0 || given & flags::TRUNCATE != 0;
        let writes = writes && given & flags::PATH == 0;
        let creates = given & flags::CREATE != 0;
        let exclusive =
            given & (flags::CREATE | flags::EXCLUSIVE) == flags::CREATE | flags::EXCLUSIVE;
        let fixed = Arc::clone(&self.fixed);
        let node = match &place.target {
            Target::Nothing => return Err(Errno::NOENT),
            Target::MountDirectory => Node::MountDirectory,
            Target::Scratch(path) => match self.scratch.find(path) {
                Err(Errno::NOENT) if fixed.mounts.any_below(&place.path) => Node::MountDirectory,
                Err(Errno::NOENT) if creates => {
                    if place.must_be_directory {
                        return Err(Errno::ISDIR);
                    }
                    return self.create(path, false, mode).map(Node::Scratch);
                }
                found => Node::Scratch(found?),
            },
            Target::File { mount } => match &fixed.mounts.get(*mount).source {
                Source::Device(device) => Node::Device(*device),
                Source::Exchange(file) if file.can_open(given) => Node::Exchange(*file),
                Source::Text(text) if !writes => Node::Text(Arc::new(self.text(*text, available))),
                Source::Link(_) if exclusive => return Err(Errno::EXIST),
                Source::Link(_) => return Err(Errno::LOOP),
                _ => return Err(Errno::ACCESS),
            },
            Target::Grant { mount, inside } => {
                let Source::Grant(grant) = &fixed.mounts.get(*mount).source else {
                    return Err(Errno::NOENT);
                };
                match grant.open_file(inside) {
                    Ok(_) if writes && !exclusive => return Err(Errno::ROFS),
                    Ok(file) => Node::Host(Arc::new(file.at(place.path.clone()))),
                    Err(Errno::NOENT) if fixed.mounts.any_below(&place.path) => {
                        Node::MountDirectory
                    }
                    Err(Errno::NOENT) if creates => return Err(Errno::ROFS),
                    Err(errno) => return Err(errno),
                }
            }
        };
        if exclusive {
            return Err(Errno::EXIST);
        }
        let is_directory = self.node_is_directory(&node);
        if is_directory && (writes || creates) {
            return Err(Errno::ISDIR);
        }
        if !is_directory && (given & flags::DIRECTORY != 0 || place.must_be_directory) {
            return Err(Errno::NOTDIR);
        }
        if let Node::Scratch(id) = node
            && given & flags::TRUNCATE != 0
            && writes
        {
            self.scratch.change().resize(id, 0, now())?;
        }
        Ok(node)
    }
}

pub(crate) fn openat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const KEPT: u32 = flags::ACCESS | flags::APPEND | flags::NONBLOCK | flags::PATH;
    let [directory, path, given, mode, ..] = args;
    let given = given as u32;
    if given & flags::TEMPORARY != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    // What is to be made must not be there, not even as a link.
    let exclusive = given & (flags::CREATE | flags::EXCLUSIVE) == flags::CREATE | flags::EXCLUSIVE;
    let follow = given & flags::NOFOLLOW == 0 && !exclusive;
    let place = kernel.resolve_at(host, directory, path, follow)?;
    let node = kernel.open(&place, given, mode, host.memory.available())?;
    let path = if kernel.node_is_directory(&node) { place.path } else { Vec::new() };
    let description = Description::new(node, given & KEPT).at(path);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

/// `open` of x86-64.
pub(crate) fn open(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    openat(kernel, host, [WORKING_DIRECTORY, args[0], args[1], args[2], 0, 0])
}

/// `creat` of x86-64.
pub(crate) fn creat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let given = u64::from(flags::CREATE | flags::WRITE_ONLY | flags::TRUNCATE);
    openat(kernel, host, [WORKING_DIRECTORY, args[0], given, args[1], 0, 0])
}

pub(crate) fn getdents64(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, buffer, size, ..] = args;
    let description = kernel.files.get(fd)?;
    if !kernel.node_is_directory(&description.node) {
        return fail(Errno::NOTDIR);
    }
    if description.flags & flags::PATH != 0 {
        return fail(Errno::BADF);
    }
    let offset = description.offset;
    let listing = match &description.listing {
        Some(listing) => Arc::clone(listing),
        None => {
            let origin = match &description.node {
                Node::Host(file) => Origin::Host(file),
                Node::Scratch(id) => Origin::Scratch(*id),
                _ => Origin::Nothing,
            };
            let listing = Arc::new(kernel.list(&description.path, origin)?);
            kernel.files.change().get_mut(fd)?.listing = Some(Arc::clone(&listing));
            listing
        }
    };
    let first = usize::try_from(offset).unwrap_or(usize::MAX);
    let capacity = u64::from(size as u32).min(LISTING_CHUNK) as usize;
    let (bytes, next) = write_entries(&listing, first, capacity)?;
    guest::write(host.memory, buffer, &bytes)?;
    if next as u64 != offset {
        kernel.files.change().get_mut(fd)?.offset = next as u64;
    }
    value(bytes.len() as u64)
}

pub(crate) fn getcwd(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let mut path = crate::vfs::join(&kernel.files.directory);
    path.push(0);
    if path.len() as u64 > args[1] {
        return fail(Errno::RANGE);
    }
    guest::write(host.memory, args[0], &path)?;
    value(path.len() as u64)
}

pub(crate) fn chdir(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let place = kernel.resolve_at(host, WORKING_DIRECTORY, args[0], true)?;
    let node = kernel.open(&place, flags::DIRECTORY, 0, host.memory.available())?;
    debug_assert!(kernel.node_is_directory(&node));
    kernel.set_directory(place.path)
}

pub(crate) fn fchdir(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let path = match args[0] as u32 {
        fd if fd == WORKING_DIRECTORY as u32 => return fail(Errno::BADF),
        fd => kernel.directory_at(u64::from(fd))?.to_vec(),
    };
    kernel.set_directory(path)
}

impl Kernel {
    fn set_directory(&mut self, path: Vec<Vec<u8>>) -> CallResult {
        // Each name was given in a path of `PATH_MAX`; together they could grow without end.
        if path.iter().map(|name| name.len() + 1).sum::<usize>() >= guest::PATH_MAX as usize {
            return fail(Errno::NAMETOOLONG);
        }
        self.files.change().directory = path;
        DONE
    }

    /// The scratch path of a place that is to be changed.
    fn writable<'a>(&self, place: &'a Place) -> Result<&'a [Vec<u8>], Errno> {
        match &place.target {
            Target::Scratch(path) if path.is_empty() => Err(Errno::BUSY),
            Target::Scratch(path) => Ok(path),
            // What is not there at all is told apart from what is read-only.
            _ => self.stat_place(place).and(Err(Errno::ROFS)),
        }
    }
}

pub(crate) fn mkdirat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let place = kernel.resolve_at(host, args[0], args[1], false)?;
    if kernel.stat_place(&place).is_ok() {
        return fail(Errno::EXIST);
    }
    let Target::Scratch(path) = &place.target else { return fail(Errno::ROFS) };
    kernel.create(path, true, args[2])?;
    DONE
}

/// `mkdir` of x86-64.
pub(crate) fn mkdir(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    mkdirat(kernel, host, [WORKING_DIRECTORY, args[0], args[1], 0, 0, 0])
}

pub(crate) fn unlinkat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const REMOVE_DIRECTORY: u64 = 0x200;
    if args[2] & !REMOVE_DIRECTORY != 0 {
        return fail(Errno::INVAL);
    }
    let place = kernel.resolve_at(host, args[0], args[1], false)?;
    let path = kernel.writable(&place)?;
    let directory = args[2] & REMOVE_DIRECTORY != 0;
    if !directory && place.must_be_directory {
        return fail(Errno::NOTDIR);
    }
    kernel.scratch.change().remove(path, directory)?;
    DONE
}

/// `unlink` of x86-64.
pub(crate) fn unlink(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    unlinkat(kernel, host, [WORKING_DIRECTORY, args[0], 0, 0, 0, 0])
}

/// `rmdir` of x86-64.
pub(crate) fn rmdir(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    unlinkat(kernel, host, [WORKING_DIRECTORY, args[0], 0x200, 0, 0, 0])
}

pub(crate) fn renameat2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const NOREPLACE: u64 = 1;
    let [from_directory, from, to_directory, to, given, _] = args;
    if given & !NOREPLACE != 0 {
        return fail(Errno::INVAL);
    }
    let from = kernel.resolve_at(host, from_directory, from, false)?;
    let to = kernel.resolve_at(host, to_directory, to, false)?;
    let (Target::Scratch(_), Target::Scratch(target)) = (&from.target, &to.target) else {
        kernel.writable(&from)?;
        return fail(Errno::XDEV);
    };
    let source = kernel.writable(&from)?;
    kernel.scratch.change().rename(source, target, given & NOREPLACE == 0)?;
    DONE
}

pub(crate) fn renameat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    renameat2(kernel, host, [args[0], args[1], args[2], args[3], 0, 0])
}

/// `rename` of x86-64.
pub(crate) fn rename(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    renameat2(kernel, host, [WORKING_DIRECTORY, args[0], WORKING_DIRECTORY, args[1], 0, 0])
}

/// `linkat`, `symlinkat`: the scratch area has no links.
pub(crate) fn no_links(_: &mut Kernel, _: &mut Host<'_>, _: Args) -> CallResult {
    fail(Errno::PERM)
}

pub(crate) fn ftruncate(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let description = kernel.files.get(args[0])?;
    if args[1] > i64::MAX as u64 || !description.can_write() {
        return fail(Errno::INVAL);
    }
    let Node::Scratch(id) = description.node else { return fail(Errno::INVAL) };
    kernel.scratch.change().resize(id, args[1], now())?;
    DONE
}

pub(crate) fn truncate(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[1] > i64::MAX as u64 {
        return fail(Errno::INVAL);
    }
    let place = kernel.resolve_at(host, WORKING_DIRECTORY, args[0], true)?;
    let path = kernel.writable(&place)?;
    let id = kernel.scratch.find(path)?;
    kernel.scratch.change().resize(id, args[1], now())?;
    DONE
}

/// `fallocate` without flags: the file is at least as long.
pub(crate) fn fallocate(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let [fd, mode, offset, length, ..] = args;
    let description = kernel.files.get(fd)?;
    if mode != 0 {
        return fail(Errno::OPNOTSUPP);
    }
    let Node::Scratch(id) = description.node else { return fail(Errno::NODEV) };
    if !description.can_write() {
        return fail(Errno::BADF);
    }
    let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
    let end = end.filter(|_| length > 0).ok_or(Errno::INVAL)?;
    if end > kernel.scratch.size(id)? {
        kernel.scratch.change().resize(id, end, now())?;
    }
    DONE
}

/// `memfd_create(name, flags)`: a file of the scratch area without a name.
pub(crate) fn memfd_create(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const CLOSE_ON_EXEC: u64 = 1;
    const ALLOW_SEALING: u64 = 2;
    const NO_EXECUTE: u64 = 8;
    const EXECUTE: u64 = 16;
    const NAME_MAX: u64 = 250;
    let [name, given, ..] = args;
    let given = u64::from(given as u32);
    if given & !(CLOSE_ON_EXEC | ALLOW_SEALING | NO_EXECUTE | EXECUTE) != 0 {
        return fail(Errno::INVAL);
    }
    // The name is for people who look at /proc.
    guest::string(host.memory, name, NAME_MAX, Errno::INVAL)?;
    kernel.expect_free(1)?;
    let id = kernel.scratch.change().create_unnamed(now())?;
    let description = Description::new(Node::Scratch(id), flags::READ_WRITE);
    value(kernel.install(description, given & CLOSE_ON_EXEC != 0)?)
}

/// `fsync`, `fdatasync`, `fadvise64`: there is nothing to write back and nothing to read ahead.
pub(crate) fn open_only(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    kernel.files.get(args[0])?;
    DONE
}

pub(crate) fn umask(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let old = kernel.files.umask;
    kernel.files.change().umask = args[0] as u32 & 0o777;
    value(old)
}
