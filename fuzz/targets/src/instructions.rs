//! `instructions`: any bytes, executed.
//!
//! ```text
//!   0x10000  code, R-X     the input; then `ebreak`
//!   0x20000  data, RW-     the input again, and zeros
//!   0x30000  code, RWX     the input again, if it asks for such a page
//! ```
//!
//! Must hold: execution ends with an exit code or a fault; a trap lies where there is code; and if
//! the program can look neither at clocks nor at random bytes, then it ends the same way each
//! time, and a lower limit of instructions changes nothing but how far it gets.

use std::time::Duration;

use sandtide_engine::{Engine, Fault, Limits, TrapCause};
use sandtide_riscv::RiscvEngine;

use crate::{
    elf_file::{EXECUTE, ElfFile, READ, Segment, WRITE, source, tight_limits},
    exchange::quiet,
    rv,
};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const SELF_MODIFYING: u64 = 0x3_0000;
const PAGE: u64 = 0x1000;

/// As much code as a run looks at.
const MOST_CODE: usize = 0x3000;

/// Instructions of a run.
const ENOUGH: u64 = 40_000;

/// How a run ended.
type End = Result<u8, Fault>;

/// The first byte says: whether there is a page that can be written and executed (1), and whether
/// the code starts there (2) or with all registers loaded from the data (4).
pub(crate) fn run(data: &[u8]) {
    let Some((choice, code)) = data.split_first() else { return };
    let code = &code[..code.len().min(MOST_CODE)];
    let with_modifying = choice & 1 != 0;
    let program = Program {
        image: image(code, with_modifying, choice & 2 != 0, choice & 4 != 0),
        // Pages can be made executable only by a system call or if they are so from the start.
        repeatable: !with_modifying && !may_look_outside(code),
        modifying: with_modifying,
    };
    let end = program.execute(ENOUGH);
    if program.repeatable {
        assert_eq!(end, program.execute(ENOUGH), "the second run ends differently");
        for limit in [1, ENOUGH / 3] {
            let early = program.execute(limit);
            if !matches!(early, Err(Fault::Instructions { .. })) {
                assert_eq!(early, end, "a lower limit of {limit} changes the end");
            }
        }
    }
}

struct Program {
    image: Vec<u8>,
    repeatable: bool,
    modifying: bool,
}

impl Program {
    fn execute(&self, instructions: u64) -> End {
        // A guest that sleeps ends at the deadline; one that only computes never gets there.
        let wall_time = Duration::from_millis(if self.repeatable { 60_000 } else { 20 });
        let limits = Limits { instructions, wall_time, ..tight_limits() };
        let stdin = Box::new(std::io::empty());
        let end = RiscvEngine::new().execute(&source(self.image.clone()), &limits, stdin, quiet());
        let end = end.expect("the file is a good one");
        if let Err(fault) = &end {
            self.check_fault(fault, &limits);
        }
        end
    }

    fn check_fault(&self, fault: &Fault, limits: &Limits) {
        assert!(!fault.to_string().is_empty());
        match fault {
            Fault::Trap(trap) => {
                let pc = trap.backtrace.first().expect("a trap has a place").pc;
                let is_jump = matches!(trap.cause, TrapCause::Fetch | TrapCause::MisalignedFetch);
                assert!(is_jump || self.is_code(pc), "{} at {pc:#x}", trap.cause);
            }
            Fault::Instructions { limit, .. } => assert_eq!(*limit, limits.instructions),
            Fault::Deadline { .. } => assert!(!self.repeatable, "no end for a minute"),
            Fault::Memory { limit, .. } => assert_eq!(*limit, limits.memory),
            Fault::Response(_) | Fault::RequestBody(_) => panic!("{fault}: there is no exchange"),
            Fault::Signal { .. }
            | Fault::Exit { .. }
            | Fault::Protocol(_)
            | Fault::Exception(_)
            | Fault::Stalled { .. } => {}
        }
    }

    /// Whether an instruction can have been fetched there.
    fn is_code(&self, pc: u64) -> bool {
        // What calls the system may have mapped code anywhere. A pc is 64 bits wide, and what it
        // names is found by the lower 32.
        let address = u64::from(pc as u32);
        let mapped = (CODE..CODE + MOST_CODE as u64 + PAGE).contains(&address)
            || self.modifying && (SELF_MODIFYING..SELF_MODIFYING + PAGE).contains(&address);
        pc.is_multiple_of(2) && (mapped || !self.repeatable)
    }
}

/// Whether code may make a system call, or read a counter that is no count of its own: both have
/// the major opcode SYSTEM.
fn may_look_outside(code: &[u8]) -> bool {
    code.chunks(2).any(|half| half[0] & 0x7f == 0x73)
}

fn image(code: &[u8], with_modifying: bool, start_there: bool, load_registers: bool) -> Vec<u8> {
    let mut text = Vec::new();
    if load_registers {
        text.extend(rv::assemble(&rv::load_all_registers(DATA as u32)));
    }
    text.extend(code);
    text.resize(text.len().next_multiple_of(4), 0x01);
    text.extend(rv::assemble(&[rv::EBREAK]));
    let data: Vec<u8> = code.iter().copied().take(PAGE as usize).collect();
    let mut file = ElfFile {
        entry: CODE,
        segments: vec![
            Segment {
                address: CODE,
                flags: READ | EXECUTE,
                length: text.len() as u64,
                bytes: text,
            },
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
    let exit: Vec<u32> =
        rv::li(rv::A7, 93).into_iter().chain([rv::addi(rv::A0, 0, 7), rv::ECALL]).collect();
    // Writes `ecall` over the page that it runs in.
    let patch: Vec<u32> = rv::li(rv::T6, SELF_MODIFYING as u32)
        .into_iter()
        .chain(rv::li(rv::A0, rv::ECALL))
        .chain([rv::sd(rv::A0, rv::T6, 28), rv::jal(0, -4)])
        .collect();
    vec![
        vec![0],
        with(0, &exit),
        with(3, &patch),
        with(0, &[rv::jal(0, 0)]),
        with(4, &[0x0000_0013; 70]),
        // amoadd.d, lr.d, sc.d, fadd.d, fcvt.l.d, fence.i, csrrw fcsr; and `c.addi`, `c.ldsp`.
        with(
            4,
            &[
                0x00b5_352f,
                0x1005_352f,
                0x18b5_362f,
                0x02b5_7553,
                0xc225_7553,
                0x0000_100f,
                0x0035_1573,
                0x6502_0505,
            ],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_system_instruction_cannot_look_outside() {
        assert!(may_look_outside(&rv::assemble(&[0x13, rv::ECALL])));
        assert!(may_look_outside(&[0, 0, 0x73]), "what follows the code completes it");
        assert!(!may_look_outside(&rv::assemble(&rv::load_all_registers(0x2_0000))));
    }

    #[test]
    fn the_seed_that_exits_does() {
        let seed = &seeds()[1];
        let program = Program {
            image: image(&seed[1..], false, false, false),
            repeatable: false,
            modifying: false,
        };
        assert_eq!(program.execute(ENOUGH), Ok(7));
    }
}
