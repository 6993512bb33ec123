//! Jumps to where a register says, through tables of the program as through tables of the host.
//!
//! ```text
//!  sh2add t0, index, table      a jump through a table of what the entries were, by the index
//!  lw     t0, 0(t0)        ──▶  that the entry's address tells; there the target is compared with
//!  jr     t0                    what the entry is: the program may have written to its table
//! ```
//!
//! Where the entry's address is not known, the number of the target's own entry is looked up first.

use std::collections::HashMap;

use cranelift_codegen::ir::{
    BlockArg, InstBuilder, InstructionData, JumpTableData, Opcode, Value, condcodes::IntCC, types,
};

use super::{
    constants::Table,
    discover::Targets,
    lower::{HostBlock, Lowering},
};
use crate::isa::insn::Insn;

impl Lowering<'_> {
    pub(super) fn jump_register(&mut self, index: usize, last: Option<Insn>, targets: &Targets) {
        let sum = self.jump_sum(last);
        let target = self.builder.ins().band_imm(sum, -2);
        if let Some(insn) = last {
            let link = self.constant(self.pc + 2 * insn.length());
            self.set_x(insn.d(), link);
        }
        self.settle();
        if !self.plan.blocks[index].successors.is_empty() {
            let other = self.builder.create_block();
            match targets.table.and_then(|table| self.table_index(sum, table)) {
                Some(number) => self.jump_by_index(number, target, &targets.entries, other),
                None => self.jump_by_entry(index, target, other),
            }
            self.set_cold(other);
            self.begin(other);
        }
        let (function, arguments) = self.look_up(target);
        self.builder.ins().return_call_indirect(self.passing, function, &arguments);
    }

    /// Which entry of a table a value was loaded from, if that was in this block.
    fn table_index(&mut self, sum: Value, table: Table) -> Option<Value> {
        let loaded = |this: &Self, value: Value| {
            this.loaded.iter().rev().find(|(result, ..)| *result == value).copied()
        };
        let mut found = loaded(self, sum);
        if found.is_none() {
            let terms = match *self.definition(sum)? {
                InstructionData::BinaryImm64 { opcode: Opcode::IaddImm, arg, .. } => [arg, arg],
                InstructionData::Binary { opcode: Opcode::Iadd, args } => args,
                _ => return None,
            };
            let dfg = &self.builder.func.dfg;
            let terms = terms.map(|term| dfg.resolve_aliases(term));
            found = terms.into_iter().find_map(|term| loaded(self, term));
        }
        let (_, base, offset) = found?;
        let distance = self.plus(base, offset.wrapping_sub(table.address as i64));
        let by = if table.is_wide { 3 } else { 2 };
        let number = self.builder.ins().ushr_imm(distance, by);
        Some(self.builder.ins().ireduce(types::I32, number))
    }

    /// Goes where the entry of a table leads, if it is what it was.
    fn jump_by_index(&mut self, number: Value, target: Value, entries: &[u64], other: HostBlock) {
        let mut checks = HashMap::new();
        let mut order = Vec::new();
        let mut ways = Vec::new();
        for pc in entries {
            let block = match self.plan.at(*pc) {
                None => other,
                Some(index) => *checks.entry(*pc).or_insert_with(|| {
                    let block = self.builder.create_block();
                    order.push((block, *pc, index));
                    block
                }),
            };
            ways.push(self.builder.func.dfg.block_call(block, &[] as &[BlockArg]));
        }
        let default = self.builder.func.dfg.block_call(other, &[] as &[BlockArg]);
        let table = self.builder.create_jump_table(JumpTableData::new(default, &ways));
        self.builder.ins().br_table(number, table);
        for (block, pc, index) in order {
            self.begin(block);
            let is_same = self.builder.ins().icmp_imm(IntCC::Equal, target, pc as i64);
            if self.has_passage(index) {
                let passage = self.builder.create_block();
                self.builder.ins().brif(is_same, passage, &[], other, &[]);
                self.begin(passage);
                self.pass_to(index);
            } else {
                self.builder.ins().brif(is_same, self.bodies[index], &[], other, &[]);
            }
        }
    }

    /// Goes to the entry of the region that has an address.
    fn jump_by_entry(&mut self, index: usize, target: Value, other: HostBlock) {
        let number = self.number_of(target);
        let first = i64::from(self.around.first_entry);
        let local = self.builder.ins().iadd_imm(number, -first);
        let mut passages = Vec::new();
        let mut ways = Vec::new();
        for &entry in &self.plan.entries {
            let block = if !self.plan.blocks[index].successors.contains(&entry) {
                other
            } else if self.has_passage(entry) {
                let passage = self.builder.create_block();
                passages.push((passage, entry));
                passage
            } else {
                self.bodies[entry]
            };
            ways.push(self.builder.func.dfg.block_call(block, &[] as &[BlockArg]));
        }
        let default = self.builder.func.dfg.block_call(other, &[] as &[BlockArg]);
        let table = self.builder.create_jump_table(JumpTableData::new(default, &ways));
        self.builder.ins().br_table(local, table);
        for (passage, entry) in passages {
            self.begin(passage);
            self.pass_to(entry);
        }
    }
}
