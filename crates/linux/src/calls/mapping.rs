//! mmap and mremap.

use std::os::fd::AsFd as _;

use crate::{
    Errno, GuestMemory, Host, PAGE, Protection,
    calls::memory::{is_none, protection},
    guest::CHUNK,
    kernel::{Args, CallResult, Kernel, Stop, fail, value},
    space::{Area, Kind, page_up},
    vfs::{Device, Node},
};

const MAP_SHARED: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const MAP_SHARED_VALIDATE: u64 = 3;
const MAP_TYPE: u64 = 0xf;
const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_NORESERVE: u64 = 0x4000;
const MAP_HUGETLB: u64 = 0x4_0000;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

const READ_WRITE: Protection = Protection { read: true, write: true, execute: false };

/// Where a file's bytes for a mapping come from.
struct FileRange {
    node: Node,
    offset: u64,
}

pub(crate) fn mmap(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [hint, length, bits, flags, fd, offset] = args;
    let protection = protection(bits)?;
    if length == 0 || !offset.is_multiple_of(PAGE) {
        return fail(Errno::INVAL);
    }
    let length = page_up(length).ok_or(Errno::NOMEM)?;
    if flags & MAP_HUGETLB != 0 {
        return fail(Errno::NOMEM);
    }
    let file = kernel.mapped_file(flags, protection, fd, offset)?;
    // What is to be written is a copy in the end.
    let shared = match &file {
        Some(FileRange { node: Node::Host(file), .. }) if !protection.write => {
            host.memory.share(file.as_fd())
        }
        _ => None,
    };
    // Pages that are copied count even if the guest may only read them.
    let counts = match &file {
        Some(_) => shared.is_none(),
        None => protection.write && flags & MAP_NORESERVE == 0,
    };
    let start = kernel.place(hint, length, flags)?;
    if counts && length > host.memory.available() {
        return fail(Errno::NOMEM);
    }
    if file.is_none() || shared.is_some() {
        kernel.map(host.memory, start, start + length, protection)?;
    }
    if let Some(file) = file
        && !shared.is_some_and(|shared| host.memory.place(shared, start, length, file.offset))
    {
        kernel.map_file(host.memory, start, length, protection, &file)?;
    }
    value(start)
}

impl Kernel {
    /// The file of a mapping, or `None` for an anonymous one.
    fn mapped_file(
        &self,
        flags: u64,
        protection: Protection,
        fd: u64,
        offset: u64,
    ) -> Result<Option<FileRange>, Errno> {
        let is_file = flags & MAP_ANONYMOUS == 0;
        if is_file {
            self.files.get(fd)?;
        }
        let kind = flags & MAP_TYPE;
        if !matches!(kind, MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE) {
            return Err(Errno::INVAL);
        }
        if !is_file {
            // One process: shared and private anonymous memory are the same.
            return Ok(None);
        }
        let description = self.files.get(fd)?;
        if !description.can_read() {
            return Err(Errno::ACCESS);
        }
        match &description.node {
            Node::Device(Device::Zero) => Ok(None),
            Node::Host(file) if file.is_directory => Err(Errno::NODEV),
            Node::Host(_) | Node::Scratch(_) | Node::Text(_) => {
                if kind != MAP_PRIVATE && protection.write {
                    // Stores would have to reach the file.
                    return Err(Errno::NODEV);
                }
                Ok(Some(FileRange { node: description.node.clone(), offset }))
            }
            _ => Err(Errno::NODEV),
        }
    }

    /// Where a mapping goes.
    fn place(&self, hint: u64, length: u64, flags: u64) -> Result<u64, Errno> {
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            let (start, end) = self.page_range(hint, length, Errno::NOMEM)?;
            if start == 0 {
                return Err(Errno::PERM);
            }
            if flags & MAP_FIXED_NOREPLACE != 0 && !self.space.is_free(start, end) {
                return Err(Errno::EXIST);
            }
            return Ok(start);
        }
        let hint = hint / PAGE * PAGE;
        match hint.checked_add(length) {
            Some(end) if hint != 0 && end <= self.space.end && self.space.is_free(hint, end) => {
                Ok(hint)
            }
            _ => self.space.find_free(length).ok_or(Errno::NOMEM),
        }
    }

    /// Maps a copy of a file's bytes.
    fn map_file(
        &mut self,
        memory: &mut dyn GuestMemory,
        start: u64,
        length: u64,
        protection: Protection,
        file: &FileRange,
    ) -> Result<(), Stop> {
        let end = start + length;
        self.map(memory, start, end, READ_WRITE)?;
        let mut at = start;
        while at < end {
            let offset = file.offset.saturating_add(at - start);
            let left = self.bytes_behind(&file.node, offset)?;
            let wanted = (end - at).min(CHUNK).min(left);
            if wanted == 0 {
                break;
            }
            let buffer = memory.view_mut(at, wanted)?;
            match self.read_node(&file.node, buffer, offset)? {
                0 => break,
                count => at += count as u64,
            }
        }
        if protection != READ_WRITE {
            self.space.change().change(start, end, |kind| Kind { protection, ..kind })?;
            memory.protect(start, length, protection);
        }
        Ok(())
    }
}

