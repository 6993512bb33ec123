//! What each operation does.
//!
//! Every operation is a function that ends with a call of the next one's, which the optimiser
//! makes a jump: so each has an indirect jump of its own, and the host predicts it by what usually
//! comes behind that operation. All share the arguments of [`Handler`], which stay in registers.
//! Where the optimiser makes real calls of them, only the host's stack suffers: no more than the
//! instructions of one [`super::run::STRIDE`] nest.
#![allow(unsafe_code, reason = "steps from an instruction to the next without a check")]
#![allow(non_snake_case, reason = "functions are named like their operations")]

use sandtide_engine::TrapCause;
use sandtide_memory::{Space, native::Caught};

use super::{
    atomic,
    code::{At, Place},
    cpu::Cpu,
    csr,
    float::{self, Double, Format, HostFormat, Single},
    insn::{FloatFields, op},
    quick,
    run::{Entries, Exit},
};

/// Executes the instruction at a place, and goes on behind it. `left` is how many may retire
/// after this one; the end is in the state.
type Handler<E> = for<'c, 's> fn(&mut Cpu, At<'c>, u64, &mut State<'c, 's, E>);

/// What the handlers share besides their arguments.
pub(super) struct State<'c, 's, E> {
    pub(super) space: &'s mut Space,
    pub(super) entries: &'s E,
    pub(super) float: &'s mut float::Session,
    /// Whether the host's faults are caught, so that loads need no check.
    pub(super) catches: bool,
    /// Whether the session is open, and `frm` is to nearest.
    pub(super) is_nearest: bool,
    /// The code around.
    pub(super) place: Place<'c>,
    /// What `instret` would be if all that is granted had retired.
    pub(super) retired_at_end: u64,
    /// Why the handlers came back.
    pub(super) end: End<'c>,
    /// Where they did. (Not for [`End::Pause`].)
    pub(super) pc: u64,
    /// What they have not used.
    pub(super) left: u64,
}

/// Why the handlers come back.
#[derive(Clone, Copy)]
pub(super) enum End<'c> {
    /// All that was granted is used up; this is next.
    Pause(At<'c>),
    /// There is no decoded instruction at the pc.
    Vacant,
    Exit(Exit),
}

/// Executes instructions from a place on, `left` of them at most.
#[inline(always)]
pub(super) fn execute<'c, E: Entries>(
    cpu: &mut Cpu,
    at: At<'c>,
    left: u64,
    state: &mut State<'c, '_, E>,
) {
    if left == 0 {
        return pause(cpu, at, left, state);
    }
    Handlers::<E>::ALL[usize::from(at.op())](cpu, at, left - 1, state);
}

#[cold]
fn pause<'c, E>(_: &mut Cpu, at: At<'c>, left: u64, state: &mut State<'c, '_, E>) {
    (state.end, state.left) = (End::Pause(at), left);
}

/// An instruction being executed.
struct Step<'a, 'c, 's, E> {
    cpu: &'a mut Cpu,
    at: At<'c>,
    left: u64,
    state: &'a mut State<'c, 's, E>,
}

