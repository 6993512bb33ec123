//! The riscv engine: RV64GC programs, static or static-PIE Linux ELF, translated to
//! host code or interpreted.
//!
//! ```text
//!   file ─elf─▶ Image ─place─▶ Machine ─boot─▶ waits for a request ─freeze─▶ RiscvProgram
//!                              (memory, threads, code)                          │ spawn
//!                                                                         RiscvSandbox
//! ```
//!
//! A program's decoded code, frozen memory and symbols are shared by all of its sandboxes; a
//! sandbox has a [`machine`] of its own: registers and kernel state, and the pages it has written.
#![deny(missing_docs)]

mod boot;
mod elf;
mod engine;
mod fault;
mod isa;
mod machine;
mod memory;
mod place;
mod profiler;
mod program;
mod registers;
mod sandbox;
mod symbols;
mod translate;
mod translator;
mod unwind;
mod verify;

pub use engine::RiscvEngine;
pub use translator::{
    TranslationOptions,
    cache::{Cache, CacheError},
};
/// What measurements need, and nobody else.
#[cfg(feature = "measure")]
pub mod measure {
    pub use crate::translate::{Part, leave_out};
}
