//! Random instructions and registers.

use rand::{Rng, rngs::StdRng};

use super::{
    encodings::{
        AMOS, BRANCHES, BSETI_31, CTZW, FCVT_D_S, FCVT_S_D, FLOAT, FloatShape, INTEGER, LOADS,
        STORES, Shape,
    },
    image::{BLOCK_POINTER, POINTERS},
};
use crate::isa::{
    decode::{decode16, decode32, is_short},
    insn::{Insn, SINK, op},
};

/// What kind of instructions a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Integer,
    Compressed,
    Memory,
    Jump,
    Single,
    Double,
}

/// Registers and code.
pub(crate) struct Case {
    pub(crate) x: [u64; 32],
    pub(crate) f: [u64; 32],
    pub(crate) fcsr: u64,
    pub(crate) scratch: Vec<u8>,
    code: Vec<u16>,
}

impl Case {
    fn push(&mut self, word: u32) {
        self.code.extend([word as u16, (word >> 16) as u16]);
    }

    fn push_short(&mut self, half: u32) {
        self.code.push(half as u16);
    }

    /// The code, filled up with `c.nop`.
    pub(crate) fn words(&self) -> Vec<u32> {
        let pair =
            |pair: &[u16]| u32::from(pair[0]) | u32::from(pair.get(1).copied().unwrap_or(1)) << 16;
        self.code.chunks(2).map(pair).collect()
    }

    /// The code, decoded.
    pub(crate) fn instructions(&self) -> Vec<Insn> {
        let (mut rest, mut instructions) = (&*self.code, Vec::new());
        loop {
            rest = match rest {
                [] => return instructions,
                [first, rest @ ..] if is_short(*first) => {
                    instructions.push(decode16(*first));
                    rest
                }
                [first, second, rest @ ..] => {
                    instructions.push(decode32(u32::from(*first) | u32::from(*second) << 16));
                    rest
                }
                [_] => panic!("half an instruction"),
            }
        }
    }
}

/// `jal ra, 4`: once it has been left, translated code can be entered there.
pub(super) const CALL_WHAT_FOLLOWS: u32 = 0x0040_00ef;

/// How many random instructions, or groups that belong together, a case has.
const LENGTH: usize = 24;

/// Makes cases.
pub(crate) struct Generator {
    random: StdRng,
    class: Class,
    /// Registers that point to memory that may be accessed. They are not written.
    pointers: &'static [u32],
    /// Other registers that are not written.
    kept: &'static [u32],
}

impl Generator {
    pub(crate) fn new(random: StdRng, class: Class) -> Self {
        Self::around(random, class, &POINTERS, &[BLOCK_POINTER])
    }

    /// For groups that leave some registers as they are.
    pub(crate) fn around(
        random: StdRng,
        class: Class,
        pointers: &'static [u32],
        kept: &'static [u32],
    ) -> Self {
        Self { random, class, pointers, kept }
    }

    /// Random instructions that belong together.
    pub(crate) fn group(&mut self, class: Class) -> Vec<u16> {
        self.class = class;
        let mut case =
            Case { x: [0; 32], f: [0; 32], fcsr: 0, scratch: Vec::new(), code: Vec::new() };
        self.add_group(&mut case);
        case.code
    }

    pub(crate) fn case(&mut self) -> Case {
        let mut case = self.empty();
        for number in 0..LENGTH {
            self.add_group(&mut case);
            if number % 6 == 5 {
                case.push(CALL_WHAT_FOLLOWS);
            }
        }
        case
    }

    /// Registers and memory, without code.
    pub(crate) fn empty(&mut self) -> Case {
        Case {
            x: std::array::from_fn(|_| self.integer()),
            f: std::array::from_fn(|_| self.float()),
            fcsr: u64::from(
                self.random.random_range(0..5u32) << 5 | self.random.random_range(0..4),
            ),
            scratch: (0..512).map(|_| self.random.random()).collect(),
            code: Vec::new(),
        }
    }

    fn add_group(&mut self, case: &mut Case) {
        match self.class {
            Class::Integer if self.random.random_range(0..50) == 0 => {
                // QEMU before 8.0 looks at the wrong half of an operand whose low word is 0;
                // `run.rs` has that case.
                let middle = self.nonzero();
                case.push(BSETI_31 | middle << 7 | self.register() << 15);
                case.push(CTZW | self.rd() << 7 | middle << 15);
            }
            Class::Integer => case.push(self.compute()),
            Class::Compressed => case.push_short(self.compressed()),
            Class::Memory => self.memory(case),
            Class::Jump => self.jump(case),
            Class::Single => case.push(self.floating(0)),
            Class::Double => case.push(self.floating(1 << 25)),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.random_range(0..from.len())]
    }

    /// An integer register that may be written.
    fn rd(&mut self) -> u32 {
        loop {
            let rd = self.register();
            if !self.is_kept(rd) {
                return rd;
            }
        }
    }

