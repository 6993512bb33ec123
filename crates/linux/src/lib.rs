//! The Linux that guests see.

mod cpu;
mod memory;
pub mod protocol;

pub use cpu::{Architecture, Cpu, SignalEntry, SignalInfo};
pub use memory::{GuestMemory, MemoryError, PAGE, Protection};
