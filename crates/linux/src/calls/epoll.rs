//! epoll_create1, epoll_ctl, epoll_wait and their kin.

use std::time::{Duration, Instant};

use crate::{
    Architecture, Errno, GuestMemory, Host,
    calls::futex::{deadline_after, relative},
    files::{Description, flags},
    kernel::{Args, CallResult, DONE, Kernel, Stop, fail, value},
    objects::{Epoll, Watch, interest},
    readiness::{Edges, Readiness, condition},
    vfs::Node,
};

/// How deep sets may watch sets.
const MAX_DEPTH: u32 = 5;

/// A process may have this many watches for each descriptor that it may have.
const WATCHES_PER_DESCRIPTOR: usize = 2;

/// The most events that one call may ask for: an `int` of bytes.
const MAX_EVENTS: u32 = i32::MAX as u32 / 16;

pub(crate) fn epoll_create1(kernel: &mut Kernel, _: &mut Host<'_>, args: Args) -> CallResult {
    let given = args[0] as u32;
    if given & !flags::CLOSE_ON_EXEC != 0 {
        return fail(Errno::INVAL);
    }
    kernel.expect_free(1)?;
    let node = Node::Epoll(kernel.objects.epolls.insert(Epoll::default()));
    let description = Description::new(node, flags::READ_WRITE);
    value(kernel.install(description, given & flags::CLOSE_ON_EXEC != 0)?)
}

/// `epoll_create` of x86-64: its argument is a hint that must be positive.
pub(crate) fn epoll_create(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    if args[0] as i32 <= 0 {
        return fail(Errno::INVAL);
    }
    epoll_create1(kernel, host, [0; 6])
}

/// `struct epoll_event`: packed on x86-64 only.
struct EventLayout {
    size: u64,
    data: usize,
}

impl EventLayout {
    fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::Riscv64 => Self { size: 16, data: 8 },
            Architecture::X86_64 => Self { size: 12, data: 4 },
        }
    }

    fn read(&self, memory: &dyn GuestMemory, address: u64) -> Result<(u32, u64), Stop> {
        let bytes = memory.view(address, self.size)?;
        let (events, data) = (bytes.first_chunk(), bytes[self.data..].first_chunk());
        let (Some(events), Some(data)) = (events, data) else { return Err(Errno::FAULT.into()) };
        Ok((u32::from_le_bytes(*events), u64::from_le_bytes(*data)))
    }

    fn write(&self, bytes: &mut [u8], events: u32, data: u64) {
        bytes.fill(0);
        bytes[..4].copy_from_slice(&events.to_le_bytes());
        bytes[self.data..self.data + 8].copy_from_slice(&data.to_le_bytes());
    }
}

pub(crate) fn epoll_ctl(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    const ADD: u32 = 1;
    const REMOVE: u32 = 2;
    const MODIFY: u32 = 3;
    let [set, operation, fd, event, ..] = args;
    let operation = operation as u32;
    let (mut events, data) = match operation {
        REMOVE => (0, 0),
        _ => EventLayout::of(kernel.fixed.architecture).read(host.memory, event)?,
    };
    let description = kernel.files.description_of(fd)?;
    let index = kernel.epoll_of(set)?;
    let target = match &kernel.files.get(fd)?.node {
        Node::Device(_) | Node::Exchange(_) | Node::Text(_) | Node::Host(_) => {
            return fail(Errno::PERM);
        }
        Node::Scratch(_) | Node::MountDirectory => return fail(Errno::PERM),
        Node::Epoll(target) => Some(*target),
        _ => None,
    };
    if target == Some(index) {
        return fail(Errno::INVAL);
    }
    let fd = fd as u32;
    if operation != REMOVE && events & interest::EXCLUSIVE != 0 {
        let allowed = condition::IN | condition::OUT | condition::ERROR | condition::HANG_UP;
        let allowed = allowed | interest::EDGE | interest::WAKE_UP | interest::EXCLUSIVE;
        if operation == MODIFY || target.is_some() || events & !allowed != 0 {
            return fail(Errno::INVAL);
        }
    }
    events |= condition::ERROR | condition::HANG_UP;
    match operation {
        ADD => {
            if kernel.watches() >= kernel.fixed.limits.descriptors as usize * WATCHES_PER_DESCRIPTOR
            {
                return fail(Errno::NOSPC);
            }
            if let Some(target) = target
                && (kernel.reaches(target, index) || kernel.depth_with(index, target) > MAX_DEPTH)
            {
                return fail(Errno::LOOP);
            }
            let watch = Watch { fd, description, events, data, seen: None };
            kernel.objects.epolls.change(index)?.add(watch)?;
        }
        REMOVE => kernel.objects.epolls.change(index)?.remove(fd, description)?,
        MODIFY => {
            let epoll = kernel.objects.epolls.change(index)?;
            let at = epoll.find(fd, description).map_err(|_| Errno::NOENT)?;
            let watch = &mut epoll.watches_mut()[at];
            if watch.events & interest::EXCLUSIVE != 0 {
                return fail(Errno::INVAL);
            }
            *watch = Watch { events, data, seen: None, ..*watch };
        }
        _ => return fail(Errno::INVAL),
    }
    // Who waits for the set may have something to take.
    if operation != REMOVE {
        kernel.notify_all();
    }
    DONE
}

