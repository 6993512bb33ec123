//! What must not be the same in everything that starts from one snapshot.
//!
//! A generator of random numbers that was seeded before the snapshot gives the same numbers to every
//! request. What starts from a snapshot is a copy of a process, as after a `fork`, and a program can
//! learn of it in these ways:
//!
//! * the random bytes that its start has left for it are other ones (`AT_RANDOM`);
//! * its process id is another one ([`crate::process_id`]);
//! * memory that it has marked with `MADV_WIPEONFORK` is zero ([`Process::part`]);
//! * memory into which it has read `/sandtide/fresh` holds other random bytes ([`Fresh`]). That is
//!   what the hooks for interpreters use ([`hooks`]): a generator looks at one byte of its own memory
//!   and seeds itself from the others, without a system call and only if it is used.

pub(crate) mod hooks;

use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::{
    Cpu, Errno, GuestMemory, Host, Process,
    guest::Range,
    kernel::{CallResult, Kernel, Stop, value},
};

/// Bytes that one description keeps fresh at most.
const LONGEST: u64 = 4096;

/// Bytes that a process can have kept fresh: each copy of it costs so many.
const MOST: u64 = 16 << 10;

/// Memory that holds other random bytes in everything that starts from a snapshot.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Fresh {
    kept: Vec<Kept>,
    /// The process has started from a snapshot, and the memory has what it had there.
    due: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// It is kept fresh as long as this is open; `None` for ever.
    description: Option<usize>,
    range: Range,
}

/// A clone is a snapshot.
impl Clone for Fresh {
    fn clone(&self) -> Self {
        Self { kept: self.kept.clone(), due: !self.kept.is_empty() }
    }
}

impl Fresh {
    /// The process is what the snapshot is.
    pub(crate) fn reset_from(&mut self, snapshot: &Self) {
        self.kept.clone_from(&snapshot.kept);
        self.due = !self.kept.is_empty();
    }

    /// A description is closed.
    pub(crate) fn let_go(&mut self, description: usize) {
        self.kept.retain(|kept| kept.description != Some(description));
    }

    /// Whether it is within its limits.
    pub(crate) fn is_consistent(&self) -> bool {
        self.kept.iter().all(|kept| kept.range.length <= LONGEST)
            && self.asked_for(|_| true) <= MOST
    }

    /// Of a process that starts with its own random bytes here (`AT_RANDOM`).
    pub(crate) fn of_process(random: Range) -> Self {
        Self { kept: vec![Kept { description: None, range: random }], due: false }
    }

    /// The bytes of those that the program has asked for and that are meant.
    fn asked_for(&self, is_meant: impl Fn(&Kept) -> bool) -> u64 {
        let asked = self.kept.iter().filter(|kept| kept.description.is_some() && is_meant(kept));
        asked.map(|kept| kept.range.length).sum()
    }

    fn keep(&mut self, new: Kept) -> Result<(), Errno> {
        if self.asked_for(|kept| kept.description != new.description) + new.range.length > MOST {
            return Err(Errno::NOMEM);
        }
        self.kept.retain(|kept| kept.description != new.description);
        self.kept.push(new);
        Ok(())
    }
}

/// Reads `/sandtide/fresh`: random bytes, of which the first is not zero. The memory that they are
/// read into gets others whenever the process starts from a snapshot.
pub(crate) fn read(
    kernel: &mut Kernel,
    host: &mut Host<'_>,
    fd: u64,
    ranges: &[Range],
) -> CallResult {
    let Some(range) = ranges.iter().find(|range| range.length > 0) else { return value(0u32) };
    let range = Range { length: range.length.min(LONGEST), ..*range };
    let description = kernel.files.description_of(fd)?;
    let buffer = host.memory.view_mut(range.address, range.length)?;
    kernel.fresh.keep(Kept { description: Some(description), range })?;
    fill(buffer, host.random);
    value(range.length)
}

fn fill(buffer: &mut [u8], random: &mut dyn RngCore) {
    random.fill_bytes(buffer);
    if let Some(first) = buffer.first_mut() {
        *first = (*first).max(1);
    }
}

impl<C: Cpu> Process<C> {
    /// Does to memory what a fork does to that of a child. Before a snapshot of it is taken.
    pub fn part(&mut self, memory: &mut dyn GuestMemory) {
        for area in self.kernel.space.areas().iter().filter(|area| area.kind.wiped) {
            if area.kind.present {
                memory.unmap(area.start, area.end - area.start);
                memory.map(area.start, area.end - area.start, area.kind.protection);
            }
        }
    }

    /// Fills what is to be fresh, if that has not been done since the process was cloned or reset.
    /// Before it runs.
    pub fn refresh(
        &mut self,
        memory: &mut dyn GuestMemory,
        random: &mut dyn RngCore,
    ) -> Result<(), OverLimit> {
        if !std::mem::take(&mut self.kernel.fresh.due) {
            return Ok(());
        }
        for Kept { range, .. } in &self.kernel.fresh.kept {
            match memory.view_mut(range.address, range.length).map_err(Stop::from) {
                Ok(buffer) => fill(buffer, random),
                Err(Stop::MemoryLimit) => return Err(OverLimit),
                // It was unmapped, or made read-only: that is what the program wanted.
                Err(Stop::Errno(_)) => {}
            }
        }
        Ok(())
    }
}

/// The process is over its memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit;
