//! Decoding of 16-bit instructions (RISC-V Unprivileged ISA, "C Extension for Compressed
//! Instructions", RV64C). Each expands to an operation that 32-bit instructions have too.

use super::insn::{Insn, op};

/// Decodes a 16-bit instruction; `None` if it is reserved.
pub(super) fn decode(bits: u32) -> Option<Insn> {
    let half = Half(bits);
    match bits & 3 {
        0 => half.quadrant_0(),
        1 => half.quadrant_1(),
        2 => half.quadrant_2(),
        _ => None,
    }
}

/// A 16-bit instruction and its fields.
#[derive(Clone, Copy)]
struct Half(u32);

/// The stack pointer.
const SP: u32 = 2;
/// The return address.
const RA: u32 = 1;

impl Half {
    /// Bits `from..=to` of the instruction, moved to bit `at`.
    const fn bits(self, to: u32, from: u32, at: u32) -> i32 {
        ((self.0 >> from & ((2 << (to - from)) - 1)) << at) as i32
    }
    const fn funct3(self) -> u32 {
        self.0 >> 13
    }
    /// The full register field at bit 7.
    const fn r7(self) -> u32 {
        self.0 >> 7 & 31
    }
    /// The full register field at bit 2.
    const fn r2(self) -> u32 {
        self.0 >> 2 & 31
    }
    /// The short register field at bit 7, for `x8` to `x15`.
    const fn short7(self) -> u32 {
        8 + (self.0 >> 7 & 7)
    }
    /// The short register field at bit 2.
    const fn short2(self) -> u32 {
        8 + (self.0 >> 2 & 7)
    }
    /// The sign-extended six bits of CI.
    const fn imm6(self) -> i32 {
        (self.bits(12, 12, 5) | self.bits(6, 2, 0)) << 26 >> 26
    }
    /// The six bits of a shift.
    const fn shamt(self) -> i32 {
        self.bits(12, 12, 5) | self.bits(6, 2, 0)
    }
    /// The offset of a word access by CL and CS.
    const fn word_offset(self) -> i32 {
        self.bits(12, 10, 3) | self.bits(6, 6, 2) | self.bits(5, 5, 6)
    }
    /// The offset of a doubleword access by CL and CS.
    const fn double_offset(self) -> i32 {
        self.bits(12, 10, 3) | self.bits(6, 5, 6)
    }
    /// The offset of CJ, in halfwords.
    const fn jump_offset(self) -> i32 {
        let bytes = self.bits(12, 12, 11)
            | self.bits(11, 11, 4)
            | self.bits(10, 9, 8)
            | self.bits(8, 8, 10)
            | self.bits(7, 7, 6)
            | self.bits(6, 6, 7)
            | self.bits(5, 3, 1)
            | self.bits(2, 2, 5);
        bytes << 20 >> 21
    }
    /// The offset of CB, in halfwords.
    const fn branch_offset(self) -> i32 {
        let bytes = self.bits(12, 12, 8)
            | self.bits(11, 10, 3)
            | self.bits(6, 5, 6)
            | self.bits(4, 3, 1)
            | self.bits(2, 2, 5);
        bytes << 23 >> 24
    }

    fn quadrant_0(self) -> Option<Insn> {
        let load = |op| Insn::new(op, 1).rs1(self.short7());
        let store = |op| Insn::new(op, 1).rs1(self.short7()).rs2(self.short2());
        Some(match self.funct3() {
            0 => {
                let imm = self.bits(12, 11, 4)
                    | self.bits(10, 7, 6)
                    | self.bits(6, 6, 2)
                    | self.bits(5, 5, 3);
                if imm == 0 {
                    return None;
                }
                Insn::new(op::C_ADDI, 1).rd(self.short2()).rs1(SP).imm(imm)
            }
            1 => load(op::C_FLD).fd(self.short2()).imm(self.double_offset()),
            2 => load(op::C_LW).rd(self.short2()).imm(self.word_offset()),
            3 => load(op::C_LD).rd(self.short2()).imm(self.double_offset()),
            5 => store(op::C_FSD).imm(self.double_offset()),
            6 => store(op::C_SW).imm(self.word_offset()),
            7 => store(op::C_SD).imm(self.double_offset()),
            _ => return None,
        })
    }

