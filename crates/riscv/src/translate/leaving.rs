//! The ways out of a block: to the interpreter, to other regions, into loops and out of them.

use cranelift_codegen::ir::{
    BlockArg, ExtFuncData, ExternalName, FuncRef, InstBuilder, UserExternalName, Value, types,
};

use super::{
    frame,
    lower::{HostBlock, Layout, Lowering, THERE, turn},
    plan::{PASSED, PASSED_SET},
    registers::Registers,
    sites::{LEFT, LoadSite},
};

/// Where in the frame ways out put what is returned besides the address.
const RETURNED: [i32; PASSED.len() + 1] = {
    let mut offsets = [frame::LEFT; PASSED.len() + 1];
    let mut index = 0;
    while index < PASSED.len() {
        offsets[index + 1] = frame::register(PASSED[index]);
        index += 1;
    }
    offsets
};

impl<'a> Lowering<'a> {
    /// Leaves in front of the current instruction unless a condition holds.
    pub(super) fn leave_unless(&mut self, condition: Value, why: u64) {
        let (go, out) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(out);
        self.builder.ins().brif(condition, go, &[], out, &[]);
        self.begin(out);
        self.leave(self.pc, why);
        self.begin(go);
    }

    /// Lays a block behind all others, since it is seldom reached.
    pub(super) fn set_cold(&mut self, block: HostBlock) {
        if self.layout == Layout::Cold {
            self.builder.set_cold_block(block);
        }
    }

    /// The current instruction as a load that may fault; gives its number.
    pub(super) fn site(&mut self, base: usize, low: Value, distance: i32) -> u32 {
        let differ = self.dirty.and(PASSED_SET);
        let registers = self.live.and_both(differ);
        let left = self.builder.use_var(self.left);
        let values = std::iter::once((LEFT, left))
            .chain(registers.iter().map(|register| (register as u8, self.raw_value_of(register))))
            .collect();
        let differs = registers.and_both(Registers::x(base)) != Registers::NONE;
        self.sites.push(LoadSite {
            pc: self.pc,
            pending: self.pending,
            values,
            raw: self.raw,
            base: differs.then_some((base as u8, low, distance)),
            differ,
        });
        self.sites.len() as u32 - 1
    }

    /// Stores the registers that may differ from the frame.
    pub(super) fn store_dirty(&mut self) {
        for register in self.dirty.and_both(self.alive).iter() {
            let value = self.value_of(register);
            self.store_frame(frame::register(register), value);
        }
    }

    /// Leaves in front of an instruction. Ends the host block; the state stays, for others.
    pub(super) fn leave(&mut self, pc: u64, why: u64) {
        let next = self.constant(pc | why);
        self.give_back(next);
    }

    /// Returns to the caller, with the address where the guest goes on, from code that is cold.
    /// What else is returned goes through the frame, so that values of hot code are free to be in
    /// any host register here.
    pub(super) fn give_back(&mut self, next: Value) {
        self.store_dirty();
        let left = self.left_after(self.pending);
        self.store_frame(frame::LEFT, left);
        for register in PASSED_SET.and_both(self.alive).iter() {
            let value = self.x(register);
            self.store_frame(frame::register(register), value);
        }
        if cfg!(test) {
            self.note_stale();
        }
        self.builder.ins().jump(self.way_out, &[BlockArg::Value(next)]);
    }

    /// Tells tests which registers have older values.
    fn note_stale(&mut self) {
        let stale = self.dirty.and(PASSED_SET).without(self.alive);
        if stale != Registers::NONE {
            let known = self.load_frame(frame::STALE);
            let all = self.builder.ins().bor_imm(known, stale.0 as i64);
            self.store_frame(frame::STALE, all);
        }
    }

    /// What is returned. The dirty registers are stored.
    pub(super) fn results(&mut self, next: Value) -> Vec<Value> {
        self.store_dirty();
        let mut results = vec![next];
        results.extend(self.passed());
        results[1] = self.left_after(self.pending);
        turn(&mut results);
        results
    }

