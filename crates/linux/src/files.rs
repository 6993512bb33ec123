//! Descriptors, and the descriptions that they refer to.

use std::sync::Arc;

use sandtide_engine::Stream;
use serde::{Deserialize, Serialize};

use crate::{
    Errno,
    kernel::Kernel,
    objects::Pipe,
    readiness::{Readiness, Source},
    vfs::{Device, Listing, Node},
};

/// `open(2)` flags; the same numbers on riscv64 and x86-64.
pub(crate) mod flags {
    pub(crate) const ACCESS: u32 = 0o3;
    pub(crate) const WRITE_ONLY: u32 = 0o1;
    pub(crate) const READ_WRITE: u32 = 0o2;
    pub(crate) const CREATE: u32 = 0o100;
    pub(crate) const EXCLUSIVE: u32 = 0o200;
    pub(crate) const TRUNCATE: u32 = 0o1000;
    pub(crate) const APPEND: u32 = 0o2000;
    pub(crate) const NONBLOCK: u32 = 0o4000;
    pub(crate) const DIRECTORY: u32 = 0o200_000;
    pub(crate) const NOFOLLOW: u32 = 0o400_000;
    pub(crate) const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    pub(crate) const PATH: u32 = 0o10_000_000;
    /// `O_TMPFILE` without `O_DIRECTORY`.
    pub(crate) const TEMPORARY: u32 = 0o20_000_000;
}

/// What one or more descriptors refer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) node: Node,
    pub(crate) offset: u64,
    /// Access mode, `O_APPEND`, `O_NONBLOCK`, `O_PATH`.
    pub(crate) flags: u32,
    /// The guest's path of a directory, as components.
    pub(crate) path: Vec<Vec<u8>>,
    /// The entries of a directory, once they were read.
    pub(crate) listing: Option<Arc<Listing>>,
    references: u32,
}

impl Description {
    pub(crate) fn new(node: Node, flags: u32) -> Self {
        Self { node, offset: 0, flags, path: Vec::new(), listing: None, references: 0 }
    }

    /// With the path of a directory.
    pub(crate) fn at(self, path: Vec<Vec<u8>>) -> Self {
        Self { path, ..self }
    }

    pub(crate) fn can_read(&self) -> bool {
        self.flags & (flags::WRITE_ONLY | flags::PATH) == 0
    }

    pub(crate) fn can_write(&self) -> bool {
        self.flags & (flags::WRITE_ONLY | flags::READ_WRITE) != 0 && self.flags & flags::PATH == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Slot {
    description: usize,
    close_on_exec: bool,
}

/// The descriptors of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Files {
    slots: Vec<Option<Slot>>,
    descriptions: Vec<Option<Description>>,
    /// The components of the working directory.
    pub(crate) directory: Vec<Vec<u8>>,
    pub(crate) umask: u32,
}

impl Clone for Files {
    fn clone(&self) -> Self {
        Self {
            slots: self.slots.clone(),
            descriptions: self.descriptions.clone(),
            directory: self.directory.clone(),
            umask: self.umask,
        }
    }

    /// Into the allocations that are there: this is what a reset costs.
    fn clone_from(&mut self, source: &Self) {
        let Self { slots, descriptions, directory, umask } = source;
        self.slots.clone_from(slots);
        self.descriptions.clone_from(descriptions);
        self.directory.clone_from(directory);
        self.umask = *umask;
    }
}

impl Files {
    /// Standard input, output and error, in a working directory.
    pub(crate) fn new(directory: Vec<Vec<u8>>) -> Self {
        let mut files =
            Self { slots: Vec::new(), descriptions: Vec::new(), directory, umask: 0o022 };
        let nodes = [
            (Node::Stdin, 0),
            (Node::Console(Stream::Stdout), 1),
            (Node::Console(Stream::Stderr), 1),
        ];
        for (index, (node, flags)) in nodes.into_iter().enumerate() {
            let description = Description { references: 1, ..Description::new(node, flags) };
            files.descriptions.push(Some(description));
            files.slots.push(Some(Slot { description: index, close_on_exec: false }));
        }
        files
    }

