//! The ways into a region: its start, and the stubs of its other entries.

use cranelift_codegen::ir::{BlockArg, InstBuilder, JumpTableData, Value, condcodes::IntCC, types};
use cranelift_frontend::FunctionBuilder;

use super::{
    discover::End,
    frame::{self, leave},
    lower::{HostBlock, Lowering},
    plan::{PASSED, PASSED_SET},
};

impl<'a> Lowering<'a> {
    pub(super) fn prologue(&mut self) {
        let start = self.builder.current_block().map(|block| self.builder.block_params(block));
        let parameters: Vec<Value> = start.unwrap_or(&[]).to_vec();
        self.receive(&parameters);
        self.copy_base();
        let enough = self.enough(0);
        let (go, short) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(short);
        self.builder.ins().brif(enough, go, &[], short, &[]);
        self.begin(short);
        self.resume();
        self.begin(go);
        self.pc = self.region.blocks[0].pc;
        let calls = self
            .region
            .blocks
            .iter()
            .any(|block| matches!(block.end, End::Call { .. } | End::CallRegister { .. }));
        if calls {
            let stack = self.builder.ins().get_stack_pointer(types::I64);
            let limit = self.load_frame(frame::STACK_LIMIT);
            let is_low = self.builder.ins().icmp(IntCC::UnsignedLessThan, stack, limit);
            let (full, go) = (self.builder.create_block(), self.builder.create_block());
            self.builder.ins().brif(is_low, full, &[], go, &[]);
            self.set_cold(full);
            self.begin(full);
            self.leave(self.pc, leave::STACK);
            self.begin(go);
        }
        self.enter(0);
    }

    /// The way to an entry that is not the start.
    pub(super) fn resume(&mut self) {
        let number = self.load_frame(frame::RESUME);
        let nowhere = self.builder.create_block();
        let stubs: Vec<HostBlock> =
            self.plan.entries.iter().map(|_| self.builder.create_block()).collect();
        let call = |builder: &mut FunctionBuilder<'_>, block| {
            builder.func.dfg.block_call(block, &[] as &[BlockArg])
        };
        // Number 0 is the start, which has no stub.
        let mut ways = vec![call(&mut self.builder, nowhere)];
        for stub in &stubs[1..] {
            ways.push(call(&mut self.builder, *stub));
        }
        let default = call(&mut self.builder, nowhere);
        let table = JumpTableData::new(default, &ways);
        let table = self.builder.create_jump_table(table);
        let number = self.builder.ins().ireduce(types::I32, number);
        self.builder.ins().br_table(number, table);
        self.begin(nowhere);
        self.pc = self.region.blocks[0].pc;
        self.leave(self.pc, leave::BUDGET);
        for (number, &index) in self.plan.entries.iter().enumerate().skip(1) {
            self.set_cold(stubs[number]);
            self.begin(stubs[number]);
            let zero = self.constant(0);
            self.store_frame(frame::RESUME, zero);
            let left = self.load_frame(frame::LEFT);
            self.builder.def_var(self.left, left);
            self.pc = self.region.blocks[index].pc;
            if !self.plan.blocks[index].is_checked {
                self.check_budget(index);
            }
            self.enter(index);
        }
    }

    /// Takes over what a caller or a callee has passed: the budget and registers.
    pub(super) fn receive(&mut self, values: &[Value]) {
        self.builder.def_var(self.left, values[0]);
        for (register, value) in PASSED.iter().zip(&values[1..]) {
            self.builder.def_var(self.x[*register], *value);
        }
    }

    /// Goes on in a block behind a call or a stub, with the registers at hand that it needs.
    pub(super) fn enter(&mut self, index: usize) {
        self.load_registers(self.plan.blocks[index].needed.without(PASSED_SET));
        if self.plan.blocks[index].is_lazy && self.holds_base(index) {
            self.copy_base();
        }
        self.builder.ins().jump(self.bodies[index], &[]);
    }

    /// Whether a block has a host register for the base: values last for a block outside of loops.
    pub(super) fn holds_base(&self, index: usize) -> bool {
        let number = self.plan.blocks[index].innermost;
        number.is_none_or(|number| self.plan.loops[number].holds_base())
    }

    /// Begins another life of the base in a host register, for a loop.
    pub(super) fn copy_base(&mut self) {
        let base = self.builder.ins().get_pinned_reg(types::I64);
        self.builder.def_var(self.base_variable, base);
    }
}
