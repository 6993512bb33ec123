//! How blocks end.

use cranelift_codegen::ir::{InstBuilder, condcodes::IntCC};

use super::{
    discover::{Block, End},
    frame::leave,
    lower::{Inherited, Lowering},
    plan::BlockPlan,
    registers::Registers,
};
use crate::isa::insn::{Insn, op};

impl<'a> Lowering<'a> {
    pub(super) fn end(&mut self, index: usize, block: &'a Block) {
        let last = block.instructions.last().copied();
        let plan: &'a BlockPlan = &self.plan.blocks[index];
        let blocks = &self.plan.blocks;
        let inherits = |successor: &usize| {
            let plan = &blocks[*successor];
            plan.predecessors == 1 && plan.entry.is_none() && *successor != index
        };
        let keeps = plan.successors.iter().all(inherits);
        // What leaves a loop looks on its way, so that what stays in it can put it off.
        let stays = |successor: &usize| !self.leaves_loop(*successor);
        let puts_off = matches!(block.end, End::Branch { .. })
            && plan.successors.iter().any(|successor| inherits(successor) && stays(successor))
            && !plan.successors.iter().any(|successor| !inherits(successor) && stays(successor));
        let keeps = keeps || puts_off;
        let owed = plan.successors.iter().filter(|successor| stays(successor));
        let owed: Vec<u64> = owed.filter_map(|successor| self.owed[*successor]).collect();
        if !keeps && !plan.successors.is_empty() {
            self.settle_raw();
        }
        if let Some(owed) = owed.into_iter().find(|owed| *owed != self.pending) {
            self.settle_to(owed);
        }
        for successor in plan.successors.iter().filter(|successor| inherits(successor)) {
            self.inherited[*successor] = Some(Inherited {
                facts: self.facts.clone(),
                narrow: self.narrow.clone(),
                singles: self.singles,
                raw: (self.raw, self.unread),
                at_hand: if self.is_lazy { Registers::NONE } else { self.at_hand },
            });
        }
        match &block.end {
            End::Jump(pc) => match self.plan.at(*pc) {
                Some(index) => self.pass_to(index),
                None => self.elsewhere(*pc),
            },
            End::Branch { taken, next } => self.branch(last, *taken, *next),
            End::Call { target, back } => {
                let link = self.constant(*back);
                self.set_x(last.map_or(0, Insn::d), link);
                match (self.around.function)(*target) {
                    Some(number) => {
                        self.store_dirty();
                        self.settle();
                        let arguments = self.passed();
                        let function = self.function(number);
                        let call = self.builder.ins().call(function, &arguments);
                        self.come_back(call, *back);
                    }
                    None => {
                        let next = self.constant(*target);
                        self.give_back(next);
                    }
                }
            }
            End::CallRegister { back } => {
                let target = self.register_target(last);
                let link = self.constant(*back);
                self.set_x(last.map_or(0, Insn::d), link);
                let (function, arguments) = self.look_up(target);
                let call = self.builder.ins().call_indirect(self.passing, function, &arguments);
                self.come_back(call, *back);
            }
            End::Return => {
                let target = self.register_target(last);
                let results = self.results(target);
                self.builder.ins().return_(&results);
            }
            End::JumpRegister(targets) => self.jump_register(index, last, targets),
            End::Leave { pc, next } => {
                self.pc = *pc;
                // It executes more than one instruction, so the count is right in any case.
                let _ = next;
                self.leave(*pc, leave::INTERPRET);
            }
        }
    }

    pub(super) fn branch(&mut self, last: Option<Insn>, taken: u64, next: u64) {
        let Some(insn) = last else { return };
        let (a, b) = (self.x(insn.s1()), self.x(insn.s2()));
        let condition = match insn.op() {
            op::BEQ | op::C_BEQ => IntCC::Equal,
            op::BNE | op::C_BNE => IntCC::NotEqual,
            op::BLT => IntCC::SignedLessThan,
            op::BGE => IntCC::SignedGreaterThanOrEqual,
            op::BLTU => IntCC::UnsignedLessThan,
            _ => IntCC::UnsignedGreaterThanOrEqual,
        };
        let holds = self.builder.ins().icmp(condition, a, b);
        let mut outside = Vec::new();
        let there = self.way_to(taken, &mut outside);
        let here = self.way_to(next, &mut outside);
        self.builder.ins().brif(holds, there, &[], here, &[]);
        let (pending, raw) = (self.pending, (self.raw, self.unread));
        for (block, pc) in outside {
            self.begin(block);
            self.pending = pending;
            (self.raw, self.unread) = raw;
            match self.plan.way(self.index, pc) {
                Some(index) => {
                    // One round of several goes on right behind.
                    if self.leaves_loop(index) && self.plan.is_followed(self.index) {
                        self.set_cold(block);
                    }
                    if self.has_to_look(index) {
                        self.settle_raw();
                    }
                    self.pass_to(index);
                }
                None => self.elsewhere(pc),
            }
        }
    }
}
