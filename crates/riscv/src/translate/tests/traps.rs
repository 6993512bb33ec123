//! How runs of translated code end: the same value at the same place as when it is interpreted,
//! behind a loop that runs translated, in pieces of every size. And code that changes.

use sandtide_engine::TrapCause;
use sandtide_memory::Access;

use super::lockstep::Pair;
use crate::isa::{
    Exit,
    tests::{
        CODE, DATA,
        differential::assembler::{Assembler, addi, branch, jalr, ld, load_address, lw, sd},
    },
};

/// How often the function is called before it is told to go wrong.
const ROUNDS: i32 = 30;
const A0: u32 = 10;
const A1: u32 = 11;
const T0: u32 = 5;
const T1: u32 = 6;
const S0: u32 = 8;

/// Memory that the guests of these tests may use.
const LIMIT: u64 = 1 << 20;

/// Calls a function in a loop; in the last round, `wrong` is executed.
fn program(wrong: impl Fn(&mut Assembler)) -> Vec<u32> {
    let mut code = Assembler::default();
    let (function, end) = (code.label(), code.label());
    code.words(load_address(A1, DATA));
    code.word(addi(S0, 0, ROUNDS));
    let head = code.here();
    code.word(addi(S0, S0, -1));
    code.jump(1, function);
    code.branch(branch(1, S0, 0), head);
    code.bind(end);
    code.word(0x73);
    code.bind(function);
    let right = code.label();
    code.words([ld(T0, A1, 0), addi(T0, T0, 3), sd(T0, A1, 0)]);
    code.branch(branch(1, S0, 0), right);
    wrong(&mut code);
    code.bind(right);
    code.words([addi(A0, A0, 1), jalr(0, 1, 0)]);
    code.finish().unwrap()
}

/// Runs a program in pieces of every size; gives how it ends.
fn ends(words: &[u32], change: impl Fn(&mut Pair)) -> (Exit, u64) {
    let first = Pair::within(LIMIT, words, &[1; 64]);
    let mut ends = Vec::new();
    for piece in [1 << 40, 1, 2, 3, 5, 8, 13, 50, 100, 190, 200, 210, 400] {
        let mut pair = first.again(words, &[1; 64]);
        change(&mut pair);
        let exit = loop {
            match pair.run(piece) {
                Exit::Budget => {}
                exit => break exit,
            }
        };
        assert!(piece < 1 << 40 || pair.cpu().translated > 200, "it is translated");
        pair.compare(DATA, 4096);
        ends.push((exit, pair.cpu().pc));
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:x?}");
    ends[0]
}

fn trap(cause: TrapCause, address: u64) -> Exit {
    Exit::Trap { cause, address }
}

#[test]
fn what_is_no_instruction_traps_where_it_is() {
    // Nothing; a reserved rounding mode; no such CSR; a CSR that cannot be written.
    for word in [0, 0x0000_5053 | 5 << 12, 0x0010_9073 | 0x7c0 << 20, 0xc020_1073] {
        let words = program(|code| code.word(word));
        let (exit, pc) = ends(&words, |_| ());
        assert_eq!(exit, trap(TrapCause::IllegalInstruction, pc), "{word:#x}");
    }
    for break_ in [&[0x0073, 0x0010][..], &[0x9002]] {
        let words = program(|code| code.halves(break_));
        let (exit, pc) = ends(&words, |_| ());
        assert_eq!(exit, trap(TrapCause::Breakpoint, pc));
    }
}

#[test]
fn jumps_to_where_no_code_is_trap_there() {
    let to = |address: u64| {
        // From the data: any 64 bits.
        let words = program(|code| code.words([ld(T1, A1, 32), jalr(0, T1, 0)]));
        let called = program(|code| code.words([ld(T1, A1, 32), jalr(1, T1, 0)]));
        for words in [words, called] {
            let (exit, pc) = ends(&words, |pair| {
                pair.prepare(|_, space| space.store(DATA + 32, address.to_le_bytes()).unwrap());
            });
            // The last bit of a target is ignored.
            let target = address & !1;
            assert_eq!((exit, pc), (trap(TrapCause::Fetch, target), target), "{address:#x}");
        }
    };
    // Nothing there; data; the ends of the address space, and beyond; what could be the host's.
    for address in [0, 0x5000_0000, u64::from(DATA), 0xffff_fffe, 1 << 32, u64::MAX, 1 << 47] {
        to(address);
        to(address | 1);
    }
    // Code, but for the upper half of the address.
    to(u64::from(CODE) | 1 << 32);
    to(u64::from(CODE).wrapping_neg());
}

#[test]
fn a_jump_behind_the_code_traps_there() {
    // The code is a page; what follows its last instruction is nothing.
    let mut words = program(|code| {
        code.words(load_address(T1, CODE + 4092));
        code.word(jalr(0, T1, 0));
    });
    words.resize(1023, 0x13);
    words.push(0x13);
    let (exit, pc) = ends(&words, |_| ());
    assert_eq!(
        (exit, pc),
        (trap(TrapCause::Fetch, u64::from(CODE) + 4096), u64::from(CODE) + 4096)
    );
}

#[test]
fn stores_to_code_trap() {
    let words = program(|code| {
        code.words(load_address(T1, CODE + 4));
        code.word(sd(T0, T1, 0));
    });
    let (exit, _) = ends(&words, |_| ());
    assert_eq!(exit, trap(TrapCause::Store, u64::from(CODE) + 4));
}

