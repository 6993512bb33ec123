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
mod decode;
mod float;
mod insn;
mod run;

pub(crate) use code::Code;
pub(crate) use cpu::Cpu;
pub(crate) use run::{Exit, run};

#[cfg(test)]
mod tests;
