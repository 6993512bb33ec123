//! Loops of one block, of which several rounds are translated: they store across pages, up and
//! down, to where they may not, and compute with NaNs.

use sandtide_engine::TrapCause;

use super::lockstep::Pair;
use crate::isa::{
    Exit,
    tests::{
        CODE, DATA,
        differential::assembler::{Assembler, addi, branch},
    },
};

const ECALL: u32 = 0x73;
const BNE: u32 = 1;
const A0: u32 = 10;
const A1: u32 = 11;
const A2: u32 = 12;
const BYTES: usize = 5 * 4096;

/// `sd source, offset(base)`
fn sd(source: u32, offset: u32, base: u32) -> u32 {
    (offset >> 5) << 25 | source << 20 | base << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

/// A loop of a body that goes through memory in steps, until `a0` is `a2`.
fn steps(body: &[u32], step: i32) -> Vec<u32> {
    let mut code = Assembler::default();
    let head = code.here();
    code.words(body.iter().copied());
    code.words([addi(A1, A1, 1), addi(A0, A0, step)]);
    code.branch(branch(BNE, A0, A2), head);
    code.word(ECALL);
    code.finish().unwrap()
}

/// Runs the loop so many times from an address on, with different budgets.
fn agree(body: &[u32], step: i32, from: u64, times: u64, data: &[u8]) -> Exit {
    let words = steps(body, step);
    let first = Pair::new(&words, data, &[]);
    let mut end = Exit::Budget;
    for budget in [1 << 40, 1000, 101, 17, 1] {
        let mut pair = first.again(&words, data);
        pair.prepare(|cpu, _| {
            (cpu.pc, cpu.x[10], cpu.x[11]) = (u64::from(CODE), from, 7);
            cpu.x[12] = from.wrapping_add_signed(i64::from(step) * times as i64);
            cpu.f[13] = 0x7ff4_0000_0000_0001;
            cpu.f[12] = f64::INFINITY.to_bits();
        });
        loop {
            end = pair.run(budget);
            if end != Exit::Budget {
                break;
            }
        }
        pair.compare(DATA, data.len());
        assert!(budget < 1000 || pair.cpu().translated > pair.cpu().instret / 2);
    }
    end
}

#[test]
fn stores_in_rounds_agree() {
    let data = u64::from(DATA);
    let body = [sd(A1, 0, A0), sd(A1, 16, A0)];
    for (from, step, times) in [
        (data, 8, 1500),
        (data + 4064, 8, 3),
        (data + 3, 8, 1300),
        (data + 4 * 4096, -8, 1900),
        (data + 5, 24, 600),
        (data + 4 * 4096 - 5, -16, 900),
    ] {
        assert_eq!(agree(&body, step, from, times, &[1; BYTES]), Exit::Call);
    }
}

#[test]
fn rounds_end_where_a_store_is_not_allowed() {
    let data = u64::from(DATA);
    let end = data + BYTES as u64;
    let store = |address| Exit::Trap { cause: TrapCause::Store, address };
    let body = [sd(A1, 0, A0)];
    assert_eq!(agree(&body, 8, end - 800, 1000, &[1; BYTES]), store(end));
    assert_eq!(agree(&body, -8, data + 792, 1000, &[1; BYTES]), store(data - 8));
    // The upper half of an address is ignored.
    let high = data + (5 << 32);
    assert_eq!(agree(&body, 8, high, 100, &[1; BYTES]), Exit::Call);
}

#[test]
fn nans_in_rounds_agree() {
    // fld fa5, 0(a0); fmul.d fa4, fa5, fa2; fadd.d fa3, fa3, fa4; fsub.d fa1, fa4, fa4;
    // fsd fa3, 0(a0)
    let body = [0x0005_3787, 0x12c7_f753, 0x02e6_f6d3, 0x0ae7_75d3, 0x00d5_3027];
    let mut data = vec![0; BYTES];
    let values = [1.5, -0.0, f64::INFINITY, f64::NAN, f64::from_bits(0xfff4_0000_0000_0123), 1e300];
    for (place, value) in data.chunks_exact_mut(8).zip(values.iter().cycle()) {
        place.copy_from_slice(&value.to_bits().to_le_bytes());
    }
    assert_eq!(agree(&body, 8, u64::from(DATA), 1000, &data), Exit::Call);
    // The sum is not stored: fa5 = fa5 × fa2, and nobody looks.
    let body = [0x0005_3787, 0x12c7_f7d3, 0x02f7_f753];
    assert_eq!(agree(&body, 8, u64::from(DATA) + 8, 1000, &data), Exit::Call);
}
