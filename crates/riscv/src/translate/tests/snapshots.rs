//! What becomes of each class of instructions: CLIF, and host code.
//!
//! The texts are in `snapshots`, for a look at what a change of the translator does.
//! `SANDTIDE_REFRESH=1 cargo test -p sandtide-riscv snapshots` writes them anew.

use std::{env, fmt::Write as _, fs, path::Path};

use cranelift_codegen::{Context, control::ControlPlane, isa, settings::Configurable};
use cranelift_frontend::FunctionBuilderContext;

use super::super::{
    Allowance, Bounds, compile,
    discover::Finder,
    lower::{Layout, Surroundings, lower},
    plan::Plan,
    unroll::unroll,
};
use crate::isa::{
    decode::{decode16, decode32, is_short},
    insn::op,
    tests::{CODE, guest},
};

/// `ret`
const RET: u32 = 0x0000_8067;

/// For each class, a name and a function. Those of the 16-bit instructions are two in a word.
const CLASSES: &[(&str, &[u32])] = &[
    // add a0, a0, a1; xori a0, a0, -1; sltu a1, a0, a2
    ("integer", &[0x00b5_0533, 0xfff5_4513, 0x00c5_35b3, RET]),
    // addw a0, a0, a1; sraiw a1, a0, 3; lui a2
    ("words", &[0x00b5_053b, 0x4035_559b, 0x1234_5637, RET]),
    // mulhsu a0, a0, a1; rem a1, a0, a2; divuw a2, a2, a3
    ("divide", &[0x02b5_2533, 0x02c5_65b3, 0x02d6_563b, RET]),
    // sh2add.uw a0, a0, a1; clz a1, a0; orc.b a2, a1; bext a3, a0, a1
    ("bits", &[0x20b5_453b, 0x6005_1593, 0x2875_d613, 0x48b5_56b3, RET]),
    // c.add a0, a1; c.addi a1, 3; c.mv a2, a0; c.jr ra
    ("compressed", &[0x058d_952e, 0x8082_862a]),
    // ld a0, 8(a1); lbu a2, 0(a1)
    ("load", &[0x0085_b503, 0x0005_c603, RET]),
    // sd a0, 8(a1); sb a2, 3(a1)
    ("store", &[0x00a5_b423, 0x00c5_81a3, RET]),
    // amoadd.d a0, a1, (a2)
    ("atomic", &[0x00b6_352f, RET]),
    // loop: addi a0, a0, -1; add a1, a1, a0; bnez a0, loop
    ("loop", &[0xfff5_0513, 0x00a5_85b3, 0xfe05_1ce3, RET]),
    // addi sp, sp, -16; sd ra, 8(sp); jal f; ld ra, 8(sp); addi sp, sp, 16; ret; f: ret
    ("call", &[0xff01_0113, 0x0011_3423, 0x0100_00ef, 0x0081_3083, 0x0101_0113, RET, RET]),
    // jalr ra, a0; jr a1
    ("indirect", &[0x0005_00e7, 0x0005_8067]),
    // fadd.d fa0, fa0, fa1; fmin.d fa1, fa0, fa2; feq.d a0, fa0, fa1
    ("double", &[0x02b5_7553, 0x2ac5_05d3, 0xa2b5_2553, RET]),
    // fmul.s fa0, fa0, fa1; fsgnjn.s fa1, fa0, fa0
    ("single", &[0x10b5_7553, 0x20a5_15d3, RET]),
    // fcvt.d.l fa0, a0; fcvt.w.d a0, fa0, rtz; fcvt.s.d fa1, fa0
    ("convert", &[0xd225_7553, 0xc205_1553, 0x4015_75d3, RET]),
    // csrr a0, fcsr; ecall
    ("system", &[0x0030_2573, 0x0000_0073, RET]),
];

/// What all hosts of the last ten years have.
const FEATURES: &[&str] = &[
    "has_sse3",
    "has_ssse3",
    "has_sse41",
    "has_sse42",
    "has_popcnt",
    "has_lzcnt",
    "has_bmi1",
    "has_bmi2",
    "has_avx",
];

fn show(words: &[u32]) -> String {
    let mut text = String::new();
    let mut halves = words.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16]);
    while let Some(first) = halves.next() {
        let (bits, insn) = if is_short(first) {
            (format!("{first:04x}"), decode16(first))
        } else {
            let word = u32::from(first) | u32::from(halves.next().unwrap_or(0)) << 16;
            (format!("{word:08x}"), decode32(word))
        };
        let _ = writeln!(text, "{bits:8}  {}", op::NAMES[usize::from(insn.op())]);
    }
    let (_, space, code) = guest(words, &[]);
    let bounds = Bounds::default();
    let allowance = Allowance::new(bounds.time, &|| true);
    let mut finder = Finder::new(&space, &code, std::iter::empty(), &allowance);
    finder.starts(u64::from(CODE), 10);
    let mut region = finder.region(u64::from(CODE), bounds.region).unwrap();
    unroll(&mut region);
    let plan = Plan::new(&region);
    let span = code.span().unwrap();
    let around = Surroundings {
        function: &|pc| (pc != u64::from(CODE)).then_some(1),
        first_entry: 1,
        table: (span.start, span.end - span.start),
    };
    let builder = &mut FunctionBuilderContext::new();
    let (function, _) = lower(&region, &plan, 0, &around, builder, Layout::Cold);
    let _ = write!(text, "\n{}", function.display());
    let mut host = isa::lookup_by_name("x86_64-unknown-linux-gnu").unwrap();
    FEATURES.iter().for_each(|feature| host.enable(feature).unwrap());
    let mut context = Context::for_function(function);
    context.set_disasm(true);
    let host = compile::isa_of(host).unwrap();
    let code = context.compile(&*host, &mut ControlPlane::default()).unwrap();
    let _ = write!(text, "\n{}", code.vcode.as_ref().unwrap());
    text
}

#[test]
fn snapshots() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/translate/tests/snapshots");
    let refreshes = env::var_os("SANDTIDE_REFRESH").is_some();
    let mut stale = Vec::new();
    for (name, words) in CLASSES {
        let (path, text) = (directory.join(format!("{name}.txt")), show(words));
        if refreshes {
            fs::create_dir_all(&directory).unwrap();
            fs::write(path, text).unwrap();
        } else if fs::read_to_string(path).ok().as_deref() != Some(&text) {
            stale.push(*name);
        }
    }
    assert!(
        stale.is_empty(),
        "the translator makes other code for: {}\nhint: look at the difference after \
         `SANDTIDE_REFRESH=1 cargo test -p sandtide-riscv snapshots`",
        stale.join(", ")
    );
}
