//! Floating-point registers: doubles, and singles in boxes (RISC-V Unprivileged ISA, "NaN Boxing of
//! Narrower Values").

use cranelift_codegen::ir::{
    ConstantData, Endianness, InstBuilder, MemFlags, Type, Value, condcodes::IntCC, types,
};

use super::{frame::leave, lower::Lowering};

/// What is known of floating-point registers: the single-precision value that one holds, boxed.
pub(super) type Singles = [Option<Value>; 32];

impl Lowering<'_> {
    /// The bits of a register.
    pub(super) fn bits(&mut self, register: usize) -> Value {
        let value = self.f(register);
        self.builder.ins().bitcast(types::I64, MemFlags::new(), value)
    }

    /// The low half of a register, as an integer.
    pub(super) fn low_half(&mut self, register: usize) -> Value {
        let value = match self.singles[register] {
            Some(value) => value,
            None => self.low_single(register),
        };
        self.builder.ins().bitcast(types::I32, MemFlags::new(), value)
    }

    /// The low half of a register, boxed or not.
    pub(super) fn low_single(&mut self, register: usize) -> Value {
        let value = self.f(register);
        let wide = self.builder.ins().scalar_to_vector(types::F64X2, value);
        let lanes = self.builder.ins().bitcast(types::F32X4, little(), wide);
        self.builder.ins().extractlane(lanes, 0)
    }

    /// Sets a register to a boxed single-precision value.
    pub(super) fn set_single(&mut self, register: usize, value: Value) {
        let lanes = self.builder.ins().scalar_to_vector(types::F32X4, value);
        let lanes = self.builder.ins().bitcast(types::I64X2, little(), lanes);
        let upper: Vec<u8> = [[0, 0, 0, 0], [0xff; 4], [0; 4], [0; 4]].concat();
        let upper = self.builder.func.dfg.constants.insert(ConstantData::from(upper));
        let upper = self.builder.ins().vconst(types::I64X2, upper);
        let boxed = self.builder.ins().bor(lanes, upper);
        let boxed = self.builder.ins().bitcast(types::F64X2, little(), boxed);
        let boxed = self.builder.ins().extractlane(boxed, 0);
        self.set_f(register, boxed);
        self.singles[register] = Some(value);
    }

    pub(super) fn set_float(&mut self, register: usize, ty: Type, value: Value) {
        if ty == types::F32 {
            self.set_single(register, value)
        } else {
            self.set_f(register, value)
        }
    }

    /// The values of registers in an instruction's format. Leaves if one is not boxed.
    pub(super) fn operands<const N: usize>(
        &mut self,
        ty: Type,
        registers: [usize; N],
    ) -> [Value; N] {
        if ty == types::F64 {
            return registers.map(|register| self.f(register));
        }
        for register in registers {
            if self.singles[register].is_none() {
                let bits = self.bits(register);
                let upper = self.builder.ins().sshr_imm(bits, 32);
                let is_boxed = self.builder.ins().icmp_imm(IntCC::Equal, upper, -1);
                self.leave_unless(is_boxed, leave::INTERPRET);
                self.singles[register] = Some(self.low_single(register));
            }
        }
        registers.map(|register| match self.singles[register] {
            Some(value) => value,
            None => self.low_single(register),
        })
    }
}

/// Lanes in the order of memory.
fn little() -> MemFlags {
    MemFlags::new().with_endianness(Endianness::Little)
}
