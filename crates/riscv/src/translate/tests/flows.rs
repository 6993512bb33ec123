//! The interpreter and the translator, side by side, on programs with loops, calls and jumps.

use std::{
    env,
    io::{self, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{lockstep::Pair, seed};
use crate::isa::{
    Exit,
    tests::{
        CODE, DATA,
        differential::flow::{END_OF_STACK, Flow, flow},
    },
};

/// After so many instructions, a program that is not tame is left alone.
const ENOUGH: u64 = 60_000;

/// How many instructions to grant at a time.
#[derive(Debug)]
enum Pieces {
    Whole,
    /// 1, 2, 3, … and then from the start.
    Growing,
    /// By chance, up to so many.
    Up(u64),
}

/// Runs a program in pieces. After a trap it goes on somewhere else.
fn agree(pair: &mut Pair, flow: &Flow, pieces: &Pieces, mut random: StdRng) {
    let (mut next, mut total) = (1, 0);
    while total < ENOUGH {
        let budget = match pieces {
            Pieces::Whole => ENOUGH,
            Pieces::Growing => next,
            Pieces::Up(most) => random.random_range(1..=*most),
        };
        next = if next == 400 { 1 } else { next + 1 };
        let before = pair.cpu().instret;
        match pair.run(budget) {
            Exit::Budget => {}
            Exit::Call if pair.cpu().x[17] == 64 => break,
            Exit::Call => pair.prepare(|cpu, _| cpu.x[10] = -38i64 as u64),
            _ => {
                let pc = flow.functions[random.random_range(0..flow.functions.len())];
                pair.prepare(|cpu, _| {
                    (cpu.pc, cpu.x[1], cpu.x[2], cpu.x[27]) = (pc, flow.end, END_OF_STACK, 30);
                    cpu.frm = 0;
                });
            }
        }
        // One that traps at once does not retire.
        total += 1 + pair.cpu().instret - before;
    }
    pair.compare(DATA, flow.data.len());
}

/// A pair at the start of a program.
fn pair(flow: &Flow, seed: u64) -> Pair {
    // With symbols there are more regions.
    let symbols = if seed & 1 == 0 { &flow.functions[..] } else { &[] };
    Pair::new(&flow.words, &flow.data, symbols)
}

fn flows_agree(seed: u64, is_tame: bool) {
    let flow = flow(seed, is_tame);
    let first = pair(&flow, seed);
    for pieces in [Pieces::Whole, Pieces::Growing, Pieces::Up(40), Pieces::Up(1000)] {
        let mut pair = first.again(&flow.words, &flow.data);
        agree(&mut pair, &flow, &pieces, StdRng::seed_from_u64(seed));
    }
}

/// Says which seed it was.
fn named(seed: u64, is_tame: bool) {
    let kind = if is_tame { "tame" } else { "wild" };
    let result = catch_unwind(|| flows_agree(seed, is_tame));
    assert!(result.is_ok(), "the {kind} flow of seed {seed}: see above");
}

/// How many flows a test has; `SANDTIDE_FLOWS` says another number.
fn count() -> u64 {
    env::var("SANDTIDE_FLOWS").map_or(25, |count| count.parse().unwrap())
}

#[test]
fn tame_flows_agree() {
    let start = seed();
    (start..start + count()).for_each(|seed| named(seed, true));
}

#[test]
fn wild_flows_agree() {
    let start = seed();
    (start..start + count()).for_each(|seed| named(seed, false));
}

/// Shows what a program executes until the two differ.
#[test]
#[ignore = "looks into the flow of `SANDTIDE_SEED`, which is tame if `SANDTIDE_TAME` is set"]
fn first_difference() {
    let seed = seed();
    let flow = flow(seed, env::var_os("SANDTIDE_TAME").is_some());
    let first = pair(&flow, seed);
    let differ = |budget| {
        let mut pair = first.again(&flow.words, &flow.data);
        catch_unwind(AssertUnwindSafe(|| pair.run(budget))).is_err()
    };
    let budget = (1..ENOUGH).find(|budget| differ(*budget)).unwrap();
    let mut alone = first.again(&flow.words, &flow.data);
    for _ in 0..budget {
        let pc = alone.cpu().pc;
        let word = |at: u64| flow.words.get(at as usize).copied().unwrap_or(0);
        let (index, both) = ((pc - u64::from(CODE)) / 4, u64::from(pc as u32 & 2) * 8);
        let bits = (u64::from(word(index + 1)) << 32 | u64::from(word(index))) >> both;
        let _ = writeln!(io::stderr(), "{pc:#x}: {:08x}", bits as u32);
        alone.run(1);
    }
    first.again(&flow.words, &flow.data).run(budget);
}