impl<E: Entries> Step<'_, '_, '_, E> {
    /// The value of a source register.
    #[inline(always)]
    fn s1(&self) -> u64 {
        self.cpu.x[self.at.s1()]
    }

    #[inline(always)]
    fn s2(&self) -> u64 {
        self.cpu.x[self.at.s2()]
    }

    #[inline(always)]
    fn imm(&self) -> u64 {
        self.at.immediate()
    }

    /// Sets the destination register.
    #[inline(always)]
    fn rd(&mut self, value: u64) {
        self.cpu.x[self.at.d()] = value;
    }

    #[inline(always)]
    fn f1(&self) -> u64 {
        self.cpu.f[self.at.s1() & 31]
    }

    #[inline(always)]
    fn f2(&self) -> u64 {
        self.cpu.f[self.at.s2() & 31]
    }

    #[inline(always)]
    fn f3(&self) -> u64 {
        self.cpu.f[FloatFields::from_immediate(self.imm()).fs3_index()]
    }

    #[inline(always)]
    fn set_f(&mut self, value: u64) {
        self.cpu.f[self.at.d() & 31] = value;
    }

    #[inline(always)]
    fn pc(&self) -> u64 {
        self.state.place.pc_of(self.at)
    }

    /// Sets the destination register to the address of the next instruction.
    #[inline(always)]
    fn link(&mut self, length: u64) {
        self.rd(self.pc().wrapping_add(2 * length));
    }

    /// The number of instructions that this thread has retired.
    fn retired(&self) -> u64 {
        self.state.retired_at_end.wrapping_sub(self.left + 1)
    }

    /// Goes on behind this instruction, which has `length` halfwords.
    #[inline(always)]
    fn next(self, length: usize) {
        let Self { cpu, at, left, state } = self;
        // SAFETY: a handler of an instruction is called for no other slots than those with one.
        let at = unsafe { at.step(length) };
        execute(cpu, at, left, state);
    }

    /// Goes on at a distance in halfwords.
    #[inline(always)]
    fn branch(self, halfwords: u64) {
        let index = self.state.place.index_of(self.at).wrapping_add(halfwords);
        self.go(index);
    }

    /// Goes on at an address.
    #[inline(always)]
    fn jump(self, target: u64) {
        let index = target.wrapping_sub(self.state.place.base) >> 1;
        self.go(index);
    }

    #[inline(always)]
    fn go(self, index: u64) {
        let Self { cpu, left, state, .. } = self;
        let pc = state.place.base.wrapping_add(index << 1);
        if state.entries.has(pc) {
            return state.leave(End::Exit(Exit::Entry), pc, left);
        }
        match state.place.at(index) {
            Some(at) => execute(cpu, at, left, state),
            None => state.leave(End::Vacant, pc, left),
        }
    }

    /// Ends the run at this instruction, which does not retire.
    #[inline(always)]
    fn stop(self, exit: Exit) {
        let pc = self.pc();
        self.state.leave(End::Exit(exit), pc, self.left + 1);
    }
}

impl<'c, E> State<'c, '_, E> {
    /// Loads a number into a register, if the host can tell that the guest may.
    #[inline(always)]
    fn load_at_once<T: Caught>(&self, address: u32, register: &mut u64) -> Option<()> {
        if !self.catches {
            return None;
        }
        // SAFETY: there is a handler, and the space is mirrored, which it stays meanwhile: nothing
        // is mapped by instructions.
        unsafe { T::load(self.space, address, register) }
    }

    #[cold]
    #[inline(never)]
    fn leave(&mut self, end: End<'c>, pc: u64, left: u64) {
        (self.end, self.pc, self.left) = (end, pc, left);
    }
}

macro_rules! rd_word {
    ($t:ident, $value:expr) => {
        $t.rd($value as i32 as u64)
    };
}

macro_rules! trap {
    ($t:ident, $cause:ident) => {{
        let address = $t.pc();
        return $t.stop(Exit::Trap { cause: TrapCause::$cause, address });
    }};
}

/// Starts again where there is room for calls: a handler that made one itself would save registers
/// for it each time.
macro_rules! slowly {
    ($t:ident) => {
        return slowly($t.cpu, $t.at, $t.left, $t.state)
    };
}

/// Loads a number into a register, extended as its type says.
macro_rules! load {
    ($t:ident, $number:ident, $register:expr) => {{
        let address = $t.s1().wrapping_add($t.imm()) as u32;
        let register = &mut $register;
        match $t.state.load_at_once::<$number>(address, register) {
            Some(()) => {}
            None if IS_FAST => slowly!($t),
            None => match $t.state.space.load(address) {
                Ok(bytes) => *register = $number::from_le_bytes(bytes) as u64,
                Err(denied) => return $t.stop(Exit::denied(denied, TrapCause::Load, address)),
            },
        }
    }};
}

