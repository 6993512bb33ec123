//! A program of cases: its words, its data, its ELF file.
//!
//! ```text
//!  block of a case, at x3          0  x0..x31 before      528  x0..x31 after
//!                                256  f0..f31 before      784  f0..f31 after
//!                                512  fcsr before        1040  fcsr after
//!                                                        1056  scratch memory, 512 bytes
//! ```

use std::fmt::Write;

use super::{
    super::{CODE, DATA},
    assembler::load_address,
    generate::{CALL_WHAT_FOLLOWS, Case},
};

/// The size of a case's block.
pub(crate) const BLOCK: usize = 1568;
const AFTER: usize = 528;
/// The scratch memory's offset in a block.
pub(crate) const SCRATCH: usize = 1056;
/// The register that points to the block.
pub(crate) const BLOCK_POINTER: u32 = 3;
/// The registers that point to the scratch memory.
pub(crate) const POINTERS: [u32; 3] = [2, 4, 8];

/// Cases made into a program.
pub(crate) struct Program {
    cases: Vec<Case>,
    pub(crate) words: Vec<u32>,
    pub(crate) data: Vec<u8>,
}

impl Program {
    pub(crate) fn new(cases: Vec<Case>) -> Self {
        let (mut words, mut data) = (Vec::new(), Vec::new());
        for (number, case) in cases.iter().enumerate() {
            let block = DATA + (number * BLOCK) as u32;
            add_block(&mut data, case, block);
            words.extend(load_address(BLOCK_POINTER, block));
            // fcsr ← before
            words.extend([load(0x03, 5, 512), 0x0032_9073]);
            words.push(CALL_WHAT_FOLLOWS);
            words.extend((0..32).map(|f| load(0x07, f, 256 + 8 * f)));
            words.extend((1..32).map(|x| load(0x03, x, 8 * x)));
            words.extend(case.words());
            let after = AFTER as u32;
            words.extend((0..32).map(|x| store(0x23, x, after + 8 * x)));
            words.extend((0..32).map(|f| store(0x27, f, after + 256 + 8 * f)));
            // x5 ← fcsr
            words.extend([0x0030_22f3, store(0x23, 5, after + 512)]);
        }
        // write(1, DATA, length); exit(0)
        words.extend(load_address(10, 1));
        words.extend(load_address(11, DATA));
        words.extend(load_address(12, data.len() as u32));
        words.extend(load_address(17, 64));
        words.push(0x73);
        words.extend(load_address(10, 0));
        words.extend(load_address(17, 93));
        words.push(0x73);
        Self { cases, words, data }
    }

    /// A program that is there.
    pub(crate) fn of(words: Vec<u32>, data: Vec<u8>) -> Self {
        Self { cases: Vec::new(), words, data }
    }

    /// A static ELF file with one segment for the code and one for the data.
    pub(crate) fn elf(&self) -> Vec<u8> {
        let code: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let data_offset = (0x1000 + code.len()).next_multiple_of(0x1000);
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend([2, 0, 243, 0, 1, 0, 0, 0]); // EXEC, RISC-V, version 1
        file.extend(u64::from(CODE).to_le_bytes()); // entry
        file.extend(64u64.to_le_bytes()); // program headers
        file.extend(0u64.to_le_bytes()); // section headers
        file.extend(5u32.to_le_bytes()); // RVC, double-float ABI
        file.extend([64, 0, 56, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        for (flags, offset, address, length) in
            [(5u32, 0x1000, CODE, code.len()), (6, data_offset, DATA, self.data.len())]
        {
            file.extend(1u32.to_le_bytes());
            file.extend(flags.to_le_bytes());
            for value in [offset, address as usize, address as usize, length, length, 0x1000] {
                file.extend((value as u64).to_le_bytes());
            }
        }
        file.resize(0x1000, 0);
        file.extend(code);
        file.resize(data_offset, 0);
        file.extend(&self.data);
        file
    }

    /// The words around a pc, for messages.
    pub(crate) fn around(&self, pc: u64) -> String {
        let index = (pc.wrapping_sub(u64::from(CODE)) / 4) as usize;
        format!("{:08x?}", self.words.get(index.saturating_sub(4)..index + 2))
    }
}

pub(super) fn add_block(data: &mut Vec<u8>, case: &Case, block: u32) {
    let start = data.len();
    for x in 0..32 {
        let value = match x {
            0 => 0,
            BLOCK_POINTER => u64::from(block),
            _ if POINTERS.contains(&x) => u64::from(block) + SCRATCH as u64,
            _ => case.x[x as usize],
        };
        data.extend(value.to_le_bytes());
    }
    case.f.iter().for_each(|value| data.extend(value.to_le_bytes()));
    data.extend(case.fcsr.to_le_bytes());
    data.resize(start + SCRATCH, 0);
    data.extend(&case.scratch);
    assert_eq!(data.len(), start + BLOCK);
}

/// `ld` or `fld`, from the block.
fn load(opcode: u32, rd: u32, offset: u32) -> u32 {
    opcode | rd << 7 | 3 << 12 | BLOCK_POINTER << 15 | offset << 20
}

/// `sd` or `fsd`, to the block.
fn store(opcode: u32, rs2: u32, offset: u32) -> u32 {
    let (high, low) = (offset >> 5, offset & 31);
    opcode | low << 7 | 3 << 12 | BLOCK_POINTER << 15 | rs2 << 20 | high << 25
}

/// What differs between two results of a case.
pub(crate) fn describe(program: &Program, number: usize, here: &[u8], qemu: &[u8]) -> String {
    let case = &program.cases[number];
    let mut text = String::new();
    let _ = writeln!(text, "code {:08x?} fcsr {:#x}", case.words(), case.fcsr);
    for offset in (0..BLOCK).step_by(8) {
        let value = |bytes: &[u8], at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default())
        };
        let (ours, theirs) = (value(here, offset), value(qemu, offset));
        if ours == theirs {
            continue;
        }
        let name = match offset {
            528..784 => format!("x{}", (offset - 528) / 8),
            784..1040 => format!("f{}", (offset - 784) / 8),
            1040 => "fcsr".to_owned(),
            _ => format!("memory at {offset}"),
        };
        let before = if offset >= AFTER { value(here, offset - AFTER) } else { 0 };
        let _ = writeln!(text, "{name}: here {ours:#x}, qemu {theirs:#x}, before {before:#x}");
    }
    let inputs: Vec<_> = case.f.iter().enumerate().collect();
    let _ = writeln!(text, "f before {inputs:x?}\nx before {:x?}", case.x);
    text
}
