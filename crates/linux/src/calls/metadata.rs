//! Metadata of files, and symbolic links.

use rustix::time::ClockId;

use crate::{
    Errno, Host,
    calls::{files::WORKING_DIRECTORY, time::host_clock},
    guest,
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail, value},
    vfs::{Device, ExchangeFile, FileType, Node, Place, Source, Stat, Target, Text},
};

const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_EMPTY_PATH: u64 = 0x1000;

/// The inode numbers of what is no file: mounts from here on, then everything else.
const MOUNT_INODES: u64 = 0x100;
const STREAM_INODE: u64 = 0x10;
const SOCKET_INODES: u64 = 1 << 32;
const ENDPOINT_INODES: u64 = 2 << 32;

/// The time for a file that is written now.
pub(super) fn now() -> (i64, u32) {
    let time = host_clock(ClockId::Realtime);
    (i64::try_from(time.as_secs()).unwrap_or(0), time.subsec_nanos())
}

/// A text that stays as it is has a length, by which C libraries find its end.
fn text_stat(length: usize, inode: u64) -> Stat {
    Stat { size: length as u64, ..Stat::synthetic(FileType::Regular, 0o444, inode) }
}

fn device_stat(device: Device, inode: u64) -> Stat {
    let kind = FileType::Character;
    Stat { device_number: device.number(), ..Stat::synthetic(kind, 0o666, inode) }
}

fn exchange_stat(file: ExchangeFile, inode: u64) -> Stat {
    let kind = FileType::Character;
    Stat { device_number: file.number(), ..Stat::synthetic(kind, file.permissions(), inode) }
}

impl Kernel {
    /// The metadata of a place.
    pub(super) fn stat_place(&self, place: &Place) -> Result<Stat, Errno> {
        let mounts = &self.fixed.mounts;
        let directory = || Stat::synthetic(FileType::Directory, 0o555, 1);
        let stat = match &place.target {
            Target::Nothing => return Err(Errno::NOENT),
            Target::MountDirectory => directory(),
            Target::Scratch(path) => match self.scratch.find(path) {
                Err(Errno::NOENT) if mounts.any_below(&place.path) => directory(),
                found => self.scratch.stat(found?)?,
            },
            Target::Grant { mount, inside } => {
                let Source::Grant(grant) = &mounts.get(*mount).source else {
                    return Err(Errno::NOENT);
                };
                match grant.stat(inside) {
                    Err(Errno::NOENT) if mounts.any_below(&place.path) => directory(),
                    result => result?,
                }
            }
            Target::File { mount } => {
                let inode = MOUNT_INODES + *mount as u64;
                match &mounts.get(*mount).source {
                    Source::Device(device) => device_stat(*device, inode),
                    Source::Exchange(file) => exchange_stat(*file, inode),
                    Source::Link(text) => Stat {
                        size: text.len() as u64,
                        ..Stat::synthetic(FileType::Link, 0o777, inode)
                    },
                    // What is made when it is opened has no size before, as in Linux.
                    Source::Text(Text::Fixed(text)) => text_stat(text.len(), inode),
                    _ => text_stat(0, inode),
                }
            }
        };
        if place.must_be_directory && stat.kind != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(stat)
    }

    fn stat_node(&self, node: &Node) -> Result<Stat, Errno> {
        Ok(match node {
            Node::Stdin | Node::Console(_) => Stat::synthetic(FileType::Fifo, 0o600, STREAM_INODE),
            Node::PipeReader(pipe) | Node::PipeWriter(pipe) => {
                Stat::synthetic(FileType::Fifo, 0o600, STREAM_INODE + 1 + *pipe as u64)
            }
            Node::Socket(socket) => {
                Stat::synthetic(FileType::Socket, 0o777, SOCKET_INODES + *socket as u64)
            }
            Node::Endpoint(index) => {
                Stat::synthetic(FileType::Socket, 0o777, ENDPOINT_INODES + *index as u64)
            }
            // As Linux's anonymous inodes: no type, and all the same.
            Node::Counter(_) | Node::Epoll(_) | Node::Timer(_) | Node::Signals(_) => {
                Stat::synthetic(FileType::Anonymous, 0o600, MOUNT_INODES - 2)
            }
            Node::Device(device) => device_stat(*device, MOUNT_INODES - 1),
            Node::Exchange(file) => exchange_stat(*file, MOUNT_INODES - 1),
            Node::Text(text) => text_stat(text.len(), MOUNT_INODES - 1),
            Node::Host(file) => file.stat()?,
            Node::Scratch(id) => self.scratch.stat(*id)?,
            Node::MountDirectory => Stat::synthetic(FileType::Directory, 0o555, 1),
        })
    }

    /// The metadata of what a directory descriptor, a path and `AT_` flags name.
    fn stat_at(&self, host: &Host<'_>, fd: u64, path: u64, flags: u64) -> Result<Stat, Stop> {
        if flags & AT_EMPTY_PATH != 0 && (path == 0 || host.memory.view(path, 1)?[0] == 0) {
            if fd as u32 == WORKING_DIRECTORY as u32 {
                let here = self.fixed.mounts.resolve(&self.files.directory, b".", true)?;
                return Ok(self.stat_place(&here)?);
            }
            return Ok(self.stat_node(&self.files.get(fd)?.node)?);
        }
        let place = self.resolve_at(host, fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
        Ok(self.stat_place(&place)?)
    }
}

pub(crate) fn fstat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let stat = kernel.stat_node(&kernel.files.get(args[0])?.node)?;
    guest::write(host.memory, args[1], &stat.encode(kernel.fixed.architecture))?;
    DONE
}

pub(crate) fn newfstatat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let stat = kernel.stat_at(host, args[0], args[1], args[3])?;
    guest::write(host.memory, args[2], &stat.encode(kernel.fixed.architecture))?;
    DONE
}

