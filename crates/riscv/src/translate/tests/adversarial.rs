//! What a hostile guest may try at the boundary of its sandbox. Each attempt ends as it does
//! interpreted, with the same registers, count and memory, and the process lives.

use sandtide_engine::TrapCause;
use sandtide_memory::{Access, Space};

use super::lockstep::Pair;
use crate::isa::{
    Cpu, Exit,
    tests::{
        CODE, DATA,
        differential::assembler::{Assembler, addi, branch, jalr, sd},
    },
};

const ECALL: u32 = 0x73;
const RA: u32 = 1;
const SP: u32 = 2;
const T0: u32 = 5;
const T1: u32 = 6;

/// Runs code in both, in pieces, until it ends or has run long enough. [`Pair::run`] compares.
fn end_of(words: &[u32], prepare: impl Fn(&mut Cpu, &mut Space)) -> Exit {
    let first = Pair::new(words, &[1; 8192], &[]);
    let mut exit = Exit::Budget;
    for budget in [5, 1000, 1 << 18] {
        let mut pair = first.again(words, &[1; 8192]);
        pair.prepare(&prepare);
        for _ in 0..2000 {
            exit = pair.run(budget);
            if exit != Exit::Budget {
                break;
            }
        }
        pair.compare(DATA, 8192);
    }
    exit
}

/// Addresses at both ends of the address space, of pages, and beyond 32 bits.
fn addresses() -> impl Iterator<Item = u64> {
    let ends = [0, 0x1000, u64::from(DATA), u64::from(DATA) + 4096, u64::from(DATA) + 8192];
    let edges = ends.into_iter().chain([0xffff_f000, 1 << 32, 1 << 47, 1 << 63, u64::MAX - 4095]);
    edges.flat_map(|edge| (-9i64..=9).map(move |offset| edge.wrapping_add_signed(offset)))
}

/// Both ends of what a guest can map are mapped.
fn at(address: u64) -> impl Fn(&mut Cpu, &mut Space) {
    move |cpu, space| {
        (cpu.x[6], cpu.x[7]) = (address, 0x0123_4567_89ab_cdef);
        space.map(0, 0x2000, Access::WRITE);
        space.map(0xffff_e000, 0x2000, Access::WRITE);
    }
}

#[test]
fn loads_at_the_edges() {
    for offset in [0, 2047, -2048] {
        // ld x8, offset(x6); lb x9, offset(x6)
        let fields = T1 << 15 | (offset as u32 & 0xfff) << 20;
        let words = [addi(T0, T0, 1), 3 << 12 | 3 | 8 << 7 | fields, 3 | 9 << 7 | fields, ECALL];
        let first = Pair::new(&words, &[1; 8192], &[]);
        for address in addresses() {
            let mut pair = first.again(&words, &[1; 8192]);
            pair.prepare(at(address.wrapping_add_signed(-i64::from(offset))));
            let exit = pair.run(1000);
            assert!(matches!(exit, Exit::Call | Exit::Trap { cause: TrapCause::Load, .. }));
        }
    }
}

#[test]
fn stores_at_the_edges() {
    for offset in [0, 2047, -2048] {
        // sd x7, offset(x6); sh x7, offset(x6)
        let low = offset as u32 & 31;
        let fields = T1 << 15 | 7 << 20 | low << 7 | (offset as u32 >> 5 & 127) << 25 | 0x23;
        let words = [addi(T0, T0, 1), 3 << 12 | fields, 1 << 12 | fields, ECALL];
        let first = Pair::new(&words, &[1; 8192], &[]);
        for address in addresses() {
            let mut pair = first.again(&words, &[1; 8192]);
            pair.prepare(at(address.wrapping_add_signed(-i64::from(offset))));
            let exit = pair.run(1000);
            assert!(matches!(exit, Exit::Call | Exit::Trap { cause: TrapCause::Store, .. }));
            pair.compare(DATA, 8192);
            pair.compare(0x1000, 0x1000);
            pair.compare(0xffff_e000, 0x1000);
        }
    }
}

