//! How runs end, and what has retired then.

use sandtide_engine::TrapCause;
use sandtide_memory::{Access, Space};

use super::{CODE, DATA, guest};
use crate::isa::{Code, Cpu, Exit, cpu::Reservation, run};

const ECALL: u32 = 0x73;
const NOP: u32 = 0x13;

/// `addi rd, rs1, imm`
const fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
    0x13 | rd << 7 | rs1 << 15 | (imm as u32) << 20
}

/// Runs words that end in a call or a trap.
fn end_of(words: &[u32], prepare: impl FnOnce(&mut Cpu)) -> (Exit, Cpu, Space) {
    let (mut cpu, mut space, code) = guest(words, &[]);
    prepare(&mut cpu);
    let exit = run(&mut cpu, &mut space, &code, &mut 1000);
    (exit, cpu, space)
}

fn trap(cause: TrapCause, address: u64) -> Exit {
    Exit::Trap { cause, address }
}

/// Asserts that the second of two instructions traps, and that only the first has retired.
fn assert_traps(word: u32, cause: TrapCause, address: u64, prepare: impl FnOnce(&mut Cpu)) {
    let (exit, cpu, _) = end_of(&[NOP, word, ECALL], prepare);
    assert_eq!(exit, trap(cause, address), "{word:#010x}");
    assert_eq!((cpu.pc, cpu.instret), (u64::from(CODE) + 4, 1), "{word:#010x}");
}

#[test]
fn a_call_has_retired() {
    let (exit, cpu, _) = end_of(&[addi(10, 0, 7), ECALL], |_| {});
    assert_eq!(exit, Exit::Call);
    assert_eq!((cpu.x[10], cpu.pc, cpu.instret), (7, u64::from(CODE) + 8, 2));
}

#[test]
fn long_runs_count_as_short_ones_do() {
    // x5 counts from 2000 down to 0; then `csrr x6, instret`.
    let words = [addi(5, 0, 2000), addi(5, 5, -1), 0xfe02_9ee3, 0xc020_2373, ECALL];
    let (mut cpu, mut space, code) = guest(&words, &[]);
    let mut budget = 10_000;
    assert_eq!(run(&mut cpu, &mut space, &code, &mut budget), Exit::Call);
    assert_eq!((cpu.x[6], cpu.instret, budget), (4001, 4003, 10_000 - 4003));
}

#[test]
fn the_budget_is_exact() {
    // x5 counts from 50 down to 0, three instructions each.
    let words = [addi(5, 0, 50), NOP, addi(5, 5, -1), 0xfe02_9ce3, ECALL];
    let (mut whole, mut space, code) = guest(&words, &[]);
    let mut budget = 1000;
    assert_eq!(run(&mut whole, &mut space, &code, &mut budget), Exit::Call);
    assert_eq!((whole.instret, budget), (152, 848));

    for piece in 1..=153 {
        let (mut cpu, mut space, code) = guest(&words, &[]);
        let mut retired = 0;
        loop {
            let mut budget = piece;
            let exit = run(&mut cpu, &mut space, &code, &mut budget);
            retired += piece - budget;
            assert_eq!(cpu.instret, retired);
            if exit == Exit::Call {
                break;
            }
            assert_eq!((exit, budget), (Exit::Budget, 0));
        }
        assert_eq!((cpu.x, cpu.pc, retired), (whole.x, whole.pc, 152));
    }
}

#[test]
fn no_budget_runs_nothing() {
    let (mut cpu, mut space, code) = guest(&[addi(1, 0, 1), ECALL], &[]);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 0), Exit::Budget);
    assert_eq!((cpu.x[1], cpu.pc), (0, u64::from(CODE)));
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 2), Exit::Call);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 0), Exit::Budget);
}

