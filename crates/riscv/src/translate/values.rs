//! Guest registers as values: constants, sums, and what the frame gets to know of them.

use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value, types};

use super::{
    frame,
    lower::{Lowering, THERE},
    plan::PASSED_SET,
    registers::{Flow, Registers, effects, flow},
};
use crate::isa::insn::SINK;

impl<'a> Lowering<'a> {
    pub(super) fn constant(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(types::I64, value as i64)
    }

    /// The host address of guest address 0. It is asked for anew wherever it is needed: a copy of
    /// a register costs less than one that was moved to the stack to make room for others.
    pub(super) fn base(&mut self) -> Value {
        match self.base {
            Some(base) => base,
            None => self.builder.ins().get_pinned_reg(types::I64),
        }
    }

    /// The low word of a value.
    pub(super) fn low_word(&mut self, value: Value) -> Value {
        let dfg = &self.builder.func.dfg;
        if let Some(inst) = dfg.value_def(dfg.resolve_aliases(value)).inst()
            && let InstructionData::Unary { opcode: Opcode::Sextend | Opcode::Uextend, arg } =
                dfg.insts[inst]
            && dfg.value_type(arg) == types::I32
        {
            return arg;
        }
        self.builder.ins().ireduce(types::I32, value)
    }

    /// The operation that a value is the result of.
    pub(super) fn definition(&self, value: Value) -> Option<&InstructionData> {
        let dfg = &self.builder.func.dfg;
        Some(&dfg.insts[dfg.value_def(dfg.resolve_aliases(value)).inst()?])
    }

    /// The constant that a value is, if it is one.
    pub(super) fn known(&self, value: Value) -> Option<i64> {
        let dfg = &self.builder.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst()?;
        match dfg.insts[inst] {
            InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
            _ => None,
        }
    }

    /// A value plus a constant: one addition, also if the value is such a sum itself.
    pub(super) fn plus(&mut self, value: Value, constant: i64) -> Value {
        if let Some(value) = self.known(value) {
            return self.constant(value.wrapping_add(constant) as u64);
        }
        let dfg = &self.builder.func.dfg;
        let inst = dfg.value_def(dfg.resolve_aliases(value)).inst();
        let (mut value, mut constant) = (value, constant);
        if let Some(inst) = inst
            && let InstructionData::BinaryImm64 { opcode: Opcode::IaddImm, arg, imm } =
                dfg.insts[inst]
        {
            (value, constant) = (arg, constant.wrapping_add(imm.bits()));
        }
        if constant == 0 { value } else { self.builder.ins().iadd_imm(value, constant) }
    }

    /// Lets values live on under other names, so that the host's registers are handed out anew: a
    /// loop gets them for what it uses, whatever else is kept over it.
    pub(super) fn split(&mut self, registers: Registers) {
        // A rotation by nothing is a copy that no other instruction is made to look through.
        let left = self.builder.use_var(self.left);
        let copy = self.builder.ins().rotr_imm(left, 0);
        self.builder.def_var(self.left, copy);
        for register in registers.and_both(Registers::INTEGER).iter() {
            let value = self.builder.use_var(self.x[register]);
            if self.known(value).is_none() {
                let copy = self.builder.ins().rotr_imm(value, 0);
                self.builder.def_var(self.x[register], copy);
            }
        }
    }

    /// The value of an integer register.
    pub(super) fn x(&mut self, register: usize) -> Value {
        if register == 0 {
            return self.constant(0);
        }
        self.fetch(Registers::x(register).without(PASSED_SET));
        let value = self.builder.use_var(self.x[register]);
        // Behind a block with several predecessors the same value has another name.
        self.builder.func.dfg.resolve_aliases(value)
    }

    /// Sets an integer register.
    pub(super) fn set_x(&mut self, register: usize, value: Value) {
        if register != SINK as usize && register != 0 {
            self.builder.def_var(self.x[register], value);
            self.at_hand = self.at_hand.and(Registers::x(register));
            self.wrote(Registers::x(register).without(PASSED_SET), register, value);
        }
    }

    /// A register has a value that the frame has not. Outside of loops the frame gets it at once,
    /// unless it gets another one before anybody can look.
    pub(super) fn wrote(&mut self, set: Registers, register: usize, value: Value) {
        // Loads may fault in between, so it is kept in mind in any case.
        if self.is_lazy || self.is_overwritten(set) {
            self.dirty = self.dirty.and(set);
        } else if set != Registers::NONE {
            self.dirty = self.dirty.without(set);
            self.store_frame(frame::register(register), value);
        }
    }

    /// Whether a register is written again in the block before the code may leave.
    pub(super) fn is_overwritten(&self, set: Registers) -> bool {
        for insn in self.rest {
            let effects = effects(*insn);
            if effects.may_leave || !matches!(flow(*insn), Flow::Next) {
                return false;
            }
            if effects.writes == set {
                return true;
            }
        }
        false
    }

    /// Sets a floating-point register.
    pub(super) fn set_f(&mut self, register: usize, value: Value) {
        self.overwrite_raw(register);
        self.builder.def_var(self.f[register], value);
        self.at_hand = self.at_hand.and(Registers::f(register));
        self.wrote(Registers::f(register), 32 + register, value);
        self.singles[register] = None;
    }

    /// The value of a register, for code that is cold.
    pub(super) fn value_of(&mut self, register: usize) -> Value {
        if register < 32 { self.x(register) } else { self.f_in_passing(register - 32) }
    }

    /// The same, raw where it is.
    pub(super) fn raw_value_of(&mut self, register: usize) -> Value {
        if register < 32 { self.x(register) } else { self.raw_f(register - 32) }
    }

    /// Outside of loops, loads registers from the frame that the block has not yet used.
    pub(super) fn fetch(&mut self, registers: Registers) {
        if !self.is_lazy {
            self.load_registers(registers.without(self.at_hand));
            self.at_hand = self.at_hand.and(registers);
        }
    }

    pub(super) fn load_registers(&mut self, registers: Registers) {
        for register in registers.iter() {
            let base = self.base();
            let offset = frame::register(register);
            if register < 32 {
                let value = self.builder.ins().load(types::I64, THERE, base, offset);
                self.builder.def_var(self.x[register], value);
            } else {
                let value = self.builder.ins().load(types::F64, THERE, base, offset);
                self.builder.def_var(self.f[register - 32], value);
            }
        }
    }

    pub(super) fn load_frame(&mut self, offset: i32) -> Value {
        let base = self.base();
        self.builder.ins().load(types::I64, THERE, base, offset)
    }

    pub(super) fn store_frame(&mut self, offset: i32, value: Value) {
        let base = self.base();
        self.builder.ins().store(THERE, value, base, offset);
    }
}
