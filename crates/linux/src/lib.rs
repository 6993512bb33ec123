//! The Linux that guests see.
//!
//! An engine owns guest memory and runs instructions; everything else that a program expects of
//! Linux is here, over the traits [`GuestMemory`] and [`Cpu`]. A [`Process`] has the state, and is
//! a plain value: a clone of it is a snapshot.
//!
//! ```text
//! loop {
//!     match process.schedule(now, host) {
//!         Run      => run instructions until a system call, a trap or the end of the quantum
//!         Idle     => wait for the host or the timer
//!         …        => the process is over
//!     }
//!     system call    => process.call(host)          → Action
//!     trap           => process.deliver(signal)     → Delivered
//!     end of quantum => process.preempt()
//! }
//! ```
//!
//! Nothing here blocks the host's thread: a call that has to wait parks its guest thread, and
//! `schedule` makes it again on the host's side, without a way into the guest.
#![forbid(unsafe_code)]

mod answers;
mod arena;
mod calls;
mod connections;
mod cpu;
mod delivery;
pub mod elf;
mod files;
mod fresh;
mod guest;
mod host;
pub mod http1;
mod image;
mod kernel;
mod memory;
mod objects;
mod outside;
mod pause;
mod process;
mod process_id;
pub mod protocol;
mod readiness;
mod reads;
mod saved;
pub mod serve;
mod signals;
mod space;
mod start;
mod table;
#[cfg(test)]
mod testing;
mod threads;
mod tracked;
mod verify;
mod vfs;

pub use answers::{Answers, Input, Waiters};
pub use connections::{Connection, Listener};
pub use cpu::{Architecture, Cpu, SignalEntry, SignalInfo};
pub use host::{Action, CpuTime, Delivered, Host, Schedule};
pub use image::{
    DEFAULT_STACK, Hardware, ImageLayout, MAX_STACK, ProcessSetup, Segment, StartError,
};
pub use memory::{GuestMemory, MemoryError, PAGE, Protection, SharedFile};
pub use process::Process;
pub use reads::{FileChanged, FileRead, Reads};
pub use saved::{RestoreError, SaveError};
pub use vfs::read_granted;

pub(crate) use rustix::io::Errno;

#[cfg(test)]
mod tests;
