//! Loads that fault in the host.
//!
//! Neither translated code nor the interpreter looks whether a guest may load from an address: the
//! host's protection is the same ([`sandtide_memory`]), and the signal comes here. A load of the
//! interpreter goes on as one that has failed; translated code is left
//! ([`crate::translate::divert`]). All other faults go to the handler that was there before.
//!
//! The handler needs no stack of its own, but uses one if the thread has it. There is none for
//! SIGBUS: guest memory is anonymous, or a sealed file that cannot shrink, so that signal would be
//! the host's own trouble.
#![allow(unsafe_code, reason = "handles a signal")]

use std::{
    ffi::{c_int, c_void},
    ptr,
    sync::OnceLock,
};

use sandtide_memory::native::instead_of;

use crate::translate;

/// What handled the signal before us.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Makes faults come here; whether that was possible.
#[inline]
pub(crate) fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: all zero is a valid `sigaction`: the default action, without flags.
        let (mut previous, mut action) = unsafe {
            (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed::<libc::sigaction>())
        };
        // SAFETY: only asks, into a value of our own.
        if unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &mut previous) } != 0 {
            return false;
        }
        // Before the first fault can come.
        let _ = PREVIOUS.set(previous);
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that the flags ask for, and is async-signal-safe.
        unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) == 0 }
    })
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls with both, good until we return.
    let is_ours = unsafe {
        let context = &mut *context.cast();
        interpreted(context) || translate::divert(&*info, context)
    };
    if !is_ours {
        // SAFETY: as it came from the kernel.
        unsafe { pass_on(signal, info, context) };
    }
}

/// If the fault is that of a load of the interpreter: goes on where it has failed.
fn interpreted(context: &mut libc::ucontext_t) -> bool {
    let pc = &mut context.uc_mcontext.gregs[libc::REG_RIP as usize];
    let Some(next) = instead_of(*pc as usize) else { return false };
    *pc = next as i64;
    true
}

/// Does what would have been done without us.
///
/// # Safety
/// In a signal handler, with what it got.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    type Full = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type Short = extern "C" fn(c_int);
    match PREVIOUS.get() {
        Some(previous) if !matches!(previous.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) => {
            // SAFETY: a handler that somebody has installed has the signature that the flags say.
            unsafe {
                if previous.sa_flags & libc::SA_SIGINFO != 0 {
                    std::mem::transmute::<usize, Full>(previous.sa_sigaction)(
                        signal, info, context,
                    );
                } else {
                    std::mem::transmute::<usize, Short>(previous.sa_sigaction)(signal);
                }
            }
        }
        // The access comes again, and ends the process.
        _ => {
            // SAFETY: all zero is the default action; `sigaction` is async-signal-safe.
            unsafe {
                let action = std::mem::zeroed::<libc::sigaction>();
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
    }
}
