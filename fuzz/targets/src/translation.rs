//! `translation`: code, interpreted and translated.
//!
//! ```text
//!   0x10000  code, R-X     the input, as it is or as valid instructions; then what writes registers
//!   0x20000  data, RW-     the input again, and zeros; the registers
//!   0x30000  code, RWX     the input again, if it asks for such a page
//! ```
//!
//! Must hold: both end the same way: the same output and exit code, or the same fault at the same
//! place; at every limit of instructions. (Callers are found through registers, and where a load
//! faults, one that no instruction reads again may hold an older value.) Code that may look at
//! clocks or at random bytes, now or when it has written itself, only has to end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sandtide_engine::{Console, Engine, Fault, Limits, Stream, Translate, TrapCause};
use sandtide_riscv::RiscvEngine;

use crate::{
    elf_file::{EXECUTE, ElfFile, READ, Segment, WRITE, source, tight_limits},
    rv,
};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const SELF_MODIFYING: u64 = 0x3_0000;
const PAGE: u64 = 0x1000;

/// As much code as is looked at: it is translated in each run.
const MOST_CODE: usize = 0x400;

/// Instructions of a run.
const ENOUGH: u64 = 20_000;

/// The registers that a run leaves are written from here.
const REGISTERS: u64 = DATA + 0x3000;

/// What a run has come to.
#[derive(Debug, PartialEq)]
struct End {
    how: Result<u8, Fault>,
    output: Vec<u8>,
}

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl Console for Kept {
    fn write(&self, _: Stream, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }
}

/// The first byte says: whether the rest is made into valid instructions (1), whether there is a
/// page that can be written and executed (2), and where that is, whether the code starts there (4).
pub(crate) fn run(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else { return };
    let code = if choice & 1 != 0 { valid(input) } else { input.to_vec() };
    let code = &code[..code.len().min(MOST_CODE)];
    let with_modifying = choice & 2 != 0;
    let image = image(code, with_modifying, choice & 4 != 0);
    let repeats = !with_modifying && !makes_calls(code);
    let limits = if repeats { &[ENOUGH, 1, 97, ENOUGH / 3][..] } else { &[ENOUGH][..] };
    for limit in limits {
        let interpreted = execute(&image, *limit, Translate::Off, repeats);
        let translated = execute(&image, *limit, Translate::Auto, repeats);
        assert!(!repeats || translated == interpreted, "{translated:?}\n{interpreted:?}");
    }
}

fn execute(image: &[u8], instructions: u64, translate: Translate, repeats: bool) -> End {
    // A guest that sleeps ends at the deadline; one that only computes never gets there.
    let wall_time = Duration::from_millis(if repeats { 60_000 } else { 20 });
    let translate_time = Duration::from_secs(1);
    let limits = Limits { instructions, wall_time, translate_time, ..tight_limits() };
    let source = sandtide_engine::ProgramSource { translate, ..source(image.to_vec()) };
    let console = Arc::new(Kept::default());
    let stdin = Box::new(std::io::empty());
    let how = RiscvEngine::new().execute(&source, &limits, stdin, console.clone());
    let mut how = how.expect("the file is a good one");
    if let Err(Fault::Trap(trap)) = &mut how
        && trap.cause == TrapCause::Load
    {
        trap.backtrace.truncate(1);
    }
    let output = console.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    End { how, output }
}

/// Whether code may make a system call. CSR instructions have the same opcode, and are all right.
fn makes_calls(code: &[u8]) -> bool {
    code.chunks(2).any(|half| {
        let low = half[0] & 0x7f == 0x73;
        low && half.get(1).is_none_or(|high| high & 0x70 == 0)
    })
}

