//! The interpreter's loop.
//!
//! A position in code is `(base, slots, index)`: the instruction at the guest address
//! `base + 2 × index` is in `slots[index]`. An index outside the slots, or an empty slot, leads to
//! [`locate`], which finds the region, or decodes an instruction that no region may keep into a
//! slot of its own. So the fast path needs no other test of where it is.

use std::{
    hint::black_box,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use sandtide_engine::TrapCause;
use sandtide_memory::{Denied, Space};

use super::{
    atomic, code,
    code::Code,
    cpu::Cpu,
    csr,
    decode::{decode16, decode32, is_short},
    float,
    insn::{Insn, op},
};

/// Why [`run`] came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The guest called (`ecall`). The pc is behind the instruction, which has retired.
    Call,
    /// The instruction at the pc cannot be executed. It has changed nothing and not retired.
    Trap {
        /// What is wrong.
        cause: TrapCause,
        /// The data or code address concerned.
        address: u64,
    },
    /// The store at the pc needs a page more than the sandbox may have. It has not retired.
    MemoryLimit,
    /// The budget is used up. The instruction at the pc is the next one.
    Budget,
    /// The pc is an entry of translated code ([`run_until`]).
    Entry,
}

/// Where translated code can be entered.
pub(crate) trait Entries {
    /// Whether it can be entered at this address.
    fn has(&self, pc: u64) -> bool;
}

/// There is no translated code.
struct Nowhere;

impl Entries for Nowhere {
    #[inline(always)]
    fn has(&self, _pc: u64) -> bool {
        false
    }
}

impl Exit {
    /// For an access that was refused.
    pub(super) fn denied(denied: Denied, cause: TrapCause, address: u32) -> Self {
        match denied {
            Denied::Protection => Self::Trap { cause, address: u64::from(address) },
            Denied::Limit => Self::MemoryLimit,
        }
    }
}

/// Runs a thread until it calls, traps, or has retired `budget` instructions; takes what it has
/// retired from the budget.
///
/// `code` must have been made for the program that `space` holds, and is used only while
/// `space.code_is_pristine()`.
pub(crate) fn run(cpu: &mut Cpu, space: &mut Space, code: &Code, budget: &mut u64) -> Exit {
    let mut float = float::Session::new();
    let exit = interpret(cpu, space, code, budget, &mut float, &Nowhere);
    float.harvest(cpu);
    exit
}

/// As [`run`], but also stops after a jump to an entry of translated code.
pub(crate) fn run_until(
    cpu: &mut Cpu,
    space: &mut Space,
    code: &Code,
    budget: &mut u64,
    entries: &impl Entries,
) -> Exit {
    let mut float = float::Session::new();
    let exit = interpret(cpu, space, code, budget, &mut float, entries);
    float.harvest(cpu);
    exit
}

/// Matches an operation to what it does.
///
/// In `jumps` and `both`, the operation in its long and its short form; `$len` is the length in
/// halfwords. After the block of an operation in `both` or `long`, the next instruction is next,
/// unless the block says `continue`.
macro_rules! execute {
    (
        $op:expr, $index:ident, $len:ident;
        jumps { $($long_jump:ident $short_jump:ident => $jump:block)* }
        both { $($long:ident $short:ident => $both:block)* }
        long { $($name:ident => $body:block)* }
        else $fallback:block
    ) => {
        match $op {
            $(
                op::$long_jump => {
                    #[allow(dead_code, reason = "only those that link need it")]
                    const $len: u64 = 2;
                    $jump
                }
                op::$short_jump => {
                    #[allow(dead_code, reason = "only those that link need it")]
                    const $len: u64 = 1;
                    $jump
                }
            )*
            $(
                op::$long => {
                    $both
                    $index = $index.wrapping_add(2);
                }
                op::$short => {
                    $both
                    $index = $index.wrapping_add(1);
                }
            )*
            $(
                op::$name => {
                    $body
                    $index = $index.wrapping_add(2);
                }
            )*
            _ => $fallback
        }
    };
}