    fn is_kept(&self, register: u32) -> bool {
        self.kept.contains(&register) || self.pointers.contains(&register)
    }

    fn register(&mut self) -> u32 {
        self.random.random_range(0..32)
    }

    fn integer(&mut self) -> u64 {
        let random: u64 = self.random.random();
        let near = u64::from(self.random.random_range(0..3u32)).wrapping_sub(1);
        match self.random.random_range(0..6) {
            0 => random,
            1 => random >> self.random.random_range(0..64),
            2 => (random as i64 >> self.random.random_range(0..64)) as u64,
            3 => (1u64 << self.random.random_range(0..64)).wrapping_add(near),
            4 => (random as i32 as u64).wrapping_add(near),
            _ => near,
        }
    }

    /// A value of either format, boxed or not, around the edges where results change.
    fn float(&mut self) -> u64 {
        let random: u64 = self.random.random();
        let single = match self.class {
            Class::Single => self.random.random_range(0..8) != 0,
            _ => self.random.random_range(0..8) == 0,
        };
        let (width, precision) = if single { (32, 24) } else { (64, 53) };
        let bias = (1u64 << (width - precision - 1)) - 1;
        let exponent = match self.random.random_range(0..10) {
            0 => 0,
            1 => self.random.random_range(0..3),
            2 => 2 * bias + 1,
            3 => 2 * bias - self.random.random_range(0..3),
            4 => bias.div_ceil(2) + self.random.random_range(0..4),
            5 => 2 * bias - bias / 2 - self.random.random_range(0..4),
            6 => random >> 32 & (2 * bias + 1),
            7 => bias + self.random.random_range(29..66),
            _ => bias + self.random.random_range(0..16) - 8,
        };
        let mask = (1u64 << (precision - 1)) - 1;
        let fraction = mask
            & match self.random.random_range(0..6) {
                0 => 0,
                1 => mask,
                2 => 1 << self.random.random_range(0..precision),
                3 => mask << self.random.random_range(0..precision),
                _ => random,
            };
        let sign = u64::from(self.random.random_range(0..2u32)) << (width - 1);
        let bits = sign | exponent << (precision - 1) | fraction;
        match self.random.random_range(0..32) {
            // Not boxed.
            0 if single => bits,
            1 if single => bits | random << 32,
            _ if single => bits | 0xffff_ffff << 32,
            _ => bits,
        }
    }

    /// An integer instruction without memory and jumps.
    fn compute(&mut self) -> u32 {
        let (base, shape) = self.pick(INTEGER);
        let base = base | self.rd() << 7;
        let (rs1, rs2) = (self.register() << 15, self.register() << 20);
        let imm: u32 = self.random.random();
        match shape {
            Shape::R => base | rs1 | rs2,
            Shape::Unary => base | rs1,
            Shape::I => base | rs1 | imm << 20,
            Shape::Shift6 => base | rs1 | (imm & 63) << 20,
            Shape::Shift5 => base | rs1 | (imm & 31) << 20,
            Shape::U => base | imm << 12,
        }
    }

    /// A 16-bit instruction without jumps, with accesses to the scratch memory only.
    fn compressed(&mut self) -> u32 {
        loop {
            let half: u16 = self.random.random();
            let insn = decode16(half);
            let writes_pointer = insn.d() as u32 != SINK && self.is_kept(insn.d() as u32);
            let from_scratch =
                self.pointers.contains(&(insn.s1() as u32)) && insn.immediate() <= 504;
            let is_suitable = is_short(half)
                && match insn.op() {
                    op::C_LW | op::C_LD => from_scratch && !writes_pointer,
                    op::C_SW | op::C_SD | op::C_FLD | op::C_FSD => from_scratch,
                    op::ILLEGAL | op::C_EBREAK => false,
                    op::C_JAL | op::C_JALR | op::C_BEQ | op::C_BNE => false,
                    _ => !writes_pointer,
                };
            if is_suitable {
                return u32::from(half);
            }
        }
    }

