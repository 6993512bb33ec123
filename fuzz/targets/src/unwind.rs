//! `unwind`: the backtrace of a program whose own tables are hostile.
//!
//! ```text
//!   0x10000  main calls outer calls inner, which traps; or: all registers from the data, a trap
//!   0x20000  data: the input
//!   .eh_frame, .symtab, .strtab: good ones, as far as the input has not changed them
//! ```
//!
//! Must hold: the fault is the trap, at its place, and its backtrace is a short list.

use arbitrary::Unstructured;
use sandtide_engine::{Engine, Fault, Limits, TrapCause};
use sandtide_riscv::RiscvEngine;

use crate::{
    elf_file::{
        EXECUTE, ElfFile, PROGBITS, READ, STRTAB, SYMTAB, Section, Segment, WRITE, Writer, source,
        tight_limits,
    },
    exchange::quiet,
    input::next,
    rv,
};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const STACK_TOP: u32 = 0x2_0800;
const TABLE: u64 = 0x3_0000;

/// More callers than anybody reads.
const MOST_FRAMES: usize = 64;

/// `main` and `inner` are leaves to the eye of the tables; `outer` has a frame of 16 bytes.
const OUTER: u64 = CODE + 0x40;
const INNER: u64 = CODE + 0x80;

struct Tables {
    eh_frame: Vec<u8>,
    symtab: Vec<u8>,
    strtab: Vec<u8>,
}

/// The first byte chooses the code (1); then come changes: table, kind, place (two bytes), value.
pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let mut tables = Tables::good();
    tables.spoil(rest);
    let registers_from_data = choice & 1 != 0;
    let fault = trap_of(&tables, registers_from_data, rest);
    let Fault::Trap(trap) = &fault else { panic!("not the trap: {fault:?}") };
    assert_eq!(trap.cause, TrapCause::Breakpoint, "{fault:?}");
    let pc = if registers_from_data { CODE + 4 * 33 } else { INNER };
    assert_eq!(trap.backtrace[0].pc, pc, "{fault:?}");
    assert!(trap.backtrace.len() <= MOST_FRAMES, "{} callers", trap.backtrace.len());
    // What is printed for it, names and all.
    assert!(!format!("{fault} {:?}", trap.backtrace).is_empty());
}

fn trap_of(tables: &Tables, registers_from_data: bool, data: &[u8]) -> Fault {
    let image = image(tables, registers_from_data, data);
    let stdin = Box::new(std::io::empty());
    let limits = Limits { wall_time: std::time::Duration::from_secs(60), ..tight_limits() };
    RiscvEngine::new()
        .execute(&source(image), &limits, stdin, quiet())
        .expect("the file is a good one")
        .expect_err("the program traps")
}

impl Tables {
    fn good() -> Self {
        let mut strtab = vec![0];
        let mut symtab = Writer(vec![0; 24]);
        for (name, address) in [("main", CODE), ("outer", OUTER), ("inner", INNER)] {
            symtab.words(&[strtab.len() as u32]);
            // STB_GLOBAL, STT_FUNC; default visibility; section 1.
            symtab.0.extend([0x12, 0]);
            symtab.halves(&[1]);
            symtab.doubles(&[address, 0x40]);
            strtab.extend(name.as_bytes());
            strtab.push(0);
        }
        Self { eh_frame: eh_frame(), symtab: symtab.0, strtab }
    }

    fn spoil(&mut self, changes: &[u8]) {
        let mut input = Unstructured::new(changes);
        while !input.is_empty() {
            let (table, kind, at, value): (u8, u8, u16, u8) = next(&mut input);
            let table = match table % 4 {
                0 => &mut self.symtab,
                1 => &mut self.strtab,
                _ => &mut self.eh_frame,
            };
            let at = usize::from(at) % (table.len() + 1);
            match kind % 8 {
                0 => table.truncate(at),
                1 => table.insert(at, value),
                2 if at < table.len() => drop(table.remove(at)),
                // The rest is the table.
                3 => {
                    table.truncate(at);
                    table.extend(input.take_rest());
                    break;
                }
                4 => table.extend_from_within(at.min(at / 2)..at),
                5 if at < table.len() => table[at] ^= 1 << (value % 8),
                _ if at < table.len() => table[at] = value,
                _ => {}
            }
            // Repeated doubling must not fill this machine's memory.
            table.truncate(1 << 20);
        }
    }
}

