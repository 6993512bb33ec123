//! Loops of one block, repeated: the budget is looked at and counted once for several rounds.
//!
//! ```text
//!  block 3: … bne a0, a1, block 3      block 3: … bne a0, a1, block 7
//!                                 ──▶  block 7: … bne a0, a1, block 8
//!                                      block 8: … bne a0, a1, block 3
//! ```
//!
//! Stores whose addresses advance by a constant are checked for all rounds at once. If they are not
//! all allowed, or not to one page, a round apart from the others is executed, with checks of its own.

use super::{
    discover::{Block, End, Region},
    memory::access,
    registers::{Registers, effects},
};
use crate::isa::insn::op;

/// A round apart from the others.
#[derive(Debug, Clone)]
pub(super) struct Apart {
    pub(super) block: usize,
    pub(super) ranges: Vec<Range>,
}

/// What the stores of all rounds reach, relative to what a register is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) register: usize,
    pub(super) low: i64,
    pub(super) high: i64,
}

/// Longer ranges span pages too often.
const LONGEST_RANGE: i64 = 512;

/// So many registers' stores are checked in front.
const MOST_RANGES: usize = 2;

/// So many instructions the rounds have in all, at most.
const MOST_INSTRUCTIONS: usize = 48;

/// So many rounds there are at most.
const MOST_ROUNDS: usize = 4;

/// Repeats the loops of one block that are short.
pub(super) fn unroll(region: &mut Region) {
    for head in 0..region.blocks.len() {
        let block = &region.blocks[head];
        let is_loop = match block.end {
            End::Branch { taken, next } => (taken == block.pc) != (next == block.pc),
            _ => false,
        };
        let rounds = (MOST_INSTRUCTIONS / block.instructions.len().max(1)).min(MOST_ROUNDS);
        if !is_loop || rounds < 2 {
            continue;
        }
        let block = block.clone();
        let mut last = head;
        for _ in 1..rounds {
            region.blocks[last].again = Some(region.blocks.len());
            last = region.blocks.len();
            region.blocks.push(block.clone());
        }
        region.blocks[last].again = Some(head);
        let ranges = ranges(&block, rounds as i64);
        if !ranges.is_empty() {
            region.blocks[head].apart = Some(Apart { block: region.blocks.len(), ranges });
            region.blocks.push(Block { again: Some(head), ..block });
        }
    }
}

/// The ranges that stores of a block reach in so many rounds, as far as that can be said.
fn ranges(block: &Block, rounds: i64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for (number, insn) in block.instructions.iter().enumerate() {
        let Some((offset, bytes, true)) = access(*insn) else { continue };
        let register = insn.s1();
        let set = Registers::x(register);
        let writes = |(_, insn): &(usize, &_)| effects(**insn).writes.and_both(set) == set;
        let writers: Vec<_> = block.instructions.iter().enumerate().filter(writes).collect();
        let (step, before) = match writers[..] {
            _ if register == 0 => continue,
            [] => (0, 0),
            [(at, one)] if matches!(one.op(), op::ADDI | op::C_ADDI) && one.s1() == register => {
                let step = one.immediate() as i64;
                (step, if at < number { step } else { 0 })
            }
            _ => continue,
        };
        let (first, last) = (offset + before, offset + before + step * (rounds - 1));
        let (low, high) = (first.min(last), first.max(last) + bytes);
        match ranges.iter_mut().find(|range| range.register == register) {
            Some(range) => (range.low, range.high) = (range.low.min(low), range.high.max(high)),
            None => ranges.push(Range { register, low, high }),
        }
    }
    ranges.retain(|range| range.high - range.low <= LONGEST_RANGE);
    ranges.truncate(MOST_RANGES);
    ranges
}
