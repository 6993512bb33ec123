//! Encodings, written down a second time and in another form than in the decoder (RISC-V
//! Unprivileged ISA, "RV32/64G Instruction Set Listings", "B Extension").

/// The fields that vary in an instruction whose other bits are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// rd, rs1, rs2
    R,
    /// rd, rs1
    Unary,
    /// rd, rs1, 12 bits
    I,
    /// rd, rs1, 6 bits
    Shift6,
    /// rd, rs1, 5 bits
    Shift5,
    /// rd, 20 bits
    U,
}

const fn r(opcode: u32, funct3: u32, funct7: u32) -> u32 {
    opcode | funct3 << 12 | funct7 << 25
}

const fn i(opcode: u32, funct3: u32, imm: u32) -> u32 {
    opcode | funct3 << 12 | imm << 20
}

/// RV64IM, Zba, Zbb and Zbs, without memory and jumps.
pub(super) const INTEGER: &[(u32, Shape)] = &[
    (0x37, Shape::U),
    (0x17, Shape::U),
    // addi slti sltiu xori ori andi addiw
    (i(0x13, 0, 0), Shape::I),
    (i(0x13, 2, 0), Shape::I),
    (i(0x13, 3, 0), Shape::I),
    (i(0x13, 4, 0), Shape::I),
    (i(0x13, 6, 0), Shape::I),
    (i(0x13, 7, 0), Shape::I),
    (i(0x1b, 0, 0), Shape::I),
    // mv
    (i(0x13, 0, 0), Shape::Unary),
    // slli srli srai slliw srliw sraiw
    (i(0x13, 1, 0), Shape::Shift6),
    (i(0x13, 5, 0), Shape::Shift6),
    (i(0x13, 5, 0x400), Shape::Shift6),
    (i(0x1b, 1, 0), Shape::Shift5),
    (i(0x1b, 5, 0), Shape::Shift5),
    (i(0x1b, 5, 0x400), Shape::Shift5),
    // add sub sll slt sltu xor srl sra or and
    (r(0x33, 0, 0), Shape::R),
    (r(0x33, 0, 0x20), Shape::R),
    (r(0x33, 1, 0), Shape::R),
    (r(0x33, 2, 0), Shape::R),
    (r(0x33, 3, 0), Shape::R),
    (r(0x33, 4, 0), Shape::R),
    (r(0x33, 5, 0), Shape::R),
    (r(0x33, 5, 0x20), Shape::R),
    (r(0x33, 6, 0), Shape::R),
    (r(0x33, 7, 0), Shape::R),
    // addw subw sllw srlw sraw
    (r(0x3b, 0, 0), Shape::R),
    (r(0x3b, 0, 0x20), Shape::R),
    (r(0x3b, 1, 0), Shape::R),
    (r(0x3b, 5, 0), Shape::R),
    (r(0x3b, 5, 0x20), Shape::R),
    // fence, fence.i
    (0x0ff0_000f, Shape::Unary),
    (0x0000_100f, Shape::Unary),
    // mul mulh mulhsu mulhu div divu rem remu
    (r(0x33, 0, 1), Shape::R),
    (r(0x33, 1, 1), Shape::R),
    (r(0x33, 2, 1), Shape::R),
    (r(0x33, 3, 1), Shape::R),
    (r(0x33, 4, 1), Shape::R),
    (r(0x33, 5, 1), Shape::R),
    (r(0x33, 6, 1), Shape::R),
    (r(0x33, 7, 1), Shape::R),
    // mulw divw divuw remw remuw
    (r(0x3b, 0, 1), Shape::R),
    (r(0x3b, 4, 1), Shape::R),
    (r(0x3b, 5, 1), Shape::R),
    (r(0x3b, 6, 1), Shape::R),
    (r(0x3b, 7, 1), Shape::R),
    // add.uw sh1add sh2add sh3add sh1add.uw sh2add.uw sh3add.uw slli.uw
    (r(0x3b, 0, 4), Shape::R),
    (r(0x33, 2, 0x10), Shape::R),
    (r(0x33, 4, 0x10), Shape::R),
    (r(0x33, 6, 0x10), Shape::R),
    (r(0x3b, 2, 0x10), Shape::R),
    (r(0x3b, 4, 0x10), Shape::R),
    (r(0x3b, 6, 0x10), Shape::R),
    (i(0x1b, 1, 0x080), Shape::Shift6),
    // andn orn xnor min minu max maxu
    (r(0x33, 7, 0x20), Shape::R),
    (r(0x33, 6, 0x20), Shape::R),
    (r(0x33, 4, 0x20), Shape::R),
    (r(0x33, 4, 5), Shape::R),
    (r(0x33, 5, 5), Shape::R),
    (r(0x33, 6, 5), Shape::R),
    (r(0x33, 7, 5), Shape::R),
    // clz ctz cpop sext.b sext.h clzw cpopw zext.h orc.b rev8 (ctzw is apart)
    (i(0x13, 1, 0x600), Shape::Unary),
    (i(0x13, 1, 0x601), Shape::Unary),
    (i(0x13, 1, 0x602), Shape::Unary),
    (i(0x13, 1, 0x604), Shape::Unary),
    (i(0x13, 1, 0x605), Shape::Unary),
    (i(0x1b, 1, 0x600), Shape::Unary),
    (i(0x1b, 1, 0x602), Shape::Unary),
    (r(0x3b, 4, 4), Shape::Unary),
    (i(0x13, 5, 0x287), Shape::Unary),
    (i(0x13, 5, 0x6b8), Shape::Unary),
    // rol ror rolw rorw rori roriw
    (r(0x33, 1, 0x30), Shape::R),
    (r(0x33, 5, 0x30), Shape::R),
    (r(0x3b, 1, 0x30), Shape::R),
    (r(0x3b, 5, 0x30), Shape::R),
    (i(0x13, 5, 0x600), Shape::Shift6),
    (i(0x1b, 5, 0x600), Shape::Shift5),
    // bclr bext binv bset, and with an immediate
    (r(0x33, 1, 0x24), Shape::R),
    (r(0x33, 5, 0x24), Shape::R),
    (r(0x33, 1, 0x34), Shape::R),
    (r(0x33, 1, 0x14), Shape::R),
    (i(0x13, 1, 0x480), Shape::Shift6),
    (i(0x13, 5, 0x480), Shape::Shift6),
    (i(0x13, 1, 0x680), Shape::Shift6),
    (i(0x13, 1, 0x280), Shape::Shift6),
];

