//! Metadata of files, and the structures in which guests get it.

use rustix::fs::FileType as HostType;
use serde::{Deserialize, Serialize};

use crate::{Architecture, kernel::UID};

/// What kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileType {
    Regular,
    Directory,
    Link,
    Character,
    Fifo,
    /// An eventfd and the like.
    Anonymous,
    Socket,
    /// Something of the host that guests cannot open.
    Other,
}

impl FileType {
    pub(crate) fn of_host(kind: HostType) -> Self {
        match kind {
            HostType::RegularFile => Self::Regular,
            HostType::Directory => Self::Directory,
            HostType::Symlink => Self::Link,
            HostType::CharacterDevice => Self::Character,
            HostType::Fifo => Self::Fifo,
            _ => Self::Other,
        }
    }

    /// `S_IFMT` bits.
    fn mode(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::Link => 0o120_000,
            Self::Character => 0o020_000,
            Self::Fifo => 0o010_000,
            Self::Anonymous => 0,
            Self::Socket => 0o140_000,
            Self::Other => 0o140_000,
        }
    }

    /// `d_type` of a directory entry.
    pub(crate) fn entry_type(self) -> u8 {
        (self.mode() >> 12) as u8
    }
}

/// A time of a file: seconds and nanoseconds since 1970.
pub(crate) type FileTime = (i64, u32);

/// Metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) kind: FileType,
    /// `rwx` bits.
    pub(crate) permissions: u32,
    pub(crate) links: u32,
    pub(crate) owner: u32,
    /// Major and minor number of a device.
    pub(crate) device_number: (u32, u32),
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
}

impl Stat {
    /// Something that is no file of the host.
    pub(crate) fn synthetic(kind: FileType, permissions: u32, inode: u64) -> Self {
        Self {
            device: 1,
            inode,
            kind,
            permissions,
            links: 1,
            owner: 0,
            device_number: (0, 0),
            size: 0,
            modified: (0, 0),
        }
    }

    /// A file of a grant: nobody's, and read-only.
    pub(crate) fn of_host(stat: &rustix::fs::Stat) -> Self {
        Self {
            device: 3,
            inode: stat.st_ino,
            kind: FileType::of_host(HostType::from_raw_mode(stat.st_mode)),
            permissions: stat.st_mode & 0o555,
            links: 1,
            owner: 0,
            device_number: (0, 0),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        }
    }

    /// A file of the scratch area: the guest's own.
    pub(crate) fn of_scratch(kind: FileType, inode: u64, size: u64, modified: FileTime) -> Self {
        let permissions = if kind == FileType::Directory { 0o755 } else { 0o644 };
        let owner = UID;
        Self { device: 2, owner, size, modified, ..Self::synthetic(kind, permissions, inode) }
    }

    fn mode(&self) -> u32 {
        self.kind.mode() | self.permissions
    }

    fn blocks(&self) -> u64 {
        self.size.div_ceil(512)
    }

    /// `struct stat`.
    pub(crate) fn encode(&self, architecture: Architecture) -> Vec<u8> {
        let mut out = Bytes(Vec::with_capacity(144));
        let (major, minor) = self.device_number;
        let device_number = encode_device(major, minor);
        let (seconds, nanoseconds) = self.modified;
        out.u64(self.device);
        out.u64(self.inode);
        match architecture {
            // include/uapi/asm-generic/stat.h
            Architecture::Riscv64 => {
                out.u32s(&[self.mode(), self.links, self.owner, self.owner]);
                out.u64(device_number);
                out.u64(0);
                out.u64(self.size);
                out.u32s(&[4096, 0]);
                out.u64(self.blocks());
            }
            // arch/x86/include/uapi/asm/stat.h
            Architecture::X86_64 => {
                out.u64(u64::from(self.links));
                out.u32s(&[self.mode(), self.owner, self.owner, 0]);
                out.u64(device_number);
                out.u64(self.size);
                out.u64(4096);
                out.u64(self.blocks());
            }
        }
        for _ in 0..3 {
            out.u64(seconds as u64);
            out.u64(u64::from(nanoseconds));
        }
        let tail = match architecture {
            Architecture::Riscv64 => 8,
            Architecture::X86_64 => 24,
        };
        out.0.extend(std::iter::repeat_n(0, tail));
        out.0
    }

    /// `struct statx`, with the fields of `STATX_BASIC_STATS`.
    pub(crate) fn encode_statx(&self) -> Vec<u8> {
        const BASIC_STATS: u32 = 0x7ff;
        let mut out = Bytes(Vec::with_capacity(256));
        let (seconds, nanoseconds) = self.modified;
        out.u32s(&[BASIC_STATS, 4096]);
        out.u64(0);
        out.u32s(&[self.links, self.owner, self.owner, self.mode()]);
        out.u64(self.inode);
        out.u64(self.size);
        out.u64(self.blocks());
        out.u64(0);
        for _ in 0..4 {
            out.u64(seconds as u64);
            out.u32s(&[nanoseconds, 0]);
        }
        let (major, minor) = self.device_number;
        out.u32s(&[major, minor, 0, self.device as u32]);
        out.0.resize(256, 0);
        out.0
    }
}

/// `makedev(3)`.
fn encode_device(major: u32, minor: u32) -> u64 {
    u64::from(major & 0xfff) << 8 | u64::from(minor & 0xff)
}

struct Bytes(Vec<u8>);

impl Bytes {
    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    fn u32s(&mut self, values: &[u32]) {
        self.0.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_linux_sizes_and_offsets() {
        let stat = Stat { size: 0x1234, ..Stat::synthetic(FileType::Regular, 0o644, 7) };
        let generic = stat.encode(Architecture::Riscv64);
        assert_eq!(generic.len(), 128);
        assert_eq!(generic[16..20], 0o100_644u32.to_le_bytes());
        assert_eq!(generic[48..56], 0x1234u64.to_le_bytes());
        let x86 = stat.encode(Architecture::X86_64);
        assert_eq!(x86.len(), 144);
        assert_eq!(x86[24..28], 0o100_644u32.to_le_bytes());
        assert_eq!(x86[48..56], 0x1234u64.to_le_bytes());
        let statx = stat.encode_statx();
        assert_eq!(statx.len(), 256);
        assert_eq!(statx[28..30], 0o100_644u16.to_le_bytes());
        assert_eq!(statx[40..48], 0x1234u64.to_le_bytes());
        assert_eq!(FileType::Directory.entry_type(), 4);
    }
}