pub(crate) fn mremap(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const MAYMOVE: u64 = 1;
    const FIXED: u64 = 2;
    let [start, old_length, new_length, flags, new_start, _] = args;
    if flags & !(MAYMOVE | FIXED) != 0 || flags & (MAYMOVE | FIXED) == FIXED {
        return fail(Errno::INVAL);
    }
    let (start, end) = kernel.page_range(start, old_length, Errno::INVAL)?;
    let new_length = page_up(new_length).ok_or(Errno::INVAL)?;
    // A second view of shared memory, which an old length of 0 asks for, cannot be made.
    if start == end || new_length == 0 {
        return fail(Errno::INVAL);
    }
    let mut areas = kernel.space.areas_in(start, end);
    let (Some(area), None) = (areas.next(), areas.next()) else { return fail(Errno::FAULT) };
    drop(areas);
    if (area.start, area.end) != (start, end) {
        return fail(Errno::FAULT);
    }
    let old_length = end - start;
    let grow = new_length.saturating_sub(old_length);
    if area.kind.protection.write && grow > host.memory.available() {
        return fail(Errno::NOMEM);
    }
    let target = if flags & FIXED != 0 {
        let (target, target_end) = kernel.page_range(new_start, new_length, Errno::INVAL)?;
        if target == 0 || (target < end && start < target_end) {
            return fail(Errno::INVAL);
        }
        target
    } else if grow == 0 {
        kernel.unmap(host.memory, start + new_length, end)?;
        return value(start);
    } else if kernel.can_grow(end, grow) {
        kernel.map(host.memory, end, end + grow, area.kind.protection)?;
        // A reservation that was never accessible joins the area either way.
        return value(start);
    } else if flags & MAYMOVE != 0 {
        kernel.space.find_free(new_length).ok_or(Errno::NOMEM)?
    } else {
        return fail(Errno::NOMEM);
    };
    kernel.move_area(host.memory, area, target, new_length)?;
    value(target)
}

impl Kernel {
    /// Whether a mapping that ends at `end` can grow there.
    fn can_grow(&self, end: u64, grow: u64) -> bool {
        let heap = self.space.brk_start..self.space.brk_limit;
        match end.checked_add(grow) {
            Some(new_end) => {
                new_end <= self.space.end
                    && self.space.is_free(end, new_end)
                    && !(heap.start < new_end && end < heap.end)
            }
            None => false,
        }
    }

    /// Moves an area, copying what it holds.
    fn move_area(
        &mut self,
        memory: &mut dyn GuestMemory,
        area: Area,
        target: u64,
        new_length: u64,
    ) -> Result<(), Stop> {
        let protection = area.kind.protection;
        let end = target + new_length;
        self.map(memory, target, end, protection)?;
        let wiped = area.kind.wiped;
        if wiped {
            self.space.change().change(target, end, |kind| Kind { wiped, ..kind })?;
        }
        if area.kind.present {
            let length = area.end - area.start;
            if is_none(protection) {
                // What it held before it became inaccessible goes along.
                self.space.change().change(target, end, |kind| Kind { present: true, ..kind })?;
                memory.map(target, new_length, protection);
            }
            memory.protect(area.start, length, READ_WRITE);
            memory.protect(target, new_length, READ_WRITE);
            copy(memory, area.start, target, length.min(new_length))?;
            memory.protect(target, new_length, protection);
        }
        self.unmap(memory, area.start, area.end)
    }
}

/// Copies pages to fresh ones, leaving those alone that are zero anyway.
fn copy(memory: &mut dyn GuestMemory, from: u64, to: u64, length: u64) -> Result<(), Stop> {
    let mut page = [0; PAGE as usize];
    let mut offset = 0;
    while offset < length {
        let untouched = memory.untouched(from + offset, length - offset) / PAGE * PAGE;
        if untouched > 0 {
            offset += untouched;
            continue;
        }
        let source = memory.view(from + offset, PAGE)?;
        if source.iter().any(|byte| *byte != 0) {
            page.copy_from_slice(source);
            memory.view_mut(to + offset, PAGE)?.copy_from_slice(&page);
        }
        offset += PAGE;
    }
    Ok(())
}
