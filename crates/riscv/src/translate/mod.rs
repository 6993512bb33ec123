//! Translation of guest code to host code, beside the interpreter, which stays the reference.
//!
//! ```text
//!  Code ─discover─▶ Region (blocks) ─plan─▶ what each block needs ─lower─▶ CLIF ─compile─▶ host code
//!                                                                                           │
//!        Cpu ─▶ Frame ─▶ trampoline ─▶ host functions ─▶ back with the next pc ◀──run──────┘
//!                                         │ anything unusual
//!                                         ▼
//!                                    interpreter, until it reaches an entry of host code
//! ```
//!
//! Host code gives up as soon as something is not as usual (an access that is refused, a system
//! call, a budget that may not last), in front of the instruction concerned, with every register
//! and the count as they were there. The interpreter then executes that instruction; so faults,
//! calls and counts are its own. Loads are not looked at before: one that the guest may not make
//! faults in the host, and that is a way of giving up, too ([`fault`]).

mod artifact;
mod bounds;
mod boxing;
mod budget;
mod calls;
mod compile;
mod constants;
mod convert;
mod discover;
mod ends;
mod entering;
mod fault;
mod flags;
mod float;
mod frame;
mod helpers;
mod integer;
mod leaving;
mod lower;
mod measure;
mod memory;
mod native;
mod plan;
mod registers;
mod run;
mod sites;
mod stack;
mod switch;
mod table;
mod unroll;
mod values;

pub(crate) use artifact::Artifact;
pub(crate) use bounds::{Allowance, Bounds, Reached};
pub(crate) use fault::divert;
#[cfg(feature = "measure")]
pub use measure::{Part, leave_out};
pub(crate) use run::run_some;
#[cfg(test)]
pub(crate) use run::run_translated;

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) use tests::{Trace, translated};

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
};

use sandtide_memory::Space;

use self::{
    artifact::{EntryAt, LARGEST_TABLE, Summary},
    compile::Compiler,
    discover::{Finder, Region},
    lower::Surroundings,
    native::NativeCode,
    plan::Plan,
    sites::Sites,
    table::{Entries, Entry},
    unroll::unroll,
};
use crate::isa::Code;

/// A program's host code.
#[derive(Debug)]
pub(crate) struct Translation {
    code: NativeCode,
    entries: Entries,
    /// The addresses of the functions that call helpers.
    helpers: [usize; helpers::HOST_CODE],
    /// The loads that may fault.
    sites: Sites,
}

/// What the code that is made depends on besides the program: the translator and the host.
/// `None` if the host cannot have any.
pub(crate) fn target() -> Option<String> {
    let isa = compile::isa()?;
    let mut target = format!("{} {} {}", env!("SANDTIDE_TRANSLATOR"), isa.triple(), isa.flags());
    isa.isa_flags().iter().for_each(|flag| target.push_str(&format!(" {flag}")));
    Some(target)
}

