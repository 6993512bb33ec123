//! The instruction set: RV64GC, Zba, Zbb and Zbs, user mode.
//!
//! ```text
//!  guest bytes ──decode──▶ Insn (8 bytes, packed) ──kept in──▶ Code (shared by all sandboxes)
//!                                                               │
//!                         Cpu (registers) + Space (memory) ──▶ run ──▶ Exit
//! ```
//!
//! Section numbers refer to "The RISC-V Instruction Set Manual, Volume I: Unprivileged ISA",
//! called *RISC-V Unprivileged ISA* here.

mod atomic;
mod code;
mod compressed;
mod cpu;
mod csr;
pub(crate) mod decode;
mod execute;
mod float;
pub(crate) mod insn;
mod quick;
mod register;
mod run;

pub(crate) use atomic::{execute_double, execute_word};
pub(crate) use code::Code;
pub(crate) use cpu::Cpu;
pub(crate) use csr::execute as execute_csr;
pub(crate) use float::{Session, execute_in_session, harvest_in_session};
pub(crate) use run::{Entries, Exit, fetch, run, run_until};

#[cfg(test)]
pub(crate) mod tests;
