//! The shared object that Linux gives to each process (`vdso(7)`): clocks for the price of a function
//! call. C libraries, Go and others find it by `AT_SYSINFO_EHDR`.
//!
//! ```text
//!  VDSO   ELF header │ program headers │ symbols │ names │ hash table │ versions │ dynamic │ code
//! ```
//!
//! One page that the program can read and execute. It has no sections. What the desk does not have,
//! the functions ask the host for.
#![allow(unsafe_code, reason = "assembles guest code")]

use object::elf;

use crate::{
    inside::{
        code,
        desk::{DESK, at},
        entry::{now, which_clock},
    },
    paging::{PAGE, SYSTEM},
};

/// Where it lies.
pub(crate) const VDSO: u64 = SYSTEM + 8 * PAGE;

code!(clock_gettime: [
    "movabs r10, {desk}",
    which_clock!(),
    now!(),
    "xor edx, edx",
    "mov r8d, 1000000000",
    "div r8",
    "mov [rsi], rax",
    "mov [rsi + 8], rdx",
    "xor eax, eax",
    "ret",
    "29: mov eax, 228",
    "syscall",
    "ret",
], desk = DESK, sequence = at::SEQUENCE, ticks = at::TICKS, rate = at::RATE, least = at::LEAST,
   real = at::REAL, monotonic = at::MONOTONIC, boot = at::BOOT);

code!(gettimeofday: [
    "movabs r10, {desk}",
    "cmp qword ptr [r10 + {rate}], 0",
    "je 29f",
    "test rdi, rdi",
    "jz 28f",
    "mov r9d, {real}",
    now!(),
    "xor edx, edx",
    "mov r8d, 1000000000",
    "div r8",
    "mov [rdi], rax",
    "mov eax, edx",
    "xor edx, edx",
    "mov r8d, 1000",
    "div r8d",
    "mov [rdi + 8], rax",
    // The time zone, which is UTC.
    "28: xor eax, eax",
    "test rsi, rsi",
    "jz 27f",
    "mov [rsi], rax",
    "27: ret",
    "29: mov eax, 96",
    "syscall",
    "ret",
], desk = DESK, sequence = at::SEQUENCE, ticks = at::TICKS, rate = at::RATE, least = at::LEAST,
   real = at::REAL);

code!(time: [
    "movabs r10, {desk}",
    "cmp qword ptr [r10 + {rate}], 0",
    "je 29f",
    "mov r9d, {real}",
    now!(),
    "xor edx, edx",
    "mov r8d, 1000000000",
    "div r8",
    "test rdi, rdi",
    "jz 27f",
    "mov [rdi], rax",
    "27: ret",
    "29: mov eax, 201",
    "syscall",
    "ret",
], desk = DESK, sequence = at::SEQUENCE, ticks = at::TICKS, rate = at::RATE, least = at::LEAST,
   real = at::REAL);

// There is one processor.
code!(getcpu: [
    "xor eax, eax",
    "test rdi, rdi",
    "jz 27f",
    "mov [rdi], eax",
    "27: test rsi, rsi",
    "jz 28f",
    "mov [rsi], eax",
    "28: ret",
]);

// Only the host knows of all clocks, and few ask.
code!(clock_getres: ["mov eax, 229", "syscall", "ret"]);

/// The version of every symbol.
const VERSION: &str = "LINUX_2.6";

/// What the object calls itself.
const NAME: &str = "linux-vdso.so.1";

/// The symbols.
fn functions() -> [(&'static str, &'static [u8]); 5] {
    [
        ("__vdso_clock_gettime", clock_gettime()),
        ("__vdso_gettimeofday", gettimeofday()),
        ("__vdso_time", time()),
        ("__vdso_getcpu", getcpu()),
        ("__vdso_clock_getres", clock_getres()),
    ]
}

/// Whether an instruction is one of the functions: code of the program like any other.
pub(crate) fn is_function(rip: u64) -> bool {
    (VDSO..VDSO + PAGE).contains(&rip)
}

/// Words of a file, one after the other.
#[derive(Default)]
struct File(Vec<u8>);

impl File {
    fn half(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn align(&mut self, to: usize) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
        self.0.len() as u64
    }
}

/// Names, each followed by a NUL.
#[derive(Default)]
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(name.bytes().chain([0]));
        at
    }
}

