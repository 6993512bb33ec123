//! Guest calls as host calls, and addresses that registers hold.

use cranelift_codegen::ir::{BlockArg, InstBuilder, Value, condcodes::IntCC, types};

use super::{
    frame,
    lower::{Lowering, THERE, turn},
    registers::Registers,
};
use crate::isa::insn::Insn;

impl<'a> Lowering<'a> {
    /// The target of a `jalr`.
    pub(super) fn register_target(&mut self, insn: Option<Insn>) -> Value {
        let sum = self.jump_sum(insn);
        self.builder.ins().band_imm(sum, -2)
    }

    /// The same, with the lowest bit.
    pub(super) fn jump_sum(&mut self, insn: Option<Insn>) -> Value {
        let (register, offset) = insn.map_or((0, 0), |insn| (insn.s1(), insn.immediate()));
        let value = self.x(register);
        self.plus(value, offset as i64)
    }

    /// Finds the host function for an address, and what to pass to it. If there is none, returns
    /// with the address. The dirty registers are stored.
    pub(super) fn look_up(&mut self, target: Value) -> (Value, Vec<Value>) {
        self.store_dirty();
        self.settle();
        let number = self.number_of(target);
        let (known, unknown) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(unknown);
        self.builder.ins().brif(number, known, &[], unknown, &[]);
        let dirty = std::mem::take(&mut self.dirty);
        self.begin(unknown);
        self.give_back(target);
        self.begin(known);
        self.dirty = dirty;
        let entries = self.load_frame(frame::ENTRIES);
        let wide = self.builder.ins().uextend(types::I64, number);
        let offset = self.builder.ins().ishl_imm(wide, 4);
        let entry = self.builder.ins().iadd(entries, offset);
        let function = self.builder.ins().load(types::I64, THERE, entry, 0);
        let resume = self.builder.ins().load(types::I64, THERE, entry, 8);
        // In front of an entry that is not the start, the callee must find the budget too short.
        self.store_frame(frame::RESUME, resume);
        let mut arguments = self.passed();
        self.store_frame(frame::LEFT, arguments[0]);
        let short = self.builder.ins().iconst(types::I64, -1);
        arguments[0] = self.builder.ins().select(resume, short, arguments[0]);
        (function, arguments)
    }

    /// The number of the entry at an address, or 0.
    pub(super) fn number_of(&mut self, target: Value) -> Value {
        let (start, bytes) = self.around.table;
        let offset = self.builder.ins().iadd_imm(target, -(start as i64));
        let inside = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, offset, bytes as i64);
        let (look, done) = (self.builder.create_block(), self.builder.create_block());
        let number = self.builder.append_block_param(done, types::I32);
        let none = self.builder.ins().iconst(types::I32, 0);
        self.builder.ins().brif(inside, look, &[], done, &[BlockArg::Value(none)]);
        self.begin(look);
        let numbers = self.load_frame(frame::NUMBERS);
        // Four bytes for each halfword.
        let offset = self.builder.ins().ishl_imm(offset, 1);
        let slot = self.builder.ins().iadd(numbers, offset);
        let found = self.builder.ins().load(types::I32, THERE, slot, 0);
        self.builder.ins().jump(done, &[BlockArg::Value(found)]);
        self.begin(done);
        number
    }

    /// Goes on behind a call.
    pub(super) fn come_back(&mut self, call: cranelift_codegen::ir::Inst, back: u64) {
        let mut results = self.builder.inst_results(call).to_vec();
        turn(&mut results);
        self.receive(&results[1..]);
        self.dirty = Registers::NONE;
        // No register lasts over a call.
        self.base = None;
        let is_back = self.builder.ins().icmp_imm(IntCC::Equal, results[0], back as i64);
        let (go, other) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(other);
        self.builder.ins().brif(is_back, go, &[], other, &[]);
        self.begin(other);
        self.give_back(results[0]);
        self.begin(go);
        match self.plan.at(back) {
            Some(index) => {
                self.pc = back;
                if !self.plan.blocks[index].is_checked {
                    self.check_budget(index);
                }
                self.enter(index);
            }
            None => self.elsewhere(back),
        }
    }
}