#[test]
fn traps_change_nothing() {
    // lw x5, 8(x6); ld x5, 8(x6); sw, sd; fld f5, 8(x6)
    for (word, cause) in [
        (0x0083_2283, TrapCause::Load),
        (0x0083_3283, TrapCause::Load),
        (0x0053_2423, TrapCause::Store),
        (0x0053_3423, TrapCause::Store),
        (0x0083_3287, TrapCause::Load),
    ] {
        assert_traps(word, cause, 0x5008, |cpu| (cpu.x[5], cpu.x[6]) = (7, 0x5000));
        let (_, cpu, _) = end_of(&[NOP, word], |cpu| (cpu.x[5], cpu.f[5]) = (7, 9));
        assert_eq!((cpu.x[5], cpu.f[5]), (7, 9));
    }
    // A store to code.
    assert_traps(0x0053_2023, TrapCause::Store, u64::from(CODE), |cpu| {
        cpu.x[6] = u64::from(CODE);
    });
    let pc = u64::from(CODE) + 4;
    assert_traps(0, TrapCause::IllegalInstruction, pc, |_| {});
    assert_traps(0x0010_0073, TrapCause::Breakpoint, pc, |_| {});
    assert_traps(0x9002, TrapCause::Breakpoint, pc, |_| {});
}

#[test]
fn addresses_are_truncated() {
    let (exit, cpu, _) = end_of(&[0x0003_3283, ECALL], |cpu| {
        cpu.x[6] = 0xdead_beef_0000_0000 | u64::from(DATA);
        cpu.x[5] = 1;
    });
    assert_eq!((exit, cpu.x[5]), (Exit::Call, 0));
}

#[test]
fn jumps_out_of_the_code_trap_at_their_target() {
    for target in [0, u64::from(DATA), 0xffff_fffe, 1 << 32, (1 << 32) + u64::from(CODE), !1] {
        // jalr x1, (x6)
        let (exit, cpu, _) = end_of(&[NOP, 0x0003_00e7], |cpu| cpu.x[6] = target | 1);
        assert_eq!(exit, trap(TrapCause::Fetch, target));
        assert_eq!((cpu.pc, cpu.instret, cpu.x[1]), (target, 2, u64::from(CODE) + 8));
    }
    // Past the end of the last page of code.
    let end = u64::from(CODE) + 4096;
    let (exit, cpu, _) = end_of(&[NOP; 1024], |cpu| cpu.pc = end - 8);
    assert_eq!(exit, trap(TrapCause::Fetch, end));
    assert_eq!((cpu.pc, cpu.instret), (end, 2));
}

#[test]
fn an_instruction_across_the_end_of_the_code_traps() {
    let mut words = vec![0x0001_0001; 1023];
    words.push(0x0013_0001); // c.nop, and half of an addi
    let (mut cpu, mut space, code) = guest(&words, &[]);
    let end = u64::from(CODE) + 4096;
    let exit = run(&mut cpu, &mut space, &code, &mut 10_000);
    assert_eq!(exit, trap(TrapCause::Fetch, end - 2));
    assert_eq!((cpu.pc, cpu.instret), (end - 2, 2047));
}

#[test]
fn misaligned_atomics_trap() {
    let misaligned = |cpu: &mut Cpu| cpu.x[6] = u64::from(DATA) + 4;
    // lr.d, sc.d, amoadd.d of (x6)
    for word in [0x1003_32af, 0x1853_32af, 0x0053_32af] {
        assert_traps(word, TrapCause::MisalignedAtomic, u64::from(DATA) + 4, misaligned);
    }
    assert_traps(0x0053_22af, TrapCause::Store, 0x5000, |cpu| cpu.x[6] = 0x5000);
    assert_traps(0x1003_22af, TrapCause::Load, 0x5000, |cpu| cpu.x[6] = 0x5000);
}

#[test]
fn a_store_conditional_needs_its_reservation() {
    // sc.w x5, x7, (x6)
    let store = [0x1873_22af, ECALL];
    let held = Some(Reservation { address: DATA, length: 4 });
    for (reservation, result) in [(held, 0), (None, 1)] {
        let (exit, cpu, space) = end_of(&store, |cpu| {
            (cpu.x[6], cpu.x[7], cpu.reservation) = (u64::from(DATA), 9, reservation);
        });
        assert_eq!((exit, cpu.x[5], cpu.reservation), (Exit::Call, result, None));
        assert_eq!(space.load(DATA).unwrap(), [9 * (1 - result) as u8, 0, 0, 0]);
    }
}

