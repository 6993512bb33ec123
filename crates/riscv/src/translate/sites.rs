//! Where guest registers are when a load of translated code faults.
//!
//! ```text
//!   offset of the load in the code ─▶ Site: pc, count, its Places
//!                                     Place: a guest register is in a host register, or in the
//!                                            host's stack frame, or it is a constant
//! ```
//!
//! A site has no place for a register that the frame page holds, and none for one that no
//! instruction reads before it is written again: the frame's value, an older one, stands in for
//! that, so it is stale. If the load is the last to read its base register, the register's low half
//! is known, which is all that the address needs. Nobody can tell but a guest that handles SIGSEGV
//! and looks at registers which its compiler has given up.
//!
//! The tables are plain numbers that do not depend on where the code lies.

use std::collections::HashMap;

use cranelift_codegen::{
    CompiledCode, LabelValueLoc,
    ir::{
        Function, InstructionData, Opcode, RelSourceLoc, Value, ValueDef, ValueLabel,
        ValueLabelAssignments, ValueLabelStart,
    },
};

use serde::{Deserialize, Serialize};

use super::{boxing::CANONICAL_NAN, registers::Registers};

/// In place of a register's number: the budget.
pub(super) const LEFT: u8 = 64;

/// The number of `sp`.
const STACK_POINTER: u8 = 2;

/// How far a value is traced back, if no host register holds it, to one that it is computed from.
const LONGEST_CHAIN: usize = 4;

/// A load that may fault, as it is translated.
pub(super) struct LoadSite {
    /// The guest address of the instruction.
    pub(super) pc: u64,
    /// Instructions that have retired and are not yet taken from the budget.
    pub(super) pending: u64,
    /// Registers, or [`LEFT`], and their values.
    pub(super) values: Vec<(u8, Value)>,
    /// Those of them that are canonical NaNs if their values are NaNs.
    pub(super) raw: Registers,
    /// The base register, if it is not as in the frame, and the low half of its value, less a
    /// constant.
    pub(super) base: Option<(u8, Value, i32)>,
    /// The registers that are not as in the frame.
    pub(super) differ: Registers,
}

/// A load that may fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Site {
    /// Where the host instruction is in the code.
    pub(super) offset: u32,
    /// Instructions to take from the budget.
    pub(super) pending: u32,
    /// The guest address of the instruction.
    pub(super) pc: u64,
    /// The registers whose values are not known.
    pub(super) stale: u64,
    first: u32,
    count: u32,
}

/// Where something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Place {
    /// A guest register, or [`LEFT`].
    register: u8,
    /// The number of a host register; 16 more for one of floating point; [`Self::STACK`] or
    /// [`Self::CONSTANT`]; perhaps with [`Self::RAW`].
    home: u8,
    /// From the frame pointer; or the low half of a constant.
    offset: i32,
    /// To be added to what is there; or the high half of a constant.
    addend: i32,
}

impl Place {
    const STACK: u8 = 32;
    const CONSTANT: u8 = 33;
    /// A NaN there stands for the canonical one.
    const RAW: u8 = 64;
}

/// What the host's registers were at a fault, by hardware number.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HostRegisters {
    pub(super) integers: [u64; 16],
    /// The low halves of the vector registers.
    pub(super) floats: [u64; 16],
}

/// The sites of a program, in order of their offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sites {
    sites: Vec<Site>,
    places: Vec<Place>,
}

impl Sites {
    /// The site at an offset. (Async-signal-safe.)
    pub(super) fn find(&self, offset: u32) -> Option<usize> {
        self.sites.binary_search_by_key(&offset, |site| site.offset).ok()
    }

    /// Whether the tables fit together.
    pub(super) fn are_consistent(&self) -> bool {
        let has_places =
            |site: &Site| u64::from(site.first) + u64::from(site.count) <= self.places.len() as u64;
        self.sites.is_sorted_by(|one, next| one.offset < next.offset)
            && self.sites.iter().all(has_places)
            && self.places.iter().all(|place| place.register <= LEFT)
    }

