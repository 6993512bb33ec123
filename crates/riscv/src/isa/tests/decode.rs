//! Every bit pattern decodes, and what is reserved is illegal.

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::isa::{
    decode::{decode16, decode32, is_short},
    insn::{FloatFields, Insn, op},
};

/// What the interpreter relies on.
fn check(insn: Insn, length: u64) {
    assert_ne!(insn.0, 0, "zero means not decoded");
    assert!((insn.op() as usize) < op::NAMES.len());
    assert_eq!(insn.length(), length);
    let name = op::NAMES[insn.op() as usize];
    assert!(insn.op() == op::ILLEGAL || name.starts_with("C_") == (length == 1), "{name}");
    assert!(insn.d() <= 32 && insn.s1() < 32 && insn.s2() < 32);
}

#[test]
fn every_short_pattern_decodes() {
    let mut legal = 0;
    for bits in (0..=u16::MAX).filter(|bits| is_short(*bits)) {
        let insn = decode16(bits);
        check(insn, 1);
        legal += u32::from(insn.op() != op::ILLEGAL);
    }
    // Reserved in RV64C: `c.addi4spn` with 0 (8); funct3 4 in quadrant 0 (2048); `c.addiw`,
    // `c.lwsp` and `c.ldsp` of x0 (3 × 64); `c.lui` and `c.addi16sp` with 0 (32); two of
    // quadrant 1's arithmetic (2 × 64 × 2); `c.jr` of x0 (1). Of the first, the all-zero pattern
    // is one.
    assert_eq!(legal, 3 * 0x4000 - 8 - 2048 - 3 * 64 - 32 - 128 - 1);
}

#[test]
fn random_long_patterns_decode() {
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..2_000_000 {
        check(decode32(random.random::<u32>() | 3), 2);
    }
}

#[test]
fn reserved_patterns_are_illegal() {
    for bits in [
        0x0000_0000, // all zero
        0xffff_ffff, // all ones
        0x0000_7003, // a load of funct3 7
        0x0000_4023, // a store of funct3 4
        0x0000_2063, // a branch of funct3 2
        0x0000_1067, // `jalr` of funct3 1
        0x0200_101b, // `slliw` by 32
        0x0400_1013, // `slli` by 64
        0x1000_0033, // `add` of funct7 8
        0x0810_403b, // `zext.h` with rs2
        0x1010_202f, // `lr.w` with rs2
        0x1000_002f, // an atomic of funct3 0
        0x2800_202f, // an atomic that does not exist
        0x3020_0073, // `mret`
        0x1020_0073, // `sret`
        0x1050_0073, // `wfi`
        0x0000_4073, // a CSR instruction of funct3 4
        0x0000_5053, // `fadd.s` in rounding mode 5
        0x0000_6053, // `fadd.s` in rounding mode 6
        0x0400_0053, // `fadd.h`
        0x0600_0053, // `fadd.q`
        0x5810_0053, // `fsqrt.s` with rs2
        0x4000_0053, // `fcvt.s.s`
        0xe010_0053, // `fmv.x.w` with rs2
        0x2000_3053, // `fsgnj` of rm 3
        0x0000_0057, // a vector instruction
    ] {
        assert_eq!(decode32(bits).op(), op::ILLEGAL, "{bits:#010x}");
    }
}

#[test]
fn immediates_are_sign_extended() {
    let immediate = |bits| decode32(bits).immediate() as i64;
    assert_eq!(immediate(0xfff0_0093), -1); // li x1, -1
    assert_eq!(immediate(0x8000_00b7), -0x8000_0000); // lui x1, 0x80000
    assert_eq!(immediate(0xfe00_0fa3), -1); // sb x0, -1(x0)
    assert_eq!(immediate(0x8000_0063), -2048); // beq x0, x0, -4096: in halfwords
    assert_eq!(immediate(0x7e00_0fe3), 2047);
    assert_eq!(immediate(0x8000_006f), -0x8_0000); // j -1 MiB
    assert_eq!(immediate(0x7fff_f06f), 0x7_ffff);
    assert_eq!(decode16(0x7139).immediate() as i64, -64); // c.addi16sp -64
    assert_eq!(decode16(0xb001).immediate() as i64, -1024); // c.j -2048
    assert_eq!(decode16(0xd001).immediate() as i64, -128); // c.beqz x8, -256
}

#[test]
fn a_destination_of_zero_is_a_sink() {
    assert_eq!(decode32(0x0010_0013).d(), 32); // addi x0, x0, 1
    assert_eq!(decode32(0x0000_2007).fd_index(), 0); // flw f0, (x0)
    let fused = decode32(0x6a20_f1c3); // fmadd.d f3, f1, f2, f13, dyn
    assert_eq!((fused.op(), fused.fd_index()), (op::FLOAT_D, 3));
    assert_eq!((FloatFields::of(fused).fs3_index(), FloatFields::of(fused).rm()), (13, 7));
}