    /// What is passed to a callee or back to a caller.
    pub(super) fn passed(&mut self) -> Vec<Value> {
        let left = self.builder.use_var(self.left);
        std::iter::once(left)
            .chain(PASSED.map(|register| self.builder.use_var(self.x[register])))
            .collect()
    }

    /// The end of all ways out.
    pub(super) fn leave_region(&mut self) {
        self.builder.switch_to_block(self.way_out);
        self.base = None;
        let mut results = self.builder.block_params(self.way_out).to_vec();
        let base = self.base();
        for offset in RETURNED {
            results.push(self.builder.ins().load(types::I64, THERE, base, offset));
        }
        turn(&mut results);
        self.builder.ins().return_(&results);
    }

    pub(super) fn function(&mut self, number: u32) -> FuncRef {
        let name = UserExternalName { namespace: 0, index: number };
        let name = self.builder.func.declare_imported_user_function(name);
        self.builder.import_function(ExtFuncData {
            name: ExternalName::user(name),
            signature: self.passing,
            colocated: true,
            patchable: false,
        })
    }

    /// Goes on at an address that this region has not.
    pub(super) fn elsewhere(&mut self, pc: u64) {
        match (self.around.function)(pc) {
            Some(number) => {
                self.store_dirty();
                self.settle();
                let arguments = self.passed();
                let function = self.function(number);
                self.builder.ins().return_call(function, &arguments);
            }
            None => {
                let next = self.constant(pc);
                self.give_back(next);
            }
        }
    }

    /// Whether something has to be done between the current block and one behind it.
    pub(super) fn has_passage(&self, index: usize) -> bool {
        let next = &self.plan.blocks[index];
        match (self.is_lazy, next.is_lazy) {
            (true, true) => self.plan.split(self.index, index).is_some(),
            (true, false) => self.dirty.and_both(next.alive) != Registers::NONE,
            (false, is_lazy) => is_lazy,
        }
    }

    /// Whether the way to a block leaves the innermost loop.
    pub(super) fn leaves_loop(&self, index: usize) -> bool {
        self.is_lazy
            && (!self.plan.blocks[index].is_lazy || self.plan.split(self.index, index).is_some())
    }

    /// Whether a look at registers was put off which the block does not take over.
    pub(super) fn has_to_look(&self, index: usize) -> bool {
        self.raw != Registers::NONE && self.inherited[index].is_none()
    }

    /// Goes on in a block of the region: into a loop, with all registers at hand that it needs;
    /// out of one, with all registers in the frame.
    pub(super) fn pass_to(&mut self, index: usize) {
        let next = &self.plan.blocks[index];
        // Behind a loop, so that its last round need not keep what it has counted before.
        let pending = if self.leaves_loop(index) { 0 } else { self.pending };
        let owed = *self.owed[index].get_or_insert(pending);
        self.settle_to(owed);
        match (self.is_lazy, next.is_lazy) {
            (true, true) => {
                if let Some(registers) = self.plan.split(self.index, index) {
                    self.split(registers);
                    if self.holds_base(index) {
                        self.copy_base();
                    }
                }
            }
            (true, false) => {
                let alive = std::mem::replace(&mut self.alive, next.alive);
                self.store_dirty();
                self.alive = alive;
            }
            (false, true) => {
                self.load_registers(next.needed.without(PASSED_SET).without(self.at_hand));
                let kept = self.at_hand.and(PASSED_SET);
                self.split(self.plan.split_in_front(index).and_both(kept));
                if self.holds_base(index) {
                    self.copy_base();
                }
            }
            (false, false) => {}
        }
        self.builder.ins().jump(self.bodies[index], &[]);
    }

    /// The host block for an address inside or outside of the region.
    pub(super) fn way_to(&mut self, pc: u64, outside: &mut Vec<(HostBlock, u64)>) -> HostBlock {
        match self.plan.way(self.index, pc) {
            Some(index)
                if !self.has_passage(index)
                    && !self.has_to_look(index)
                    && self.owed[index].is_none_or(|owed| owed == self.pending) =>
            {
                self.owed[index] = Some(self.pending);
                self.bodies[index]
            }
            _ => {
                let block = self.builder.create_block();
                outside.push((block, pc));
                block
            }
        }
    }
}
