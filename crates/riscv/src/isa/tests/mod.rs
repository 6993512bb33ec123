//! Tests of the instruction set.

mod decode;
pub(crate) mod differential;
mod run;
pub(crate) mod speed;

use sandtide_memory::{Access, Space};

use super::{Code, Cpu};

/// Where test code lies.
pub(crate) const CODE: u32 = 0x10000;
/// Where test data lies.
pub(crate) const DATA: u32 = 0x400_0000;

/// How much memory test guests may use.
pub(crate) const LIMIT: u64 = 256 << 20;

/// A guest with code and data, at the start of its code.
pub(crate) fn guest(words: &[u32], data: &[u8]) -> (Cpu, Space, Code) {
    guest_within(LIMIT, words, data)
}

/// As [`guest`], with less memory or more.
pub(crate) fn guest_within(limit: u64, words: &[u32], data: &[u8]) -> (Cpu, Space, Code) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let whole_pages = |length: usize| length.next_multiple_of(4096) as u64;
    let mut space = Space::new(limit).unwrap();
    let code_length = whole_pages(bytes.len());
    space.map(u64::from(CODE), code_length, Access::READ.and(Access::EXECUTE));
    space.initialise(CODE, &bytes).unwrap();
    let data_length = whole_pages(data.len().max(1));
    space.map(u64::from(DATA), data_length, Access::READ.and(Access::WRITE));
    space.initialise(DATA, data).unwrap();
    let range = u64::from(CODE)..u64::from(CODE) + code_length;
    space.set_lasting_code(std::iter::once(range.clone()));
    let code = Code::new(std::iter::once(range)).unwrap();
    (Cpu::new(u64::from(CODE)), space, code)
}