/// Instructions from bytes, four for each.
fn valid(bytes: &[u8]) -> Vec<u8> {
    let words: Vec<u32> = bytes
        .chunks(4)
        .map(|bytes| bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
        .map(instruction)
        .collect();
    rv::assemble(&words)
}

/// An instruction for any bits: most keep the bits that name registers and constants.
fn instruction(bits: u32) -> u32 {
    /// Opcode, `funct3` and `funct7` of what computes with two registers.
    const COMPUTE: &[u32] = &[
        0x33,
        0x4000_0033,
        0x1033,
        0x2033,
        0x3033,
        0x4033,
        0x5033,
        0x4000_5033,
        0x6033,
        0x7033,
        0x3b,
        0x103b,
        0x4000_503b,
        0x0200_0033,
        0x0200_1033,
        0x0200_2033,
        0x0200_4033,
        0x0200_6033,
        0x0200_503b,
        0x0200_703b,
        0x0800_003b,
        0x2000_4033,
        0x0a00_5033,
        0x6000_1033,
    ];
    /// Floating point, rounded to nearest or as `frm` says.
    const FLOAT: &[u32] = &[
        0x53,
        0x0200_0053,
        0x1000_7053,
        0x1a00_7053,
        0x5a00_7053,
        0x2a00_0053,
        0x2a00_1053,
        0xa200_2053,
        0xa200_0053,
        0x2000_1053,
        0x2200_2053,
        0xd220_7053,
        0xd000_7053,
        0xc200_1053,
        0xc220_1053,
        0x4200_0053,
        0x4010_0053,
        0xe200_1053,
        0xf200_0053,
    ];
    let registers = bits & 0x01ff_8f80;
    let pick = |from: &[u32]| from[(bits >> 25) as usize % from.len()];
    // Where distances are short, so that they stay in the code.
    let near = (bits >> 25 & 0x3f) * 2;
    match bits & 31 {
        0..8 => pick(COMPUTE) | registers,
        8..11 => 0x13 | bits & !0x7f & !0x3000,
        11 => 0x37 | bits & !0x7f,
        12 => 0x17 | bits & !0x7f,
        // Memory around a pointer: t6 is the data.
        13..16 => {
            let kind = [0, 1, 2, 3, 4, 5, 6, 3][(bits >> 12 & 7) as usize] << 12;
            0x03 | kind | (bits & 0x7ff0_0f80) | 31 << 15
        }
        16..18 => 0x23 | bits & 0x7df0_3f80 | 31 << 15,
        18 => 0x3007 | bits & 0x3ff0_0f80 | 31 << 15,
        19 => 0x3027 | bits & 0x3df0_0f80 | 31 << 15,
        // Branches back and forth.
        20..23 => {
            let condition = [0, 1, 4, 5, 6, 7][(bits >> 12 & 7) as usize % 6] << 12;
            let distance = if bits & 0x80 != 0 { 0xfe00_0f80 } else { 0 };
            let distance = distance ^ ((near & 0x1e) << 7 | (near & 0x60) << 20);
            0x63 | condition | bits & 0x01ff_8000 | distance
        }
        23 => rv::jal(bits >> 7 & 1, near as i32 & !1),
        24 => rv::jal(bits >> 7 & 5, -(near as i32)),
        // Calls of what is in a register; returns.
        25 => 0x67 | bits & 0x000f_8080,
        26 => rv::RET,
        27..30 => pick(FLOAT) | registers,
        // fcsr, instret
        30 => {
            [0x0010_1073, 0x0020_5073, 0x0030_2073, 0xc020_2073][(bits >> 25 & 3) as usize]
                | bits & 0xf80
        }
        _ => [0x0000_100f, 0x0ff0_000f, 0x0000_0013, rv::EBREAK][(bits >> 25 & 3) as usize],
    }
}

fn image(code: &[u8], with_modifying: bool, start_there: bool) -> Vec<u8> {
    let mut text = rv::assemble(&rv::load_all_registers(DATA as u32));
    text.extend(rv::assemble(&rv::li(rv::T6, DATA as u32)));
    text.extend(code);
    text.resize(text.len().next_multiple_of(4), 0x01);
    // write(1, registers, 248), exit(0)
    let mut last = rv::li(rv::T6, REGISTERS as u32).to_vec();
    last.extend((1..rv::T6).map(|register| rv::sd(register, rv::T6, 8 * register as i32)));
    last.extend([rv::addi(rv::A0, 0, 1), rv::addi(rv::A1, rv::T6, 0), rv::addi(12, 0, 248)]);
    last.extend([rv::addi(rv::A7, 0, 64), rv::ECALL, rv::addi(rv::A0, 0, 0)]);
    last.extend([rv::addi(rv::A7, 0, 93), rv::ECALL]);
    text.extend(rv::assemble(&last));
    let data: Vec<u8> = code.iter().copied().take(PAGE as usize).collect();
    let length = text.len() as u64;
    let mut file = ElfFile {
        entry: CODE,
        segments: vec![
            Segment { address: CODE, flags: READ | EXECUTE, length, bytes: text },
            Segment { address: DATA, flags: READ | WRITE, bytes: data.clone(), length: 4 * PAGE },
        ],
        sections: Vec::new(),
    };
    if with_modifying {
        file.segments.push(Segment {
            address: SELF_MODIFYING,
            flags: READ | WRITE | EXECUTE,
            bytes: data,
            length: PAGE,
        });
        if start_there {
            file.entry = SELF_MODIFYING;
        }
    }
    file.bytes()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let with = |choice: u8, code: &[u32]| {
        let mut input = vec![choice];
        input.extend(rv::assemble(code));
        input
    };
    // Any bits, for valid instructions.
    let many = |start: u32| -> Vec<u32> {
        (0..60u32).map(|number| (number + start).wrapping_mul(0x9e37_79b1).rotate_left(7)).collect()
    };
    vec![
        vec![0],
        with(0, &[rv::addi(5, 5, -1), rv::jal(0, -4)]),
        // A loop with a call.
        with(
            0,
            &[
                rv::addi(5, 0, 100),
                rv::jal(1, 16),
                rv::addi(5, 5, -1),
                0xfe02_9ce3,
                rv::jal(0, 8),
                rv::RET,
            ],
        ),
        with(1, &many(0)),
        with(1, &many(1000)),
        with(1, &many(2000)),
        with(3, &many(3000)),
        with(6, &[rv::li(rv::T6, SELF_MODIFYING as u32)[0], rv::sd(rv::A0, rv::T6, 8), rv::RET]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_written_at_the_end() {
        let end = execute(&image(&[], false, false), ENOUGH, Translate::Auto, true);
        assert_eq!((end.how, end.output.len()), (Ok(0), 248));
    }

    #[test]
    fn valid_instructions_are_valid() {
        for number in 0..100_000u32 {
            let word = instruction(number.wrapping_mul(0x9e37_79b1));
            assert!(word & 3 == 3, "{word:#x}");
        }
    }

    #[test]
    fn system_calls_are_seen() {
        assert!(makes_calls(&rv::assemble(&[rv::ECALL])));
        assert!(!makes_calls(&rv::assemble(&[0xc020_2573, rv::RET])));
    }
}