/// The object's file, as it lies at [`VDSO`].
pub(crate) fn image() -> Vec<u8> {
    let functions = functions();
    let mut names = Names(vec![0]);
    let (name, version) = (names.add(NAME), names.add(VERSION));
    let symbols = functions.map(|(name, _)| names.add(name));
    let count = 1 + functions.len() as u32;

    // Headers come when it is known where everything is.
    let mut file = File(vec![0; 64 + 2 * 56]);
    let code = functions.map(|(_, code)| {
        let start = file.align(16);
        file.0.extend(code);
        (start, code.len() as u64)
    });
    let symbol_table = file.align(8);
    file.0.resize(file.0.len() + 24, 0);
    for (name, (start, length)) in symbols.iter().zip(code) {
        file.word(*name);
        file.0.extend([elf::STB_GLOBAL << 4 | elf::STT_FUNC, 0]);
        // Any section but none.
        file.half(1).long(start).long(length);
    }
    let name_table = file.align(8);
    file.0.extend(&names.0);
    let hash_table = file.align(8);
    // One chain of all symbols: nobody has to know a hash.
    file.word(1).word(count).word(1).word(0);
    for symbol in 1..count {
        file.word((symbol + 1) % count);
    }
    let version_of = file.align(8);
    file.half(0);
    for _ in functions {
        file.half(2);
    }
    let versions = file.align(8);
    for (flags, index, name, text, next) in
        [(elf::VER_FLG_BASE, 1, name, NAME, 28), (0, 2, version, VERSION, 0)]
    {
        file.half(1).half(flags).half(index).half(1).word(elf::hash(text.as_bytes()));
        file.word(20).word(next).word(name).word(0);
    }
    let dynamic = file.align(8);
    for (tag, value) in [
        (elf::DT_SONAME, u64::from(name)),
        (elf::DT_HASH, hash_table),
        (elf::DT_STRTAB, name_table),
        (elf::DT_SYMTAB, symbol_table),
        (elf::DT_STRSZ, names.0.len() as u64),
        (elf::DT_SYMENT, 24),
        (elf::DT_VERSYM, version_of),
        (elf::DT_VERDEF, versions),
        (elf::DT_VERDEFNUM, 2),
        (elf::DT_NULL, 0),
    ] {
        file.long(u64::from(tag)).long(value);
    }
    let end = file.0.len() as u64;

    let mut head = File(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    head.half(elf::ET_DYN).half(elf::EM_X86_64).word(1).long(0).long(64).long(0).word(0);
    for half in [64, 56, 2, 0, 0, 0] {
        head.half(half);
    }
    head.word(elf::PT_LOAD).word(elf::PF_R | elf::PF_X).long(0).long(0).long(0);
    head.long(end).long(end).long(PAGE);
    head.word(elf::PT_DYNAMIC).word(elf::PF_R).long(dynamic).long(dynamic).long(dynamic);
    head.long(end - dynamic).long(end - dynamic).long(8);
    file.0[..head.0.len()].copy_from_slice(&head.0);
    assert!(end <= PAGE, "the object has {end} bytes");
    file.0
}

#[cfg(test)]
mod tests {
    use object::{
        LittleEndian as LE,
        read::elf::{ElfFile64, ProgramHeader as _},
    };

    use super::*;

    /// The word of so many bytes at an offset.
    fn word(image: &[u8], at: usize, length: usize) -> usize {
        image[at..at + length].iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte))
    }

    #[test]
    fn a_loader_finds_its_functions() {
        let image = image();
        let file = ElfFile64::<LE>::parse(&*image).unwrap();
        let segments = file.elf_program_headers();
        let dynamic = segments.iter().find(|part| part.p_type.get(LE) == elf::PT_DYNAMIC).unwrap();
        let entries = dynamic.dynamic(LE, &*image).unwrap().unwrap();
        let at = |tag: u32| {
            let entry = entries.iter().find(|entry| entry.d_tag.get(LE) == u64::from(tag));
            entry.unwrap().d_val.get(LE) as usize
        };
        let name = |offset: usize| {
            let bytes = &image[at(elf::DT_STRTAB) + offset..];
            std::str::from_utf8(bytes.split(|byte| *byte == 0).next().unwrap()).unwrap()
        };
        assert_eq!(name(at(elf::DT_SONAME)), NAME);
        let hash = at(elf::DT_HASH);
        assert_eq!(word(&image, hash, 4), 1, "one bucket");
        let mut symbol = word(&image, hash + 8, 4);
        let mut found = Vec::new();
        while symbol != 0 {
            let entry = at(elf::DT_SYMTAB) + 24 * symbol;
            let (start, length) = (word(&image, entry + 8, 8), word(&image, entry + 16, 8));
            found.push((name(word(&image, entry, 4)), &image[start..start + length]));
            assert_eq!(word(&image, at(elf::DT_VERSYM) + 2 * symbol, 2), 2);
            symbol = word(&image, hash + 12 + 4 * symbol, 4);
        }
        assert_eq!(found, functions());
        let version = at(elf::DT_VERDEF) + 28;
        assert_eq!(name(word(&image, version + 20, 4)), VERSION);
        assert_eq!(word(&image, version + 8, 4), 0x03ae_75f6, "the hash of `{VERSION}`");
    }
}
