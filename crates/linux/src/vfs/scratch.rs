//! The scratch area: files in memory that vanish at the reset.
//!
//! Contents are shared with the snapshot until they are written. Every byte and every name counts
//! against the limit, so a guest cannot make the host hold more than that.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Errno,
    vfs::{FileType, Stat, stat::FileTime},
};

/// The identity of a file or directory.
pub(crate) type NodeId = usize;

/// The root directory.
pub(crate) const ROOT: NodeId = 0;

/// What a file costs beside its bytes.
const NODE_COST: u64 = 512;

/// How deep directories may be nested.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ScratchNode {
    content: Content,
    /// How many names it has: 1, or 0 once it was removed.
    links: u32,
    /// How many open descriptions refer to it.
    opened: u32,
    /// `rwx` bits, remembered and not enforced: the guest is the only user.
    permissions: u32,
    modified: FileTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Content {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<Vec<u8>, NodeId>),
}

/// The scratch area of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scratch {
    nodes: Vec<Option<ScratchNode>>,
    used: u64,
    limit: u64,
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), used: self.used, limit: self.limit }
    }

    /// Into the allocations that are there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { nodes, used, limit } = source;
        self.nodes.clone_from(nodes);
        self.used = *used;
        self.limit = *limit;
    }
}

impl Scratch {
    pub(crate) fn new(limit: u64) -> Self {
        let root = ScratchNode {
            content: Content::Directory(BTreeMap::new()),
            links: 1,
            opened: 0,
            permissions: 0o777,
            modified: (0, 0),
        };
        Self { nodes: vec![Some(root)], used: 0, limit }
    }

    /// Whether these can be files within a limit: for what was read from a file. Every node has one
    /// name or is open, and directories form a tree.
    pub(crate) fn is_consistent(&self, limit: u64) -> bool {
        let mut names = vec![0u32; self.nodes.len()];
        names[..1].fill(1);
        let (mut found, mut next) = (vec![(ROOT, 0)], 0);
        while let Some((id, depth)) = found.get(next).copied() {
            next += 1;
            let Ok(entries) = self.directory(id) else { continue };
            for child in entries.values() {
                match names.get_mut(*child) {
                    Some(0) if depth < MAX_DEPTH => names[*child] = 1,
                    _ => return false,
                }
                found.push((*child, depth + 1));
            }
        }
        let mut used = 0;
        for (id, node) in self.nodes.iter().enumerate() {
            let Some(node) = node else {
                if names[id] > 0 {
                    return false;
                }
                continue;
            };
            let bytes = match &node.content {
                Content::File(bytes) => bytes.len() as u64,
                // What has lost its name was empty.
                Content::Directory(entries) if names[id] == 0 && !entries.is_empty() => {
                    return false;
                }
                Content::Directory(_) => 0,
            };
            used += bytes + if id == ROOT { 0 } else { NODE_COST };
            if node.links != names[id] || node.links == 0 && node.opened == 0 {
                return false;
            }
        }
        self.is_directory(ROOT) && self.used == used && self.limit == limit
    }

