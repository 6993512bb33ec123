//! Enough of RV64 to write small programs (RISC-V Unprivileged ISA, "RV32/64G Instruction Set
//! Listings").

pub(crate) const RA: u32 = 1;
pub(crate) const SP: u32 = 2;
pub(crate) const A0: u32 = 10;
pub(crate) const A1: u32 = 11;
pub(crate) const A7: u32 = 17;
pub(crate) const T6: u32 = 31;

pub(crate) const ECALL: u32 = 0x0000_0073;
pub(crate) const EBREAK: u32 = 0x0010_0073;
/// `ret`
pub(crate) const RET: u32 = 0x0000_8067;

pub(crate) fn addi(to: u32, from: u32, value: i32) -> u32 {
    (value as u32) << 20 | from << 15 | to << 7 | 0x13
}

/// Loads 8 bytes from `base + offset`.
pub(crate) fn ld(to: u32, base: u32, offset: i32) -> u32 {
    (offset as u32) << 20 | base << 15 | 3 << 12 | to << 7 | 0x03
}

/// Stores 8 bytes to `base + offset`.
pub(crate) fn sd(from: u32, base: u32, offset: i32) -> u32 {
    let offset = offset as u32;
    (offset >> 5 & 0x7f) << 25 | from << 20 | base << 15 | 3 << 12 | (offset & 31) << 7 | 0x23
}

/// Jumps by `distance` bytes and links in `to`.
pub(crate) fn jal(to: u32, distance: i32) -> u32 {
    let bits = distance as u32;
    (bits >> 20 & 1) << 31
        | (bits >> 1 & 0x3ff) << 21
        | (bits >> 11 & 1) << 20
        | (bits >> 12 & 0xff) << 12
        | to << 7
        | 0x6f
}

/// Sets a register to a value below 2³¹.
pub(crate) fn li(to: u32, value: u32) -> [u32; 2] {
    let upper = value.wrapping_add(0x800) & 0xffff_f000;
    [upper | to << 7 | 0x37, addi(to, to, value.wrapping_sub(upper) as i32)]
}

/// A program that sets each register to the doubleword of its number in a table, and then traps.
pub(crate) fn load_all_registers(table: u32) -> Vec<u32> {
    let mut code = li(T6, table).to_vec();
    code.extend((1..=T6).map(|register| ld(register, T6, 8 * register as i32)));
    code
}

/// A program that answers every request with the response at `response`, and has room for a
/// request block of a page at `block`.
pub(crate) fn answer_forever(response: u32, block: u32) -> Vec<u32> {
    let mut code = Vec::new();
    code.extend(li(A7, sandtide_abi::call::NEXT_REQUEST as u32));
    code.extend(li(A0, block));
    code.extend(li(A1, 0x1000));
    code.push(ECALL);
    code.extend(li(A7, sandtide_abi::call::RESPOND as u32));
    code.extend(li(A0, response));
    code.push(ECALL);
    code.push(jal(0, -4 * code.len() as i32));
    code
}

/// Instructions as bytes.
pub(crate) fn assemble(code: &[u32]) -> Vec<u8> {
    code.iter().flat_map(|word| word.to_le_bytes()).collect()
}