pub(crate) fn epoll_pwait(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [set, events, count, timeout, mask, mask_size] = args;
    let mask = Kernel::waiting_mask(host.memory, mask, mask_size)?;
    let deadline = match u64::try_from(timeout as i32) {
        Ok(milliseconds) => deadline_after(Duration::from_millis(milliseconds)),
        Err(_) => None,
    };
    kernel.epoll_wait(host.memory, set, events, count, mask, deadline)
}

pub(crate) fn epoll_pwait2(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    let [set, events, count, timeout, mask, mask_size] = args;
    let mask = Kernel::waiting_mask(host.memory, mask, mask_size)?;
    let deadline = relative(host.memory, timeout)?;
    kernel.epoll_wait(host.memory, set, events, count, mask, deadline)
}

/// `epoll_wait` of x86-64.
pub(crate) fn epoll_wait(kernel: &mut Kernel, host: &mut Host<'_>, args: Args) -> CallResult {
    epoll_pwait(kernel, host, [args[0], args[1], args[2], args[3], 0, 0])
}

/// A watch whose description has something to report.
struct Found {
    /// The index of the watch.
    at: usize,
    events: u32,
    data: u64,
    edges: Edges,
    /// Whether the watch is to remember that.
    remember: bool,
}

impl Kernel {
    /// The epoll set that a descriptor refers to.
    fn epoll_of(&self, fd: u64) -> Result<usize, Errno> {
        match self.files.get(fd)?.node {
            Node::Epoll(index) => Ok(index),
            _ => Err(Errno::INVAL),
        }
    }

    fn epoll_wait(
        &mut self,
        memory: &mut dyn GuestMemory,
        set: u64,
        address: u64,
        count: u64,
        mask: Option<u64>,
        deadline: Option<Instant>,
    ) -> CallResult {
        let index = self.epoll_of(set)?;
        let count = count as u32;
        if !(1..=MAX_EVENTS).contains(&count) {
            return fail(Errno::INVAL);
        }
        let (found, next) = self.look(index, count as usize)?;
        if found.is_empty() {
            return self.wait_with_mask(mask, deadline);
        }
        let layout = EventLayout::of(self.fixed.architecture);
        let bytes = memory.view_mut(address, found.len() as u64 * layout.size)?;
        for (bytes, found) in bytes.chunks_exact_mut(layout.size as usize).zip(&found) {
            layout.write(bytes, found.events, found.data);
        }
        let length = found.len() as u64;
        if found.iter().any(|found| found.remember) || next != self.objects.epolls.get(index)?.next
        {
            let epoll = self.objects.epolls.change(index)?;
            epoll.next = next;
            for found in found.into_iter().filter(|found| found.remember) {
                epoll.watches_mut()[found.at].reported(found.edges);
            }
        }
        value(length)
    }

