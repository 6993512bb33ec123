//! The interpreter's loop.
//!
//! The handlers of [`super::execute`] hand on to each other as long as each next instruction is
//! decoded in the region of the one before. They come back where it is not, and after a bounded
//! number of instructions; [`Code::locate`] then finds or decodes it.

use sandtide_engine::TrapCause;
use sandtide_memory::{Denied, Space};

use super::{
    code::{Code, Lone},
    cpu::Cpu,
    decode::{decode16, decode32, is_short},
    execute::{End, State, execute},
    float,
    insn::Insn,
};
use crate::fault;

/// The most instructions that hand on to each other.
pub(super) const STRIDE: u64 = 1024;

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
pub(crate) trait Entries: 'static {
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

fn interpret(
    cpu: &mut Cpu,
    space: &mut Space,
    code: &Code,
    budget: &mut u64,
    float: &mut float::Session,
    entries: &impl Entries,
) -> Exit {
    let start = *budget;
    let no_code = Code::default();
    let code = if space.code_is_pristine() { code } else { &no_code };
    let lone = Lone::default();
    let (mut left, mut pc) = (start, cpu.pc);
    let mut state = State {
        catches: fault::install() && space.is_mirrored(),
        space,
        entries,
        float,
        is_nearest: false,
        place: lone.place(pc),
        retired_at_end: 0,
        end: End::Vacant,
        pc,
        left: 0,
    };

    let exit = 'run: loop {
        if left == 0 {
            break Exit::Budget;
        }
        let Some((place, mut at)) = code.locate(pc, &lone, || fetch(pc, state.space)) else {
            break Exit::Trap { cause: TrapCause::Fetch, address: pc };
        };
        state.place = place;
        loop {
            let granted = left.min(STRIDE);
            state.retired_at_end = cpu.instret.wrapping_add(start - left + granted);
            execute(cpu, at, granted, &mut state);
            left -= granted - state.left;
            match state.end {
                End::Pause(next) if left > 0 => at = next,
                End::Pause(next) => {
                    pc = place.pc_of(next);
                    break 'run Exit::Budget;
                }
                End::Vacant => {
                    pc = state.pc;
                    break;
                }
                End::Exit(exit) => {
                    pc = state.pc;
                    break 'run exit;
                }
            }
        }
    };
    cpu.pc = pc;
    cpu.instret = cpu.instret.wrapping_add(start - left);
    *budget = left;
    exit
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
