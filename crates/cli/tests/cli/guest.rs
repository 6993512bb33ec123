//! Tiny RISC-V programs, assembled here: no compiler is needed to test the command line.

/// Registers, by their ABI names.
pub const ZERO: u32 = 0;
pub const SP: u32 = 2;
pub const T0: u32 = 5;
pub const A0: u32 = 10;
pub const A1: u32 = 11;
pub const A2: u32 = 12;
pub const A7: u32 = 17;

/// `rd = rs + immediate`, which is -2048 to 2047.
pub fn addi(rd: u32, rs: u32, immediate: i32) -> u32 {
    (immediate as u32) << 20 | rs << 15 | rd << 7 | 0x13
}

/// `rd = value`, which is 0 to 2047.
pub fn li(rd: u32, value: i32) -> u32 {
    addi(rd, ZERO, value)
}

/// `rd = upper << 12`.
pub fn lui(rd: u32, upper: u32) -> u32 {
    upper << 12 | rd << 7 | 0x37
}

/// `rd = pc + (upper << 12)`.
pub fn auipc(rd: u32, upper: u32) -> u32 {
    upper << 12 | rd << 7 | 0x17
}

/// Stores the 8 bytes of a register at `base + offset`, which is 0 to 2047.
pub fn sd(source: u32, base: u32, offset: u32) -> u32 {
    (offset >> 5) << 25 | source << 20 | base << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

/// Jumps back by so many instructions, at most 511.
pub fn back(instructions: u32) -> u32 {
    let offset = (instructions * 4).wrapping_neg();
    (offset >> 20 & 1) << 31
        | (offset >> 1 & 0x3ff) << 21
        | (offset >> 11 & 1) << 20
        | (offset >> 12 & 0xff) << 12
        | 0x6f
}

pub const ECALL: u32 = 0x73;
pub const EBREAK: u32 = 0x0010_0073;
pub const ILLEGAL: u32 = 0;

/// System calls.
pub const WRITE: i32 = 64;
pub const EXIT: i32 = 93;

/// Calls guest call `sandtide_abi::call::BASE + number`.
pub fn guest_call(number: i32) -> [u32; 3] {
    [lui(A7, 0x535), addi(A7, A7, 0x400 + number), ECALL]
}

/// Waits for a request, whose block goes to the stack.
pub fn next_request() -> Vec<u32> {
    let buffer = [addi(SP, SP, -2048), addi(A0, SP, 0), li(A1, 2047)];
    [&buffer[..], &guest_call(1)].concat()
}

/// Answers with status 200 and nothing else; `addi` has room for the status.
pub fn respond() -> Vec<u32> {
    let status = [li(T0, 200), sd(T0, SP, 0)];
    let rest = (8..48).step_by(8).map(|offset| sd(ZERO, SP, offset));
    status.into_iter().chain(rest).chain([addi(A0, SP, 0)]).chain(guest_call(2)).collect()
}

/// A static ELF executable of this code, entered at its first instruction, with `text` behind it.
pub fn elf(code: &[u32], text: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x10000;
    const HEADERS: u64 = 64 + 56;
    let code: Vec<u8> = code.iter().flat_map(|instruction| instruction.to_le_bytes()).collect();
    let size = HEADERS + (code.len() + text.len()) as u64;

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2u16, 243].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    file.extend([BASE + HEADERS, 64, 0].iter().flat_map(|long| long.to_le_bytes()));
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 56, 1, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    // PT_LOAD of the whole file, to be read and executed.
    file.extend([1u32, 5].iter().flat_map(|word| word.to_le_bytes()));
    file.extend([0, BASE, BASE, size, size, 0x1000].iter().flat_map(|long| long.to_le_bytes()));
    assert_eq!(file.len() as u64, HEADERS);
    [file, code, text.to_vec()].concat()
}

/// Leaves with this exit code.
pub fn exit(code: i32) -> Vec<u32> {
    vec![li(A0, code), li(A7, EXIT), ECALL]
}

/// Leaves with the number of its arguments, which lies at the top of the stack.
pub fn exit_with_argc() -> Vec<u32> {
    let load = SP << 15 | 3 << 12 | A0 << 7 | 0x03;
    vec![load, li(A7, EXIT), ECALL]
}

/// Writes a text to standard output (1) or error (2), and leaves with exit code 7.
pub fn print(descriptor: i32, text: &str) -> Vec<u8> {
    let print = |distance| {
        let address = [auipc(A1, 0), addi(A1, A1, distance)];
        let write = [li(A0, descriptor), li(A2, text.len() as i32), li(A7, WRITE), ECALL];
        [&address[..], &write, &exit(7)].concat()
    };
    let distance = print(0).len() as i32 * 4;
    elf(&print(distance), text.as_bytes())
}