#[inline(never)]
fn interpret(
    cpu: &mut Cpu,
    space: &mut Space,
    code: &Code,
    budget: &mut u64,
    float: &mut float::Session,
    entries: &impl Entries,
) -> Exit {
    let start = *budget;
    let mut left = start;
    // An instruction that no region may keep.
    let lone = [AtomicU64::new(0)];
    let pristine = space.code_is_pristine();
    let no_code = Code::default();
    let code = if pristine { code } else { &no_code };
    let mut base = cpu.pc;
    let mut slots: &[AtomicU64] = &[];
    let mut index = 0u64;

    let exit = loop {
        if left == 0 {
            break Exit::Budget;
        }
        let insn = match slots.get(index as usize) {
            Some(slot) => Insn(slot.load(Relaxed)),
            None => Insn(0),
        };
        left -= 1;

        /// The value of a source register.
        macro_rules! s1 {
            () => {
                cpu.x[insn.s1()]
            };
        }
        macro_rules! s2 {
            () => {
                cpu.x[insn.s2()]
            };
        }
        macro_rules! imm {
            () => {
                insn.immediate()
            };
        }
        /// Sets the destination register.
        macro_rules! rd {
            ($value:expr) => {
                cpu.x[insn.d()] = $value
            };
        }
        /// The 32-bit result of an operation on words.
        macro_rules! rd_word {
            ($value:expr) => {
                cpu.x[insn.d()] = $value as i32 as u64
            };
        }
        /// Sets the destination register to the address of the next instruction. Seen through, the
        /// sum would be half computed in front of every instruction.
        macro_rules! link {
            ($length:expr) => {{
                let next = black_box(index.wrapping_add($length));
                rd!(base.wrapping_add(next << 1));
            }};
        }
        /// Ends the run at an instruction that does not retire.
        macro_rules! stop {
            ($exit:expr) => {{
                left += 1;
                break $exit;
            }};
        }
        macro_rules! trap {
            ($cause:ident) => {{
                let address = base.wrapping_add(index << 1);
                stop!(Exit::Trap { cause: TrapCause::$cause, address })
            }};
        }
        macro_rules! load {
            ($number:ty) => {{
                let address = s1!().wrapping_add(imm!()) as u32;
                match space.load(address) {
                    Ok(bytes) => <$number>::from_le_bytes(bytes),
                    Err(denied) => stop!(Exit::denied(denied, TrapCause::Load, address)),
                }
            }};
        }
        macro_rules! store {
            ($value:expr) => {{
                let address = s1!().wrapping_add(imm!()) as u32;
                if let Err(denied) = space.store(address, $value.to_le_bytes()) {
                    stop!(Exit::denied(denied, TrapCause::Store, address));
                }
            }};
        }
        /// Goes on at another place.
        macro_rules! jump {
            () => {{
                if entries.has(base.wrapping_add(index << 1)) {
                    break Exit::Entry;
                }
                continue;
            }};
        }
        macro_rules! branch {
            ($taken:expr) => {
                if $taken {
                    index = index.wrapping_add(imm!());
                    jump!()
                }
            };
        }
        /// For what is executed out of line and may refuse.
        macro_rules! legal {
            ($result:expr) => {
                if $result.is_err() {
                    trap!(IllegalInstruction)
                }
            };
        }
        macro_rules! atomic {
            ($result:expr) => {
                if let Err(exit) = $result {
                    stop!(exit)
                }
            };
        }

        execute! {
            insn.op(), index, LENGTH;
            jumps {
                JAL C_JAL => {
                    link!(LENGTH);
                    index = index.wrapping_add(imm!());
                    jump!()
                }
                JALR C_JALR => {
                    let target = s1!().wrapping_add(imm!());
                    link!(LENGTH);
                    index = target.wrapping_sub(base) >> 1;
                    jump!()
                }
                EBREAK C_EBREAK => { trap!(Breakpoint) }
            }
            both {
                LI C_LI => { rd!(imm!()) }
                MV C_MV => { rd!(s1!()) }
                BEQ C_BEQ => { branch!(s1!() == s2!()) }
                BNE C_BNE => { branch!(s1!() != s2!()) }
                LW C_LW => { rd!(load!(i32) as u64) }
                LD C_LD => { rd!(load!(u64)) }
                SW C_SW => { store!((s2!() as u32)) }
                SD C_SD => { store!(s2!()) }
                FLD C_FLD => { cpu.f[insn.fd_index()] = load!(u64) }
                FSD C_FSD => { store!(cpu.f[insn.fs2_index()]) }
                ADDI C_ADDI => { rd!(s1!().wrapping_add(imm!())) }
                ADDIW C_ADDIW => { rd_word!(s1!().wrapping_add(imm!())) }
                ANDI C_ANDI => { rd!(s1!() & imm!()) }
                SLLI C_SLLI => { rd!(s1!() << (imm!() & 63)) }
                SRLI C_SRLI => { rd!(s1!() >> (imm!() & 63)) }
                SRAI C_SRAI => { rd!((s1!() as i64 >> (imm!() & 63)) as u64) }
                ADD C_ADD => { rd!(s1!().wrapping_add(s2!())) }
                SUB C_SUB => { rd!(s1!().wrapping_sub(s2!())) }
                XOR C_XOR => { rd!(s1!() ^ s2!()) }
                OR C_OR => { rd!(s1!() | s2!()) }
                AND C_AND => { rd!(s1!() & s2!()) }
                ADDW C_ADDW => { rd_word!(s1!().wrapping_add(s2!())) }
                SUBW C_SUBW => { rd_word!(s1!().wrapping_sub(s2!())) }
            }
            long {
                AUIPC => { rd!(base.wrapping_add(index << 1).wrapping_add(imm!())) }
                BLT => { branch!((s1!() as i64) < s2!() as i64) }
                BGE => { branch!(s1!() as i64 >= s2!() as i64) }
                BLTU => { branch!(s1!() < s2!()) }
                BGEU => { branch!(s1!() >= s2!()) }
                LB => { rd!(load!(i8) as u64) }
                LH => { rd!(load!(i16) as u64) }
                LBU => { rd!(u64::from(load!(u8))) }
                LHU => { rd!(u64::from(load!(u16))) }
                LWU => { rd!(u64::from(load!(u32))) }
                SB => { store!((s2!() as u8)) }
                SH => { store!((s2!() as u16)) }
                FLW => { cpu.f[insn.fd_index()] = u64::from(load!(u32)) | 0xffff_ffff << 32 }
                FSW => { store!((cpu.f[insn.fs2_index()] as u32)) }
                SLTI => { rd!(u64::from((s1!() as i64) < imm!() as i64)) }
                SLTIU => { rd!(u64::from(s1!() < imm!())) }
                XORI => { rd!(s1!() ^ imm!()) }
                ORI => { rd!(s1!() | imm!()) }
                SLLIW => { rd_word!((s1!() as u32) << (imm!() & 31)) }
                SRLIW => { rd_word!((s1!() as u32) >> (imm!() & 31)) }
                SRAIW => { rd_word!((s1!() as i32) >> (imm!() & 31)) }
                SLL => { rd!(s1!() << (s2!() & 63)) }
                SLT => { rd!(u64::from((s1!() as i64) < s2!() as i64)) }
                SLTU => { rd!(u64::from(s1!() < s2!())) }
                SRL => { rd!(s1!() >> (s2!() & 63)) }
                SRA => { rd!((s1!() as i64 >> (s2!() & 63)) as u64) }
                SLLW => { rd_word!((s1!() as u32) << (s2!() & 31)) }
                SRLW => { rd_word!((s1!() as u32) >> (s2!() & 31)) }
                SRAW => { rd_word!((s1!() as i32) >> (s2!() & 31)) }
                // One thread at a time, and decoded code that is never written: nothing to order.
                FENCE => {}
                CSR => {
                    float.harvest(cpu);
                    let retired = cpu.instret.wrapping_add(start - left - 1);
                    legal!(csr::execute(cpu, insn, retired))
                }
                MUL => { rd!(s1!().wrapping_mul(s2!())) }
                MULH => {
                    let product = i128::from(s1!() as i64) * i128::from(s2!() as i64);
                    rd!((product >> 64) as u64)
                }
                MULHSU => {
                    let product = i128::from(s1!() as i64).wrapping_mul(i128::from(s2!()));
                    rd!((product >> 64) as u64)
                }
                MULHU => { rd!(((u128::from(s1!()) * u128::from(s2!())) >> 64) as u64) }
                DIV => { rd!(divide(s1!() as i64, s2!() as i64) as u64) }
                DIVU => { rd!(s1!().checked_div(s2!()).unwrap_or(u64::MAX)) }
                REM => { rd!(remainder(s1!() as i64, s2!() as i64) as u64) }
                REMU => { rd!(s1!().checked_rem(s2!()).unwrap_or(s1!())) }
                MULW => { rd_word!(s1!().wrapping_mul(s2!())) }
                DIVW => { rd_word!(divide(i64::from(s1!() as i32), i64::from(s2!() as i32))) }
                DIVUW => {
                    rd_word!((s1!() as u32).checked_div(s2!() as u32).unwrap_or(u32::MAX))
                }
                REMW => { rd_word!(remainder(i64::from(s1!() as i32), i64::from(s2!() as i32))) }
                REMUW => {
                    rd_word!((s1!() as u32).checked_rem(s2!() as u32).unwrap_or(s1!() as u32))
                }
                ADD_UW => { rd!((s1!() & 0xffff_ffff).wrapping_add(s2!())) }
                SH1ADD => { rd!((s1!() << 1).wrapping_add(s2!())) }
                SH2ADD => { rd!((s1!() << 2).wrapping_add(s2!())) }
                SH3ADD => { rd!((s1!() << 3).wrapping_add(s2!())) }
                SH1ADD_UW => { rd!(((s1!() & 0xffff_ffff) << 1).wrapping_add(s2!())) }
                SH2ADD_UW => { rd!(((s1!() & 0xffff_ffff) << 2).wrapping_add(s2!())) }
                SH3ADD_UW => { rd!(((s1!() & 0xffff_ffff) << 3).wrapping_add(s2!())) }
                SLLI_UW => { rd!((s1!() & 0xffff_ffff) << (imm!() & 63)) }
                ANDN => { rd!(s1!() & !s2!()) }
                ORN => { rd!(s1!() | !s2!()) }
                XNOR => { rd!(!(s1!() ^ s2!())) }
                CLZ => { rd!(u64::from(s1!().leading_zeros())) }
                CLZW => { rd!(u64::from((s1!() as u32).leading_zeros())) }
                CTZ => { rd!(u64::from(s1!().trailing_zeros())) }
                CTZW => { rd!(u64::from((s1!() as u32).trailing_zeros())) }
                CPOP => { rd!(u64::from(s1!().count_ones())) }
                CPOPW => { rd!(u64::from((s1!() as u32).count_ones())) }
                MAX => { rd!((s1!() as i64).max(s2!() as i64) as u64) }
                MAXU => { rd!(s1!().max(s2!())) }
                MIN => { rd!((s1!() as i64).min(s2!() as i64) as u64) }
                MINU => { rd!(s1!().min(s2!())) }
                SEXT_B => { rd!(s1!() as i8 as u64) }
                SEXT_H => { rd!(s1!() as i16 as u64) }
                ZEXT_H => { rd!(s1!() & 0xffff) }
                ROL => { rd!(s1!().rotate_left(s2!() as u32 & 63)) }
                ROLW => { rd_word!((s1!() as u32).rotate_left(s2!() as u32 & 31)) }
                ROR => { rd!(s1!().rotate_right(s2!() as u32 & 63)) }
                RORI => { rd!(s1!().rotate_right(imm!() as u32 & 63)) }
                RORIW => { rd_word!((s1!() as u32).rotate_right(imm!() as u32 & 31)) }
                RORW => { rd_word!((s1!() as u32).rotate_right(s2!() as u32 & 31)) }
                ORC_B => { rd!(or_combine_bytes(s1!())) }
                REV8 => { rd!(s1!().swap_bytes()) }
                BCLR => { rd!(s1!() & !(1 << (s2!() & 63))) }
                BCLRI => { rd!(s1!() & !(1 << (imm!() & 63))) }
                BEXT => { rd!(s1!() >> (s2!() & 63) & 1) }
                BEXTI => { rd!(s1!() >> (imm!() & 63) & 1) }
                BINV => { rd!(s1!() ^ 1 << (s2!() & 63)) }
                BINVI => { rd!(s1!() ^ 1 << (imm!() & 63)) }
                BSET => { rd!(s1!() | 1 << (s2!() & 63)) }
                BSETI => { rd!(s1!() | 1 << (imm!() & 63)) }
                ATOMIC_W => { atomic!(atomic::execute_word(cpu, space, insn)) }
                ATOMIC_D => { atomic!(atomic::execute_double(cpu, space, insn)) }
                FLOAT_S => { legal!(float.single(cpu, insn)) }
                FLOAT_D => { legal!(float.double(cpu, insn)) }
            }
            else {
                if insn.op() == op::ILLEGAL {
                    trap!(IllegalInstruction);
                }
                if insn.op() == op::ECALL {
                    index = index.wrapping_add(2);
                    break Exit::Call;
                }
                let pc = base.wrapping_add(index << 1);
                match locate(pc, space, code, &lone) {
                    Some(place) => (base, slots, index) = place,
                    None => {
                        let (cause, address) = (TrapCause::Fetch, pc);
                        stop!(Exit::Trap { cause, address });
                    }
                }
                left += 1;
            }
        }
    };
    cpu.pc = base.wrapping_add(index << 1);
    cpu.instret = cpu.instret.wrapping_add(start - left);
    *budget = left;
    exit
}