    /// Every descriptor, with what it refers to.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = (u64, &Description)> {
        let slots = (0..).zip(&self.slots);
        slots.filter_map(|(fd, slot)| {
            Some((fd, self.descriptions.get(slot.as_ref()?.description)?.as_ref()?))
        })
    }

    fn slot(&self, fd: u64) -> Result<Slot, Errno> {
        // A descriptor is an `int`: Linux ignores the upper half of the register.
        self.slots.get(fd as u32 as usize).copied().flatten().ok_or(Errno::BADF)
    }

    pub(crate) fn get(&self, fd: u64) -> Result<&Description, Errno> {
        self.descriptions[self.slot(fd)?.description].as_ref().ok_or(Errno::BADF)
    }

    pub(crate) fn get_mut(&mut self, fd: u64) -> Result<&mut Description, Errno> {
        let index = self.slot(fd)?.description;
        self.descriptions[index].as_mut().ok_or(Errno::BADF)
    }

    pub(crate) fn closes_on_exec(&self, fd: u64) -> Result<bool, Errno> {
        self.slot(fd).map(|slot| slot.close_on_exec)
    }

    pub(crate) fn set_close_on_exec(&mut self, fd: u64, close_on_exec: bool) -> Result<(), Errno> {
        self.slot(fd)?;
        if let Some(slot) = &mut self.slots[fd as u32 as usize] {
            slot.close_on_exec = close_on_exec;
        }
        Ok(())
    }

