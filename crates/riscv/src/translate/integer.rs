//! Integer instructions (RISC-V Unprivileged ISA, "RV64I", "M", "Zba", "Zbb", "Zbs").

use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Value, condcodes::IntCC, types};

use super::lower::Lowering;
use crate::isa::insn::{Insn, op};

impl Lowering<'_> {
    /// Translates an instruction that computes in integer registers.
    pub(super) fn integer(&mut self, insn: Insn) {
        let value = match insn.op() {
            op::LI | op::C_LI => self.constant(insn.immediate()),
            op::AUIPC => self.constant(self.pc.wrapping_add(insn.immediate())),
            op::MV | op::C_MV => self.x(insn.s1()),
            _ => self.compute(insn),
        };
        self.set_x(insn.d(), value);
    }

    fn compute(&mut self, insn: Insn) -> Value {
        let (a, imm) = (self.x(insn.s1()), insn.immediate() as i64);
        let shift = imm & 63;
        macro_rules! ins {
            ($method:ident $($argument:expr),*) => {
                self.builder.ins().$method($($argument),*)
            };
        }
        /// The second source.
        macro_rules! b {
            () => {
                self.x(insn.s2())
            };
        }
        /// The low word of a value.
        macro_rules! low {
            ($value:expr) => {{
                let value = $value;
                self.low_word(value)
            }};
        }
        /// An operation on two registers.
        macro_rules! two {
            ($method:ident) => {{
                let b = b!();
                ins!($method a, b)
            }};
        }
        /// An operation on the low words of two registers, sign-extended.
        macro_rules! two_words {
            ($method:ident) => {{
                let (a, b) = (low!(a), low!(b!()));
                let word = ins!($method a, b);
                ins!(sextend types::I64, word)
            }};
        }
        /// An operation on the low word of a register and a constant, sign-extended.
        macro_rules! word_imm {
            ($method:ident, $imm:expr) => {{
                let a = low!(a);
                let word = ins!($method a, $imm);
                ins!(sextend types::I64, word)
            }};
        }
        /// A bit of a register, at a place that another register says.
        macro_rules! bit {
            () => {{
                let (one, b) = (self.constant(1), b!());
                ins!(ishl one, b)
            }};
        }
        macro_rules! truth {
            ($condition:ident, $b:expr) => {{
                let b = $b;
                let holds = ins!(icmp IntCC::$condition, a, b);
                ins!(uextend types::I64, holds)
            }};
        }
        macro_rules! shifted_sum {
            ($a:expr, $by:expr) => {{
                let (a, b) = ($a, b!());
                let shifted = ins!(ishl_imm a, $by);
                ins!(iadd shifted, b)
            }};
        }
        /// A count in the low word: not negative, so zero-extended.
        macro_rules! word_count {
            ($method:ident) => {{
                let a = low!(a);
                let count = ins!($method a);
                ins!(uextend types::I64, count)
            }};
        }
        match insn.op() {
            op::ADDI | op::C_ADDI => self.plus(a, imm),
            op::ANDI | op::C_ANDI => ins!(band_imm a, imm),
            op::ORI => ins!(bor_imm a, imm),
            op::XORI => ins!(bxor_imm a, imm),
            op::SLTI => truth!(SignedLessThan, self.constant(imm as u64)),
            op::SLTIU => truth!(UnsignedLessThan, self.constant(imm as u64)),
            op::SLLI | op::C_SLLI => ins!(ishl_imm a, shift),
            op::SRLI | op::C_SRLI => self.shift_right(a, shift),
            op::SRAI | op::C_SRAI => ins!(sshr_imm a, shift),
            op::ADDIW | op::C_ADDIW if self.known(a).is_some() => {
                let sum = self.known(a).unwrap_or(0).wrapping_add(imm);
                self.constant(sum as i32 as u64)
            }
            op::ADDIW | op::C_ADDIW => word_imm!(iadd_imm, imm),
            op::SLLIW => word_imm!(ishl_imm, imm & 31),
            // Its sign is that of the operand, or none.
            op::SRLIW if imm & 31 != 0 => {
                let a = low!(a);
                let word = ins!(ushr_imm a, imm & 31);
                ins!(uextend types::I64, word)
            }
            op::SRLIW => word_imm!(ushr_imm, 0),
            op::SRAIW => word_imm!(sshr_imm, imm & 31),
            op::ADD | op::C_ADD => two!(iadd),
            op::SUB | op::C_SUB => two!(isub),
            op::XOR | op::C_XOR => two!(bxor),
            op::OR | op::C_OR => two!(bor),
            op::AND | op::C_AND => two!(band),
            op::SLT => truth!(SignedLessThan, b!()),
            op::SLTU => truth!(UnsignedLessThan, b!()),
            // Cranelift takes the amount modulo the width, as RISC-V does.
            op::SLL => two!(ishl),
            op::SRL => two!(ushr),
            op::SRA => two!(sshr),
            op::ADDW | op::C_ADDW => two_words!(iadd),
            op::SUBW | op::C_SUBW => two_words!(isub),
            op::SLLW => two_words!(ishl),
            op::SRLW => two_words!(ushr),
            op::SRAW => two_words!(sshr),
            op::MUL => two!(imul),
            op::MULH => two!(smulhi),
            op::MULHU => two!(umulhi),
            op::MULHSU => {
                // As unsigned, less b × 2⁶⁴ if a is negative.
                let b = b!();
                let high = ins!(umulhi a, b);
                let sign = ins!(sshr_imm a, 63);
                let excess = ins!(band sign, b);
                ins!(isub high, excess)
            }
            op::MULW => two_words!(imul),
            op::DIV | op::DIVU | op::REM | op::REMU => {
                let b = b!();
                self.divide(insn.op(), a, b)
            }
            op::DIVW | op::DIVUW | op::REMW | op::REMUW => {
                let (a, b) = (low!(a), low!(b!()));
                let word = self.divide(insn.op(), a, b);
                ins!(sextend types::I64, word)
            }
            op::ADD_UW => {
                let (a, b) = (low!(a), b!());
                let a = ins!(uextend types::I64, a);
                ins!(iadd a, b)
            }
            op::SH1ADD => shifted_sum!(a, 1),
            op::SH2ADD => shifted_sum!(a, 2),
            op::SH3ADD => shifted_sum!(a, 3),
            op::SH1ADD_UW | op::SH2ADD_UW | op::SH3ADD_UW => {
                let a = low!(a);
                let a = ins!(uextend types::I64, a);
                let by = match insn.op() {
                    op::SH1ADD_UW => 1,
                    op::SH2ADD_UW => 2,
                    _ => 3,
                };
                shifted_sum!(a, by)
            }
            op::SLLI_UW => {
                let a = low!(a);
                let a = ins!(uextend types::I64, a);
                ins!(ishl_imm a, shift)
            }
            op::ANDN => two!(band_not),
            op::ORN => two!(bor_not),
            op::XNOR => two!(bxor_not),
            op::CLZ => ins!(clz a),
            op::CTZ => ins!(ctz a),
            op::CPOP => ins!(popcnt a),
            op::CLZW => word_count!(clz),
            op::CTZW => word_count!(ctz),
            op::CPOPW => word_count!(popcnt),
            op::MAX => two!(smax),
            op::MAXU => two!(umax),
            op::MIN => two!(smin),
            op::MINU => two!(umin),
            op::SEXT_B => {
                let byte = ins!(ireduce types::I8, a);
                ins!(sextend types::I64, byte)
            }
            op::SEXT_H => {
                let half = ins!(ireduce types::I16, a);
                ins!(sextend types::I64, half)
            }
            op::ZEXT_H => {
                let half = ins!(ireduce types::I16, a);
                ins!(uextend types::I64, half)
            }
            op::ROL => two!(rotl),
            op::ROR => two!(rotr),
            op::RORI => ins!(rotr_imm a, shift),
            op::ROLW => two_words!(rotl),
            op::RORW => two_words!(rotr),
            op::RORIW => word_imm!(rotr_imm, imm & 31),
            op::ORC_B => self.or_combine_bytes(a),
            op::REV8 => ins!(bswap a),
            op::BCLR => {
                let bit = bit!();
                ins!(band_not a, bit)
            }
            op::BEXT => {
                let b = b!();
                let low = ins!(ushr a, b);
                ins!(band_imm low, 1)
            }
            op::BINV => {
                let bit = bit!();
                ins!(bxor a, bit)
            }
            op::BSET => {
                let bit = bit!();
                ins!(bor a, bit)
            }
            op::BCLRI => ins!(band_imm a, !(1 << shift)),
            op::BEXTI => {
                let low = ins!(ushr_imm a, shift);
                ins!(band_imm low, 1)
            }
            op::BINVI => ins!(bxor_imm a, 1 << shift),
            op::BSETI => ins!(bor_imm a, 1 << shift),
            other => unreachable!("operation {other} is not of integers"),
        }
    }

    /// A logical shift to the right. Without Zba, the low word is extended by two shifts.
    fn shift_right(&mut self, value: Value, by: i64) -> Value {
        const WORD: i64 = 32;
        let shifted_left = match self.definition(value) {
            Some(&InstructionData::BinaryImm64 { opcode: Opcode::IshlImm, arg, imm })
                if imm.bits() == WORD && by <= WORD =>
            {
                arg
            }
            _ => return self.builder.ins().ushr_imm(value, by),
        };
        let low = self.low_word(shifted_left);
        let wide = self.builder.ins().uextend(types::I64, low);
        if by == WORD { wide } else { self.builder.ins().ishl_imm(wide, WORD - by) }
    }

    /// Division in the width of the operands, which never traps: the host divides by something
    /// harmless, and the result is put right (RISC-V Unprivileged ISA, "Division Operations").
    fn divide(&mut self, operation: u8, a: Value, b: Value) -> Value {
        let ty = self.builder.func.dfg.value_type(a);
        let zero = self.builder.ins().iconst(ty, 0);
        let one = self.builder.ins().iconst(ty, 1);
        let ones = {
            let ones = self.builder.ins().iconst(types::I64, -1);
            if ty == types::I64 { ones } else { self.builder.ins().ireduce(ty, ones) }
        };
        let by_zero = self.builder.ins().icmp(IntCC::Equal, b, zero);
        match operation {
            op::DIVU | op::DIVUW => {
                let harmless = self.builder.ins().select(by_zero, one, b);
                let quotient = self.builder.ins().udiv(a, harmless);
                self.builder.ins().select(by_zero, ones, quotient)
            }
            op::REMU | op::REMUW => {
                let harmless = self.builder.ins().select(by_zero, one, b);
                let remainder = self.builder.ins().urem(a, harmless);
                self.builder.ins().select(by_zero, a, remainder)
            }
            // Division by −1 may overflow; it is a negation.
            op::DIV | op::DIVW => {
                let by_ones = self.builder.ins().icmp(IntCC::Equal, b, ones);
                let either = self.builder.ins().bor(by_zero, by_ones);
                let harmless = self.builder.ins().select(either, one, b);
                let quotient = self.builder.ins().sdiv(a, harmless);
                let negated = self.builder.ins().ineg(a);
                let quotient = self.builder.ins().select(by_ones, negated, quotient);
                self.builder.ins().select(by_zero, ones, quotient)
            }
            _ => {
                let by_ones = self.builder.ins().icmp(IntCC::Equal, b, ones);
                let either = self.builder.ins().bor(by_zero, by_ones);
                let harmless = self.builder.ins().select(either, one, b);
                // By 1 it is 0, as it is by −1.
                let remainder = self.builder.ins().srem(a, harmless);
                self.builder.ins().select(by_zero, a, remainder)
            }
        }
    }

    /// `orc.b`: each byte becomes all ones if it has any bit set.
    fn or_combine_bytes(&mut self, value: Value) -> Value {
        let low_7 = self.constant(0x7f7f_7f7f_7f7f_7f7f);
        let low = self.builder.ins().band(value, low_7);
        let carried = self.builder.ins().iadd(low, low_7);
        let any = self.builder.ins().bor(carried, value);
        let tops = self.builder.ins().band_not(any, low_7);
        let bits = self.builder.ins().ushr_imm(tops, 7);
        let all = self.constant(0xff);
        self.builder.ins().imul(bits, all)
    }
}