    /// Up to `count` watches with something to report, and where the next look starts.
    fn look(&self, index: usize, count: usize) -> Result<(Vec<Found>, usize), Errno> {
        let epoll = self.objects.epolls.get(index)?;
        let watches = epoll.watches();
        let mut found = Vec::new();
        let mut known = Vec::new();
        for step in 0..watches.len() {
            let at = (epoll.next + step) % watches.len();
            let watch = &watches[at];
            let readiness = self.watched(watch, &mut known);
            let events = watch.events_of(readiness);
            if events != 0 {
                if found.len() == count {
                    return Ok((found, at));
                }
                let remember = watch.changes_by_report();
                found.push(Found {
                    at,
                    events,
                    data: watch.data,
                    edges: readiness.edges,
                    remember,
                });
            }
        }
        Ok((found, epoll.next))
    }

    /// What the description of a watch can do. `known` has the sets that were looked at already.
    fn watched(&self, watch: &Watch, known: &mut Vec<(usize, Readiness)>) -> Readiness {
        match self.files.description(watch.description).map(|description| &description.node) {
            Some(Node::Epoll(index)) => self.epoll_readiness_knowing(*index, known),
            Some(node) => self.readiness(node),
            None => Readiness::default(),
        }
    }

    /// Whether a set has something to report.
    pub(crate) fn epoll_readiness(&self, index: usize) -> Readiness {
        self.epoll_readiness_knowing(index, &mut Vec::new())
    }

    /// Looks at each set once, however they are nested.
    fn epoll_readiness_knowing(
        &self,
        index: usize,
        known: &mut Vec<(usize, Readiness)>,
    ) -> Readiness {
        if let Some((_, readiness)) = known.iter().find(|(known, _)| *known == index) {
            return *readiness;
        }
        let mut result = Readiness::default();
        let watches = self.objects.epolls.get(index).map_or(&[][..], Epoll::watches);
        for watch in watches {
            let readiness = self.watched(watch, known);
            if watch.events_of(readiness) != 0 {
                result.conditions = condition::INPUT;
            }
            let Edges { input, output } = readiness.edges;
            result.edges.input = result.edges.input.wrapping_add(input).wrapping_add(output);
        }
        known.push((index, result));
        result
    }

    /// Whether no set watches itself, and none is deeper than is allowed: for what was read from a
    /// file.
    pub(crate) fn epolls_are_consistent(&self) -> bool {
        let mut sets = self.objects.epolls.iter();
        let most = self.fixed.limits.descriptors as usize * WATCHES_PER_DESCRIPTOR;
        const NO_SET: usize = usize::MAX;
        self.watches() <= most
            && sets.all(|(index, _)| !self.reaches(index, index))
            && self.depth_with(NO_SET, NO_SET) <= MAX_DEPTH
    }

    /// How many watches there are in all sets.
    fn watches(&self) -> usize {
        self.objects.epolls.iter().map(|(_, epoll)| epoll.watches().len()).sum()
    }

    /// The sets that a set watches.
    fn nested(&self, index: usize) -> impl Iterator<Item = usize> {
        let watches = self.objects.epolls.get(index).map_or(&[][..], Epoll::watches).iter();
        watches.filter_map(|watch| match self.files.description(watch.description)?.node {
            Node::Epoll(nested) => Some(nested),
            _ => None,
        })
    }

    /// Whether a set watches another, at any depth.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut found, mut at) = (vec![from], 0);
        while let Some(index) = found.get(at).copied() {
            at += 1;
            for nested in self.nested(index) {
                if nested == to {
                    return true;
                }
                if !found.contains(&nested) {
                    found.push(nested);
                }
            }
        }
        false
    }

    /// How deep the sets would be if `outer` watched `inner` too.
    fn depth_with(&self, outer: usize, inner: usize) -> u32 {
        let mut depths = Vec::new();
        let sets = self.objects.epolls.iter();
        sets.map(|(index, _)| self.depth(index, (outer, inner), &mut depths)).max().unwrap_or(0)
    }

    fn depth(&self, index: usize, more: (usize, usize), known: &mut Vec<(usize, u32)>) -> u32 {
        if let Some((_, depth)) = known.iter().find(|(known, _)| *known == index) {
            return *depth;
        }
        let (outer, inner) = more;
        let nested = self.nested(index).chain((index == outer).then_some(inner));
        let deepest = nested.map(|nested| self.depth(nested, more, known)).max();
        let depth = 1 + deepest.unwrap_or(0);
        known.push((index, depth));
        depth
    }
}
