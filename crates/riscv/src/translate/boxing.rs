//! Floating-point registers: doubles, and singles in boxes (RISC-V Unprivileged ISA, "NaN Boxing of
//! Narrower Values").
//!
//! A result that is a NaN is the canonical one, which the host's operations do not see to. In a
//! loop, a double that arithmetic gives is raw: if it is a NaN, it stands for the canonical one.
//! Arithmetic and comparisons take it as it is, since to them all quiet NaNs are the same. It is
//! looked at when something else reads it, at the end of the block, and where the code leaves. A
//! raw value that nothing has read is looked at when it is overwritten: an operation whose result
//! nobody needs would be left out, and with it the exceptions that it raises.

use cranelift_codegen::ir::{
    BlockArg, ConstantData, Endianness, InstBuilder, MemFlags, Type, Value,
    condcodes::{FloatCC, IntCC},
    immediates::Ieee64,
    types,
};

use super::{
    frame::leave,
    lower::Lowering,
    registers::{Registers, effects},
};

/// What is known of floating-point registers: the single-precision value that one holds, boxed.
pub(super) type Singles = [Option<Value>; 32];

/// The canonical NaN of double precision (RISC-V Unprivileged ISA, "NaN Generation and
/// Propagation").
pub(super) const CANONICAL_NAN: u64 = 0x7ff8 << 48;

impl Lowering<'_> {
    /// The value of a floating-point register, all 64 bits.
    pub(super) fn f(&mut self, register: usize) -> Value {
        if self.is_raw(register) {
            // Another one that is to be looked at in any case costs nothing more.
            let is_kept = |other: &usize| {
                let set = Registers::f(*other);
                *other != register && self.rest.iter().all(|insn| effects(*insn).writes != set)
            };
            let other = self.raw_registers().find(is_kept).unwrap_or(register);
            self.look_at(register, other);
        }
        self.raw_f(register)
    }

    /// The same, for code that is cold.
    pub(super) fn f_in_passing(&mut self, register: usize) -> Value {
        let value = self.raw_f(register);
        if self.is_raw(register) { self.canonical_in_passing(value) } else { value }
    }

    /// The value of a floating-point register, raw if it is.
    pub(super) fn raw_f(&mut self, register: usize) -> Value {
        self.fetch(Registers::f(register));
        self.builder.use_var(self.f[register])
    }

    /// Sets a register to a double that arithmetic has given.
    pub(super) fn set_raw(&mut self, register: usize, value: Value) {
        let set = Registers::f(register);
        if self.is_lazy || self.is_overwritten(set) {
            self.set_f(register, value);
            (self.raw, self.unread) = (self.raw.and(set), self.unread.and(set));
        } else {
            let value = self.canonical(types::F64, value);
            self.set_f(register, value);
        }
    }

    /// A register gets another value.
    pub(super) fn overwrite_raw(&mut self, register: usize) {
        let set = Registers::f(register);
        if self.unread.and_both(set) != Registers::NONE {
            self.look_at(register, register);
        }
        (self.raw, self.unread) = (self.raw.without(set), self.unread.without(set));
    }

    /// Looks at all registers that are raw.
    pub(super) fn settle_raw(&mut self) {
        while let Some(one) = self.raw_registers().next() {
            let other = self.raw_registers().nth(1).unwrap_or(one);
            self.look_at(one, other);
        }
    }

    fn is_raw(&self, register: usize) -> bool {
        self.raw.and_both(Registers::f(register)) != Registers::NONE
    }

    fn raw_registers(&self) -> impl Iterator<Item = usize> + use<> {
        let raw = self.raw;
        raw.iter().map(|register| register - 32)
    }

    /// Puts canonical NaNs into two registers, or one twice, if NaNs are there.
    fn look_at(&mut self, one: usize, other: usize) {
        let registers = Registers::f(one).and(Registers::f(other));
        let (nan, done) = (self.builder.create_block(), self.builder.create_block());
        self.set_cold(nan);
        let [a, b] = [one, other].map(|register| self.builder.use_var(self.f[register]));
        let are_numbers = self.builder.ins().fcmp(FloatCC::Ordered, a, b);
        let (mut usual, mut looked_at) = (Vec::new(), Vec::new());
        for register in registers.iter() {
            usual.push(BlockArg::Value(self.builder.use_var(self.f[register - 32])));
        }
        self.builder.ins().brif(are_numbers, done, &usual, nan, &[]);
        self.begin(nan);
        for register in registers.iter() {
            let value = self.builder.use_var(self.f[register - 32]);
            looked_at.push(BlockArg::Value(self.canonical_in_passing(value)));
        }
        self.builder.ins().jump(done, &looked_at);
        self.begin(done);
        for register in registers.iter() {
            let value = self.builder.append_block_param(done, types::F64);
            self.builder.def_var(self.f[register - 32], value);
        }
        (self.raw, self.unread) = (self.raw.without(registers), self.unread.without(registers));
    }

    fn canonical_in_passing(&mut self, value: Value) -> Value {
        let is_number = self.builder.ins().fcmp(FloatCC::Ordered, value, value);
        let nan = self.builder.ins().f64const(Ieee64::with_bits(CANONICAL_NAN));
        self.builder.ins().select(is_number, value, nan)
    }

    /// The values of registers for arithmetic and comparisons, which take raw ones.
    pub(super) fn raw_operands<const N: usize>(
        &mut self,
        ty: Type,
        registers: [usize; N],
    ) -> [Value; N] {
        if ty != types::F64 {
            return self.operands(ty, registers);
        }
        for register in registers {
            self.unread = self.unread.without(Registers::f(register));
        }
        registers.map(|register| self.raw_f(register))
    }

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