    /// Accesses to the scratch memory, at any alignment; atomics; CSRs; and something in between.
    fn memory(&mut self, case: &mut Case) {
        let base = self.pick(self.pointers) << 15;
        let offset = self.random.random_range(0..504u32);
        let stored = (offset & 31) << 7 | (offset >> 5) << 25 | self.register() << 20;
        let width = self.random.random_range(2..4u32);
        let rl = self.random.random_range(0..4u32) << 25;
        match self.random.random_range(0..10) {
            0..3 => {
                let (funct3, _) = self.pick(LOADS);
                case.push(0x03 | self.rd() << 7 | funct3 << 12 | base | offset << 20);
            }
            3..5 => {
                let (funct3, _) = self.pick(STORES);
                case.push(0x23 | funct3 << 12 | base | stored);
            }
            5 => case.push(0x07 | self.register() << 7 | width << 12 | base | offset << 20),
            6 => case.push(0x27 | width << 12 | base | stored),
            7 => {
                let funct5 = self.pick(AMOS) << 27;
                let word = 0x2f | self.rd() << 7 | width << 12 | base | self.register() << 20;
                case.push(word | rl | funct5);
            }
            8 => {
                // A pair that succeeds, and a store-conditional without a reservation.
                case.push(0x2f | self.rd() << 7 | width << 12 | base | rl | 0b00010 << 27);
                for _ in 0..2 {
                    let word = 0x2f | self.rd() << 7 | width << 12 | base | self.register() << 20;
                    case.push(word | rl | 0b00011 << 27);
                }
            }
            _ => {
                // fflags with any value, in any way; frm with a legal one; fcsr read.
                let funct3 = self.pick(&[1, 2, 3, 5, 6, 7]);
                let mode = self.random.random_range(0..5u32);
                let (rd, rs1) = (self.rd(), self.register());
                case.push(self.pick(&[
                    0x73 | rd << 7 | funct3 << 12 | rs1 << 15 | 1 << 20,
                    0x73 | rd << 7 | 5 << 12 | mode << 15 | 2 << 20,
                    0x73 | rd << 7 | 2 << 12 | 3 << 20,
                    0x73 | rd << 7 | 7 << 12 | 2 << 20,
                ]));
            }
        }
    }

    /// A jump or branch forward, over an instruction or not.
    fn jump(&mut self, case: &mut Case) {
        let short = self.random.random_range(0..2) == 0;
        let skip = if short { 2 } else { 4 };
        match self.random.random_range(0..7) {
            0..3 => {
                let bits = skip + 4;
                let branch = (bits & 0x1e) << 7;
                let (rs1, rs2) = (self.register() << 15, self.register() << 20);
                case.push(0x63 | self.pick(BRANCHES) << 12 | rs1 | rs2 | branch);
            }
            3 => case.push(0x6f | self.rd() << 7 | (skip + 4) << 20),
            4 => {
                // c.j, c.beqz, c.bnez
                let offset = skip + 2;
                let (bit_1_2, register) = ((offset & 6) << 2, self.random.random_range(0..8u32));
                case.push_short(self.pick(&[
                    0xa001 | bit_1_2,
                    0xc001 | register << 7 | bit_1_2,
                    0xe001 | register << 7 | bit_1_2,
                ]));
            }
            5 => {
                // auipc, jalr; the low bit of the target is ignored
                let base = self.nonzero();
                let odd = self.random.random_range(0..2u32);
                case.push(0x17 | base << 7);
                case.push(0x67 | self.rd() << 7 | base << 15 | (8 + skip + odd) << 20);
            }
            _ => {
                // auipc, addi, c.jr or c.jalr (which writes x1)
                let base = self.nonzero();
                let link = self.random.random_range(0..2u32);
                case.push(0x17 | base << 7);
                case.push(0x13 | base << 7 | base << 15 | (10 + skip) << 20);
                case.push_short(0x8002 | link << 12 | base << 7);
            }
        }
        // What is jumped over or not.
        if short {
            loop {
                let half = self.compressed();
                let insn = decode16(half as u16);
                if !matches!(insn.op(), op::C_LW | op::C_LD | op::C_SW | op::C_SD) {
                    case.push_short(half);
                    break;
                }
            }
        } else {
            case.push(self.compute());
        }
    }

    fn nonzero(&mut self) -> u32 {
        loop {
            let register = self.rd();
            if register != 0 {
                return register;
            }
        }
    }

    /// A floating-point instruction; `format` is bit 25 for D.
    fn floating(&mut self, format: u32) -> u32 {
        let rm = self.pick(&[0, 0, 1, 2, 3, 4, 7, 7]) << 12;
        let (fd, f1, f2) = (self.register() << 7, self.register() << 15, self.register() << 20);
        let rd = self.rd() << 7;
        let index = self.random.random_range(0..=FLOAT.len());
        let Some(&(base, shape)) = FLOAT.get(index) else {
            return if format == 0 { FCVT_S_D } else { FCVT_D_S } | fd | f1 | rm;
        };
        format
            | base
            | match shape {
                FloatShape::Rounded2 => fd | f1 | f2 | rm,
                FloatShape::Rounded1 => fd | f1 | rm,
                FloatShape::Rounded3 => fd | f1 | f2 | self.register() << 27 | rm,
                FloatShape::Fixed2 => fd | f1 | f2,
                FloatShape::Compare => rd | f1 | f2,
                FloatShape::ToInteger => rd | f1 | rm,
                FloatShape::FixedToInteger => rd | f1,
                FloatShape::FromInteger => fd | f1 | rm,
                FloatShape::FixedFromInteger => fd | f1,
            }
    }
}
