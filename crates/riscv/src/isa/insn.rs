//! A decoded instruction: what [`Code`](super::Code) keeps and [`run`](super::run) executes.

/// The register that an instruction with destination `x0` writes instead. Nothing reads it.
pub(crate) const SINK: u32 = 32;

/// A decoded instruction, packed into eight bytes. Zero means "not decoded yet".
///
/// ```text
///  0..8    operation, one of [`op`]
///  8..14   rd (an integer destination `x0` is decoded to [`SINK`])
/// 14..16   length in halfwords, 1 or 2
/// 16..22   rs1, or the immediate of a CSR instruction
/// 24..30   rs2
/// 32..64   immediate, sign-extended; for jumps and branches in halfwords, not in bytes
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Insn(pub(crate) u64);

impl Insn {
    /// An operation without operands, of the given length in halfwords.
    pub(crate) const fn new(op: u8, length: u64) -> Self {
        Self(op as u64 | length << 14)
    }

    /// With an integer destination register; `x0` becomes the sink.
    pub(crate) const fn rd(self, rd: u32) -> Self {
        self.fd(if rd == 0 { SINK } else { rd })
    }

    /// With a floating-point destination register.
    pub(crate) const fn fd(self, fd: u32) -> Self {
        Self(self.0 | (fd as u64) << 8)
    }

    /// With a first source register of either kind.
    pub(crate) const fn rs1(self, rs1: u32) -> Self {
        Self(self.0 | (rs1 as u64) << 16)
    }

    /// With a second source register of either kind.
    pub(crate) const fn rs2(self, rs2: u32) -> Self {
        Self(self.0 | (rs2 as u64) << 24)
    }

    /// With an immediate.
    pub(crate) const fn imm(self, imm: i32) -> Self {
        Self(self.0 | (imm as u32 as u64) << 32)
    }

    /// The same operands with another operation.
    pub(crate) const fn with_op(self, op: u8) -> Self {
        Self(self.0 & !0xff | op as u64)
    }

    /// The operation.
    #[inline(always)]
    pub(crate) const fn op(self) -> u8 {
        self.0 as u8
    }

    /// The length in halfwords. (The interpreter knows it from the operation.)
    pub(crate) const fn length(self) -> u64 {
        self.0 >> 14 & 3
    }

    /// The index of the destination in `Cpu::x`.
    #[inline(always)]
    pub(crate) const fn d(self) -> usize {
        (self.0 >> 8 & 63) as usize
    }

    /// The index of the first source in `Cpu::x`.
    #[inline(always)]
    pub(crate) const fn s1(self) -> usize {
        (self.0 >> 16 & 63) as usize
    }

    /// The index of the second source in `Cpu::x`.
    #[inline(always)]
    pub(crate) const fn s2(self) -> usize {
        (self.0 >> 24 & 63) as usize
    }

    /// The index of the destination in `Cpu::f`.
    #[inline(always)]
    pub(crate) const fn fd_index(self) -> usize {
        (self.0 >> 8 & 31) as usize
    }

    /// The index of the first source in `Cpu::f`.
    #[inline(always)]
    pub(crate) const fn fs1_index(self) -> usize {
        (self.0 >> 16 & 31) as usize
    }

    /// The index of the second source in `Cpu::f`.
    #[inline(always)]
    pub(crate) const fn fs2_index(self) -> usize {
        (self.0 >> 24 & 31) as usize
    }

    /// The immediate, sign-extended.
    #[inline(always)]
    pub(crate) const fn immediate(self) -> u64 {
        (self.0 as i64 >> 32) as u64
    }
}

/// Numbers the operations, from 1 on.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident)*) => {
        #[repr(u8)]
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Number { $($name),* }

        $($(#[$doc])* pub(crate) const $name: u8 = Number::$name as u8 + 1;)*

        /// The name of each operation, by number; 0 is no operation.
        pub(crate) const NAMES: &[&str] = &["UNDECODED", $(stringify!($name)),*];

        /// How many numbers are used.
        pub(crate) const COUNT: usize = NAMES.len();
    };
}

/// The operations.
///
/// Those that have 16-bit forms come twice, the short one as `C_…`: how far the next instruction
/// is then follows from the branch on the operation, which the host predicts, and not from the
/// loaded instruction, which it would have to wait for.
pub(crate) mod op {
    operations! {
        /// Bytes that are no instruction.
        ILLEGAL
        // Short and long forms.
        LI C_LI JAL C_JAL JALR C_JALR BEQ C_BEQ BNE C_BNE
        LW C_LW LD C_LD SW C_SW SD C_SD FLD C_FLD FSD C_FSD
        ADDI C_ADDI ADDIW C_ADDIW ANDI C_ANDI SLLI C_SLLI SRLI C_SRLI SRAI C_SRAI
        ADD C_ADD SUB C_SUB XOR C_XOR OR C_OR AND C_AND ADDW C_ADDW SUBW C_SUBW
        EBREAK C_EBREAK
        /// `mv`: `add rd, x0, rs2`, and `addi rd, rs1, 0`.
        MV C_MV
        // RV64I.
        AUIPC BLT BGE BLTU BGEU LB LH LBU LHU LWU SB SH FLW FSW
        SLTI SLTIU XORI ORI SLLIW SRLIW SRAIW
        SLL SLT SLTU SRL SRA SLLW SRLW SRAW FENCE ECALL
        /// A CSR instruction; see [`super::csr_fields`].
        CSR
        // M.
        MUL MULH MULHSU MULHU DIV DIVU REM REMU MULW DIVW DIVUW REMW REMUW
        // Zba.
        ADD_UW SH1ADD SH2ADD SH3ADD SH1ADD_UW SH2ADD_UW SH3ADD_UW SLLI_UW
        // Zbb.
        ANDN ORN XNOR CLZ CLZW CTZ CTZW CPOP CPOPW MAX MAXU MIN MINU SEXT_B SEXT_H ZEXT_H
        ROL ROLW ROR RORI RORIW RORW ORC_B REV8
        // Zbs.
        BCLR BCLRI BEXT BEXTI BINV BINVI BSET BSETI
        /// An atomic access to a word; the immediate is its function, one of [`super::amo`].
        ATOMIC_W
        /// An atomic access to a doubleword.
        ATOMIC_D
        /// F; see [`super::FloatFields`].
        FLOAT_S
        /// D; see [`super::FloatFields`].
        FLOAT_D
    }
}