    /// How many descriptions refer to each node.
    pub(crate) fn opened(&self) -> impl Iterator<Item = (NodeId, u32)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter_map(|(id, node)| Some((id, node.as_ref()?.opened)))
    }

    fn node(&self, id: NodeId) -> Result<&ScratchNode, Errno> {
        self.nodes.get(id).and_then(Option::as_ref).ok_or(Errno::STALE)
    }

    fn node_mut(&mut self, id: NodeId) -> Result<&mut ScratchNode, Errno> {
        self.nodes.get_mut(id).and_then(Option::as_mut).ok_or(Errno::STALE)
    }

    fn directory(&self, id: NodeId) -> Result<&BTreeMap<Vec<u8>, NodeId>, Errno> {
        match &self.node(id)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Errno::NOTDIR),
        }
    }

    fn directory_mut(&mut self, id: NodeId) -> Result<&mut BTreeMap<Vec<u8>, NodeId>, Errno> {
        match &mut self.node_mut(id)?.content {
            Content::Directory(entries) => Ok(entries),
            Content::File(_) => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn is_directory(&self, id: NodeId) -> bool {
        self.directory(id).is_ok()
    }

    /// What a path from the root names.
    pub(crate) fn find(&self, path: &[Vec<u8>]) -> Result<NodeId, Errno> {
        let mut id = ROOT;
        for name in path {
            id = *self.directory(id)?.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(id)
    }

    /// The directory that a path's last component is in, and that component.
    fn parent<'a>(&self, path: &'a [Vec<u8>]) -> Result<(NodeId, &'a Vec<u8>), Errno> {
        let (name, above) = path.split_last().ok_or(Errno::BUSY)?;
        let parent = self.find(above)?;
        self.directory(parent)?;
        Ok((parent, name))
    }

    /// Makes a file or a directory that was not there.
    pub(crate) fn create(
        &mut self,
        path: &[Vec<u8>],
        directory: bool,
        now: FileTime,
    ) -> Result<NodeId, Errno> {
        if path.is_empty() {
            return Err(Errno::EXIST);
        }
        let (parent, name) = self.parent(path)?;
        if self.directory(parent)?.contains_key(name) {
            return Err(Errno::EXIST);
        }
        if path.len() > MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        self.charge(NODE_COST)?;
        let content = if directory {
            Content::Directory(BTreeMap::new())
        } else {
            Content::File(Arc::default())
        };
        let permissions = if directory { 0o755 } else { 0o644 };
        let node = ScratchNode { content, links: 1, opened: 0, permissions, modified: now };
        let id = self.put(node);
        self.directory_mut(parent)?.insert(name.clone(), id);
        Ok(id)
    }

    fn put(&mut self, node: ScratchNode) -> NodeId {
        let id = match self.nodes.iter().position(Option::is_none) {
            Some(id) => id,
            None => {
                self.nodes.push(None);
                self.nodes.len() - 1
            }
        };
        self.nodes[id] = Some(node);
        id
    }

    /// Makes a file without a name, which is there as long as it is open.
    pub(crate) fn create_unnamed(&mut self, now: FileTime) -> Result<NodeId, Errno> {
        self.charge(NODE_COST)?;
        let content = Content::File(Arc::default());
        Ok(self.put(ScratchNode {
            content,
            links: 0,
            opened: 0,
            permissions: 0o777,
            modified: now,
        }))
    }

    /// Removes a name, and what it names unless that is open.
    pub(crate) fn remove(&mut self, path: &[Vec<u8>], directory: bool) -> Result<(), Errno> {
        let (parent, name) = self.parent(path)?;
        let id = *self.directory(parent)?.get(name).ok_or(Errno::NOENT)?;
        match (&self.node(id)?.content, directory) {
            (Content::Directory(entries), true) if !entries.is_empty() => {
                return Err(Errno::NOTEMPTY);
            }
            (Content::Directory(_), false) => return Err(Errno::ISDIR),
            (Content::File(_), true) => return Err(Errno::NOTDIR),
            _ => {}
        }
        self.directory_mut(parent)?.remove(name);
        self.node_mut(id)?.links = 0;
        self.drop_unused(id);
        Ok(())
    }

    /// Gives what `from` names the name `to`.
    pub(crate) fn rename(
        &mut self,
        from: &[Vec<u8>],
        to: &[Vec<u8>],
        replace: bool,
    ) -> Result<(), Errno> {
        let (from_parent, from_name) = self.parent(from)?;
        let id = *self.directory(from_parent)?.get(from_name).ok_or(Errno::NOENT)?;
        let (to_parent, to_name) = self.parent(to)?;
        if self.is_directory(id) && to.starts_with(from) && to.len() > from.len() {
            return Err(Errno::INVAL);
        }
        // A directory takes what is below it along: bound the new depth of all of it.
        if to.len() + self.depth_below(id) > MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        match self.directory(to_parent)?.get(to_name) {
            Some(_) if !replace => return Err(Errno::EXIST),
            Some(same) if *same == id => return Ok(()),
            Some(other) => match (self.is_directory(id), self.is_directory(*other)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (_, directory) => self.remove(to, directory)?,
            },
            None => {}
        }
        self.directory_mut(from_parent)?.remove(from_name);
        self.directory_mut(to_parent)?.insert(to_name.clone(), id);
        Ok(())
    }

    /// How many levels there are below a node. Never more than [`MAX_DEPTH`].
    fn depth_below(&self, id: NodeId) -> usize {
        match self.directory(id) {
            Ok(entries) => {
                entries.values().map(|child| 1 + self.depth_below(*child)).max().unwrap_or(0)
            }
            Err(_) => 0,
        }
    }

    /// A description refers to the node from now on.
    pub(crate) fn retain(&mut self, id: NodeId) {
        if let Ok(node) = self.node_mut(id) {
            node.opened += 1;
        }
    }

    /// A description that referred to the node is gone.
    pub(crate) fn release(&mut self, id: NodeId) {
        if let Ok(node) = self.node_mut(id) {
            node.opened = node.opened.saturating_sub(1);
        }
        self.drop_unused(id);
    }

    fn drop_unused(&mut self, id: NodeId) {
        if let Ok(node) = self.node(id)
            && node.links == 0
            && node.opened == 0
        {
            let bytes = match &node.content {
                Content::File(bytes) => bytes.len() as u64,
                Content::Directory(_) => 0,
            };
            self.used -= bytes + NODE_COST;
            self.nodes[id] = None;
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.limit.saturating_sub(self.used) {
            return Err(Errno::NOSPC);
        }
        self.used += bytes;
        Ok(())
    }

    /// Bytes that are in use, and how many there can be.
    pub(crate) fn usage(&self) -> (u64, u64) {
        (self.used, self.limit)
    }

    pub(crate) fn size(&self, id: NodeId) -> Result<u64, Errno> {
        self.bytes(id).map(|bytes| bytes.len() as u64)
    }

    fn bytes(&self, id: NodeId) -> Result<&Arc<Vec<u8>>, Errno> {
        match &self.node(id)?.content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(Errno::ISDIR),
        }
    }

    fn bytes_mut(&mut self, id: NodeId, now: FileTime) -> Result<&mut Vec<u8>, Errno> {
        let node = self.node_mut(id)?;
        node.modified = now;
        match &mut node.content {
            Content::File(bytes) => Ok(Arc::make_mut(bytes)),
            Content::Directory(_) => Err(Errno::ISDIR),
        }
    }

    /// Reads at an offset; fewer bytes at the end of the file.
    pub(crate) fn read_at(
        &self,
        id: NodeId,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        let bytes = self.bytes(id)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = buffer.len().min(bytes.len() - start);
        buffer[..length].copy_from_slice(&bytes[start..start + length]);
        Ok(length)
    }

    /// Writes at an offset; what lies between the old end and it becomes zero.
    pub(crate) fn write_at(
        &mut self,
        id: NodeId,
        data: &[u8],
        offset: u64,
        now: FileTime,
    ) -> Result<(), Errno> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        if end > self.size(id)? {
            self.resize(id, end, now)?;
        }
        // The file is within the limit, so its offsets are within `usize`.
        self.bytes_mut(id, now)?[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }

    /// Cuts or extends a file.
    pub(crate) fn resize(&mut self, id: NodeId, size: u64, now: FileTime) -> Result<(), Errno> {
        let old = self.size(id)?;
        if size > old {
            self.charge(size - old)?;
        } else {
            self.used -= old - size;
        }
        let bytes = self.bytes_mut(id, now)?;
        if size > bytes.capacity() as u64 {
            // Doubling would hold up to twice what was charged.
            bytes.reserve_exact(growth(old, size));
        }
        bytes.resize(size as usize, 0);
        if size < old {
            bytes.shrink_to_fit();
        }
        Ok(())
    }

    pub(crate) fn stat(&self, id: NodeId) -> Result<Stat, Errno> {
        let node = self.node(id)?;
        let (kind, size) = match &node.content {
            Content::File(bytes) => (FileType::Regular, bytes.len() as u64),
            Content::Directory(_) => (FileType::Directory, 4096),
        };
        let ScratchNode { links, permissions, .. } = *node;
        Ok(Stat {
            links,
            permissions,
            ..Stat::of_scratch(kind, id as u64 + 1, size, node.modified)
        })
    }

    /// Sets the `rwx` bits.
    pub(crate) fn set_permissions(&mut self, id: NodeId, permissions: u32) {
        if let Ok(node) = self.node_mut(id) {
            node.permissions = permissions & 0o777;
        }
    }

    /// The entries of a directory; none if it is none.
    pub(crate) fn entries(&self, id: NodeId) -> Vec<(Vec<u8>, FileType)> {
        let kind = |id: &NodeId| {
            if self.is_directory(*id) { FileType::Directory } else { FileType::Regular }
        };
        let entries = self.directory(id).map(|entries| entries.iter());
        entries.into_iter().flatten().map(|(name, id)| (name.clone(), kind(id))).collect()
    }
}

/// How much to reserve beyond the old size: what is needed, and an eighth against copying at every
/// small write.
fn growth(old: u64, new: u64) -> usize {
    ((new - old) + old / 8) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: FileTime = (1, 0);

    fn path(text: &str) -> Vec<Vec<u8>> {
        crate::vfs::path::split(text.as_bytes())
    }

    #[test]
    fn bytes_and_names_count_against_the_limit() {
        let mut scratch = Scratch::new(NODE_COST + 10);
        let file = scratch.create(&path("a"), false, NOW).unwrap();
        assert_eq!(scratch.create(&path("b"), false, NOW), Err(Errno::NOSPC));
        scratch.write_at(file, b"0123456789", 0, NOW).unwrap();
        assert_eq!(scratch.write_at(file, b"x", 10, NOW), Err(Errno::NOSPC));
        assert_eq!(scratch.write_at(file, b"x", u64::MAX, NOW), Err(Errno::FBIG));
        assert_eq!(scratch.resize(file, u64::MAX, NOW), Err(Errno::NOSPC));
        scratch.resize(file, 4, NOW).unwrap();
        scratch.write_at(file, b"x", 9, NOW).unwrap();
        let mut bytes = [1; 16];
        assert_eq!(scratch.read_at(file, &mut bytes, 2), Ok(8));
        assert_eq!(&bytes[..8], b"23\0\0\0\0\0x");
        scratch.remove(&path("a"), false).unwrap();
        assert_eq!(scratch.usage().0, 0);
    }

    #[test]
    fn an_open_file_outlives_its_name() {
        let mut scratch = Scratch::new(1 << 20);
        let file = scratch.create(&path("a"), false, NOW).unwrap();
        scratch.retain(file);
        scratch.write_at(file, b"x", 0, NOW).unwrap();
        scratch.remove(&path("a"), false).unwrap();
        assert_eq!(scratch.size(file), Ok(1));
        scratch.release(file);
        assert_eq!(scratch.size(file), Err(Errno::STALE));
        assert_eq!(scratch.usage().0, 0);
    }

    #[test]
    fn directories_move_but_not_into_themselves() {
        let mut scratch = Scratch::new(1 << 20);
        scratch.create(&path("a"), true, NOW).unwrap();
        scratch.create(&path("a/b"), false, NOW).unwrap();
        assert_eq!(scratch.rename(&path("a"), &path("a/c"), true), Err(Errno::INVAL));
        assert_eq!(scratch.remove(&path("a"), true), Err(Errno::NOTEMPTY));
        scratch.rename(&path("a"), &path("d"), true).unwrap();
        assert!(scratch.find(&path("d/b")).is_ok());
        assert_eq!(scratch.find(&path("a")), Err(Errno::NOENT));
        assert_eq!(scratch.remove(&path(""), true), Err(Errno::BUSY));
    }

    #[test]
    fn directories_are_not_nested_without_end() {
        let mut scratch = Scratch::new(1 << 20);
        let deep = vec![b"d".to_vec(); MAX_DEPTH];
        for depth in 1..=MAX_DEPTH {
            scratch.create(&deep[..depth], true, NOW).unwrap();
        }
        let deeper = [deep, vec![b"d".to_vec()]].concat();
        assert_eq!(scratch.create(&deeper, true, NOW), Err(Errno::NAMETOOLONG));
        scratch.create(&path("e"), true, NOW).unwrap();
        assert_eq!(scratch.rename(&path("d"), &path("e/d"), true), Err(Errno::NAMETOOLONG));
    }
}
