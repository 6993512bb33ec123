//! Finding code: where functions start, and the blocks of each region.
//!
//! Nothing here has to be right for a translation to be right: what is not found is interpreted,
//! and what is found by mistake is translated as what it would be if it ran.

use std::collections::{BTreeMap, BTreeSet};

use sandtide_memory::Space;

use super::{
    bounds::Allowance,
    constants::{Constants, SINK, Table},
    registers::Flow,
    unroll::Apart,
};
use crate::isa::{Code, fetch, insn::Insn};

/// `ra` and `t0`, which calls link to and returns go through (RISC-V Unprivileged ISA, "Unconditional
/// Jumps").
const LINKS: [usize; 2] = [1, 5];

/// A block has at most this many instructions.
const LONGEST_BLOCK: usize = 64;

/// A jump table may have at most this many entries.
const LARGEST_TABLE: u64 = 4096;

/// A region may have at most this many ways through jump tables: each costs when it is planned and
/// compiled, and some interpreters have a table of hundreds in each of hundreds of places. What is
/// over goes through the table of entries.
const MOST_TARGETS: usize = 1 << 16;

/// Where a jump through a table may go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Targets {
    pub(super) table: Option<Table>,
    /// What the entries of the table are. It may be in memory that the program writes: this is what
    /// they were.
    pub(super) entries: Vec<u64>,
}

/// How a block ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// It goes on at an address.
    Jump(u64),
    /// The last instruction is a branch.
    Branch { taken: u64, next: u64 },
    /// The last instruction calls a known function.
    Call { target: u64, back: u64 },
    /// The last instruction calls what a register says.
    CallRegister { back: u64 },
    /// The last instruction returns.
    Return,
    /// The last instruction jumps where a register says; perhaps to one of these.
    JumpRegister(Targets),
    /// The instruction behind the block is for the interpreter, which may go on at `next`.
    Leave { pc: u64, next: Option<u64> },
}

/// Instructions that run one after the other.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) pc: u64,
    pub(super) instructions: Vec<Insn>,
    pub(super) end: End,
    /// If it is repeated: the block that a branch to its own address goes to.
    pub(super) again: Option<usize>,
    /// If it is the first of several rounds: where to go unless their stores are all allowed.
    pub(super) apart: Option<Apart>,
}

/// A part of the program that becomes one host function. The first block is where it is called.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) blocks: Vec<Block>,
    /// The addresses of the function that it is from, as far as that is known.
    function: std::ops::Range<u64>,
}

impl Region {
    /// Fixed addresses outside of its function where it goes on or calls. (A function that is too
    /// large for a region is not cut into several, which would overlap: the rest is interpreted.)
    pub(super) fn ways_out(&self) -> Vec<u64> {
        let inside: BTreeSet<u64> = self.blocks.iter().map(|block| block.pc).collect();
        let mut ways: Vec<u64> = Vec::new();
        for block in &self.blocks {
            match &block.end {
                End::Jump(pc) => ways.push(*pc),
                End::Branch { taken, next } => ways.extend([*taken, *next]),
                End::Call { target, back } => ways.extend([*target, *back]),
                End::CallRegister { back } => ways.push(*back),
                End::Leave { next, .. } => ways.extend(next),
                End::JumpRegister(_) | End::Return => {}
            }
        }
        ways.retain(|pc| !inside.contains(pc) && !self.function.contains(pc));
        ways
    }
}

/// The code of a program, to look for functions in.
pub(super) struct Finder<'a> {
    space: &'a Space,
    code: &'a Code,
    /// Where functions start, and where the next one may.
    bounds: BTreeSet<u64>,
    allowance: &'a Allowance<'a>,
}

impl<'a> Finder<'a> {
    /// `symbols` are addresses that the file calls functions.
    pub(super) fn new(
        space: &'a Space,
        code: &'a Code,
        symbols: impl Iterator<Item = u64>,
        allowance: &'a Allowance<'a>,
    ) -> Self {
        let bounds = symbols.filter(|pc| code.holds(*pc)).collect();
        Self { space, code, bounds, allowance }
    }