    /// The memory that they take.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&*self.sites) + size_of_val(&*self.places)) as u64
    }

    pub(super) fn get(&self, number: usize) -> Option<&Site> {
        self.sites.get(number)
    }

    /// What the guest's registers, and the budget, were at a site. `stack` reads what is at an
    /// offset from the host's frame pointer.
    pub(super) fn values<'a>(
        &'a self,
        site: &Site,
        host: &'a HostRegisters,
        stack: impl Fn(i32) -> u64 + 'a,
    ) -> impl Iterator<Item = (u8, u64)> + 'a {
        let places = (site.first as usize)..(site.first + site.count) as usize;
        self.places.get(places).unwrap_or(&[]).iter().map(move |place| {
            let Place { register, home, offset, addend } = *place;
            let addend_value = i64::from(addend) as u64;
            let value = match home & !Place::RAW {
                home @ 0..16 => host.integers[home as usize].wrapping_add(addend_value),
                home @ 16..32 => host.floats[home as usize - 16],
                Place::STACK => stack(offset).wrapping_add(addend_value),
                _ => u64::from(offset as u32) | u64::from(addend as u32) << 32,
            };
            let is_nan = home & Place::RAW != 0 && f64::from_bits(value).is_nan();
            (register, if is_nan { CANONICAL_NAN } else { value })
        })
    }
}

/// Collects sites while regions are compiled.
#[derive(Default)]
pub(super) struct Collector {
    sites: Sites,
    /// Lists of places that are there already, and where.
    known: HashMap<Vec<Place>, u32>,
}

impl Collector {
    /// Adds the sites of a function whose code starts at an offset, with the places at each.
    pub(super) fn add(
        &mut self,
        compiled: &CompiledCode,
        sites: &[LoadSite],
        places: Vec<Known>,
        start: usize,
    ) {
        let offsets = offsets(compiled, sites.len());
        for ((site, known), offset) in sites.iter().zip(places).zip(offsets) {
            // Code that nothing leads to is not there.
            let Some(offset) = offset else { continue };
            let count = known.places.len() as u32;
            let list = &mut self.sites.places;
            let first = *self.known.entry(known.places).or_insert_with_key(|places| {
                let first = list.len() as u32;
                list.extend(places);
                first
            });
            self.sites.sites.push(Site {
                offset: start as u32 + offset,
                pending: site.pending as u32,
                pc: site.pc,
                stale: site.differ.without(known.registers).0,
                first,
                count,
            });
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sites.bytes()
    }

    /// Forgets the sites behind an offset.
    pub(super) fn take_back(&mut self, offset: usize) {
        self.sites.sites.retain(|site| (site.offset as usize) < offset);
    }

    pub(super) fn finish(mut self) -> Sites {
        self.sites.sites.sort_unstable_by_key(|site| site.offset);
        self.sites
    }
}

/// Asks for the homes of everything that sites need, and replaces aliases by what they stand for.
/// Behind it, values must not be replaced any more.
pub(super) fn label(function: &mut Function, sites: &mut [LoadSite]) {
    if sites.is_empty() {
        return;
    }
    function.dfg.collect_debug_info();
    for site in sites {
        let low = site.base.iter_mut().map(|(_, low, _)| low);
        for value in site.values.iter_mut().map(|(_, value)| value).chain(low) {
            *value = function.dfg.resolve_aliases(*value);
            let mut value = *value;
            for _ in 0..LONGEST_CHAIN {
                let Some(labels) = &mut function.dfg.values_labels else { return };
                let label = ValueLabel::from_u32(value.as_u32());
                let from = RelSourceLoc::default();
                let start = ValueLabelStart { from, label };
                if labels.insert(value, ValueLabelAssignments::Starts(vec![start])).is_some() {
                    break;
                }
                match sum(function, value) {
                    Some((term, _)) => value = term,
                    None => break,
                }
            }
        }
    }
}

/// The offsets of the loads in the code of a function, by the number of the site.
fn offsets(compiled: &CompiledCode, sites: usize) -> Vec<Option<u32>> {
    let mut offsets = vec![None; sites];
    let ranges = compiled.buffer.get_srclocs_sorted();
    for trap in compiled.buffer.traps() {
        let after = ranges.partition_point(|range| range.start <= trap.offset);
        let range = ranges[..after].last().filter(|range| trap.offset < range.end);
        // Traps of other instructions cannot happen.
        if let Some(slot) = range.and_then(|range| offsets.get_mut(range.loc.bits() as usize)) {
            *slot = Some(trap.offset);
        }
    }
    offsets
}

/// What is known at a site.
#[derive(Default)]
pub(super) struct Known {
    places: Vec<Place>,
    /// The registers whose whole values they tell.
    registers: Registers,
}

/// What must be known at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Everything.
    All,
    /// What tells where and why the load faults: the budget, the stack pointer and the load's base
    /// register. Another register that has no place is one that no way from here reads.
    Fault,
}