macro_rules! store {
    ($t:ident, $value:expr) => {{
        let address = $t.s1().wrapping_add($t.imm()) as u32;
        let bytes = $value.to_le_bytes();
        match $t.state.space.store_at_once(address, bytes) {
            Some(()) => {}
            None if IS_FAST => slowly!($t),
            None => {
                if let Err(denied) = $t.state.space.store(address, bytes) {
                    return $t.stop(Exit::denied(denied, TrapCause::Store, address));
                }
            }
        }
    }};
}

macro_rules! branch {
    ($t:ident, $taken:expr) => {
        if $taken {
            let offset = $t.imm();
            return $t.branch(offset);
        }
    };
}

/// For what is executed out of line and may refuse.
macro_rules! legal {
    ($t:ident, $result:expr) => {
        if $result.is_err() {
            trap!($t, IllegalInstruction)
        }
    };
}

macro_rules! atomic {
    ($t:ident, $result:expr) => {
        if let Err(exit) = $result {
            return $t.stop(exit);
        }
    };
}

/// What the host may not or cannot compute.
macro_rules! float_slowly {
    ($t:ident) => {{
        legal!($t, $t.state.float.execute($t.cpu, $t.at.insn()));
        $t.state.is_nearest = $t.cpu.frm == 0;
    }};
}

/// A result of the host, if it may and can compute.
macro_rules! host {
    ($t:ident, $format:ident::$function:ident($($operand:expr),*)) => {
        if IS_FAST && $t.state.is_nearest { $format::$function($($operand),*) } else { None }
    };
}

/// A result in a format.
macro_rules! set_boxed {
    ($t:ident, $format:ident, $bits:expr) => {
        $t.set_f($format::boxed($bits))
    };
}

macro_rules! float {
    ($t:ident, $format:ident::$function:ident($($operand:expr),*)) => {
        match host!($t, $format::$function($($operand),*)) {
            Some(bits) => set_boxed!($t, $format, bits),
            None if IS_FAST => slowly!($t),
            None => float_slowly!($t),
        }
    };
}

macro_rules! float_to_integer {
    ($t:ident, $format:ident::$function:ident($($operand:expr),*)) => {
        match host!($t, $format::$function($($operand),*)) {
            Some(bits) => $t.rd(bits),
            None if IS_FAST => slowly!($t),
            None => float_slowly!($t),
        }
    };
}

/// Defines the handler of an operation, and one like it that may make calls. Behind the block,
/// unless it returns, the next instruction is next.
macro_rules! handler {
    ($name:ident, $length:literal, $t:ident, $body:block) => {
        handler!($name, $length, $t, true, {
            handler! {
                #[cold]
                #[inline(never)]
                #[allow(dead_code, reason = "not every operation is ever slow")]
                slowly, $length, $t, false, {}, $body
            }
        }, $body);
    };
    (
        $(#[$attribute:meta])*
        $name:ident, $length:literal, $t:ident, $is_fast:literal, { $($slow:item)? }, $body:block
    ) => {
        $(#[$attribute])*
        #[allow(unreachable_code, reason = "some always stop or jump")]
        fn $name<'c, 's, E: Entries>(
            cpu: &mut Cpu,
            at: At<'c>,
            left: u64,
            state: &mut State<'c, 's, E>,
        ) {
            $($slow)?
            #[allow(dead_code, reason = "not every operation is ever slow")]
            const IS_FAST: bool = $is_fast;
            #[allow(unused_mut, reason = "not every operation has a result")]
            let mut $t = Step { cpu, at, left, state };
            $body
            $t.next($length)
        }
    };
}

/// Defines the handlers, and lists them by number.
///
/// In `jumps` and `both`, the operation in its long and its short form; `$len` is the length in
/// halfwords. In `float`, the operation in single and in double precision; `$format` is which.
macro_rules! handlers {
    (
        $t:ident, $len:ident;
        jumps { $($long_jump:ident $short_jump:ident => $jump:block)* }
        both { $($long:ident $short:ident => $both:block)* }
        long { $($name:ident => $body:block)* }
        float $format:ident { $($single:ident $double:ident => $float:block)* }
    ) => {
        $(
            handler!($long_jump, 2, $t, {
                #[allow(dead_code, reason = "only those that link need it")]
                const $len: u64 = 2;
                return $jump
            });
            handler!($short_jump, 1, $t, {
                #[allow(dead_code, reason = "only those that link need it")]
                const $len: u64 = 1;
                return $jump
            });
        )*
        $(
            handler!($long, 2, $t, $both);
            handler!($short, 1, $t, $both);
        )*
        $(handler!($name, 2, $t, $body);)*
        $(
            handler!($single, 2, $t, {
                #[allow(dead_code, reason = "not every operation asks for its format")]
                type $format = Single;
                $float
            });
            handler!($double, 2, $t, {
                #[allow(dead_code, reason = "not every operation asks for its format")]
                type $format = Double;
                $float
            });
        )*

        /// The handlers by the number of their operation.
        struct Handlers<E>(E);

        impl<E: Entries> Handlers<E> {
            const ALL: &'static [Handler<E>; 256] = &{
                let mut all: [Handler<E>; 256] = [ILLEGAL; 256];
                all[0] = VACANT;
                $(
                    all[op::$long_jump as usize] = $long_jump;
                    all[op::$short_jump as usize] = $short_jump;
                )*
                $(
                    all[op::$long as usize] = $long;
                    all[op::$short as usize] = $short;
                )*
                $(all[op::$name as usize] = $name;)*
                $(
                    all[quick::$single as usize] = $single;
                    all[quick::$double as usize] = $double;
                )*
                all
            };
        }
    };
}

/// For slots without an instruction.
fn VACANT<'c, E: Entries>(_: &mut Cpu, at: At<'c>, left: u64, state: &mut State<'c, '_, E>) {
    let pc = state.place.pc_of(at);
    state.leave(End::Vacant, pc, left + 1);
}