/// `bseti rd, rs1, 31`
pub(super) const BSETI_31: u32 = i(0x13, 1, 0x280 | 31);
/// `ctzw`
pub(super) const CTZW: u32 = i(0x1b, 1, 0x601);

/// `funct3` and length in bytes of the loads; opcode 0x03.
pub(super) const LOADS: &[(u32, u32)] = &[(0, 1), (1, 2), (2, 4), (3, 8), (4, 1), (5, 2), (6, 4)];

/// `funct3` and length in bytes of the stores; opcode 0x23.
pub(super) const STORES: &[(u32, u32)] = &[(0, 1), (1, 2), (2, 4), (3, 8)];

/// `funct5` of the read-modify-write atomics: add swap xor or and min max minu maxu.
pub(super) const AMOS: &[u32] =
    &[0b00000, 0b00001, 0b00100, 0b01000, 0b01100, 0b10000, 0b10100, 0b11000, 0b11100];

/// `funct3` of the branches.
pub(super) const BRANCHES: &[u32] = &[0, 1, 4, 5, 6, 7];

/// What a floating-point register operand of a [`FLOAT`] instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FloatShape {
    /// fd, fs1, fs2, and a rounding mode
    Rounded2,
    /// fd, fs1, and a rounding mode
    Rounded1,
    /// fd, fs1, fs2, fs3, and a rounding mode
    Rounded3,
    /// fd, fs1, fs2
    Fixed2,
    /// rd, fs1, fs2
    Compare,
    /// rd, fs1, and a rounding mode
    ToInteger,
    /// rd, fs1
    FixedToInteger,
    /// fd, rs1, and a rounding mode
    FromInteger,
    /// fd, rs1
    FixedFromInteger,
}

const fn f(funct5: u32, rs2: u32, rm: u32) -> u32 {
    0x53 | rm << 12 | rs2 << 20 | funct5 << 27
}

/// F; D is the same with bit 25 set. The conversion between the formats is apart.
pub(super) const FLOAT: &[(u32, FloatShape)] = &[
    (f(0b00000, 0, 0), FloatShape::Rounded2),
    (f(0b00001, 0, 0), FloatShape::Rounded2),
    (f(0b00010, 0, 0), FloatShape::Rounded2),
    (f(0b00011, 0, 0), FloatShape::Rounded2),
    (f(0b01011, 0, 0), FloatShape::Rounded1),
    (0x43, FloatShape::Rounded3),
    (0x47, FloatShape::Rounded3),
    (0x4b, FloatShape::Rounded3),
    (0x4f, FloatShape::Rounded3),
    (f(0b00100, 0, 0), FloatShape::Fixed2),
    (f(0b00100, 0, 1), FloatShape::Fixed2),
    (f(0b00100, 0, 2), FloatShape::Fixed2),
    (f(0b00101, 0, 0), FloatShape::Fixed2),
    (f(0b00101, 0, 1), FloatShape::Fixed2),
    (f(0b10100, 0, 0), FloatShape::Compare),
    (f(0b10100, 0, 1), FloatShape::Compare),
    (f(0b10100, 0, 2), FloatShape::Compare),
    (f(0b11000, 0, 0), FloatShape::ToInteger),
    (f(0b11000, 1, 0), FloatShape::ToInteger),
    (f(0b11000, 2, 0), FloatShape::ToInteger),
    (f(0b11000, 3, 0), FloatShape::ToInteger),
    (f(0b11010, 0, 0), FloatShape::FromInteger),
    (f(0b11010, 1, 0), FloatShape::FromInteger),
    (f(0b11010, 2, 0), FloatShape::FromInteger),
    (f(0b11010, 3, 0), FloatShape::FromInteger),
    (f(0b11100, 0, 0), FloatShape::FixedToInteger),
    (f(0b11100, 0, 1), FloatShape::FixedToInteger),
    (f(0b11110, 0, 0), FloatShape::FixedFromInteger),
];

/// `fcvt.s.d`; its format bit is 0 and its source double.
pub(super) const FCVT_S_D: u32 = f(0b01000, 1, 0);
/// `fcvt.d.s`
pub(super) const FCVT_D_S: u32 = f(0b01000, 0, 0) | 1 << 25;