/// Translates what can be found of a program. `symbols` are the addresses of functions, as far as
/// the file tells. `None` if the host cannot, or there is nothing.
pub(crate) fn translate(
    space: &Space,
    code: &Code,
    entry: u64,
    symbols: impl Iterator<Item = u64>,
    bounds: &Bounds,
    allowance: &Allowance<'_>,
) -> Option<Artifact> {
    let span = code.span()?;
    let bytes = span.end - span.start;
    if bytes > LARGEST_TABLE {
        return None;
    }
    let mut compiler = Compiler::new()?;
    let mut finder = Finder::new(space, code, symbols, allowance);
    let Found { regions, mut summary } = Found::new(&mut finder, entry, bounds, allowance);
    let numbers: HashMap<u64, u32> = regions
        .iter()
        .enumerate()
        .map(|(number, region)| (region.blocks[0].pc, number as u32))
        .collect();
    // Which regions will be there must be known before the first is translated.
    let mut artifact = Artifact {
        code: Vec::new(),
        table: Entries::new(span.start, bytes).range(),
        entries: Vec::new(),
        helpers: [0; helpers::HOST_CODE],
        sites: Sites::default(),
        summary,
    };
    // What stands in for functions that are not there comes on top.
    let most = (bounds.bytes - bounds.bytes / 8) as u64;
    let mut done = Vec::new();
    for region in &regions {
        if allowance.look() {
            summary.reached = Some(Reached::Time);
            break;
        }
        let plan = Plan::new(region);
        let around = Surroundings {
            function: &|pc| numbers.get(&pc).copied(),
            first_entry: artifact.entries.len() as u32 + 1,
            table: artifact.table,
        };
        compiler.region(region, &plan, &around);
        let known = artifact.entries.len();
        artifact.entries.extend(plan.entries.iter().enumerate().map(|(resume, block)| {
            let pc = region.blocks[*block].pc;
            EntryAt { pc, function: None, resume: resume as u32 }
        }));
        if compiler.bytes() + artifact.bytes() > most {
            compiler.take_back();
            artifact.entries.truncate(known);
            summary.reached = Some(Reached::Bytes);
            break;
        }
        done.push(plan.entries.len());
    }
    let starts: Vec<u64> = regions.iter().map(|region| region.blocks[0].pc).collect();
    let offset = |offset: usize| u32::try_from(offset).ok();
    for (helper, at) in artifact.helpers.iter_mut().zip(compiler.helpers) {
        *helper = offset(at)?;
    }
    let (code, offsets, sites) = compiler.finish(&starts)?;
    let mut entries = artifact.entries.iter_mut();
    for (count, function) in done.iter().zip(&offsets) {
        let function = function.and_then(offset);
        entries.by_ref().take(*count).for_each(|entry| entry.function = function);
    }
    summary.regions = offsets.iter().take(done.len()).flatten().count() as u32;
    summary.left = done.len() as u32 - summary.regions;
    Some(Artifact { code, sites, summary, ..artifact })
}

impl Translation {
    /// Makes it ready to run.
    pub(crate) fn new(artifact: &Artifact) -> io::Result<Self> {
        if !artifact.is_consistent() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if !crate::fault::install() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (start, bytes) = artifact.table;
        let code = NativeCode::new(&artifact.code)?;
        let mut entries = Entries::new(start, bytes);
        for entry in &artifact.entries {
            let number = entries.entries.len() as u32;
            let function = entry.function.map_or(0, |offset| code.address(offset as usize));
            entries.entries.push(Entry { function, resume: entry.resume.into() });
            if entry.function.is_some() {
                entries.set(entry.pc, number);
            }
        }
        let helpers = artifact.helpers.map(|offset| code.address(offset as usize));
        Ok(Self { code, entries, helpers, sites: artifact.sites.clone() })
    }
}

/// The regions of a program.
struct Found {
    regions: Vec<Region>,
    summary: Summary,
}

impl Found {
    fn new(
        finder: &mut Finder<'_>,
        entry: u64,
        bounds: &Bounds,
        allowance: &Allowance<'_>,
    ) -> Self {
        let mut open: VecDeque<u64> = finder.starts(entry, bounds.instructions).into();
        let mut known: HashSet<u64> = open.iter().copied().collect();
        let (mut regions, mut summary) = (Vec::new(), Summary::default());
        while let Some(start) = open.pop_front() {
            if allowance.look() {
                summary.reached = Some(Reached::Time);
                break;
            }
            if summary.instructions as usize >= bounds.instructions {
                summary.reached = Some(Reached::Instructions);
                break;
            }
            let Some(mut region) = finder.region(start, bounds.region) else { continue };
            let instructions = region.blocks.iter().map(|block| block.instructions.len() as u32);
            summary.instructions += instructions.sum::<u32>();
            for pc in region.ways_out() {
                if known.insert(pc) {
                    open.push_back(pc);
                }
            }
            unroll(&mut region);
            regions.push(region);
        }
        Self { regions, summary }
    }
}
