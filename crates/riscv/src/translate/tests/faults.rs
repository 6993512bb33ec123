//! Loads that fault, in translated code and interpreted: the same end, from the same registers.

use sandtide_engine::TrapCause;
use sandtide_memory::{Access, Space};

use super::lockstep::Pair;
use crate::isa::{
    Cpu, Exit,
    tests::{
        CODE, DATA,
        differential::assembler::{Assembler, add, addi, branch, jalr, ld, lw, sd},
    },
};

const ECALL: u32 = 0x73;
/// Where nothing is mapped.
const NOWHERE: u64 = 0x3000_0000;
const RW: Access = Access::WRITE;

const BNE: u32 = 1;
const RA: u32 = 1;
const SP: u32 = 2;
const T0: u32 = 5;
const T1: u32 = 6;
const S1: u32 = 9;
const A0: u32 = 10;

fn load_trap(address: u64) -> Exit {
    Exit::Trap { cause: TrapCause::Load, address }
}

/// Runs code in both, with different budgets.
fn ends_with(words: &[u32], prepare: impl Fn(&mut Cpu, &mut Space), expected: Exit) {
    let first = Pair::new(words, &[1; 8192], &[]);
    for budget in [1 << 40, 1000, 100, 17, 3, 1] {
        let mut pair = first.again(words, &[1; 8192]);
        pair.prepare(&prepare);
        let mut exit = Exit::Budget;
        for _ in 0..100_000 {
            exit = pair.run(budget);
            if exit != Exit::Budget {
                break;
            }
        }
        assert_eq!(exit, expected);
        pair.compare(DATA, 4096);
        if matches!(expected, Exit::Trap { cause: TrapCause::Load, .. }) {
            assert!(budget <= 100 || pair.has_faulted(), "it was interpreted");
            // It stays where it is.
            assert_eq!(pair.run(budget), expected);
        }
    }
}

/// Every kind of load, into x7 or f7, from x6 + `offset`.
fn loads(offset: i32) -> impl Iterator<Item = (u32, u64)> {
    let integer = (0..7).map(|kind| (kind << 12 | 3, 1 << (kind & 3)));
    let float = (2..4).map(|kind| (kind << 12 | 7, 1 << kind));
    integer.chain(float).map(move |(word, bytes)| {
        (word | 7 << 7 | T1 << 15 | ((offset as u32) & 0xfff) << 20, bytes)
    })
}

#[test]
fn every_load_faults_first_and_in_the_middle_of_blocks() {
    for (load, _) in loads(8) {
        for before in [0, 1, 5] {
            let mut words = vec![addi(T0, T0, 3); before];
            words.extend([load, addi(T0, 7, 1), ECALL]);
            let prepare = |cpu: &mut Cpu, _: &mut Space| {
                (cpu.x[6], cpu.x[7], cpu.f[7]) = (NOWHERE, 77, 99);
            };
            ends_with(&words, prepare, load_trap(NOWHERE + 8));
        }
    }
}

#[test]
fn both_ends_of_the_address_space_fault() {
    let cases: [(u64, i32); 13] = [
        (0, 0),
        (0, -1),
        (0, -2048),
        (7, -8),
        (2047, -2048),
        (0xfff, 0),
        (0xffff_ffff, 0),
        (0xffff_ffff, 1),
        (0xffff_ffff, 2047),
        (0xffff_f801, 2047),
        (0xffff_f000, 0),
        (0xffff_f000, -1),
        (0x1000, -1),
    ];
    for (register, offset) in cases {
        for (load, bytes) in loads(offset) {
            for high in [0, 1 << 32, 0xffff_ffff << 32, 0x7fff_0000_0000_0000] {
                let address = register.wrapping_add(offset as i64 as u64) as u32;
                // At the edges of the two pages, only some reach into what is never there.
                let last = u64::from(address) + bytes - 1;
                if (0x1000..0xffff_f000).contains(&address) && last < 0xffff_f000 {
                    continue;
                }
                let words = [addi(T0, T0, 1), load, ECALL];
                let prepare = |cpu: &mut Cpu, space: &mut Space| {
                    cpu.x[6] = register | high;
                    space.map(0, 0x2000, RW);
                    space.map(0xffff_e000, 0x2000, RW);
                };
                let mut pair = Pair::new(&words, &[], &[]);
                pair.prepare(prepare);
                assert_eq!(pair.run(100), load_trap(u64::from(address)));
            }
        }
    }
}

#[test]
fn high_bits_of_addresses_do_not_matter() {
    for (load, _) in loads(-8) {
        let words = [load, addi(T0, 7, 1), ECALL];
        let prepare = |cpu: &mut Cpu, _: &mut Space| {
            cpu.x[6] = 0xdead_beef_0000_0010 | u64::from(DATA);
        };
        ends_with_call(&words, prepare);
    }
}

fn ends_with_call(words: &[u32], prepare: impl Fn(&mut Cpu, &mut Space)) {
    let mut pair = Pair::new(words, &[1; 8192], &[]);
    pair.prepare(prepare);
    assert_eq!(pair.run(1 << 40), Exit::Call);
}

#[test]
fn loads_across_the_end_of_what_is_mapped_fault_at_their_own_address() {
    let end = u64::from(DATA) + 8192;
    for (load, bytes) in loads(0) {
        for inside in 1..bytes {
            let prepare = |cpu: &mut Cpu, _: &mut Space| cpu.x[6] = end - inside;
            ends_with(&[load, ECALL], prepare, load_trap(end - inside));
            let prepare = |cpu: &mut Cpu, _: &mut Space| {
                cpu.x[6] = u64::from(DATA) - inside;
            };
            ends_with(&[load, ECALL], prepare, load_trap(u64::from(DATA) - inside));
        }
        ends_with_call(&[load, ECALL], |cpu, _| cpu.x[6] = end - bytes);
    }
}