impl Need {
    fn has(self, site: &LoadSite, register: u8) -> bool {
        self == Self::All
            || [LEFT, STACK_POINTER].contains(&register)
            || site.base.is_some_and(|(base, ..)| base == register)
    }
}

/// The places of what each site needs; `None` if one of them is missing.
pub(super) fn places(
    function: &Function,
    compiled: &CompiledCode,
    sites: &[LoadSite],
    need: Need,
) -> Option<Vec<Known>> {
    let offsets = offsets(compiled, sites.len());
    let known = sites.iter().zip(offsets).map(|(site, offset)| {
        let Some(offset) = offset else { return Some(Known::default()) };
        let mut known = Known::default();
        for (register, value) in &site.values {
            let whole = place(function, compiled, *register, (*value, 0), offset);
            if whole.is_some() && *register != LEFT {
                known.registers = known.registers.and(Registers(1 << register));
            }
            let known_part = whole.or_else(|| {
                let (_, low, more) = site.base.filter(|(base, ..)| base == register)?;
                place(function, compiled, *register, (low, more), offset)
            });
            let is_raw = *register != LEFT && site.raw.0 >> register & 1 != 0;
            let raw = if is_raw { Place::RAW } else { 0 };
            match known_part {
                Some(place) => known.places.push(Place { home: place.home | raw, ..place }),
                None if need.has(site, *register) => return None,
                None => {}
            }
        }
        Some(known)
    });
    known.collect()
}

fn place(
    function: &Function,
    compiled: &CompiledCode,
    register: u8,
    (mut value, mut addend): (Value, i32),
    offset: u32,
) -> Option<Place> {
    for _ in 0..LONGEST_CHAIN {
        if let Some(constant) = constant(function, value) {
            let constant = constant.wrapping_add(i64::from(addend));
            let (offset, addend) = (constant as i32, (constant >> 32) as i32);
            return Some(Place { register, home: Place::CONSTANT, offset, addend });
        }
        let label = ValueLabel::from_u32(value.as_u32());
        let ranges = compiled.value_labels_ranges.get(&label).map_or(&[][..], |ranges| ranges);
        let here = ranges.iter().find(|range| range.start <= offset && offset < range.end);
        if let Some(range) = here {
            let float = function.dfg.value_type(value).is_float();
            let (home, offset) = home(range.loc, float)?;
            return Some(Place { register, home, offset, addend });
        }
        let (term, constant) = sum(function, value)?;
        value = term;
        addend = addend.checked_add(constant)?;
    }
    None
}

/// The home of a value, and its offset from the frame pointer if it is in the stack frame.
fn home(location: LabelValueLoc, float: bool) -> Option<(u8, i32)> {
    match location {
        LabelValueLoc::Reg(register) => {
            let number = register.to_real_reg()?.hw_enc();
            (number < 16).then_some((number + 16 * u8::from(float), 0))
        }
        // The frame pointer and the return address lie between the two.
        LabelValueLoc::CFAOffset(offset) => Some((Place::STACK, i32::try_from(offset + 16).ok()?)),
    }
}

/// The operation that defines a value.
fn definition(function: &Function, value: Value) -> Option<&InstructionData> {
    match function.dfg.value_def(value) {
        ValueDef::Result(inst, _) => Some(&function.dfg.insts[inst]),
        _ => None,
    }
}

fn constant(function: &Function, value: Value) -> Option<i64> {
    match *definition(function, value)? {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        InstructionData::UnaryIeee64 { imm, .. } => Some(imm.bits() as i64),
        InstructionData::LoadNoOffset { opcode: Opcode::Bitcast, arg, .. } => {
            constant(function, function.dfg.resolve_aliases(arg))
        }
        _ => None,
    }
}

/// The two parts of a value that is another plus a constant, or a copy.
fn sum(function: &Function, value: Value) -> Option<(Value, i32)> {
    let InstructionData::Binary { opcode, args } = *definition(function, value)? else {
        return None;
    };
    let [a, b] = args.map(|value| function.dfg.resolve_aliases(value));
    let constant = constant(function, b)?;
    match opcode {
        Opcode::Iadd => Some((a, i32::try_from(constant).ok()?)),
        Opcode::Rotr if constant == 0 => Some((a, 0)),
        _ => None,
    }
}
