//! Code that the guest makes itself.

use sandtide_memory::Access;

use super::translated;
use crate::{
    isa::{
        Exit,
        tests::{CODE, DATA, guest},
    },
    translate::run_translated,
};

const FENCE_I: u32 = 0x100f;
const ECALL: u32 = 0x73;
const RET: u32 = 0x8067;

const fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
    0x13 | rd << 7 | rs1 << 15 | (imm as u32) << 20
}

/// How much of a program runs translated that stores x7 to the address x5, calls what is there and
/// counts to 50, a thousand times. Ends with the sum in x10.
fn share_translated(place: u32, code_at_place: &[u32]) -> (u64, f64) {
    let words = [
        addi(8, 0, 1000),
        0x0072_a023, // sw x7, 0(x5)
        FENCE_I,
        0x0002_80e7, // jalr x1, 0(x5)
        addi(9, 0, 50),
        addi(9, 9, -1),
        0xfe04_9ee3, // bne x9, x0, -4
        addi(8, 8, -1),
        0xfe04_12e3, // bne x8, x0, -28
        ECALL,
    ];
    let (mut cpu, mut space, code) = guest(&words, &[]);
    let translation = translated(&space, &code, &[]);
    let page = u64::from(place & !0xfff);
    space.protect(page, 4096, Access::WRITE.and(Access::EXECUTE));
    for (at, word) in (place..).step_by(4).zip(code_at_place) {
        space.store(at, word.to_le_bytes()).unwrap();
    }
    (cpu.x[5], cpu.x[7]) = (u64::from(place), u64::from(addi(10, 10, 1)));
    let exit = run_translated(Some(&translation), &mut cpu, &mut space, &code, &mut 10_000_000);
    assert_eq!(exit, Exit::Call);
    (cpu.x[10], cpu.translated as f64 / cpu.instret as f64)
}

#[test]
fn code_that_is_made_elsewhere_leaves_the_program_translated() {
    let (sum, share) = share_translated(DATA, &[0, RET]);
    assert_eq!(sum, 1000);
    assert!(share > 0.9, "{share}");
}

#[test]
fn a_program_that_changes_its_own_code_is_interpreted() {
    let (sum, share) = share_translated(CODE + 0x800, &[0, RET]);
    assert_eq!(sum, 1000);
    assert!(share < 0.1, "{share}");
}