/// The functions of [`op::ATOMIC_W`] and [`op::ATOMIC_D`] as in bits 27..32 of the instruction
/// (RISC-V Unprivileged ISA, "RV32A Standard Extension" in the instruction listings).
pub(crate) mod amo {
    pub(crate) const ADD: u32 = 0b00000;
    pub(crate) const SWAP: u32 = 0b00001;
    pub(crate) const LR: u32 = 0b00010;
    pub(crate) const SC: u32 = 0b00011;
    pub(crate) const XOR: u32 = 0b00100;
    pub(crate) const OR: u32 = 0b01000;
    pub(crate) const AND: u32 = 0b01100;
    pub(crate) const MIN: u32 = 0b10000;
    pub(crate) const MAX: u32 = 0b10100;
    pub(crate) const MINU: u32 = 0b11000;
    pub(crate) const MAXU: u32 = 0b11100;
}

/// The immediate of [`op::CSR`]: bits 0..12 the CSR's number, bits 12..15 `funct3`, and bit 15
/// whether the instruction writes the CSR at all (RISC-V Unprivileged ISA, "Zicsr").
pub(crate) mod csr_fields {
    pub(crate) const NUMBER: u64 = 0xfff;
    pub(crate) const FUNCTION_SHIFT: u32 = 12;
    pub(crate) const WRITES: u64 = 1 << 15;
}

/// The immediate of [`op::FLOAT_S`] and [`op::FLOAT_D`]:
/// bits 0..3 `rm`, bits 8..13 rs3, bits 16..24 the function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FloatFields(u32);

impl FloatFields {
    /// Packs the fields.
    pub(crate) const fn new(function: FloatFunction, rm: u32, rs3: u32) -> Self {
        Self(rm | rs3 << 8 | (function as u32) << 16)
    }

    /// As an immediate.
    pub(crate) const fn immediate(self) -> i32 {
        self.0 as i32
    }

    /// From an instruction's immediate.
    #[inline(always)]
    pub(crate) const fn of(insn: Insn) -> Self {
        Self((insn.0 >> 32) as u32)
    }

    /// From what [`Insn::immediate`] gives.
    #[inline(always)]
    pub(crate) const fn from_immediate(immediate: u64) -> Self {
        Self(immediate as u32)
    }

    /// The rounding mode field.
    #[inline(always)]
    pub(crate) const fn rm(self) -> u32 {
        self.0 & 7
    }

    /// The index of the third source in `Cpu::f`.
    #[inline(always)]
    pub(crate) const fn fs3_index(self) -> usize {
        (self.0 >> 8 & 31) as usize
    }

    /// What the instruction does.
    #[inline(always)]
    pub(crate) fn function(self) -> FloatFunction {
        FloatFunction::ALL[(self.0 >> 16 & 31) as usize]
    }
}

/// Lists the functions, and pads the list so that no index of five bits needs a check.
macro_rules! float_functions {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What a floating-point instruction does, in the format that its operation says.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum FloatFunction { $($(#[$doc])* $name),* }

        impl FloatFunction {
            const ALL: [Self; 32] = {
                let listed = [$(Self::$name),*];
                let mut all = [listed[0]; 32];
                let mut number = 0;
                while number < listed.len() {
                    all[number] = listed[number];
                    number += 1;
                }
                all
            };
        }
    };
}

float_functions! {
    Add
    Sub
    Mul
    Div
    Sqrt
    /// `rs1 × rs2 + rs3`
    MulAdd
    /// `rs1 × rs2 − rs3`
    MulSub
    /// `−(rs1 × rs2) + rs3`
    NegMulAdd
    /// `−(rs1 × rs2) − rs3`
    NegMulSub
    SignCopy
    SignNegate
    SignXor
    Min
    Max
    Equal
    Less
    LessOrEqual
    Class
    /// Register bits to an integer register.
    MoveToInteger
    /// Integer register bits to a register.
    MoveFromInteger
    ToI32
    ToU32
    ToI64
    ToU64
    FromI32
    FromU32
    FromI64
    FromU64
    /// From the other format to this one.
    FromOther
}