#[test]
fn atomics_at_the_edges() {
    // amoadd.d x8, x7, (x6); amoswap.w; lr.d, sc.d
    for word in [0x0000_302f | 7 << 20, 0x0800_202f | 7 << 20, 0x1000_302f, 0x1800_302f | 7 << 20] {
        let words = [addi(T0, T0, 1), word | 8 << 7 | T1 << 15, addi(T0, T0, 1), ECALL];
        let first = Pair::new(&words, &[1; 8192], &[]);
        for address in addresses() {
            let mut pair = first.again(&words, &[1; 8192]);
            pair.prepare(at(address));
            pair.run(1000);
            pair.compare(DATA, 8192);
        }
    }
}

#[test]
fn jumps_to_where_no_code_is() {
    let mut code = Assembler::default();
    let function = code.label();
    // A call, and a jump, to where x6 says.
    code.words([addi(T0, T0, 1), jalr(RA, T1, 0), addi(T0, T0, 2)]);
    code.jump(RA, function);
    code.word(ECALL);
    code.bind(function);
    code.words([addi(T0, T0, 4), jalr(0, T1, 0)]);
    let words = code.finish().unwrap();
    let host = words.as_ptr() as u64;
    let function = addresses as *const () as u64;
    let near = (0..24).map(|offset| u64::from(CODE) + offset);
    let far = [0, 1, DATA.into(), u64::from(DATA) + 2, 0xffff_fffe, u64::MAX, 1 << 63];
    let high = [1 << 32 | u64::from(CODE), 0xffff_ffff_0000_0000 | u64::from(CODE)];
    for target in near.chain(far).chain(high).chain([host, function, function + 1]) {
        let first = Pair::new(&words, &[1; 8192], &[]);
        for budget in [3, 50, 20_000] {
            let mut pair = first.again(&words, &[1; 8192]);
            pair.prepare(|cpu, _| cpu.x[6] = target);
            for _ in 0..50 {
                if pair.run(budget) != Exit::Budget {
                    break;
                }
            }
        }
    }
}

#[test]
fn returns_to_where_nobody_called() {
    let mut code = Assembler::default();
    let function = code.label();
    code.jump(RA, function);
    code.word(ECALL);
    code.bind(function);
    // Its return address is another than that of the call.
    code.words([addi(RA, T1, 0), jalr(0, RA, 0)]);
    let words = code.finish().unwrap();
    for target in [0, u64::from(CODE) + 4, u64::from(CODE) + 6, u64::from(DATA), u64::MAX] {
        let exit = end_of(&words, |cpu, _| cpu.x[6] = target);
        assert!(matches!(exit, Exit::Call | Exit::Trap { .. }), "{exit:?}");
    }
}

#[test]
fn budgets_at_the_end_of_their_range() {
    let mut code = Assembler::default();
    code.word(addi(T0, 0, 100));
    let head = code.here();
    code.word(addi(T0, T0, -1));
    code.branch(branch(1, T0, 0), head);
    code.word(ECALL);
    let words = code.finish().unwrap();
    let first = Pair::new(&words, &[], &[]);
    let signed = i64::MAX as u64;
    for budget in [0, 1, signed - 1, signed, signed + 1, u64::MAX - 1, u64::MAX] {
        let mut pair = first.again(&words, &[]);
        pair.prepare(|cpu, _| cpu.instret = u64::MAX - 50);
        let exit = pair.run(budget);
        assert_eq!(exit, if budget < 2 { Exit::Budget } else { Exit::Call });
    }
}

#[test]
fn recursion_without_end() {
    // Without a stack of its own: only the host's could be used up.
    let mut code = Assembler::default();
    let head = code.here();
    code.word(addi(T0, T0, 1));
    code.jump(RA, head);
    code.word(ECALL);
    assert_eq!(end_of(&code.finish().unwrap(), |_, _| {}), Exit::Budget);
    // With one, which ends.
    let mut code = Assembler::default();
    let head = code.here();
    code.words([addi(SP, SP, -16), sd(RA, SP, 8), addi(T0, T0, 1)]);
    code.jump(RA, head);
    code.word(ECALL);
    let words = code.finish().unwrap();
    let exit = end_of(&words, |cpu, space| {
        space.map(0x1000_0000, 0x100_0000, Access::WRITE);
        cpu.x[2] = 0x1100_0000;
    });
    assert_eq!(exit, Exit::Trap { cause: TrapCause::Store, address: 0x0fff_fff8 });
}
