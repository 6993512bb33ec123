//! The decoded code of a program, shared by all its sandboxes.
#![allow(unsafe_code, reason = "slots are written once, and read without locks")]

use std::{
    cell::Cell,
    marker::PhantomData,
    ops::Range,
    ptr::NonNull,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU8,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use zerocopy::FromZeros;

use super::{insn::Insn, quick::quicken, register::Register};

/// Decoded instructions, filled in where code runs.
///
/// Only for bytes that stay the same as long as [`sandtide_memory::Space::code_is_pristine`] says
/// so. The slots start as zero pages that the host maps lazily: what never runs costs nothing.
#[derive(Default)]
pub(crate) struct Code {
    regions: Vec<Region>,
}

struct Region {
    start: u64,
    /// One for each halfword, and [`EMPTY`].
    slots: Box<[Slot]>,
    /// Held by who fills a slot.
    filling: Mutex<()>,
}

impl Region {
    /// The slots that may hold an instruction.
    fn length(&self) -> u64 {
        (self.slots.len() - EMPTY) as u64
    }
}

// SAFETY: the cells of a slot are set by `fill`, which holds `filling`, and only as long as the
// slot has no operation; they are read only after that was
// seen. The operation is stored with `Release` and read with `Acquire`: no cell is set while or
// after somebody reads it.
unsafe impl Sync for Region {}

/// Where the instruction at an address is kept: an [`Insn`] without its length, each field a
/// memory operand of its own. Zero while there is none.
#[derive(Default, FromZeros)]
#[repr(C, align(8))]
pub(super) struct Slot {
    op: AtomicU8,
    d: Cell<Register>,
    s1: Cell<Register>,
    s2: Cell<Register>,
    immediate: Cell<i32>,
}

impl Slot {
    /// Keeps an instruction. No other thread may see this slot, or no operation may be in it yet.
    fn fill(&self, insn: Insn) {
        let insn = quicken(insn);
        self.d.set(Register::new(insn.d()));
        self.s1.set(Register::new(insn.s1()));
        self.s2.set(Register::new(insn.s2()));
        self.immediate.set(insn.immediate() as i32);
        self.op.store(insn.op(), Release);
    }
}

/// How many slots behind those of a region stay empty: an instruction has two halfwords at most,
/// so that the step behind the last one leads to one of them.
const EMPTY: usize = 2;

/// A slot of a place.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    slot: NonNull<Slot>,
    slots: PhantomData<&'a [Slot]>,
}

impl At<'_> {
    #[inline(always)]
    fn slot(&self) -> &Slot {
        // SAFETY: it is one of the slots that are borrowed.
        unsafe { self.slot.as_ref() }
    }

    /// The operation of the instruction, 0 if there is none. Only with one the rest may be asked
    /// for.
    #[inline(always)]
    pub(super) fn op(self) -> u8 {
        self.slot().op.load(Acquire)
    }

    /// See [`Insn::d`].
    #[inline(always)]
    pub(super) fn d(self) -> usize {
        self.slot().d.get() as usize
    }

    /// See [`Insn::s1`].
    #[inline(always)]
    pub(super) fn s1(self) -> usize {
        self.slot().s1.get() as usize
    }

    /// See [`Insn::s2`].
    #[inline(always)]
    pub(super) fn s2(self) -> usize {
        self.slot().s2.get() as usize
    }

    /// See [`Insn::immediate`].
    #[inline(always)]
    pub(super) fn immediate(self) -> u64 {
        self.slot().immediate.get() as u64
    }

    /// The instruction, for what is executed out of line.
    #[inline(always)]
    pub(super) fn insn(self) -> Insn {
        let fields = [self.op(), self.d() as u8, self.s1() as u8, self.s2() as u8];
        Insn(u64::from(u32::from_le_bytes(fields)) | (self.immediate() << 32))
    }

    /// The slot behind an instruction of one or two halfwords.
    ///
    /// # Safety
    /// There must be an instruction in this slot.
    #[inline(always)]
    pub(super) unsafe fn step(self, length: usize) -> Self {
        debug_assert!(length <= EMPTY);
        // SAFETY: an instruction is in no slot that has fewer than `EMPTY` behind it.
        Self { slot: unsafe { self.slot.add(length) }, ..self }
    }
}

