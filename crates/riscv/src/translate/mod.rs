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
//! calls and counts are its own.

mod compile;
mod discover;
mod float;
mod frame;
mod helpers;
mod integer;
mod lower;
mod memory;
mod native;
mod plan;
mod registers;
mod run;
mod table;

pub(crate) use run::run_translated;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::Trace;

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use sandtide_memory::Space;

use self::{
    compile::Compiler,
    discover::{Finder, Region},
    lower::Surroundings,
    native::NativeCode,
    plan::Plan,
    table::{Entries, Entry},
};
use crate::isa::Code;

/// What a translation may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Guest instructions, of all regions together.
    pub(crate) instructions: usize,
    /// Guest instructions of one region.
    pub(crate) region: usize,
    /// Bytes of host code.
    pub(crate) bytes: usize,
    /// Time. What is not translated by then is interpreted.
    pub(crate) time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            instructions: 400_000,
            region: 8_000,
            bytes: 64 << 20,
            time: Duration::from_secs(10),
        }
    }
}

/// A program's host code.
#[derive(Debug)]
pub(crate) struct Translation {
    code: NativeCode,
    entries: Entries,
    /// The addresses of the functions that call helpers.
    helpers: [usize; 3],
}

/// What a translation has come to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Summary {
    /// Regions translated.
    pub(crate) regions: usize,
    /// Guest instructions in them; one may be in several.
    pub(crate) instructions: usize,
    /// Bytes of host code.
    pub(crate) bytes: usize,
    /// Whether a bound was reached, so that the rest is interpreted.
    pub(crate) is_partial: bool,
}

impl Translation {
    /// Translates what can be found of a program. `symbols` are the addresses of functions, as far
    /// as the file tells. `None` if the host cannot, or there is nothing.
    pub(crate) fn new(
        space: &Space,
        code: &Code,
        entry: u64,
        symbols: impl Iterator<Item = u64>,
        bounds: &Bounds,
    ) -> Option<(Self, Summary)> {
        let start = Instant::now();
        let span = code.span()?;
        let bytes = span.end - span.start;
        if bytes > 64 << 20 {
            return None;
        }
        let mut compiler = Compiler::new()?;
        let mut entries = Entries::new(span.start, bytes);
        let mut finder = Finder::new(space, code, symbols);
        let Found { regions, mut summary } = Found::new(&mut finder, entry, bounds);
        let numbers: HashMap<u64, u32> = regions
            .iter()
            .enumerate()
            .map(|(number, region)| (region.blocks[0].pc, number as u32))
            .collect();
        let plans: Vec<Plan> = regions.iter().map(Plan::new).collect();
        // Which regions will be there must be known before the first is translated.
        let table = entries.range();
        let mut first_entry = 1;
        let mut done = 0;
        for (region, plan) in regions.iter().zip(&plans) {
            if start.elapsed() > bounds.time || compiler.bytes() > bounds.bytes {
                summary.is_partial = true;
                break;
            }
            let around =
                Surroundings { function: &|pc| numbers.get(&pc).copied(), first_entry, table };
            compiler.region(region, plan, &around);
            first_entry += plan.entries.len() as u32;
            done += 1;
        }
        let starts: Vec<u64> = regions.iter().map(|region| region.blocks[0].pc).collect();
        let helpers = compiler.helpers;
        let (code, offsets) = compiler.finish(&starts)?;
        summary.bytes = code.len();
        let code = NativeCode::new(&code).ok()?;
        for (number, (region, plan)) in regions.iter().zip(&plans).enumerate().take(done) {
            for (resume, block) in plan.entries.iter().enumerate() {
                let number_of_entry = entries.entries.len() as u32;
                let function = offsets[number].map_or(0, |offset| code.address(offset));
                entries.entries.push(Entry { function, resume: resume as u64 });
                if offsets[number].is_some() {
                    entries.set(region.blocks[*block].pc, number_of_entry);
                }
            }
        }
        summary.regions = done;
        let helpers = helpers.map(|offset| code.address(offset));
        Some((Self { code, entries, helpers }, summary))
    }
}

/// The regions of a program.
struct Found {
    regions: Vec<Region>,
    summary: Summary,
}

impl Found {
    fn new(finder: &mut Finder<'_>, entry: u64, bounds: &Bounds) -> Self {
        let mut open: VecDeque<u64> = finder.starts(entry, bounds.instructions).into();
        let mut known: std::collections::HashSet<u64> = open.iter().copied().collect();
        let (mut regions, mut summary) = (Vec::new(), Summary::default());
        while let Some(start) = open.pop_front() {
            if summary.instructions >= bounds.instructions {
                summary.is_partial = true;
                break;
            }
            let Some(region) = finder.region(start, bounds.region) else { continue };
            summary.instructions +=
                region.blocks.iter().map(|block| block.instructions.len()).sum::<usize>();
            for pc in region.ways_out() {
                if known.insert(pc) {
                    open.push_back(pc);
                }
            }
            regions.push(region);
        }
        Self { regions, summary }
    }
}
