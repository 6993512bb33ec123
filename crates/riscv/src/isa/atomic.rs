//! Atomic memory accesses (RISC-V Unprivileged ISA, "A Extension for Atomic Instructions").
//!
//! One thread of a guest runs at a time, and never stops inside an instruction: plain loads and
//! stores are atomic.

use sandtide_engine::TrapCause;
use sandtide_memory::Space;

use super::{
    cpu::{Cpu, Reservation},
    insn::{Insn, amo},
    run::Exit,
};

/// A width of atomic accesses.
trait Width {
    /// In bytes.
    const BYTES: u32;
    /// Reads, sign-extended.
    fn load(space: &Space, address: u32, cause: TrapCause) -> Result<u64, Exit>;
    /// Writes the low bytes.
    fn store(space: &mut Space, address: u32, value: u64) -> Result<(), Exit>;
    /// Sign-extends the low bytes.
    fn sign_extend(value: u64) -> u64;
}

struct Word;
struct Double;

impl Width for Word {
    const BYTES: u32 = 4;

    fn load(space: &Space, address: u32, cause: TrapCause) -> Result<u64, Exit> {
        match space.load::<4>(address) {
            Ok(bytes) => Ok(i32::from_le_bytes(bytes) as u64),
            Err(denied) => Err(Exit::denied(denied, cause, address)),
        }
    }

    fn store(space: &mut Space, address: u32, value: u64) -> Result<(), Exit> {
        space
            .store(address, (value as u32).to_le_bytes())
            .map_err(|denied| Exit::denied(denied, TrapCause::Store, address))
    }

    fn sign_extend(value: u64) -> u64 {
        value as i32 as u64
    }
}

impl Width for Double {
    const BYTES: u32 = 8;

    fn load(space: &Space, address: u32, cause: TrapCause) -> Result<u64, Exit> {
        match space.load::<8>(address) {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(denied) => Err(Exit::denied(denied, cause, address)),
        }
    }

    fn store(space: &mut Space, address: u32, value: u64) -> Result<(), Exit> {
        space
            .store(address, value.to_le_bytes())
            .map_err(|denied| Exit::denied(denied, TrapCause::Store, address))
    }

    fn sign_extend(value: u64) -> u64 {
        value
    }
}

/// Executes [`op::ATOMIC_W`](super::insn::op::ATOMIC_W).
#[inline(never)]
pub(crate) fn execute_word(cpu: &mut Cpu, space: &mut Space, insn: Insn) -> Result<(), Exit> {
    execute::<Word>(cpu, space, insn)
}

/// Executes [`op::ATOMIC_D`](super::insn::op::ATOMIC_D).
#[inline(never)]
pub(crate) fn execute_double(cpu: &mut Cpu, space: &mut Space, insn: Insn) -> Result<(), Exit> {
    execute::<Double>(cpu, space, insn)
}

fn execute<W: Width>(cpu: &mut Cpu, space: &mut Space, insn: Insn) -> Result<(), Exit> {
    let address = cpu.x[insn.s1()] as u32;
    if !address.is_multiple_of(W::BYTES) {
        let cause = TrapCause::MisalignedAtomic;
        return Err(Exit::Trap { cause, address: u64::from(address) });
    }
    let reservation = Reservation { address, length: W::BYTES };
    let operand = W::sign_extend(cpu.x[insn.s2()]);
    cpu.x[insn.d()] = match insn.immediate() as u32 {
        amo::LR => {
            let value = W::load(space, address, TrapCause::Load)?;
            cpu.reservation = Some(reservation);
            value
        }
        amo::SC => {
            let held = cpu.reservation == Some(reservation);
            if held {
                W::store(space, address, operand)?;
            }
            cpu.reservation = None;
            u64::from(!held)
        }
        function => {
            let old = W::load(space, address, TrapCause::Store)?;
            W::store(space, address, combine(function, old, operand))?;
            old
        }
    };
    Ok(())
}

/// What a read-modify-write stores. Both values are sign-extended, which keeps unsigned order
/// among words.
fn combine(function: u32, old: u64, operand: u64) -> u64 {
    match function {
        amo::ADD => old.wrapping_add(operand),
        amo::XOR => old ^ operand,
        amo::OR => old | operand,
        amo::AND => old & operand,
        amo::MIN => (old as i64).min(operand as i64) as u64,
        amo::MAX => (old as i64).max(operand as i64) as u64,
        amo::MINU => old.min(operand),
        amo::MAXU => old.max(operand),
        // The decoder lets only `amo::SWAP` come here.
        _ => operand,
    }
}