#[test]
fn pages_that_were_hidden_or_unmapped_fault() {
    let words = [addi(T0, T0, 1), ld(7, T1, 0), add(T0, T0, 7), ECALL];
    let page = u64::from(DATA);
    let at = |cpu: &mut Cpu| cpu.x[6] = page + 16;
    ends_with(
        &words,
        |cpu, space| {
            at(cpu);
            space.protect(page + 0x1000, 0x1000, Access::NONE);
            space.protect(page, 0x1000, Access::NONE);
            space.protect(page, 0x1000, RW);
            cpu.x[6] += 0x1000;
        },
        load_trap(page + 0x1010),
    );
    ends_with(
        &words,
        |cpu, space| {
            at(cpu);
            space.unmap(page + 0x1000, 0x1000);
            cpu.x[6] += 0xffc;
        },
        load_trap(page + 0x100c),
    );
}

#[test]
fn a_loop_faults_where_the_memory_ends() {
    // A sum over memory, with many registers in use, until it runs out.
    let mut code = Assembler::default();
    for register in 8..32 {
        code.word(addi(register, 0, register as i32));
    }
    let head = code.here();
    code.word(ld(7, T1, 0));
    for register in 8..32 {
        code.word(add(register, register, 7));
    }
    code.word(addi(T1, T1, 8));
    code.branch(branch(BNE, T1, 0), head);
    code.word(ECALL);
    let words = code.finish().unwrap();
    let end = u64::from(DATA) + 8192;
    ends_with(&words, |cpu, _| cpu.x[6] = u64::from(DATA), load_trap(end));
    ends_with(&words, |cpu, _| cpu.x[6] = u64::from(DATA) + 1, load_trap(end - 7));
}

#[test]
fn a_list_faults_at_its_end() {
    let mut code = Assembler::default();
    let head = code.here();
    code.word(addi(A0, A0, 1));
    code.word(ld(T1, T1, 8));
    code.branch(branch(BNE, A0, 0), head);
    code.word(ECALL);
    let words = code.finish().unwrap();
    let prepare = |cpu: &mut Cpu, space: &mut Space| {
        let node = DATA + 64;
        space.store(node + 8, u64::from(node + 100).to_le_bytes()).unwrap();
        space.store(node + 108, 5u64.to_le_bytes()).unwrap();
        cpu.x[6] = u64::from(node);
    };
    ends_with(&words, prepare, load_trap(13));
}

#[test]
fn functions_fault_several_frames_deep() {
    let mut code = Assembler::default();
    let (function, last, done) = (code.label(), code.label(), code.label());
    code.word(addi(A0, 0, 9));
    code.word(addi(S1, 0, 1));
    code.jump(RA, function);
    code.jump(0, done);
    // Calls itself a0 times, then loads.
    code.bind(function);
    code.words([addi(SP, SP, -32), sd(RA, SP, 0), sd(S1, SP, 8), sd(A0, SP, 16)]);
    code.words([add(S1, S1, A0), add(28, S1, A0), addi(A0, A0, -1)]);
    code.branch(branch(0, A0, 0), last);
    code.jump(RA, function);
    code.word(add(A0, A0, S1));
    code.words([ld(RA, SP, 0), ld(S1, SP, 8), addi(SP, SP, 32), jalr(0, RA, 0)]);
    code.bind(last);
    code.words([add(29, S1, 28), lw(30, T1, 4), add(A0, A0, 30), add(A0, A0, 29)]);
    code.words([ld(RA, SP, 0), ld(S1, SP, 8), addi(SP, SP, 32), jalr(0, RA, 0)]);
    code.bind(done);
    code.word(ECALL);
    let words = code.finish().unwrap();
    let prepare = |cpu: &mut Cpu, _: &mut Space| {
        (cpu.x[2], cpu.x[6]) = (u64::from(DATA) + 4096, NOWHERE);
    };
    ends_with(&words, prepare, load_trap(NOWHERE + 4));
    let fine = |cpu: &mut Cpu, _: &mut Space| {
        (cpu.x[2], cpu.x[6]) = (u64::from(DATA) + 4096, u64::from(DATA));
    };
    ends_with(&words, fine, Exit::Call);
    // The stack itself is gone.
    let prepare = |cpu: &mut Cpu, space: &mut Space| {
        (cpu.x[2], cpu.x[6]) = (u64::from(DATA) + 4096, u64::from(DATA));
        space.protect(u64::from(DATA), 0x1000, Access::READ);
    };
    let store = Exit::Trap { cause: TrapCause::Store, address: u64::from(DATA) + 4064 };
    ends_with(&words, prepare, store);
}

#[test]
fn floating_point_registers_survive() {
    let mut code = Assembler::default();
    // fadd.d fn, fn, f1, for all; then a load; then all are stored.
    for register in 2..32u32 {
        code.word(0x0200_0053 | 7 << 12 | register << 7 | register << 15 | 1 << 20);
    }
    code.word(ld(7, T1, 0));
    for register in 2..32u32 {
        code.word(0x0200_0053 | 7 << 12 | register << 7 | register << 15 | 1 << 20);
    }
    code.word(ECALL);
    let words = code.finish().unwrap();
    let prepare = |cpu: &mut Cpu, _: &mut Space| {
        for (number, register) in cpu.f.iter_mut().enumerate() {
            *register = (number as f64).to_bits();
        }
        cpu.x[6] = NOWHERE;
    };
    ends_with(&words, prepare, load_trap(NOWHERE));
    assert!(u64::from(CODE) < NOWHERE);
}
