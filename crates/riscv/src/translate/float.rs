//! Floating-point instructions.

use cranelift_codegen::ir::{InstBuilder, MemFlags, Value, types};

use super::{frame::leave, helpers, lower::Lowering, registers::effects};
use crate::isa::insn::{FloatFields, Insn};

impl Lowering<'_> {
    /// Translates a floating-point instruction: the interpreter's own function executes it.
    pub(super) fn float(&mut self, insn: Insn) {
        let fields = FloatFields::of(insn);
        let reads = effects(insn).reads.0;
        let bits = self.constant(insn.0);
        let none = self.constant(0);
        let source = |this: &mut Self, register: usize| {
            if reads >> (32 + register) & 1 != 0 { this.bits(register) } else { none }
        };
        let reads_integer = reads as u32 != 0;
        let a = if reads_integer { self.x(insn.s1()) } else { source(self, insn.fs1_index()) };
        let b = source(self, insn.fs2_index());
        let c = source(self, fields.fs3_index());
        let (done, value) = self.help(helpers::FLOAT, [bits, a, b, c]);
        self.leave_unless(done, leave::INTERPRET);
        if effects(insn).writes.0 >> 32 != 0 {
            let value = self.builder.ins().bitcast(types::F64, MemFlags::new(), value);
            self.set_f(insn.fd_index(), value);
        } else {
            self.set_x(insn.d(), value);
        }
    }

    /// The bits of a register.
    pub(super) fn bits(&mut self, register: usize) -> Value {
        let value = self.f(register);
        self.builder.ins().bitcast(types::I64, MemFlags::new(), value)
    }

    /// The low half of a register.
    pub(super) fn low_half(&mut self, register: usize) -> Value {
        let bits = self.bits(register);
        self.builder.ins().ireduce(types::I32, bits)
    }

    /// Sets a register to a boxed single-precision value.
    pub(super) fn set_single(&mut self, register: usize, value: Value) {
        let bits = self.builder.ins().bitcast(types::I32, MemFlags::new(), value);
        let bits = self.builder.ins().uextend(types::I64, bits);
        let boxed = self.builder.ins().bor_imm(bits, 0xffff_ffff << 32);
        let boxed = self.builder.ins().bitcast(types::F64, MemFlags::new(), boxed);
        self.set_f(register, boxed);
    }
}
