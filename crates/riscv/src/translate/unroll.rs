//! Loops of one block, repeated: the budget is looked at and counted once for several rounds.
//!
//! ```text
//!  block 3: … bne a0, a1, block 3      block 3: … bne a0, a1, block 7
//!                                 ──▶  block 7: … bne a0, a1, block 8
//!                                      block 8: … bne a0, a1, block 3
//! ```

use super::discover::{End, Region};

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
    }
}