handlers! {
    t, LENGTH;
    jumps {
        JAL C_JAL => {
            let offset = t.imm();
            t.link(LENGTH);
            t.branch(offset)
        }
        JALR C_JALR => {
            let target = t.s1().wrapping_add(t.imm());
            t.link(LENGTH);
            t.jump(target)
        }
        EBREAK C_EBREAK => { trap!(t, Breakpoint) }
    }
    both {
        LI C_LI => { t.rd(t.imm()) }
        MV C_MV => { t.rd(t.s1()) }
        BEQ C_BEQ => { branch!(t, t.s1() == t.s2()) }
        BNE C_BNE => { branch!(t, t.s1() != t.s2()) }
        LW C_LW => { load!(t, i32, t.cpu.x[t.at.d()]) }
        LD C_LD => { load!(t, u64, t.cpu.x[t.at.d()]) }
        SW C_SW => { store!(t, (t.s2() as u32)) }
        SD C_SD => { store!(t, t.s2()) }
        FLD C_FLD => { load!(t, u64, t.cpu.f[t.at.d() & 31]) }
        FSD C_FSD => { store!(t, t.f2()) }
        ADDI C_ADDI => { t.rd(t.s1().wrapping_add(t.imm())) }
        ADDIW C_ADDIW => { rd_word!(t, t.s1().wrapping_add(t.imm())) }
        ANDI C_ANDI => { t.rd(t.s1() & t.imm()) }
        SLLI C_SLLI => { t.rd(t.s1() << (t.imm() & 63)) }
        SRLI C_SRLI => { t.rd(t.s1() >> (t.imm() & 63)) }
        SRAI C_SRAI => { t.rd((t.s1() as i64 >> (t.imm() & 63)) as u64) }
        ADD C_ADD => { t.rd(t.s1().wrapping_add(t.s2())) }
        SUB C_SUB => { t.rd(t.s1().wrapping_sub(t.s2())) }
        XOR C_XOR => { t.rd(t.s1() ^ t.s2()) }
        OR C_OR => { t.rd(t.s1() | t.s2()) }
        AND C_AND => { t.rd(t.s1() & t.s2()) }
        ADDW C_ADDW => { rd_word!(t, t.s1().wrapping_add(t.s2())) }
        SUBW C_SUBW => { rd_word!(t, t.s1().wrapping_sub(t.s2())) }
    }
    long {
        ILLEGAL => { trap!(t, IllegalInstruction) }
        ECALL => {
            let pc = t.pc().wrapping_add(4);
            return t.state.leave(End::Exit(Exit::Call), pc, t.left);
        }
        AUIPC => { t.rd(t.pc().wrapping_add(t.imm())) }
        BLT => { branch!(t, (t.s1() as i64) < t.s2() as i64) }
        BGE => { branch!(t, t.s1() as i64 >= t.s2() as i64) }
        BLTU => { branch!(t, t.s1() < t.s2()) }
        BGEU => { branch!(t, t.s1() >= t.s2()) }
        LB => { load!(t, i8, t.cpu.x[t.at.d()]) }
        LH => { load!(t, i16, t.cpu.x[t.at.d()]) }
        LBU => { load!(t, u8, t.cpu.x[t.at.d()]) }
        LHU => { load!(t, u16, t.cpu.x[t.at.d()]) }
        LWU => { load!(t, u32, t.cpu.x[t.at.d()]) }
        SB => { store!(t, (t.s2() as u8)) }
        SH => { store!(t, (t.s2() as u16)) }
        FLW => {
            load!(t, u32, t.cpu.f[t.at.d() & 31]);
            t.cpu.f[t.at.d() & 31] |= 0xffff_ffff << 32;
        }
        FSW => { store!(t, (t.f2() as u32)) }
        SLTI => { t.rd(u64::from((t.s1() as i64) < t.imm() as i64)) }
        SLTIU => { t.rd(u64::from(t.s1() < t.imm())) }
        XORI => { t.rd(t.s1() ^ t.imm()) }
        ORI => { t.rd(t.s1() | t.imm()) }
        SLLIW => { rd_word!(t, (t.s1() as u32) << (t.imm() & 31)) }
        SRLIW => { rd_word!(t, (t.s1() as u32) >> (t.imm() & 31)) }
        SRAIW => { rd_word!(t, (t.s1() as i32) >> (t.imm() & 31)) }
        SLL => { t.rd(t.s1() << (t.s2() & 63)) }
        SLT => { t.rd(u64::from((t.s1() as i64) < t.s2() as i64)) }
        SLTU => { t.rd(u64::from(t.s1() < t.s2())) }
        SRL => { t.rd(t.s1() >> (t.s2() & 63)) }
        SRA => { t.rd((t.s1() as i64 >> (t.s2() & 63)) as u64) }
        SLLW => { rd_word!(t, (t.s1() as u32) << (t.s2() & 31)) }
        SRLW => { rd_word!(t, (t.s1() as u32) >> (t.s2() & 31)) }
        SRAW => { rd_word!(t, (t.s1() as i32) >> (t.s2() & 31)) }
        // One thread at a time, and decoded code that is never written: nothing to order.
        FENCE => {}
        CSR => {
            t.state.float.harvest(t.cpu);
            t.state.is_nearest = false;
            let retired = t.retired();
            legal!(t, csr::execute(t.cpu, t.at.insn(), retired))
        }
        MUL => { t.rd(t.s1().wrapping_mul(t.s2())) }
        MULH => {
            let product = i128::from(t.s1() as i64) * i128::from(t.s2() as i64);
            t.rd((product >> 64) as u64)
        }
        MULHSU => {
            let product = i128::from(t.s1() as i64).wrapping_mul(i128::from(t.s2()));
            t.rd((product >> 64) as u64)
        }
        MULHU => { t.rd(((u128::from(t.s1()) * u128::from(t.s2())) >> 64) as u64) }
        DIV => { t.rd(divide(t.s1() as i64, t.s2() as i64) as u64) }
        DIVU => { t.rd(t.s1().checked_div(t.s2()).unwrap_or(u64::MAX)) }
        REM => { t.rd(remainder(t.s1() as i64, t.s2() as i64) as u64) }
        REMU => { t.rd(t.s1().checked_rem(t.s2()).unwrap_or(t.s1())) }
        MULW => { rd_word!(t, t.s1().wrapping_mul(t.s2())) }
        DIVW => { rd_word!(t, divide(i64::from(t.s1() as i32), i64::from(t.s2() as i32))) }
        DIVUW => {
            rd_word!(t, (t.s1() as u32).checked_div(t.s2() as u32).unwrap_or(u32::MAX))
        }
        REMW => { rd_word!(t, remainder(i64::from(t.s1() as i32), i64::from(t.s2() as i32))) }
        REMUW => {
            rd_word!(t, (t.s1() as u32).checked_rem(t.s2() as u32).unwrap_or(t.s1() as u32))
        }
        ADD_UW => { t.rd((t.s1() & 0xffff_ffff).wrapping_add(t.s2())) }
        SH1ADD => { t.rd((t.s1() << 1).wrapping_add(t.s2())) }
        SH2ADD => { t.rd((t.s1() << 2).wrapping_add(t.s2())) }
        SH3ADD => { t.rd((t.s1() << 3).wrapping_add(t.s2())) }
        SH1ADD_UW => { t.rd(((t.s1() & 0xffff_ffff) << 1).wrapping_add(t.s2())) }
        SH2ADD_UW => { t.rd(((t.s1() & 0xffff_ffff) << 2).wrapping_add(t.s2())) }
        SH3ADD_UW => { t.rd(((t.s1() & 0xffff_ffff) << 3).wrapping_add(t.s2())) }
        SLLI_UW => { t.rd((t.s1() & 0xffff_ffff) << (t.imm() & 63)) }
        ANDN => { t.rd(t.s1() & !t.s2()) }
        ORN => { t.rd(t.s1() | !t.s2()) }
        XNOR => { t.rd(!(t.s1() ^ t.s2())) }
        CLZ => { t.rd(u64::from(t.s1().leading_zeros())) }
        CLZW => { t.rd(u64::from((t.s1() as u32).leading_zeros())) }
        CTZ => { t.rd(u64::from(t.s1().trailing_zeros())) }
        CTZW => { t.rd(u64::from((t.s1() as u32).trailing_zeros())) }
        CPOP => { t.rd(u64::from(t.s1().count_ones())) }
        CPOPW => { t.rd(u64::from((t.s1() as u32).count_ones())) }
        MAX => { t.rd((t.s1() as i64).max(t.s2() as i64) as u64) }
        MAXU => { t.rd(t.s1().max(t.s2())) }
        MIN => { t.rd((t.s1() as i64).min(t.s2() as i64) as u64) }
        MINU => { t.rd(t.s1().min(t.s2())) }
        SEXT_B => { t.rd(t.s1() as i8 as u64) }
        SEXT_H => { t.rd(t.s1() as i16 as u64) }
        ZEXT_H => { t.rd(t.s1() & 0xffff) }
        ROL => { t.rd(t.s1().rotate_left(t.s2() as u32 & 63)) }
        ROLW => { rd_word!(t, (t.s1() as u32).rotate_left(t.s2() as u32 & 31)) }
        ROR => { t.rd(t.s1().rotate_right(t.s2() as u32 & 63)) }
        RORI => { t.rd(t.s1().rotate_right(t.imm() as u32 & 63)) }
        RORIW => { rd_word!(t, (t.s1() as u32).rotate_right(t.imm() as u32 & 31)) }
        RORW => { rd_word!(t, (t.s1() as u32).rotate_right(t.s2() as u32 & 31)) }
        ORC_B => { t.rd(or_combine_bytes(t.s1())) }
        REV8 => { t.rd(t.s1().swap_bytes()) }
        BCLR => { t.rd(t.s1() & !(1 << (t.s2() & 63))) }
        BCLRI => { t.rd(t.s1() & !(1 << (t.imm() & 63))) }
        BEXT => { t.rd(t.s1() >> (t.s2() & 63) & 1) }
        BEXTI => { t.rd(t.s1() >> (t.imm() & 63) & 1) }
        BINV => { t.rd(t.s1() ^ 1 << (t.s2() & 63)) }
        BINVI => { t.rd(t.s1() ^ 1 << (t.imm() & 63)) }
        BSET => { t.rd(t.s1() | 1 << (t.s2() & 63)) }
        BSETI => { t.rd(t.s1() | 1 << (t.imm() & 63)) }
        ATOMIC_W => { atomic!(t, atomic::execute_word(t.cpu, t.state.space, t.at.insn())) }
        ATOMIC_D => { atomic!(t, atomic::execute_double(t.cpu, t.state.space, t.at.insn())) }
        FLOAT_S => { float_slowly!(t) }
        FLOAT_D => { float_slowly!(t) }
    }
    float F {
        ADD_S ADD_D => { float!(t, F::add(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        SUB_S SUB_D => { float!(t, F::sub(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        MUL_S MUL_D => { float!(t, F::mul(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        DIV_S DIV_D => { float!(t, F::div(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        SQRT_S SQRT_D => { float!(t, F::sqrt(F::unboxed(t.f1()))) }
        MUL_ADD_S MUL_ADD_D => { float!(t, F::mul_add(F::unboxed(t.f1()), F::unboxed(t.f2()), F::unboxed(t.f3()))) }
        MUL_SUB_S MUL_SUB_D => { float!(t, F::mul_add(F::unboxed(t.f1()), F::unboxed(t.f2()), F::unboxed(t.f3()) ^ F::SIGN)) }
        NEG_MUL_ADD_S NEG_MUL_ADD_D => {
            float!(t, F::mul_add(F::unboxed(t.f1()) ^ F::SIGN, F::unboxed(t.f2()), F::unboxed(t.f3())))
        }
        NEG_MUL_SUB_S NEG_MUL_SUB_D => {
            float!(t, F::mul_add(F::unboxed(t.f1()) ^ F::SIGN, F::unboxed(t.f2()), F::unboxed(t.f3()) ^ F::SIGN))
        }
        SIGN_COPY_S SIGN_COPY_D => { t.set_f(F::boxed(F::unboxed(t.f1()) & !F::SIGN | F::unboxed(t.f2()) & F::SIGN)) }
        SIGN_NEGATE_S SIGN_NEGATE_D => { t.set_f(F::boxed(F::unboxed(t.f1()) & !F::SIGN | !F::unboxed(t.f2()) & F::SIGN)) }
        SIGN_XOR_S SIGN_XOR_D => { t.set_f(F::boxed(F::unboxed(t.f1()) ^ F::unboxed(t.f2()) & F::SIGN)) }
        EQUAL_S EQUAL_D => { float_to_integer!(t, F::equal(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        LESS_S LESS_D => { float_to_integer!(t, F::less(F::unboxed(t.f1()), F::unboxed(t.f2()))) }
        LESS_OR_EQUAL_S LESS_OR_EQUAL_D => {
            float_to_integer!(t, F::less_or_equal(F::unboxed(t.f1()), F::unboxed(t.f2())))
        }
        // The bits, whatever they mean.
        MOVE_TO_INTEGER_S MOVE_TO_INTEGER_D => {
            t.rd(F::sign_extended(t.f1()))
        }
        MOVE_FROM_INTEGER_S MOVE_FROM_INTEGER_D => {
            set_boxed!(t, F, t.s1() & (F::SIGN | (F::SIGN - 1)))
        }
        TO_I32_S TO_I32_D => { float_to_integer!(t, F::to_i32(F::unboxed(t.f1()))) }
        TO_I64_S TO_I64_D => { float_to_integer!(t, F::to_i64(F::unboxed(t.f1()))) }
        FROM_I32_S FROM_I32_D => { float!(t, F::from_i64(i64::from(t.s1() as i32))) }
        FROM_I64_S FROM_I64_D => { float!(t, F::from_i64(t.s1() as i64)) }
        FROM_OTHER_S FROM_OTHER_D => {
            float!(t, F::from_other(<F as Format>::Other::unboxed(t.f1())))
        }
    }
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