    fn quadrant_1(self) -> Option<Insn> {
        let rd = self.r7();
        let update = |op| Insn::new(op, 1).rd(rd).rs1(rd).imm(self.imm6());
        Some(match self.funct3() {
            0 => update(op::C_ADDI),
            1 if rd != 0 => update(op::C_ADDIW),
            2 => Insn::new(op::C_LI, 1).rd(rd).imm(self.imm6()),
            3 if self.imm6() == 0 => return None,
            3 if rd == SP => {
                let imm = self.bits(12, 12, 9)
                    | self.bits(6, 6, 4)
                    | self.bits(5, 5, 6)
                    | self.bits(4, 3, 7)
                    | self.bits(2, 2, 5);
                Insn::new(op::C_ADDI, 1).rd(SP).rs1(SP).imm(imm << 22 >> 22)
            }
            3 => Insn::new(op::C_LI, 1).rd(rd).imm(self.imm6() << 12),
            4 => self.arithmetic()?,
            5 => Insn::new(op::C_JAL, 1).rd(0).imm(self.jump_offset()),
            6 => Insn::new(op::C_BEQ, 1).rs1(self.short7()).rs2(0).imm(self.branch_offset()),
            7 => Insn::new(op::C_BNE, 1).rs1(self.short7()).rs2(0).imm(self.branch_offset()),
            _ => return None,
        })
    }

    fn arithmetic(self) -> Option<Insn> {
        let rd = self.short7();
        let update = |op| Insn::new(op, 1).rd(rd).rs1(rd);
        let register = |op| update(op).rs2(self.short2());
        Some(match (self.0 >> 10 & 3, self.0 >> 12 & 1, self.0 >> 5 & 3) {
            (0, _, _) => update(op::C_SRLI).imm(self.shamt()),
            (1, _, _) => update(op::C_SRAI).imm(self.shamt()),
            (2, _, _) => update(op::C_ANDI).imm(self.imm6()),
            (_, 0, 0) => register(op::C_SUB),
            (_, 0, 1) => register(op::C_XOR),
            (_, 0, 2) => register(op::C_OR),
            (_, 0, _) => register(op::C_AND),
            (_, _, 0) => register(op::C_SUBW),
            (_, _, 1) => register(op::C_ADDW),
            _ => return None,
        })
    }

    fn quadrant_2(self) -> Option<Insn> {
        let (rd, rs2) = (self.r7(), self.r2());
        let load = |op| Insn::new(op, 1).rs1(SP);
        let store = |op| Insn::new(op, 1).rs1(SP).rs2(rs2);
        let double_load = self.bits(12, 12, 5) | self.bits(6, 5, 3) | self.bits(4, 2, 6);
        let double_store = self.bits(12, 10, 3) | self.bits(9, 7, 6);
        Some(match self.funct3() {
            0 => Insn::new(op::C_SLLI, 1).rd(rd).rs1(rd).imm(self.shamt()),
            1 => load(op::C_FLD).fd(rd).imm(double_load),
            2 if rd != 0 => {
                let offset = self.bits(12, 12, 5) | self.bits(6, 4, 2) | self.bits(3, 2, 6);
                load(op::C_LW).rd(rd).imm(offset)
            }
            3 if rd != 0 => load(op::C_LD).rd(rd).imm(double_load),
            4 => match (self.0 >> 12 & 1, rd, rs2) {
                (0, 0, 0) => return None,
                (0, rs1, 0) => Insn::new(op::C_JALR, 1).rd(0).rs1(rs1),
                (0, rd, rs2) => Insn::new(op::C_MV, 1).rd(rd).rs1(rs2),
                (_, 0, 0) => Insn::new(op::C_EBREAK, 1),
                (_, rs1, 0) => Insn::new(op::C_JALR, 1).rd(RA).rs1(rs1),
                (_, rd, rs2) => Insn::new(op::C_ADD, 1).rd(rd).rs1(rd).rs2(rs2),
            },
            5 => store(op::C_FSD).imm(double_store),
            6 => store(op::C_SW).imm(self.bits(12, 9, 2) | self.bits(8, 7, 6)),
            7 => store(op::C_SD).imm(double_store),
            _ => return None,
        })
    }
}