#[test]
fn counters_count_what_has_retired() {
    // rdinstret x5; nop; rdcycle x6; rdtime x7
    let (_, cpu, _) = end_of(&[0xc020_22f3, NOP, 0xc000_2373, 0xc010_23f3, ECALL], |cpu| {
        cpu.instret = 1000;
    });
    assert_eq!((cpu.x[5], cpu.x[6], cpu.x[7]), (1000, 1002, 10));
}

#[test]
fn other_csrs_are_illegal() {
    let pc = u64::from(CODE) + 4;
    // csrr x5, sstatus; csrrw cycle, x5; csrrsi cycle, 1
    for word in [0x1000_22f3, 0xc002_9073, 0xc000_e073] {
        assert_traps(word, TrapCause::IllegalInstruction, pc, |_| {});
    }
}

#[test]
fn a_reserved_dynamic_rounding_mode_is_illegal() {
    let pc = u64::from(CODE) + 4;
    // fadd.d f1, f1, f1, dyn
    for frm in 5..8 {
        assert_traps(0x0210_f0d3, TrapCause::IllegalInstruction, pc, |cpu| cpu.frm = frm);
    }
}

#[test]
fn ctzw_of_an_empty_word_is_32() {
    let (_, cpu, _) = end_of(&[0x6013_129b, ECALL], |cpu| cpu.x[6] = 1 << 50);
    assert_eq!(cpu.x[5], 32);
}

#[test]
fn decoded_code_is_shared_and_lazy() {
    let words = [addi(5, 5, 1), ECALL, NOP, NOP];
    let (mut cpu, mut space, code) = guest(&words, &[]);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 10), Exit::Call);
    assert_eq!(code.decoded(), 2);
    let (mut other, mut other_space, _) = guest(&words, &[]);
    assert_eq!(run(&mut other, &mut other_space, &code, &mut 10), Exit::Call);
    assert_eq!((other.x[5], code.decoded()), (1, 2));
}

#[test]
fn changed_code_is_not_taken_from_the_shared_one() {
    let (mut cpu, mut space, code) = guest(&[addi(5, 0, 1), ECALL], &[]);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 10), Exit::Call);
    let all = Access::READ.and(Access::WRITE).and(Access::EXECUTE);
    space.protect(u64::from(CODE), 4096, all);
    space.store(CODE, addi(5, 0, 2).to_le_bytes()).unwrap();
    cpu.pc = u64::from(CODE);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 10), Exit::Call);
    assert_eq!(cpu.x[5], 2);
}

#[test]
fn code_that_writes_code_sees_it_at_once() {
    let (mut cpu, mut space, _) = guest(&[], &[]);
    let all = Access::READ.and(Access::WRITE).and(Access::EXECUTE);
    space.map(u64::from(DATA), 4096, all);
    // sw x6, 4(x7), over the nop behind it.
    let words = [0x0063_a223, NOP, ECALL];
    for (number, word) in words.iter().enumerate() {
        space.store(DATA + 4 * number as u32, word.to_le_bytes()).unwrap();
    }
    (cpu.x[6], cpu.x[7]) = (u64::from(addi(5, 0, 3)), u64::from(DATA));
    cpu.pc = u64::from(DATA);
    assert_eq!(run(&mut cpu, &mut space, &Code::default(), &mut 10), Exit::Call);
    assert_eq!((cpu.x[5], cpu.instret), (3, 3));
}

#[test]
fn the_memory_limit_ends_a_run_before_the_store() {
    let (mut cpu, _, code) = guest(&[], &[]);
    let mut space = Space::new(4096).unwrap();
    space.map(u64::from(CODE), 4096, Access::READ.and(Access::EXECUTE));
    space.map(u64::from(DATA), 4096, Access::READ.and(Access::WRITE));
    space.initialise(CODE, &0x0053_2023u32.to_le_bytes()).unwrap();
    cpu.x[6] = u64::from(DATA);
    assert_eq!(run(&mut cpu, &mut space, &code, &mut 10), Exit::MemoryLimit);
    assert_eq!((cpu.pc, cpu.instret), (u64::from(CODE), 0));
}
