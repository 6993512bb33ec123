//! The entries of a directory, as `getdents64` hands them out.

use serde::{Deserialize, Serialize};

use crate::{
    Errno,
    kernel::Kernel,
    vfs::{FileType, HostFile, NodeId},
};

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FileType,
}

/// All entries, as they were when the directory was first read. An offset is an index.
pub(crate) type Listing = Vec<Entry>;

/// What a directory's own entries come from.
pub(crate) enum Origin<'a> {
    Host(&'a HostFile),
    Scratch(NodeId),
    Nothing,
}

impl Kernel {
    /// The entries of a directory: its own, and what is mounted in it.
    pub(crate) fn list(&self, path: &[Vec<u8>], origin: Origin<'_>) -> Result<Listing, Errno> {
        let own = match origin {
            Origin::Host(file) => file.entries()?,
            Origin::Scratch(id) => self.scratch.entries(id),
            Origin::Nothing => Vec::new(),
        };
        let mounted = self.fixed.mounts.children(path);
        let dots = [b".".to_vec(), b"..".to_vec()].map(|name| (name, FileType::Directory));
        let is_hidden = |name: &[u8]| mounted.iter().any(|(mount, _)| *mount == name);
        let mut listing: Listing = dots
            .into_iter()
            .chain(own.into_iter().filter(|(name, _)| !is_hidden(name)))
            .map(|(name, kind)| Entry { name, kind })
            .collect();
        listing
            .extend(mounted.iter().map(|(name, kind)| Entry { name: name.to_vec(), kind: *kind }));
        Ok(listing)
    }
}

/// Encodes `struct linux_dirent64` records from entry `first` on, as many as fit in `capacity`
/// bytes. Returns them and the index of the next entry.
pub(crate) fn write_entries(
    listing: &Listing,
    first: usize,
    capacity: usize,
) -> Result<(Vec<u8>, usize), Errno> {
    const HEADER: usize = 19;
    let mut out = Vec::new();
    let mut next = first.min(listing.len());
    for entry in &listing[next..] {
        let size = (HEADER + entry.name.len() + 1).next_multiple_of(8);
        if out.len() + size > capacity {
            if out.is_empty() {
                return Err(Errno::INVAL);
            }
            break;
        }
        let end = out.len() + size;
        next += 1;
        // Programs skip entries whose inode number is 0.
        out.extend((next as u64).to_le_bytes());
        out.extend((next as u64).to_le_bytes());
        out.extend((size as u16).to_le_bytes());
        out.push(entry.kind.entry_type());
        out.extend(&entry.name);
        out.resize(end, 0);
    }
    Ok((out, next))
}
