//! What a guest is told without an exit, which costs more than most system calls do.
//!
//! ```text
//!        host ──── lays out before the guest runs ────▶ Desk ◀── takes in what was used ──── host
//!                                                        │
//!   program ── calls a function of ──▶ vdso ── reads ────┤
//!   program ── makes a system call ─▶ entry ── answers from it ──▶ program
//!                                       └── or leaves to the host, which finds all as if
//!                                           each call had come to it
//! ```
//!
//! The desk is memory that the program can write. What the host reads there are numbers that it
//! checks: a program that lies is told nonsense, or is taken to have read what it has not.

pub(crate) mod code;
mod desk;
mod entry;
mod ticks;
mod vdso;

pub(crate) use code::code;
pub(crate) use desk::{DESK_PAGES, Desk};
pub(crate) use entry::{DISPATCH, LEAVE_LENGTH, entry, interrupted_call};
pub(crate) use ticks::{Ticks, counter};
pub(crate) use vdso::{VDSO, image, is_function};