/// Finds or makes a slot that holds the decoded instruction at an address. `None` if the guest
/// may not execute it.
#[cold]
#[inline(never)]
fn locate<'a>(
    pc: u64,
    space: &Space,
    code: &'a Code,
    lone: &'a [AtomicU64; 1],
) -> Option<(u64, &'a [AtomicU64], u64)> {
    let Some((start, slots)) = code.region(pc) else {
        code::fill(&lone[0], fetch(pc, space)?);
        return Some((pc, lone, 0));
    };
    let index = (pc - start) >> 1;
    let slot = slots.get(index as usize)?;
    if slot.load(Relaxed) == 0 || pc & 1 != 0 {
        code::fill(slot, fetch(pc, space)?);
    }
    Some((start, slots, index))
}

/// Fetches and decodes the instruction at an address.
pub(crate) fn fetch(pc: u64, space: &Space) -> Option<Insn> {
    let first = space.fetch(u32::try_from(pc).ok()?).ok()?;
    if is_short(first) {
        return Some(decode16(first));
    }
    let second = space.fetch(u32::try_from(pc + 2).ok()?).ok()?;
    Some(decode32(u32::from(first) | u32::from(second) << 16))
}

/// Signed division (RISC-V Unprivileged ISA, "Division Operations"): by zero gives −1, and the
/// one overflow wraps.
fn divide(dividend: i64, divisor: i64) -> i64 {
    if divisor == 0 { -1 } else { dividend.wrapping_div(divisor) }
}

/// The remainder that belongs to [`divide`].
fn remainder(dividend: i64, divisor: i64) -> i64 {
    if divisor == 0 { dividend } else { dividend.wrapping_rem(divisor) }
}

/// `orc.b`: each byte becomes all ones if it has any bit set.
fn or_combine_bytes(value: u64) -> u64 {
    const LOW_7: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The top bit of each byte tells whether the byte is not zero.
    let tops = (((value & LOW_7) + LOW_7) | value) & !LOW_7;
    (tops >> 7) * 0xff
}