    /// One more than the highest open descriptor.
    pub(crate) fn bound(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Which description a descriptor refers to.
    pub(crate) fn description_of(&self, fd: u64) -> Result<usize, Errno> {
        self.slot(fd).map(|slot| slot.description)
    }

    /// Every description.
    pub(crate) fn descriptions(&self) -> impl Iterator<Item = &Description> {
        self.descriptions.iter().flatten()
    }

    /// Whether these can be descriptors: for what was read from a file.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut references = vec![0; self.descriptions.len()];
        for slot in self.slots.iter().flatten() {
            match references.get_mut(slot.description) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
        let mut both = self.descriptions.iter().zip(references);
        both.all(|(description, references)| match description {
            Some(description) => {
                description.references == references
                    && references > 0
                    && description.offset <= i64::MAX as u64
            }
            None => references == 0,
        })
    }

    /// A description by its number.
    pub(crate) fn description(&self, index: usize) -> Option<&Description> {
        self.descriptions.get(index)?.as_ref()
    }
}

impl Kernel {
    /// Opens a descriptor, the lowest free one, for a new description.
    pub(crate) fn install(
        &mut self,
        description: Description,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let fd = self.free_descriptor(0)?;
        match description.node {
            Node::Scratch(id) => self.scratch.change().retain(id),
            Node::PipeReader(pipe) => self.objects.pipes.change(pipe)?.readers += 1,
            Node::PipeWriter(pipe) => self.objects.pipes.change(pipe)?.writers += 1,
            _ => {}
        }
        let files = self.files.change();
        let index = match files.descriptions.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                files.descriptions.push(None);
                files.descriptions.len() - 1
            }
        };
        files.descriptions[index] = Some(Description { references: 1, ..description });
        self.put(fd, Slot { description: index, close_on_exec });
        Ok(fd)
    }

    /// Fails if fewer than `count` descriptors are free. Who looks first leaves nothing behind.
    pub(crate) fn expect_free(&self, count: u64) -> Result<(), Errno> {
        let mut lowest = 0;
        for _ in 0..count {
            lowest = u64::from(self.free_descriptor(lowest).map_err(|_| Errno::MFILE)?) + 1;
        }
        Ok(())
    }

    /// Makes the lowest free descriptor from `lowest` on refer to what `fd` refers to.
    pub(crate) fn duplicate(
        &mut self,
        fd: u64,
        lowest: u64,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        self.files.get(fd)?;
        let new = self.free_descriptor(lowest)?;
        self.duplicate_to(fd, new, close_on_exec)
    }

    /// Makes `new` refer to what `fd` refers to; closes what it referred to.
    pub(crate) fn duplicate_to(
        &mut self,
        fd: u64,
        new: u32,
        close_on_exec: bool,
    ) -> Result<u32, Errno> {
        let description = self.files.slot(fd)?.description;
        if new >= self.fixed.limits.descriptors {
            return Err(Errno::BADF);
        }
        self.files.change().get_mut(fd)?.references += 1;
        let _ = self.close(u64::from(new));
        self.put(new, Slot { description, close_on_exec });
        Ok(new)
    }

    fn put(&mut self, fd: u32, slot: Slot) {
        let files = self.files.change();
        let fd = fd as usize;
        if files.slots.len() <= fd {
            files.slots.resize(fd + 1, None);
        }
        files.slots[fd] = Some(slot);
    }

    /// The lowest free descriptor from `lowest` on.
    fn free_descriptor(&self, lowest: u64) -> Result<u32, Errno> {
        let limit = self.fixed.limits.descriptors;
        let is_free = |fd: &u32| self.files.slots.get(*fd as usize).is_none_or(Option::is_none);
        let lowest = u32::try_from(lowest).unwrap_or(u32::MAX);
        if lowest >= limit && lowest != 0 {
            return Err(Errno::INVAL);
        }
        (lowest..limit).find(is_free).ok_or(Errno::MFILE)
    }

    /// Closes a descriptor, and its description with the last one.
    pub(crate) fn close(&mut self, fd: u64) -> Result<(), Errno> {
        let index = self.files.slot(fd)?.description;
        let files = self.files.change();
        files.slots[fd as u32 as usize] = None;
        while files.slots.last().is_some_and(Option::is_none) {
            files.slots.pop();
        }
        let Some(description) = &mut files.descriptions[index] else { return Ok(()) };
        description.references -= 1;
        if description.references > 0 {
            return Ok(());
        }
        let Some(description) = files.descriptions[index].take() else { return Ok(()) };
        self.unwatch(index);
        match description.node {
            Node::Scratch(id) => self.scratch.change().release(id),
            Node::PipeReader(pipe) => self.leave_pipe(pipe, |pipe| pipe.readers -= 1),
            Node::PipeWriter(pipe) => self.leave_pipe(pipe, |pipe| pipe.writers -= 1),
            Node::Counter(index) => drop(self.objects.counters.remove(index)),
            Node::Epoll(index) => drop(self.objects.epolls.remove(index)),
            Node::Timer(index) => drop(self.objects.timers.remove(index)),
            Node::Socket(index) => self.close_socket(index),
            Node::Endpoint(index) => self.close_endpoint(index),
            Node::Device(Device::Fresh) => self.fresh.let_go(index),
            _ => {}
        }
        Ok(())
    }

    /// A description is gone: no epoll set watches it any longer.
    fn unwatch(&mut self, description: usize) {
        let watching = self.objects.epolls.iter();
        let watching: Vec<usize> = watching
            .filter(|(_, epoll)| epoll.has_description(description))
            .map(|(index, _)| index)
            .collect();
        for index in watching {
            if let Ok(epoll) = self.objects.epolls.change(index) {
                epoll.forget(description);
            }
        }
    }

    fn leave_pipe(&mut self, index: usize, leave: impl Fn(&mut Pipe)) {
        if let Ok(pipe) = self.objects.pipes.change(index) {
            leave(pipe);
            pipe.ends_changed();
            if pipe.readers == 0 && pipe.writers == 0 {
                self.objects.pipes.remove(index);
            }
        }
        self.notify(Source::Pipe(index));
    }

    /// What the description of a descriptor can do now.
    pub(crate) fn readiness_of(&self, fd: u64) -> Option<Readiness> {
        Some(self.readiness(&self.files.get(fd).ok()?.node))
    }
}