#[test]
fn misaligned_atomics_trap() {
    // amoadd.w, lr.d, sc.w at an odd address
    for word in [0x0062_a32f, 0x1002_b32f, 0x1862_a32f] {
        let words = program(|code| code.words([addi(T0, A1, 1), word]));
        let (exit, _) = ends(&words, |_| ());
        assert_eq!(exit, trap(TrapCause::MisalignedAtomic, u64::from(DATA) + 1), "{word:#x}");
    }
}

#[test]
fn the_memory_limit_ends_it_at_the_store() {
    let words = program(|code| {
        // Writes page after page.
        code.words(load_address(T1, DATA + 0x10_0000));
        code.words(load_address(7, 4096));
        let head = code.here();
        code.words([sd(T0, T1, 16), ld(T0, T1, 16), 0x0073_0333]);
        code.jump(0, head);
    });
    let (exit, pc) = ends(&words, |pair| {
        let access = Access::READ.and(Access::WRITE);
        pair.prepare(|_, space| space.map(u64::from(DATA + 0x10_0000), 64 << 20, access));
    });
    assert_eq!(exit, Exit::MemoryLimit);
    assert_eq!(words[((pc - u64::from(CODE)) / 4) as usize], sd(T0, T1, 16));
}

/// Calls depth after depth, deeper than the host's stack would be.
#[test]
fn deep_recursion_needs_no_host_stack() {
    let mut code = Assembler::default();
    let (function, deeper) = (code.label(), code.label());
    let depth = 20_000;
    code.words(load_address(2, DATA + 0x80_0000));
    code.words(load_address(A0, depth));
    code.jump(1, function);
    code.word(0x73);
    code.bind(function);
    code.branch(branch(1, A0, 0), deeper);
    code.word(jalr(0, 1, 0));
    code.bind(deeper);
    code.words([addi(2, 2, -16), sd(1, 2, 8), addi(A0, A0, -1)]);
    code.jump(1, function);
    code.words([ld(1, 2, 8), addi(2, 2, 16), addi(A1, A1, 1), jalr(0, 1, 0)]);
    let words = code.finish().unwrap();
    let first = Pair::within(64 << 20, &words, &[0]);
    for piece in [1 << 40, 10_000, 777] {
        let mut pair = first.again(&words, &[0]);
        let access = Access::READ.and(Access::WRITE);
        pair.prepare(|_, space| space.map(u64::from(DATA), 8 << 20, access));
        while pair.run(piece) == Exit::Budget {}
        assert_eq!(pair.cpu().x[A1 as usize], u64::from(depth));
        let (translated, all) = (pair.cpu().translated, pair.cpu().instret);
        assert!(piece < 1000 || translated > all / 10 * 9, "{translated} of {all}");
    }
}

// --- Code that changes ---------------------------------------------------------------------------

/// Where there is memory that can be written and executed.
const LOOSE: u32 = 0x200_0000;

/// Calls loose code in a loop, and changes it in each round.
#[test]
fn code_in_writable_memory_is_what_was_written_last() {
    let mut code = Assembler::default();
    code.words(load_address(A1, LOOSE));
    code.word(addi(S0, 0, ROUNDS));
    let head = code.here();
    // addi a0, a0, round; ret: the first in two halves that are a page apart, at the end.
    code.words(load_address(T0, addi(A0, A0, 0)));
    code.words([0x0144_1313, 0x0062_e2b3]);
    for at in [0, 64, 4094] {
        // sw t0, sw t1 at a halfword
        code.words(load_address(T1, LOOSE + at));
        code.words([0x0053_2023, addi(7, 0, 0)]);
        code.words(load_address(7, jalr(0, 1, 0)));
        code.words([0x0073_2223, 0x0000_100f, jalr(1, T1, 0)]);
    }
    code.word(addi(S0, S0, -1));
    code.branch(branch(1, S0, 0), head);
    code.word(0x73);
    let words = code.finish().unwrap();
    let loose = |pair: &mut Pair| {
        let access = Access::READ.and(Access::WRITE).and(Access::EXECUTE);
        pair.prepare(|_, space| space.map(u64::from(LOOSE), 8192, access));
    };
    let first = Pair::within(LIMIT, &words, &[1; 64]);
    for piece in [1 << 40, 1, 2, 3, 7, 50, 200] {
        let mut pair = first.again(&words, &[1; 64]);
        loose(&mut pair);
        while pair.run(piece) == Exit::Budget {}
        pair.compare(LOOSE, 8192);
        let sum = 3 * (1..=ROUNDS as u64).sum::<u64>();
        assert_eq!(pair.cpu().x[A0 as usize], sum);
    }
}

/// The program's own code, which was translated, is made writable in the middle, and changed.
#[test]
fn translated_code_that_is_changed_is_not_run() {
    let words = program(|code| code.word(lw(T1, A1, 0)));
    let first = Pair::within(LIMIT, &words, &[1; 64]);
    let place = words.iter().position(|word| *word == addi(A0, A0, 1)).unwrap();
    for budget in [1, 17, 60, 111, 150] {
        let mut pair = first.again(&words, &[1; 64]);
        assert_eq!(pair.run(budget), Exit::Budget);
        let access = Access::READ.and(Access::WRITE).and(Access::EXECUTE);
        pair.prepare(|_, space| {
            space.protect(u64::from(CODE), 4096, access);
            space.store(CODE + 4 * place as u32, addi(A0, A0, 100).to_le_bytes()).unwrap();
            space.protect(u64::from(CODE), 4096, Access::READ.and(Access::EXECUTE));
        });
        assert_eq!(pair.run(1 << 40), Exit::Call);
        let count = pair.cpu().x[A0 as usize];
        assert!(count > 100 * 10, "{count}");
    }
}
