//! Decoding of 32-bit instructions (RISC-V Unprivileged ISA, "RV32/64G Instruction Set Listings",
//! and "B Extension for Bit Manipulation").
//!
//! Total: every bit pattern decodes to something; what is reserved, or not part of the
//! instruction set of a guest, to [`op::ILLEGAL`].

use super::{
    compressed,
    insn::{FloatFields, FloatFunction, Insn, amo, csr_fields, op},
};

/// Whether the instruction that starts with this halfword has 16 bits (RISC-V Unprivileged ISA,
/// "Base Instruction-Length Encoding").
pub(crate) const fn is_short(first: u16) -> bool {
    first & 3 != 3
}

/// Decodes a 16-bit instruction.
pub(crate) fn decode16(bits: u16) -> Insn {
    compressed::decode(u32::from(bits)).unwrap_or(Insn::new(op::ILLEGAL, 1))
}

/// Decodes a 32-bit instruction.
pub(crate) fn decode32(bits: u32) -> Insn {
    Word(bits).decode().unwrap_or(Insn::new(op::ILLEGAL, 2))
}

/// A 32-bit instruction and its fields.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    const fn rd(self) -> u32 {
        self.0 >> 7 & 31
    }
    const fn funct3(self) -> u32 {
        self.0 >> 12 & 7
    }
    const fn rs1(self) -> u32 {
        self.0 >> 15 & 31
    }
    const fn rs2(self) -> u32 {
        self.0 >> 20 & 31
    }
    const fn rs3(self) -> u32 {
        self.0 >> 27
    }
    const fn funct7(self) -> u32 {
        self.0 >> 25
    }
    const fn imm_i(self) -> i32 {
        self.0 as i32 >> 20
    }
    const fn imm_s(self) -> i32 {
        (self.0 as i32 >> 25) << 5 | self.rd() as i32
    }
    const fn imm_b(self) -> i32 {
        let bits = self.0 as i32;
        (bits >> 31) << 12 | (bits << 4 & 0x800) | (bits >> 20 & 0x7e0) | (bits >> 7 & 0x1e)
    }
    const fn imm_u(self) -> i32 {
        (self.0 & 0xffff_f000) as i32
    }
    const fn imm_j(self) -> i32 {
        let bits = self.0 as i32;
        (bits >> 31) << 20 | (bits & 0xf_f000) | (bits >> 9 & 0x800) | (bits >> 20 & 0x7fe)
    }

    fn decode(self) -> Option<Insn> {
        Some(match self.0 & 0x7f {
            0x03 => self.load()?,
            0x07 => self.float_load()?,
            0x0f => self.fence()?,
            0x13 => self.op_imm()?,
            0x17 => Insn::new(op::AUIPC, 2).rd(self.rd()).imm(self.imm_u()),
            0x1b => self.op_imm_32()?,
            0x23 => self.store(&[op::SB, op::SH, op::SW, op::SD])?,
            0x27 => self.store(&[op::ILLEGAL, op::ILLEGAL, op::FSW, op::FSD])?,
            0x2f => self.atomic()?,
            0x33 => self.register(self.op()?),
            0x37 => Insn::new(op::LI, 2).rd(self.rd()).imm(self.imm_u()),
            0x3b => self.register(self.op_32()?),
            0x43 => self.fused(FloatFunction::MulAdd)?,
            0x47 => self.fused(FloatFunction::MulSub)?,
            0x4b => self.fused(FloatFunction::NegMulAdd)?,
            0x4f => self.fused(FloatFunction::NegMulSub)?,
            0x53 => self.float()?,
            0x63 => self.branch()?,
            0x67 if self.funct3() == 0 => self.immediate(op::JALR),
            0x6f => Insn::new(op::JAL, 2).rd(self.rd()).imm(self.imm_j() >> 1),
            0x73 => self.system()?,
            _ => return None,
        })
    }

    /// `rd ← rs1, imm`
    fn immediate(self, op: u8) -> Insn {
        Insn::new(op, 2).rd(self.rd()).rs1(self.rs1()).imm(self.imm_i())
    }

    /// `rd ← rs1, rs2`
    fn register(self, op: u8) -> Insn {
        if op == op::ADD && self.rs1() == 0 {
            return Insn::new(op::MV, 2).rd(self.rd()).rs1(self.rs2());
        }
        Insn::new(op, 2).rd(self.rd()).rs1(self.rs1()).rs2(self.rs2())
    }

    /// `rd ← rs1, shamt`
    fn shift(self, op: u8) -> Insn {
        Insn::new(op, 2).rd(self.rd()).rs1(self.rs1()).imm((self.0 >> 20 & 63) as i32)
    }

    fn load(self) -> Option<Insn> {
        const OPS: [u8; 7] = [op::LB, op::LH, op::LW, op::LD, op::LBU, op::LHU, op::LWU];
        Some(self.immediate(*OPS.get(self.funct3() as usize)?))
    }

    fn float_load(self) -> Option<Insn> {
        let op = match self.funct3() {
            2 => op::FLW,
            3 => op::FLD,
            _ => return None,
        };
        Some(Insn::new(op, 2).fd(self.rd()).rs1(self.rs1()).imm(self.imm_i()))
    }

    fn store(self, ops: &[u8; 4]) -> Option<Insn> {
        let op = *ops.get(self.funct3() as usize)?;
        (op != op::ILLEGAL)
            .then(|| Insn::new(op, 2).rs1(self.rs1()).rs2(self.rs2()).imm(self.imm_s()))
    }

    /// The remaining fields are reserved for finer fences and must be ignored (RISC-V
    /// Unprivileged ISA, "Memory Ordering Instructions", "Zifencei").
    fn fence(self) -> Option<Insn> {
        (self.funct3() <= 1).then(|| Insn::new(op::FENCE, 2))
    }

    fn branch(self) -> Option<Insn> {
        let op = match self.funct3() {
            0 => op::BEQ,
            1 => op::BNE,
            4 => op::BLT,
            5 => op::BGE,
            6 => op::BLTU,
            7 => op::BGEU,
            _ => return None,
        };
        Some(Insn::new(op, 2).rs1(self.rs1()).rs2(self.rs2()).imm(self.imm_b() >> 1))
    }

    fn op_imm(self) -> Option<Insn> {
        let funct6 = self.0 >> 26;
        Some(match (self.funct3(), self.0 >> 20) {
            (0, _) if self.rs1() == 0 => Insn::new(op::LI, 2).rd(self.rd()).imm(self.imm_i()),
            (0, 0) => self.immediate(op::MV),
            (0, _) => self.immediate(op::ADDI),
            (2, _) => self.immediate(op::SLTI),
            (3, _) => self.immediate(op::SLTIU),
            (4, _) => self.immediate(op::XORI),
            (6, _) => self.immediate(op::ORI),
            (7, _) => self.immediate(op::ANDI),
            (1, 0x600) => self.immediate(op::CLZ),
            (1, 0x601) => self.immediate(op::CTZ),
            (1, 0x602) => self.immediate(op::CPOP),
            (1, 0x604) => self.immediate(op::SEXT_B),
            (1, 0x605) => self.immediate(op::SEXT_H),
            (5, 0x287) => self.immediate(op::ORC_B),
            (5, 0x6b8) => self.immediate(op::REV8),
            (funct3, _) => self.shift(match (funct3, funct6) {
                (1, 0b00_0000) => op::SLLI,
                (1, 0b00_1010) => op::BSETI,
                (1, 0b01_0010) => op::BCLRI,
                (1, 0b01_1010) => op::BINVI,
                (5, 0b00_0000) => op::SRLI,
                (5, 0b01_0000) => op::SRAI,
                (5, 0b01_0010) => op::BEXTI,
                (5, 0b01_1000) => op::RORI,
                _ => return None,
            }),
        })
    }

    fn op_imm_32(self) -> Option<Insn> {
        Some(match (self.funct3(), self.0 >> 20) {
            (0, _) => self.immediate(op::ADDIW),
            (1, 0x600) => self.immediate(op::CLZW),
            (1, 0x601) => self.immediate(op::CTZW),
            (1, 0x602) => self.immediate(op::CPOPW),
            (1, _) if self.0 >> 26 == 0b00_0010 => self.shift(op::SLLI_UW),
            (funct3, _) => self.shift(match (funct3, self.funct7()) {
                (1, 0x00) => op::SLLIW,
                (5, 0x00) => op::SRLIW,
                (5, 0x20) => op::SRAIW,
                (5, 0x30) => op::RORIW,
                _ => return None,
            }),
        })
    }

    fn op(self) -> Option<u8> {
        Some(match (self.funct7(), self.funct3()) {
            (0x00, 0) => op::ADD,
            (0x00, 1) => op::SLL,
            (0x00, 2) => op::SLT,
            (0x00, 3) => op::SLTU,
            (0x00, 4) => op::XOR,
            (0x00, 5) => op::SRL,
            (0x00, 6) => op::OR,
            (0x00, 7) => op::AND,
            (0x20, 0) => op::SUB,
            (0x20, 4) => op::XNOR,
            (0x20, 5) => op::SRA,
            (0x20, 6) => op::ORN,
            (0x20, 7) => op::ANDN,
            (0x01, 0) => op::MUL,
            (0x01, 1) => op::MULH,
            (0x01, 2) => op::MULHSU,
            (0x01, 3) => op::MULHU,
            (0x01, 4) => op::DIV,
            (0x01, 5) => op::DIVU,
            (0x01, 6) => op::REM,
            (0x01, 7) => op::REMU,
            (0x05, 4) => op::MIN,
            (0x05, 5) => op::MINU,
            (0x05, 6) => op::MAX,
            (0x05, 7) => op::MAXU,
            (0x10, 2) => op::SH1ADD,
            (0x10, 4) => op::SH2ADD,
            (0x10, 6) => op::SH3ADD,
            (0x14, 1) => op::BSET,
            (0x24, 1) => op::BCLR,
            (0x24, 5) => op::BEXT,
            (0x34, 1) => op::BINV,
            (0x30, 1) => op::ROL,
            (0x30, 5) => op::ROR,
            _ => return None,
        })
    }

    fn op_32(self) -> Option<u8> {
        Some(match (self.funct7(), self.funct3()) {
            (0x00, 0) => op::ADDW,
            (0x00, 1) => op::SLLW,
            (0x00, 5) => op::SRLW,
            (0x20, 0) => op::SUBW,
            (0x20, 5) => op::SRAW,
            (0x01, 0) => op::MULW,
            (0x01, 4) => op::DIVW,
            (0x01, 5) => op::DIVUW,
            (0x01, 6) => op::REMW,
            (0x01, 7) => op::REMUW,
            (0x04, 0) => op::ADD_UW,
            (0x04, 4) if self.rs2() == 0 => op::ZEXT_H,
            (0x10, 2) => op::SH1ADD_UW,
            (0x10, 4) => op::SH2ADD_UW,
            (0x10, 6) => op::SH3ADD_UW,
            (0x30, 1) => op::ROLW,
            (0x30, 5) => op::RORW,
            _ => return None,
        })
    }

    /// `aq` and `rl` do not matter: one thread of a guest runs at a time.
    fn atomic(self) -> Option<Insn> {
        let op = match self.funct3() {
            2 => op::ATOMIC_W,
            3 => op::ATOMIC_D,
            _ => return None,
        };
        let function = self.0 >> 27;
        match function {
            amo::LR if self.rs2() != 0 => return None,
            amo::ADD | amo::SWAP | amo::LR | amo::SC | amo::XOR | amo::OR | amo::AND => {}
            amo::MIN | amo::MAX | amo::MINU | amo::MAXU => {}
            _ => return None,
        }
        Some(self.register(op).imm(function as i32))
    }

    fn system(self) -> Option<Insn> {
        let function = self.funct3();
        match (function, self.0) {
            (_, 0x0000_0073) => Some(Insn::new(op::ECALL, 2)),
            (_, 0x0010_0073) => Some(Insn::new(op::EBREAK, 2)),
            (1..=3 | 5..=7, _) => {
                let is_write = function & 3 == 1 || self.rs1() != 0;
                let fields = (self.0 >> 20)
                    | (function << csr_fields::FUNCTION_SHIFT)
                    | (u32::from(is_write) * csr_fields::WRITES as u32);
                Some(Insn::new(op::CSR, 2).rd(self.rd()).rs1(self.rs1()).imm(fields as i32))
            }
            _ => None,
        }
    }

    /// The operation of an instruction's `fmt` field: F or D.
    const fn format(self) -> Option<u8> {
        match self.0 >> 25 & 3 {
            0 => Some(op::FLOAT_S),
            1 => Some(op::FLOAT_D),
            _ => None,
        }
    }

    /// `rm`, unless it is one of the two reserved rounding modes.
    const fn rounding(self) -> Option<u32> {
        match self.funct3() {
            5 | 6 => None,
            rm => Some(rm),
        }
    }

    fn fused(self, function: FloatFunction) -> Option<Insn> {
        let fields = FloatFields::new(function, self.rounding()?, self.rs3());
        let insn = Insn::new(self.format()?, 2).fd(self.rd()).rs1(self.rs1()).rs2(self.rs2());
        Some(insn.imm(fields.immediate()))
    }

    fn float(self) -> Option<Insn> {
        use FloatFunction::*;

        let format = self.format()?;
        let is_double = u32::from(format == op::FLOAT_D);
        // Whether rm rounds, whether rd is an integer register.
        let (function, rounds, to_integer) = match (self.rs3(), self.funct3(), self.rs2()) {
            (0b00000, _, _) => (Add, true, false),
            (0b00001, _, _) => (Sub, true, false),
            (0b00010, _, _) => (Mul, true, false),
            (0b00011, _, _) => (Div, true, false),
            (0b01011, _, 0) => (Sqrt, true, false),
            (0b00100, 0, _) => (SignCopy, false, false),
            (0b00100, 1, _) => (SignNegate, false, false),
            (0b00100, 2, _) => (SignXor, false, false),
            (0b00101, 0, _) => (Min, false, false),
            (0b00101, 1, _) => (Max, false, false),
            (0b01000, _, other) if other == 1 - is_double => (FromOther, true, false),
            (0b10100, 0, _) => (LessOrEqual, false, true),
            (0b10100, 1, _) => (Less, false, true),
            (0b10100, 2, _) => (Equal, false, true),
            (0b11000, _, 0) => (ToI32, true, true),
            (0b11000, _, 1) => (ToU32, true, true),
            (0b11000, _, 2) => (ToI64, true, true),
            (0b11000, _, 3) => (ToU64, true, true),
            (0b11010, _, 0) => (FromI32, true, false),
            (0b11010, _, 1) => (FromU32, true, false),
            (0b11010, _, 2) => (FromI64, true, false),
            (0b11010, _, 3) => (FromU64, true, false),
            (0b11100, 0, 0) => (MoveToInteger, false, true),
            (0b11100, 1, 0) => (Class, false, true),
            (0b11110, 0, 0) => (MoveFromInteger, false, false),
            _ => return None,
        };
        let rm = if rounds { self.rounding()? } else { 0 };
        let insn = Insn::new(format, 2).rs1(self.rs1()).rs2(self.rs2());
        let insn = if to_integer { insn.rd(self.rd()) } else { insn.fd(self.rd()) };
        Some(insn.imm(FloatFields::new(function, rm, 0).immediate()))
    }
}
