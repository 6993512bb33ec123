//! The decoded code of a program, shared by all its sandboxes.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use zerocopy::FromZeros;

/// Decoded instructions, filled in where code runs.
///
/// Only for bytes that stay the same as long as [`sandtide_memory::Space::code_is_pristine`] says
/// so. The slots start as zero pages that the host maps lazily: what never runs costs nothing.
/// Two sandboxes may decode the same instruction at the same time, and store the same value.
#[derive(Default)]
pub(crate) struct Code {
    regions: Vec<Region>,
}

struct Region {
    start: u64,
    /// One [`Insn`](super::insn::Insn) for each halfword.
    slots: Box<[AtomicU64]>,
}

/// The host could not give the memory for decoded code.
#[derive(Debug, thiserror::Error)]
#[error("no memory to decode {bytes} bytes of code")]
pub(crate) struct NoMemory {
    bytes: u64,
}

impl Code {
    /// For code at these guest addresses, which must not be writable by the guest. Ranges outside
    /// the address space are cut off; odd bytes at their ends are left out.
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Self, NoMemory> {
        let mut regions = Vec::new();
        for range in ranges {
            let start = range.start.next_multiple_of(2);
            let bytes = range.end.min(1 << 32).saturating_sub(start);
            let slots = <[AtomicU64]>::new_box_zeroed_with_elems((bytes / 2) as usize)
                .map_err(|_| NoMemory { bytes })?;
            regions.push(Region { start, slots });
        }
        Ok(Self { regions })
    }

    /// The start and the slots of the region that an address lies in.
    pub(super) fn region(&self, pc: u64) -> Option<(u64, &[AtomicU64])> {
        self.regions
            .iter()
            .find(|region| pc.wrapping_sub(region.start) / 2 < region.slots.len() as u64)
            .map(|region| (region.start, &*region.slots))
    }

    /// Whether the instruction at an address stays as it is.
    pub(crate) fn holds(&self, pc: u64) -> bool {
        self.region(pc).is_some()
    }

    /// The first address of code, and the one behind the last.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        let end = |region: &Region| region.start + 2 * region.slots.len() as u64;
        let regions = self.regions.iter().filter(|region| !region.slots.is_empty());
        let first = regions.clone().map(|region| region.start).min()?;
        Some(first..regions.map(end).max()?)
    }

    /// How many instructions are decoded. Looks at every slot, and so makes the host map them.
    #[cfg(test)]
    pub(crate) fn decoded(&self) -> usize {
        let slots = self.regions.iter().flat_map(|region| &region.slots);
        slots.filter(|slot| slot.load(Relaxed) != 0).count()
    }
}

/// Keeps a decoded instruction.
pub(super) fn fill(slot: &AtomicU64, insn: super::insn::Insn) {
    slot.store(insn.0, Relaxed);
}