/// A CIE and an FDE for each function (LSB, "Exception Frames"; DWARF 5 §6.4).
fn eh_frame() -> Vec<u8> {
    eh_frame_with(0)
}

/// The same, with so many bytes of rules that do nothing in the CIE.
fn eh_frame_with(idle: u32) -> Vec<u8> {
    // Version 1, "zR", code factor 1, data factor -8, return address in ra, FDE pointers are
    // pc-relative and signed in 4 bytes; the CFA is sp.
    let cie = [1, b'z', b'R', 0, 1, 0x78, 1, 1, 0x1b, 0x0c, 2, 0, 0, 0, 0, 0];
    let mut table = Writer::default();
    table.words(&[4 + cie.len() as u32 + idle, 0]);
    table.0.extend(cie);
    table.0.resize(table.0.len() + idle as usize, 0);
    // After 4 bytes the CFA is sp + 16, and ra is saved at CFA - 8.
    let framed = [0x44, 0x0e, 16, 0x81, 1, 0, 0];
    for (address, rules) in [(CODE, [0; 7]), (OUTER, framed), (INNER, [0; 7])] {
        let at = table.0.len() as u32;
        let start = (address as u32).wrapping_sub(TABLE as u32 + at + 8);
        table.words(&[4 + 8 + 1 + 7, at + 4, start, 0x40]);
        table.0.push(0);
        table.0.extend(rules);
    }
    table.words(&[0]);
    table.0
}

fn image(tables: &Tables, registers_from_data: bool, data: &[u8]) -> Vec<u8> {
    let code = if registers_from_data {
        let mut code = rv::load_all_registers(DATA as u32);
        code.push(rv::EBREAK);
        code
    } else {
        let mut code = rv::li(rv::SP, STACK_TOP).to_vec();
        code.push(rv::jal(rv::RA, (OUTER - CODE) as i32 - 8));
        code.resize(0x40 / 4, 0x0000_0013);
        code.extend([
            rv::addi(rv::SP, rv::SP, -16),
            rv::sd(rv::RA, rv::SP, 8),
            rv::jal(rv::RA, (INNER - OUTER) as i32 - 8),
            rv::RET,
        ]);
        code.resize(0x80 / 4, 0x0000_0013);
        code.push(rv::EBREAK);
        code
    };
    let code = rv::assemble(&code);
    let section = |name, kind, address, link, entry_size, bytes: &Vec<u8>| Section {
        name,
        kind,
        address,
        link,
        entry_size,
        bytes: bytes.clone(),
    };
    ElfFile {
        entry: CODE,
        segments: vec![
            Segment {
                address: CODE,
                flags: READ | EXECUTE,
                length: code.len() as u64,
                bytes: code,
            },
            Segment {
                address: DATA,
                flags: READ | WRITE,
                bytes: data.iter().copied().take(0x1000).collect(),
                length: 0x1000,
            },
        ],
        sections: vec![
            section(".strtab", STRTAB, 0, 0, 0, &tables.strtab),
            section(".symtab", SYMTAB, 0, 1, 24, &tables.symtab),
            section(".eh_frame", PROGBITS, TABLE, 0, 0, &tables.eh_frame),
        ],
    }
    .bytes()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut replaced = vec![1, 2, 3, 0, 0, 0];
    replaced.extend(eh_frame());
    vec![
        vec![0],
        vec![1],
        replaced,
        // A different CFA rule, a longer name, a table cut short.
        vec![0, 2, 7, 17, 0, 0x0f],
        vec![0, 1, 1, 2, 0, b'x'],
        vec![0, 2, 0, 50, 0, 0],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tables: &Tables) -> Vec<String> {
        let Fault::Trap(trap) = trap_of(tables, false, &[]) else { panic!() };
        let symbols = trap.backtrace.into_iter().filter_map(|location| location.symbol);
        symbols.map(|(name, _)| name).collect()
    }

    #[test]
    fn the_good_tables_name_the_callers() {
        assert_eq!(names(&Tables::good()), ["inner", "outer", "main"]);
    }

    #[test]
    fn rules_that_would_hold_the_thread_are_not_followed() {
        let eh_frame = eh_frame_with(7 << 20);
        // The return address is still in its register; further out, only the rules know.
        assert_eq!(names(&Tables { eh_frame, ..Tables::good() }), ["inner", "outer"]);
    }
}