/// A slot for an instruction that no region may keep.
#[derive(Default)]
pub(super) struct Lone([Slot; 1 + EMPTY]);

impl Lone {
    /// The place of the slot when it is for an instruction at an address.
    pub(super) fn place(&self, base: u64) -> Place<'_> {
        Place { base, slots: &self.0 }
    }
}

/// Code in one piece: the instruction at `base + 2 × index` is in `slots[index]`, and the last
/// [`EMPTY`] slots stay empty.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) base: u64,
    slots: &'a [Slot],
}

impl<'a> Place<'a> {
    /// The slot with an index, unless that is outside.
    #[inline(always)]
    pub(super) fn at(self, index: u64) -> Option<At<'a>> {
        if index >= self.slots.len() as u64 {
            return None;
        }
        // SAFETY: the index is inside. The pointer is to all slots, not only to the one there.
        let slot = unsafe { self.slots.as_ptr().add(index as usize) };
        // A slice never lies at address 0.
        Some(At { slot: NonNull::new(slot.cast_mut())?, slots: PhantomData })
    }

    /// The index of a slot.
    #[inline(always)]
    pub(super) fn index_of(self, at: At<'a>) -> u64 {
        let bytes = at.slot.addr().get().wrapping_sub(self.slots.as_ptr().addr());
        (bytes / size_of::<Slot>()) as u64
    }

    /// The address of the instruction in a slot.
    #[inline(always)]
    pub(super) fn pc_of(self, at: At<'a>) -> u64 {
        self.base.wrapping_add(self.index_of(at) << 1)
    }
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
            let slots = <[Slot]>::new_box_zeroed_with_elems((bytes / 2) as usize + EMPTY)
                .map_err(|_| NoMemory { bytes })?;
            regions.push(Region { start, slots, filling: Mutex::new(()) });
        }
        Ok(Self { regions })
    }

    fn region(&self, pc: u64) -> Option<&Region> {
        self.regions.iter().find(|region| pc.wrapping_sub(region.start) / 2 < region.length())
    }

    /// Finds or makes a slot that holds the decoded instruction at an address, which `fetch`
    /// gives. `None` if the guest may not execute it.
    #[cold]
    #[inline(never)]
    pub(super) fn locate<'a>(
        &'a self,
        pc: u64,
        lone: &'a Lone,
        fetch: impl FnOnce() -> Option<Insn>,
    ) -> Option<(Place<'a>, At<'a>)> {
        let Some(Region { start, slots, filling }) = self.region(pc) else {
            lone.0[0].fill(fetch()?);
            let place = lone.place(pc);
            return place.at(0).map(|at| (place, at));
        };
        let index = (pc - start) >> 1;
        let slot = slots.get(index as usize)?;
        if slot.op.load(Acquire) == 0 || pc & 1 != 0 {
            let insn = fetch()?;
            let _guard = filling.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.op.load(Relaxed) == 0 {
                slot.fill(insn);
            }
        }
        let place = Place { base: *start, slots };
        place.at(index).map(|at| (place, at))
    }

    /// Whether the instruction at an address stays as it is.
    pub(crate) fn holds(&self, pc: u64) -> bool {
        self.region(pc).is_some()
    }

    /// The first address of code, and the one behind the last.
    pub(crate) fn span(&self) -> Option<Range<u64>> {
        let end = |region: &Region| region.start + 2 * region.length();
        let regions = self.regions.iter().filter(|region| region.length() > 0);
        let first = regions.clone().map(|region| region.start).min()?;
        Some(first..regions.map(end).max()?)
    }

    /// How many instructions are decoded. Looks at every slot, and so makes the host map them.
    #[cfg(test)]
    pub(crate) fn decoded(&self) -> usize {
        let slots = self.regions.iter().flat_map(|region| &region.slots);
        slots.filter(|slot| slot.op.load(Acquire) != 0).count()
    }
}
