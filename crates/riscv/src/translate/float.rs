//! Floating-point instructions, on the host's registers and in its arithmetic.
//!
//! Translated code runs only while `frm` says nearest even, which is also how the host rounds. For
//! results that are not NaN the two agree bit by bit, exceptions included, which accrue in the
//! host's MXCSR until the dispatcher harvests them (see `isa/float/host.rs`). Everything else
//! (a NaN, a value that is not boxed, another rounding mode) is for the interpreter's own function,
//! which raises at least what the host has raised by then.
//!
//! Results are compared with themselves, to see whether they are NaNs ([`super::boxing`]).
//! The compiler does not move operations (`opt_level` none), so that what the guest has not
//! executed raises nothing, and what it has executed is never left out.

use cranelift_codegen::ir::{
    BlockArg, InstBuilder, MemFlags, Type, Value,
    condcodes::FloatCC,
    immediates::{Ieee32, Ieee64},
    types,
};

use super::{boxing::CANONICAL_NAN, frame::leave, helpers, lower::Lowering, registers::effects};
use crate::isa::insn::{FloatFields, FloatFunction, Insn, op};

/// The `rm` of an instruction that rounds to nearest even.
const NEAREST: u32 = 0;
/// … toward zero.
const TOWARD_ZERO: u32 = 1;
/// … as `frm` says.
const DYNAMIC: u32 = 7;