    /// The instruction at an address, if it stays as it is.
    fn instruction(&self, pc: u64) -> Option<Insn> {
        if pc & 1 != 0 || !self.code.holds(pc) { None } else { fetch(pc, self.space) }
    }

    /// Where functions start that can be reached from `entry`, or that data points to, at most
    /// `most`.
    pub(super) fn starts(&mut self, entry: u64, most: usize) -> Vec<u64> {
        let mut found = BTreeSet::from([entry]);
        let mut open = vec![entry];
        let pointers: Vec<u64> = self.pointers().collect();
        for pc in pointers {
            if found.insert(pc) {
                open.push(pc);
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(start) = open.pop() {
            if found.len() >= most || self.allowance.is_over() {
                break;
            }
            self.walk(start, &mut seen, |pc| {
                if found.insert(pc) {
                    open.push(pc);
                }
            });
        }
        self.bounds.extend(&found);
        found.into_iter().collect()
    }

    /// Words in data that are addresses of functions.
    fn pointers(&self) -> impl Iterator<Item = u64> {
        let bounds = &self.bounds;
        self.space
            .data_pages()
            .take_while(|_| !self.allowance.is_over())
            .flat_map(|bytes| bytes.chunks_exact(8))
            .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
            .filter(|word| bounds.contains(word))
    }

    /// Follows the code from `start`, and tells which functions it calls or takes the address of.
    fn walk(&self, start: u64, seen: &mut BTreeSet<u64>, mut call: impl FnMut(u64)) {
        let mut open = vec![start];
        let mut remembered = Constants::default();
        while let Some(mut pc) = open.pop() {
            if self.allowance.is_over() {
                break;
            }
            let mut constants = remembered.after();
            while seen.insert(pc) {
                let Some(insn) = self.instruction(pc) else { break };
                let next = pc + 2 * insn.length();
                let (flow, far) = constants.flow(pc, insn);
                constants.step(pc, insn);
                if let Some(value) = constants.of(insn.d())
                    && self.bounds.contains(&value)
                {
                    call(value);
                }
                match flow {
                    Flow::Next | Flow::Leave => {}
                    Flow::Branch => open.push(far),
                    Flow::Jump if LINKS.contains(&insn.d()) => {
                        call(far);
                        remembered.remember(&constants);
                        constants = remembered.after();
                    }
                    Flow::Jump if self.bounds.contains(&far) => {
                        call(far);
                        break;
                    }
                    Flow::Jump => {
                        open.push(far);
                        break;
                    }
                    Flow::JumpRegister if LINKS.contains(&insn.d()) => {
                        remembered.remember(&constants);
                        constants = remembered.after();
                    }
                    Flow::JumpRegister => {
                        open.extend(self.table(&constants, insn, self.range(start)).entries);
                        break;
                    }
                    Flow::Trap => break,
                }
                pc = next;
            }
            remembered.remember(&constants);
        }
    }

    /// The function that an address lies in, as far as that is known.
    fn range(&self, pc: u64) -> (u64, u64) {
        let start = self.bounds.range(..=pc).next_back().copied().unwrap_or(0);
        let end = self.bounds.range(pc + 1..).next().copied().unwrap_or(1 << 32);
        (start, end)
    }

    /// The entries of the jump table that a `jalr` jumps through, as far as they are inside a
    /// range.
    fn table(&self, constants: &Constants, insn: Insn, (start, end): (u64, u64)) -> Targets {
        let Some(table) = constants.table(insn.s1()) else { return Targets::default() };
        let mut targets = Targets { table: Some(table), entries: Vec::new() };
        for number in 0..LARGEST_TABLE {
            let at = |size: u64| u32::try_from(table.address.wrapping_add(size * number)).ok();
            let entry = if table.is_wide {
                at(8).and_then(|at| self.space.load::<8>(at).ok()).map(u64::from_le_bytes)
            } else {
                at(4)
                    .and_then(|at| self.space.load::<4>(at).ok())
                    .map(|bytes| i32::from_le_bytes(bytes) as u64)
            };
            match entry.map(|entry| entry.wrapping_add(table.base)) {
                Some(target) if (start..end).contains(&target) && target & 1 == 0 => {
                    targets.entries.push(target);
                }
                _ => break,
            }
        }
        targets
    }

    /// The blocks that are reached from `start` inside its function, of at most `most`
    /// instructions in all.
    pub(super) fn region(&self, start: u64, most: usize) -> Option<Region> {
        self.instruction(start)?;
        let range = self.range(start);
        let inside = |pc: u64| pc >= range.0 && pc < range.1;
        // First where blocks begin, then the blocks.
        let mut leaders = BTreeSet::from([start]);
        let mut order = vec![start];
        let mut next_leader = 0;
        let mut count = 0;
        let mut known_targets = 0;
        let mut tables = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut remembered = Constants::default();
        while let Some(&leader) = order.get(next_leader) {
            next_leader += 1;
            if count >= most || self.allowance.is_over() {
                leaders.remove(&leader);
                continue;
            }
            let mut add = |pc: u64| {
                if inside(pc) && leaders.insert(pc) {
                    order.push(pc);
                }
            };
            let mut constants = remembered.after();
            let mut pc = leader;
            let mut length = 0;
            while let Some(insn) = self.instruction(pc) {
                if pc != leader && !seen.insert(pc) {
                    break;
                }
                if length == LONGEST_BLOCK {
                    add(pc);
                    break;
                }
                (length, count) = (length + 1, count + 1);
                let next = pc + 2 * insn.length();
                let (flow, far) = constants.flow(pc, insn);
                constants.step(pc, insn);
                match flow {
                    Flow::Next => {
                        pc = next;
                        continue;
                    }
                    Flow::Branch => {
                        add(next);
                        add(far);
                    }
                    Flow::Jump if LINKS.contains(&insn.d()) => add(next),
                    Flow::Jump => add(far),
                    Flow::JumpRegister if LINKS.contains(&insn.d()) => add(next),
                    Flow::JumpRegister => {
                        let mut targets = self.table(&constants, insn, range);
                        if known_targets + targets.entries.len() > MOST_TARGETS {
                            targets = Targets::default();
                        }
                        known_targets += targets.entries.len();
                        targets.entries.iter().copied().for_each(&mut add);
                        tables.insert(pc, targets);
                    }
                    Flow::Leave => add(next),
                    Flow::Trap => {}
                }
                break;
            }
            remembered.remember(&constants);
        }
        let blocks = order
            .iter()
            .filter(|leader| leaders.contains(leader))
            .map(|leader| self.block(*leader, &leaders, &tables))
            .collect();
        Some(Region { blocks, function: range.0..range.1 })
    }

    fn block(
        &self,
        leader: u64,
        leaders: &BTreeSet<u64>,
        tables: &BTreeMap<u64, Targets>,
    ) -> Block {
        let mut instructions = Vec::new();
        let mut constants = Constants::default();
        let mut pc = leader;
        let end = loop {
            if pc != leader && leaders.contains(&pc) || instructions.len() == LONGEST_BLOCK {
                break End::Jump(pc);
            }
            let Some(insn) = self.instruction(pc) else {
                break End::Leave { pc, next: None };
            };
            let next = pc + 2 * insn.length();
            let (flow, far) = constants.flow(pc, insn);
            constants.step(pc, insn);
            match flow {
                Flow::Leave => break End::Leave { pc, next: Some(next) },
                Flow::Trap => break End::Leave { pc, next: None },
                _ => instructions.push(insn),
            }
            let links = LINKS.contains(&insn.d());
            match flow {
                Flow::Branch => break End::Branch { taken: far, next },
                Flow::Jump if links => break End::Call { target: far, back: next },
                Flow::Jump => break End::Jump(far),
                Flow::JumpRegister if links => break End::CallRegister { back: next },
                Flow::JumpRegister
                    if LINKS.contains(&insn.s1()) && insn.d() == SINK && insn.immediate() == 0 =>
                {
                    break End::Return;
                }
                Flow::JumpRegister => {
                    let targets = tables.get(&pc).cloned().unwrap_or_default();
                    break End::JumpRegister(targets);
                }
                Flow::Next | Flow::Leave | Flow::Trap => {}
            }
            pc = next;
        };
        Block { pc: leader, instructions, end, again: None, apart: None }
    }
}
