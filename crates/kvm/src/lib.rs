//! The kvm engine: x86-64 programs at native speed, in virtual machines without an operating
//! system.
//!
//! ```text
//!   file ─elf─▶ Image ─place─▶ Machine ─boot─▶ waits for a request ─freeze─▶ KvmProgram
//!                              (vm, vcpu, memory, threads)                     │ spawn
//!                                                                          KvmSandbox
//! ```
//!
//! The program runs in ring 3; a few [`stubs`] take it to the host for system calls and exceptions,
//! where the Linux layer is. The guest is hostile, its ring 0 included: of what comes from the
//! virtual machine the host believes only what KVM itself says, and registers are nothing but a
//! program's numbers.
//!
//! On other processors than x86-64 this crate is empty.
#![cfg(target_arch = "x86_64")]
#![deny(missing_docs)]

mod boot;
mod engine;
mod exception;
mod inside;
mod kept;
mod machine;
mod memory;
mod paging;
mod place;
mod probe;
mod program;
mod registers;
mod ring;
mod sandbox;
mod state;
mod stubs;
mod symbols;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod vcpu;
mod vectors;
mod vm;
mod watchdog;

pub use engine::KvmEngine;
pub use probe::{Support, Unavailable, probe};
pub use stubs::CallEntry;