impl Lowering<'_> {
    /// Translates a floating-point instruction.
    pub(super) fn float(&mut self, insn: Insn) {
        let fields = FloatFields::of(insn);
        let is_nearest = matches!(fields.rm(), NEAREST | DYNAMIC);
        use FloatFunction::*;
        match fields.function() {
            Add | Sub | Mul | Div | Sqrt | FromOther if is_nearest => self.arithmetic(insn),
            MulAdd | MulSub | NegMulAdd | NegMulSub if is_nearest && self.has_fma => {
                self.arithmetic(insn);
            }
            SignCopy | SignNegate | SignXor => self.sign(insn),
            Equal | Less | LessOrEqual => self.compare(insn),
            Min | Max => self.select(insn),
            ToI32 | ToI64 | ToU32 | ToU64 if fields.rm() == TOWARD_ZERO => {
                self.convert_to_integer(insn)
            }
            FromI32 | FromU32 | FromI64 | FromU64 if is_nearest => self.convert_from_integer(insn),
            MoveToInteger if insn.op() == op::FLOAT_D => {
                let bits = self.bits(insn.fs1_index());
                self.set_x(insn.d(), bits);
            }
            MoveToInteger => {
                let low = self.low_half(insn.fs1_index());
                let value = self.builder.ins().sextend(types::I64, low);
                self.set_x(insn.d(), value);
            }
            MoveFromInteger if insn.op() == op::FLOAT_D => {
                let bits = self.x(insn.s1());
                let value = self.builder.ins().bitcast(types::F64, MemFlags::new(), bits);
                self.set_f(insn.fd_index(), value);
            }
            MoveFromInteger => {
                let bits = self.x(insn.s1());
                let low = self.builder.ins().ireduce(types::I32, bits);
                let value = self.builder.ins().bitcast(types::F32, MemFlags::new(), low);
                self.set_single(insn.fd_index(), value);
            }
            _ => {
                let value = self.interpreted(insn);
                self.set_result(insn, value);
            }
        }
    }

    // --- The interpreter's own function ------------------------------------------------------

    /// What the interpreter's function gives: all bits of the destination.
    fn interpreted(&mut self, insn: Insn) -> Value {
        let fields = FloatFields::of(insn);
        let reads = effects(insn).reads.0;
        let bits = self.constant(insn.0);
        let none = self.constant(0);
        let source = |this: &mut Self, register: usize| {
            if reads >> (32 + register) & 1 == 0 {
                return none;
            }
            let value = this.f_in_passing(register);
            this.builder.ins().bitcast(types::I64, MemFlags::new(), value)
        };
        let reads_integer = reads as u32 != 0;
        let a = if reads_integer { self.x(insn.s1()) } else { source(self, insn.fs1_index()) };
        let b = source(self, insn.fs2_index());
        let c = source(self, fields.fs3_index());
        let (done, value) = self.help(helpers::FLOAT, &[bits, a, b, c]);
        self.leave_unless(done, leave::INTERPRET);
        value
    }

    /// Sets the destination to bits.
    fn set_result(&mut self, insn: Insn, bits: Value) {
        if effects(insn).writes.0 >> 32 != 0 {
            let value = self.builder.ins().bitcast(types::F64, MemFlags::new(), bits);
            self.set_f(insn.fd_index(), value);
        } else {
            self.set_x(insn.d(), bits);
        }
    }

    /// Branches: while `is_usual`, `usual` computes the result, and tells whether it holds;
    /// otherwise the interpreter's function does. Gives the result in a type.
    pub(super) fn usually(
        &mut self,
        insn: Insn,
        is_usual: Option<Value>,
        ty: Type,
        usual: impl FnOnce(&mut Self) -> (Value, Option<Value>),
    ) -> Value {
        let (other, done) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(done, ty);
        self.set_cold(other);
        if let Some(is_usual) = is_usual {
            let go = self.builder.create_block();
            self.builder.ins().brif(is_usual, go, &[], other, &[]);
            self.begin(go);
        }
        let (value, holds) = usual(self);
        let value_argument = [BlockArg::Value(value)];
        match holds {
            Some(holds) => self.builder.ins().brif(holds, done, &value_argument, other, &[]),
            None => self.builder.ins().jump(done, &value_argument),
        };
        self.begin(other);
        let at_hand = self.at_hand;
        let bits = self.interpreted(insn);
        // It goes on behind a question of its own.
        if let Some(block) = self.builder.current_block() {
            self.builder.set_cold_block(block);
        }
        // What this has loaded is not there on the usual way.
        self.at_hand = at_hand;
        let value = match ty {
            types::F64 => self.builder.ins().bitcast(types::F64, MemFlags::new(), bits),
            types::F32 => {
                let low = self.builder.ins().ireduce(types::I32, bits);
                self.builder.ins().bitcast(types::F32, MemFlags::new(), low)
            }
            _ => bits,
        };
        self.builder.ins().jump(done, &[BlockArg::Value(value)]);
        self.begin(done);
        result
    }

    // --- Instructions ------------------------------------------------------------------------

    fn arithmetic(&mut self, insn: Insn) {
        use FloatFunction::*;

        let fields = FloatFields::of(insn);
        let ty = format(insn);
        let (f1, f2, f3) = (insn.fs1_index(), insn.fs2_index(), fields.fs3_index());
        let function = fields.function();
        let from = if function == FromOther { other(ty) } else { ty };
        let unary = matches!(function, Sqrt | FromOther);
        let fused = matches!(function, MulAdd | MulSub | NegMulAdd | NegMulSub);
        let registers = [f1, if unary { f1 } else { f2 }, if fused { f3 } else { f1 }];
        let [a, b, c] = self.raw_operands(from, registers);
        let compute = |this: &mut Self| {
            let ins = |this: &mut Self, function| {
                let negated = |this: &mut Self, value| this.builder.ins().fneg(value);
                match function {
                    Add => this.builder.ins().fadd(a, b),
                    Sub => this.builder.ins().fsub(a, b),
                    Mul => this.builder.ins().fmul(a, b),
                    Div => this.builder.ins().fdiv(a, b),
                    Sqrt => this.builder.ins().sqrt(a),
                    FromOther if ty == types::F64 => this.builder.ins().fpromote(ty, a),
                    FromOther => this.builder.ins().fdemote(ty, a),
                    MulAdd => this.builder.ins().fma(a, b, c),
                    MulSub => {
                        let c = negated(this, c);
                        this.builder.ins().fma(a, b, c)
                    }
                    NegMulAdd => {
                        let a = negated(this, a);
                        this.builder.ins().fma(a, b, c)
                    }
                    _ => {
                        let (a, c) = (negated(this, a), negated(this, c));
                        this.builder.ins().fma(a, b, c)
                    }
                }
            };
            ins(this, function)
        };
        let value = if fused {
            // With a NaN as the third operand, the host does not raise NV for infinity times zero.
            self.usually(insn, None, ty, |this| {
                let value = compute(this);
                let is_number = this.builder.ins().fcmp(FloatCC::Ordered, value, value);
                (value, Some(is_number))
            })
        } else if ty == types::F64 && function != FromOther {
            let value = compute(self);
            return self.set_raw(insn.fd_index(), value);
        } else {
            let value = compute(self);
            self.canonical(ty, value)
        };
        self.set_float(insn.fd_index(), ty, value);
    }

    /// A value, or the canonical NaN for a NaN.
    pub(super) fn canonical(&mut self, ty: Type, value: Value) -> Value {
        let (other, done) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(done, ty);
        self.set_cold(other);
        let is_number = self.builder.ins().fcmp(FloatCC::Ordered, value, value);
        self.builder.ins().brif(is_number, done, &[BlockArg::Value(value)], other, &[]);
        self.begin(other);
        let nan = if ty == types::F64 {
            self.builder.ins().f64const(Ieee64::with_bits(CANONICAL_NAN))
        } else {
            self.builder.ins().f32const(Ieee32::with_bits(0x7fc0 << 16))
        };
        self.builder.ins().jump(done, &[BlockArg::Value(nan)]);
        self.begin(done);
        result
    }

    fn sign(&mut self, insn: Insn) {
        use FloatFunction::*;

        let (ty, function) = (format(insn), FloatFields::of(insn).function());
        let (f1, f2) = (insn.fs1_index(), insn.fs2_index());
        let [a, b] = self.operands(ty, [f1, f2]);
        let value = match function {
            SignCopy if f1 == f2 => a,
            SignNegate if f1 == f2 => self.builder.ins().fneg(a),
            SignXor if f1 == f2 => self.builder.ins().fabs(a),
            SignCopy => self.builder.ins().fcopysign(a, b),
            SignNegate => {
                let b = self.builder.ins().fneg(b);
                self.builder.ins().fcopysign(a, b)
            }
            _ => {
                let integer = if ty == types::F64 { types::I64 } else { types::I32 };
                let a = self.builder.ins().bitcast(integer, MemFlags::new(), a);
                let b = self.builder.ins().bitcast(integer, MemFlags::new(), b);
                let top = i64::from(integer.bits()) - 1;
                let sign = self.builder.ins().ushr_imm(b, top);
                let sign = self.builder.ins().ishl_imm(sign, top);
                let bits = self.builder.ins().bxor(a, sign);
                self.builder.ins().bitcast(ty, MemFlags::new(), bits)
            }
        };
        self.set_float(insn.fd_index(), ty, value);
    }

    fn compare(&mut self, insn: Insn) {
        let ty = format(insn);
        let function = FloatFields::of(insn).function();
        let [a, b] = self.raw_operands(ty, [insn.fs1_index(), insn.fs2_index()]);
        let condition = match function {
            FloatFunction::Equal => FloatCC::Equal,
            FloatFunction::Less => FloatCC::LessThan,
            _ => FloatCC::LessThanOrEqual,
        };
        // For a NaN, the host's comparison is quiet, or not executed at all where nobody needs the
        // result: then it is the interpreter's function that raises what there is to raise.
        let value = if self.is_quiet {
            self.compare_quietly(condition, a, b)
        } else {
            self.usually(insn, None, types::I64, |this| {
                let are_numbers = this.builder.ins().fcmp(FloatCC::Ordered, a, b);
                let holds = this.builder.ins().fcmp(condition, a, b);
                (this.builder.ins().uextend(types::I64, holds), Some(are_numbers))
            })
        };
        self.set_x(insn.d(), value);
    }

    /// `fmin`, `fmax`: zeros and NaNs are for the interpreter.
    fn select(&mut self, insn: Insn) {
        let ty = format(insn);
        let is_min = FloatFields::of(insn).function() == FloatFunction::Min;
        let [a, b] = self.raw_operands(ty, [insn.fs1_index(), insn.fs2_index()]);
        // Cranelift makes an instruction of the selection that raises NV for every NaN: it must not
        // be executed for one.
        let differ = self.builder.ins().fcmp(FloatCC::OrderedNotEqual, a, b);
        let value = self.usually(insn, Some(differ), ty, |this| {
            let a_less = this.builder.ins().fcmp(FloatCC::LessThan, a, b);
            let (yes, no) = if is_min { (a, b) } else { (b, a) };
            (this.builder.ins().select(a_less, yes, no), None)
        });
        self.set_float(insn.fd_index(), ty, value);
    }
}

/// The type of an instruction's format.
pub(super) fn format(insn: Insn) -> Type {
    if insn.op() == op::FLOAT_S { types::F32 } else { types::F64 }
}

/// The other format.
fn other(ty: Type) -> Type {
    if ty == types::F32 { types::F64 } else { types::F32 }
}
