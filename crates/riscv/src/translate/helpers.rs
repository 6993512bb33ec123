//! What translated code calls.
//!
//! Each gets the base, from which it finds the frame, and up to four values; each returns whether
//! it has done what was asked, and a value. None panics on the guest's account: a guest chooses
//! the values only.
#![allow(unsafe_code, reason = "called by translated code, with the address of its frame")]

use sandtide_memory::native::FRAME_BELOW;

use super::{frame::Frame, run::MOST_PAGES};
use crate::isa::{
    execute_csr, execute_double, execute_in_session, execute_word, harvest_in_session,
    insn::{FloatFields, Insn, op},
};

/// The number of [`check`].
pub(super) const CHECK: usize = 0;
/// The number of [`atomic`].
pub(super) const ATOMIC: usize = 1;
/// The number of [`float`].
pub(super) const FLOAT: usize = 2;

/// The number of [`flags`].
pub(super) const FLAGS: usize = 3;
/// How many helpers there are.
pub(super) const HELPERS: usize = 4;
/// The number of the host code that stores MXCSR to the frame.
pub(super) const STORE_MXCSR: usize = 4;
/// The number of the host code that loads MXCSR from the frame.
pub(super) const LOAD_MXCSR: usize = 5;
/// How many pieces of host code the frame has the addresses of.
pub(super) const HOST_CODE: usize = 6;

/// The addresses of the helpers, by number.
pub(super) fn addresses() -> [usize; HELPERS] {
    [
        check as *const () as usize,
        atomic as *const () as usize,
        float as *const () as usize,
        flags as *const () as usize,
    ]
}

/// What a helper returns, in two registers.
#[repr(C)]
struct Answer {
    is_done: u64,
    value: u64,
}

impl Answer {
    const NO: Self = Self { is_done: 0, value: 0 };

    fn value(value: u64) -> Self {
        Self { is_done: 1, value }
    }
}

/// The frame below a base.
///
/// # Safety
/// `base` is that of a space whose frame the dispatcher has filled in, on this thread.
unsafe fn frame<'a>(base: *mut u8) -> &'a Frame {
    // SAFETY: the frame lies there, aligned to a page, and nothing writes to it while a helper
    // runs.
    unsafe { &*base.sub(FRAME_BELOW).cast::<Frame>() }
}

/// Looks closer at a range that the table does not simply allow to store to. Pages that the store
/// itself (`current`, of `bytes` bytes) is the first to write are noted as written; other pages
/// must have been.
unsafe extern "C" fn check(
    base: *mut u8,
    first: u64,
    length: u64,
    current: u64,
    bytes: u64,
) -> Answer {
    // SAFETY: called by translated code, which the dispatcher has entered with this base. It holds
    // no other reference to the space while translated code runs.
    let space = unsafe { &mut *frame(base).space };
    let pages = space.written_pages();
    let is_allowed = space.view_mut(current as u32, bytes as usize).is_ok()
        && space.is_ready(first as u32, length as usize);
    // The dispatcher looks whether that takes long.
    let is_many = space.written_pages() != pages && (pages + 1).is_multiple_of(MOST_PAGES / 2);
    if is_allowed && !is_many { Answer::value(0) } else { Answer::NO }
}

/// Executes an atomic access on the values of its two source registers.
unsafe extern "C" fn atomic(base: *mut u8, insn: u64, a: u64, b: u64, _: u64) -> Answer {
    // SAFETY: as in `check`.
    let frame = unsafe { frame(base) };
    // SAFETY: as in `check`; the dispatcher uses neither while translated code runs.
    let (space, cpu) = unsafe { (&mut *frame.space, &mut *frame.cpu) };
    let insn = Insn(insn);
    (cpu.x[insn.s1()], cpu.x[insn.s2()]) = (a, b);
    let result = if insn.op() == op::ATOMIC_W {
        execute_word(cpu, space, insn)
    } else {
        execute_double(cpu, space, insn)
    };
    match result {
        Ok(()) => Answer::value(cpu.x[insn.d()]),
        Err(_) => Answer::NO,
    }
}

/// Executes a floating-point instruction on the values of its source registers.
unsafe extern "C" fn float(base: *mut u8, insn: u64, a: u64, b: u64, c: u64) -> Answer {
    // SAFETY: as in `atomic`.
    let cpu = unsafe { &mut *frame(base).cpu };
    let insn = Insn(insn);
    // One of the two is not read.
    cpu.x[insn.s1()] = a;
    cpu.x[0] = 0;
    // In this order: where registers are the same, so are the values.
    cpu.f[FloatFields::of(insn).fs3_index()] = c;
    cpu.f[insn.fs2_index()] = b;
    cpu.f[insn.fs1_index()] = a;
    match execute_in_session(cpu, insn) {
        Ok(()) if super::registers::effects(insn).writes.0 >> 32 != 0 => {
            Answer::value(cpu.f[insn.fd_index()])
        }
        Ok(()) => Answer::value(cpu.x[insn.d()]),
        Err(_) => Answer::NO,
    }
}

/// Executes a CSR instruction that writes `fflags`, on the value of its source register.
unsafe extern "C" fn flags(base: *mut u8, insn: u64, a: u64, _: u64, _: u64) -> Answer {
    // SAFETY: as in `atomic`.
    let cpu = unsafe { &mut *frame(base).cpu };
    let insn = Insn(insn);
    harvest_in_session(cpu);
    cpu.x[insn.s1()] = a;
    cpu.x[0] = 0;
    match execute_csr(cpu, insn, 0) {
        Ok(()) => Answer::value(cpu.x[insn.d()]),
        Err(_) => Answer::NO,
    }
}
