//! Floating-point exceptions, one instruction at a time: those that it raises, no more and no less,
//! whether anybody reads its result or not.

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{super::registers::effects, lockstep::Pair, seed};
use crate::isa::{
    Exit,
    decode::decode32,
    tests::{
        CODE, DATA,
        differential::{
            assembler::{Assembler, Label, addi, jalr, ld, load_address, lw, sd},
            generate::{Class, Generator},
        },
    },
};

const INSTRUCTIONS: usize = 1500;
/// Points to the values.
const VALUES: u32 = 3;
/// Points to what is found.
const RESULTS: u32 = 4;
const HOW_MANY: u32 = 256;

/// What follows the instruction.
enum Then {
    /// It returns; everything is stored.
    Return,
    /// Its result is overwritten.
    Overwrite,
    /// Its result is overwritten in another block.
    OverwriteElsewhere,
}

struct Maker {
    random: StdRng,
    groups: Generator,
    code: Assembler,
}

impl Maker {
    /// A function with one instruction, and which registers that reads and writes.
    fn function(&mut self, label: Label) -> u32 {
        let class = if self.random.random() { Class::Single } else { Class::Double };
        let group = self.groups.group(class);
        let word = u32::from(group[0]) | u32::from(group[1]) << 16;
        let writes = effects(decode32(word)).writes.0;
        let register = writes.trailing_zeros() & 31;
        let overwrite = match writes {
            0 => addi(0, 0, 0),
            // fmv.d.x
            _ if writes >> 32 != 0 => 0xf200_0053 | register << 7,
            _ => addi(register, 0, 0),
        };
        let then = match self.random.random_range(0..3) {
            0 => Then::Return,
            1 => Then::Overwrite,
            _ => Then::OverwriteElsewhere,
        };
        self.code.bind(label);
        self.code.word(word);
        match then {
            Then::Return => {}
            Then::Overwrite => self.code.word(overwrite),
            Then::OverwriteElsewhere => {
                let elsewhere = self.code.label();
                self.code.jump(0, elsewhere);
                self.code.bind(elsewhere);
                self.code.word(overwrite);
            }
        }
        self.code.word(jalr(0, 1, 0));
        word
    }
}

#[test]
fn exceptions_accrue_exactly() {
    let mut random = StdRng::seed_from_u64(seed());
    let inner = StdRng::seed_from_u64(random.random());
    let groups = Generator::around(inner, Class::Double, &[2, 8], &[0, 1, VALUES, RESULTS]);
    let mut maker = Maker { random, groups, code: Assembler::default() };
    let main = maker.code.label();
    maker.code.jump(0, main);
    let mut functions = Vec::new();
    for _ in 0..INSTRUCTIONS {
        let label = maker.code.label();
        let word = maker.function(label);
        functions.push((label, word));
    }
    let Maker { mut random, mut groups, mut code } = maker;
    code.bind(main);
    code.words(load_address(VALUES, DATA));
    code.words(load_address(RESULTS, DATA + 8 * HOW_MANY));
    for (label, word) in &functions {
        let mut value = || 8 * random.random_range(0..HOW_MANY) as i32;
        for register in [word >> 15 & 31, word >> 20 & 31, word >> 27] {
            code.word(ld(register, VALUES, value()) | 4);
        }
        let integer = word >> 15 & 31;
        if ![0, 1, VALUES, RESULTS].contains(&integer) {
            code.word(ld(integer, VALUES, value()));
        }
        // fflags ← 0
        code.word(0x0010_5073);
        code.jump(1, *label);
        // x5 ← fflags
        code.words([0x0010_22f3, sd(5, RESULTS, 0), addi(RESULTS, RESULTS, 8)]);
    }
    code.words([lw(0, 0, 0), 0x73]);
    let pcs: Vec<_> = functions.iter().map(|(label, _)| code.address(*label, CODE)).collect();
    let words = code.finish().unwrap();
    let mut data = Vec::new();
    (0..HOW_MANY / 32).for_each(|_| data.extend(groups.empty().f.map(u64::to_le_bytes).concat()));
    let results = data.len();
    data.resize(results + 8 * INSTRUCTIONS, 0);
    let mut pair = Pair::new(&words, &data, &pcs);
    // Where flags differ is seen below.
    let exit = pair.run_apart(1 << 40);
    assert!(matches!(exit, Exit::Trap { .. }), "{exit:?}");
    let (expected, actual) = pair.views(DATA, data.len());
    let wrong: Vec<_> = (0..INSTRUCTIONS)
        .filter_map(|number| {
            let at = results + 8 * number;
            let (expected, actual) = (expected[at], actual[at]);
            let word = functions[number].1;
            (expected != actual).then(|| format!("{word:#010x}: {expected:#x}, not {actual:#x}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {INSTRUCTIONS}:\n{}", wrong.len(), wrong.join("\n"));
}

/// What compilers make of `isless`: the flags are read, a comparison raises NV for a NaN, the flags
/// are put back.
#[test]
fn quiet_comparisons_leave_the_flags_alone() {
    let values = [
        0,
        1.5f64.to_bits(),
        f64::NEG_INFINITY.to_bits(),
        f64::NAN.to_bits(),
        0x7ff0_0000_0000_0001,
        1,
    ];
    for function in 0..=2 {
        // frflags a4; flt.d a5, fa0, fa1 (or fle, feq); fsflags a4; fsflags a3, a5; frflags a6
        let comparison = 0xa2b5_07d3 | function << 12;
        let words = [0x0010_2773, comparison, 0x0017_1073, 0x0017_96f3, 0x0010_2873, 0x73];
        for (a, b) in values.iter().flat_map(|a| values.map(|b| (*a, b))) {
            for fflags in [0, 1, 31] {
                let mut pair = Pair::new(&words, &[0; 16], &[]);
                pair.prepare(|cpu, _| {
                    (cpu.f[10], cpu.f[11], cpu.fflags) = (a, b, fflags);
                });
                assert_eq!(pair.run(100), Exit::Call);
            }
        }
    }
}
