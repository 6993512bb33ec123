//! Conversions between integers and floating-point values.

use cranelift_codegen::ir::{
    BlockArg, InstBuilder,
    condcodes::{FloatCC, IntCC},
    types,
};

use super::{float::format, lower::Lowering, registers::effects};
use crate::isa::insn::{FloatFields, FloatFunction, Insn, op};

impl Lowering<'_> {
    /// Truncation to an integer. In range, the host's conversion raises what RISC-V's does.
    pub(super) fn convert_to_integer(&mut self, insn: Insn) {
        use FloatFunction::*;

        let ty = format(insn);
        let function = FloatFields::of(insn).function();
        let [a] = self.raw_operands(ty, [insn.fs1_index()]);
        // Exclusive bounds that both formats have.
        let (low, high): (f64, f64) = match function {
            ToI32 => (-2_147_483_648.0, 2_147_483_648.0),
            ToU32 => (-1.0, 4_294_967_296.0),
            ToI64 => (-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0),
            // What does not fit into 63 bits is for the interpreter.
            _ => (-1.0, 9_223_372_036_854_775_808.0),
        };
        let value = self.usually(insn, None, types::I64, |this| {
            let bound = |this: &mut Self, bound: f64| {
                if ty == types::F64 {
                    this.builder.ins().f64const(bound)
                } else {
                    this.builder.ins().f32const(bound as f32)
                }
            };
            let (low, high) = (bound(this, low), bound(this, high));
            let above = this.builder.ins().fcmp(FloatCC::GreaterThan, a, low);
            let below = this.builder.ins().fcmp(FloatCC::LessThan, a, high);
            let inside = this.builder.ins().band(above, below);
            let (convert, other) = (this.builder.create_block(), this.builder.create_block());
            let done = this.builder.create_block();
            let converted = this.builder.append_block_param(done, types::I64);
            this.builder.ins().brif(inside, convert, &[], other, &[]);
            this.begin(convert);
            let value = this.builder.ins().fcvt_to_sint_sat(types::I64, a);
            this.builder.ins().jump(done, &[BlockArg::Value(value)]);
            this.begin(other);
            let none = this.constant(0);
            this.builder.ins().jump(done, &[BlockArg::Value(none)]);
            this.begin(done);
            let value = match function {
                ToU32 => {
                    let low = this.builder.ins().ireduce(types::I32, converted);
                    this.builder.ins().sextend(types::I64, low)
                }
                _ => converted,
            };
            (value, Some(inside))
        });
        self.set_x(insn.d(), value);
    }

    /// Whether it is certain that a result is needed: by an instruction behind this one that has an
    /// effect of its own, or leaves, and takes the register along.
    pub(super) fn is_needed_soon(&self, register: usize) -> bool {
        use FloatFunction::*;

        for insn in self.rest {
            match insn.op() {
                op::FSW | op::FSD | op::C_FSD if insn.fs2_index() == register => return true,
                op::FLOAT_S | op::FLOAT_D => match FloatFields::of(*insn).function() {
                    SignCopy | SignNegate | SignXor | MoveToInteger | MoveFromInteger => {}
                    FromI32 | FromU32 | FromI64 | FromU64 => {}
                    Add | Sub | Mul | Div | Sqrt | FromOther
                        if effects(*insn).reads.0 >> (32 + register) & 1 == 0 => {}
                    _ => return true,
                },
                _ => {}
            }
            if effects(*insn).writes.0 >> (32 + register) & 1 != 0 {
                return false;
            }
        }
        false
    }

    pub(super) fn convert_from_integer(&mut self, insn: Insn) {
        use FloatFunction::*;

        let ty = format(insn);
        let integer = self.x(insn.s1());
        let low = |this: &mut Self| this.builder.ins().ireduce(types::I32, integer);
        let function = FloatFields::of(insn).function();
        let value = match function {
            FromI32 => {
                let low = low(self);
                self.builder.ins().fcvt_from_sint(ty, low)
            }
            FromU32 => {
                let low = low(self);
                let wide = self.builder.ins().uextend(types::I64, low);
                self.builder.ins().fcvt_from_sint(ty, wide)
            }
            FromI64 => self.builder.ins().fcvt_from_sint(ty, integer),
            _ => {
                let is_small =
                    self.builder.ins().icmp_imm(IntCC::SignedGreaterThanOrEqual, integer, 0);
                self.usually(insn, Some(is_small), ty, |this| {
                    (this.builder.ins().fcvt_from_sint(ty, integer), None)
                })
            }
        };
        let is_exact = ty == types::F64 && matches!(function, FromI32 | FromU32);
        let value = if is_exact || self.is_needed_soon(insn.fd_index()) {
            value
        } else {
            // The compiler leaves out what nobody needs, but NX accrues.
            self.usually(insn, None, ty, |this| {
                let is_number = this.builder.ins().fcmp(FloatCC::Ordered, value, value);
                (value, Some(is_number))
            })
        };
        self.set_float(insn.fd_index(), ty, value);
    }
}
