//! The budget: where it is looked at, and what is taken from it.
//!
//! Instructions that have retired stay pending as long as they can. Where ways meet, the first one
//! to be translated decides how many a block finds pending; the others add to the budget or take
//! from it what they have more or less. At entries and in front of looks nothing is pending.

use cranelift_codegen::ir::{InstBuilder, Value, condcodes::IntCC};

use super::{
    frame::leave,
    lower::Lowering,
    measure::{self, Part},
};

impl<'a> Lowering<'a> {
    /// Whether there is enough left for a block.
    pub(super) fn enough(&mut self, index: usize) -> Value {
        let left = self.builder.use_var(self.left);
        let counts = measure::has(Part::Counting);
        let path = if counts { self.plan.blocks[index].path.max(1) as i64 } else { 0 };
        self.builder.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, left, path)
    }

    /// Leaves in front of a block if there is not enough left for it.
    pub(super) fn check_budget(&mut self, index: usize) {
        if !measure::has(Part::Counting) {
            return;
        }
        let enough = self.enough(index);
        self.leave_unless(enough, leave::BUDGET);
    }

    /// What is left after what is pending.
    pub(super) fn left_after(&mut self, retired: u64) -> Value {
        let left = self.builder.use_var(self.left);
        self.plus(left, -(retired as i64))
    }

    /// Takes what is pending from the budget.
    pub(super) fn settle(&mut self) {
        self.settle_to(0);
    }

    /// The same, so that a block finds pending what it expects.
    pub(super) fn settle_to(&mut self, owed: u64) {
        if self.pending != owed {
            let left = self.left_after(self.pending.wrapping_sub(owed));
            self.builder.def_var(self.left, left);
            self.pending = owed;
        }
    }
}