/// `stat` of x86-64.
pub(crate) fn stat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    newfstatat(kernel, host, [WORKING_DIRECTORY, args[0], args[1], 0, 0, 0])
}

/// `lstat` of x86-64.
pub(crate) fn lstat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    newfstatat(kernel, host, [WORKING_DIRECTORY, args[0], args[1], AT_SYMLINK_NOFOLLOW, 0, 0])
}

pub(crate) fn statx(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let stat = kernel.stat_at(host, args[0], args[1], args[2])?;
    guest::write(host.memory, args[4], &stat.encode_statx())?;
    DONE
}

fn access_at(
    kernel: &Kernel,
    host: &Host<'_>,
    fd: u64,
    path: u64,
    mode: u64,
    flags: u64,
) -> CallResult {
    const EXECUTE: u64 = 1;
    const WRITE: u64 = 2;
    if mode & !7 != 0 {
        return fail(Errno::INVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && host.memory.view(path, 1)?[0] == 0 {
        kernel.files.get(fd)?;
        return DONE;
    }
    let place = kernel.resolve_at(host, fd, path, flags & AT_SYMLINK_NOFOLLOW == 0)?;
    let stat = kernel.stat_place(&place)?;
    if mode == 0 {
        return DONE;
    }
    let writable = matches!(place.target, Target::Scratch(_)) || stat.kind == FileType::Character;
    if mode & WRITE != 0 && !writable {
        return fail(Errno::ROFS);
    }
    match &place.target {
        Target::Grant { mount, inside } => {
            if let Source::Grant(grant) = &kernel.fixed.mounts.get(*mount).source
                && (stat.kind == FileType::Regular || stat.kind == FileType::Directory)
            {
                for (bit, execute) in [(4, false), (EXECUTE, true)] {
                    if mode & bit != 0 {
                        match grant.access(inside, execute) {
                            Ok(()) => {}
                            // A directory that only leads to mounts.
                            Err(Errno::NOENT) => {}
                            Err(errno) => return fail(errno),
                        }
                    }
                }
            }
        }
        _ if mode & EXECUTE != 0 && stat.kind != FileType::Directory => {
            return fail(Errno::ACCESS);
        }
        _ => {}
    }
    DONE
}

pub(crate) fn faccessat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    access_at(kernel, host, args[0], args[1], args[2], 0)
}

pub(crate) fn faccessat2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    access_at(kernel, host, args[0], args[1], args[2], args[3])
}

/// `access` of x86-64.
pub(crate) fn access(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    access_at(kernel, host, WORKING_DIRECTORY, args[0], args[1], 0)
}

pub(crate) fn readlinkat(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [directory, path, buffer, size, ..] = args;
    let size = match size as i32 {
        size @ 1.. => size as usize,
        _ => return fail(Errno::INVAL),
    };
    let place = kernel.resolve_at(host, directory, path, false)?;
    let link = match &place.target {
        Target::Grant { mount, inside } => match &kernel.fixed.mounts.get(*mount).source {
            Source::Grant(grant) => grant.read_link(inside)?,
            _ => return fail(Errno::INVAL),
        },
        Target::File { mount } => match &kernel.fixed.mounts.get(*mount).source {
            Source::Link(text) => text.clone(),
            _ => return fail(Errno::INVAL),
        },
        _ => kernel.stat_place(&place).and(Err(Errno::INVAL))?,
    };
    let length = link.len().min(size);
    guest::write(host.memory, buffer, &link[..length])?;
    value(length as u64)
}

/// `readlink` of x86-64.
pub(crate) fn readlink(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    readlinkat(kernel, host, [WORKING_DIRECTORY, args[0], args[1], args[2], 0, 0])
}

/// `utimensat`, `fchmodat`, `fchownat`: accepted without effect in the scratch area.
pub(crate) fn change_metadata_at(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
) -> CallResult {
    if args[1] == 0 {
        return change_metadata(kernel, host, args);
    }
    let place = kernel.resolve_at(host, args[0], args[1], true)?;
    kernel.stat_place(&place)?;
    if matches!(place.target, Target::Scratch(_)) { DONE } else { fail(Errno::ROFS) }
}

/// `chmod`, `chown`, `lchown`, `utime`, `utimes` of x86-64.
pub(crate) fn change_metadata_of(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    args: Args,
) -> CallResult {
    change_metadata_at(kernel, host, [WORKING_DIRECTORY, args[0], 0, 0, 0, 0])
}

/// `fchmod`, `fchown`: accepted without effect in the scratch area.
pub(crate) fn change_metadata(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    match kernel.files.get(args[0])?.node {
        Node::Host(_) => fail(Errno::ROFS),
        _ => DONE,
    }
}

impl Kernel {
    /// `struct statfs`: the scratch area's, as the only one with room.
    fn write_statfs(&self, host: &mut Host<'_>, address: u64) -> CallResult {
        const TMPFS: u64 = 0x0102_1994;
        const BLOCK: u64 = 4096;
        let (used, limit) = self.scratch.usage();
        let free = (limit - used.min(limit)) / BLOCK;
        let words = [TMPFS, BLOCK, limit / BLOCK, free, free, 0, 0, 0, 255, BLOCK, 0, 0, 0, 0, 0];
        guest::write_words(host.memory, address, &words)?;
        DONE
    }
}

pub(crate) fn statfs(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let place = kernel.resolve_at(host, WORKING_DIRECTORY, args[0], true)?;
    kernel.stat_place(&place)?;
    kernel.write_statfs(host, args[1])
}

pub(crate) fn fstatfs(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    kernel.files.get(args[0])?;
    kernel.write_statfs(host, args[1])
}
