//! Loads of translated code that fault.
//!
//! ```text
//!  dispatcher ─▶ enter ─▶ host functions ─▶ a load of what the guest may not read
//!      ▲           │ keeps the stack pointer        │ SIGSEGV
//!      │           ▼                                ▼
//!      │         frame page ◀── registers ──── divert: is it a load that may fault, in guest memory?
//!      │           │                                │ no: not ours
//!      └───────── land ◀────────────────────────────┘ yes
//!                  └ restore: the guest's registers and the count as in front of the load
//! ```
//!
//! So host code has left in front of the instruction, as it does everywhere else, and the
//! interpreter executes it and finds the fault.
//!
//! What the handler ([`crate::fault`]) calls here only reads tables and writes to the frame page;
//! everything else runs behind it, on the stack of the host function.
#![allow(unsafe_code, reason = "leaves host functions from the middle")]

use std::{arch::naked_asm, cell::Cell, ffi::c_int, mem::offset_of, ptr};

use sandtide_memory::native::{FRAME_BELOW, GUEST_RANGE};

use super::{
    frame::{Frame, leave},
    sites::{HostRegisters, LEFT},
};

/// A function in the host's own convention that calls a host function: base, function, budget.
pub(super) type Trampoline = unsafe extern "C" fn(*mut u8, usize, i64) -> u64;

thread_local! {
    /// The base of the space that this thread runs translated code on.
    static ACTIVE: Cell<*mut u8> = const { Cell::new(ptr::null_mut()) };
}

/// Runs a host function through the trampoline, until it comes back or a load faults.
///
/// # Safety
/// `base` is that of a space of which nobody else uses anything, with a frame that is filled in
/// for this code; `trampoline` and `function` are of this code, and the frame names an entry of
/// the function.
pub(super) unsafe fn run(base: *mut u8, function: usize, left: i64, trampoline: Trampoline) -> u64 {
    ACTIVE.set(base);
    // SAFETY: as the caller says.
    let next = unsafe { enter(base, function, left, trampoline) };
    ACTIVE.set(ptr::null_mut());
    next
}

/// Where the stack pointer is kept, from the base on.
const STACK_POINTER: i32 = offset_of!(Frame, stack_pointer) as i32 - FRAME_BELOW as i32;

/// Calls the trampoline. What must be preserved is on the stack, at the address in the frame.
#[unsafe(naked)]
unsafe extern "C" fn enter(
    base: *mut u8,
    function: usize,
    left: i64,
    trampoline: Trampoline,
) -> u64 {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "mov [rdi + {stack_pointer}], rsp",
        "call rcx",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        stack_pointer = const STACK_POINTER,
    )
}

/// Where the handler goes on, with the base in `rdi` and room on the stack: leaves the host
/// functions, and comes back from [`enter`] with the result of [`restore`].
#[unsafe(naked)]
unsafe extern "C" fn land() {
    naked_asm!(
        "mov rbx, rdi",
        "call {restore}",
        "mov rsp, [rbx + {stack_pointer}]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        restore = sym restore,
        stack_pointer = const STACK_POINTER,
    )
}

/// The registers in the order of their hardware numbers, in `gregs`.
const INTEGERS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// The number of the frame pointer.
const RBP: usize = 5;

/// What `land` may use below the stack pointer of a host function: it starts farther down than
/// anything that the function may have there.
const BELOW: u64 = 256;

/// If the fault is that of a translated load: keeps the registers, and goes on at [`land`].
/// Otherwise `false`, or, if translated code does what it must never do, the end.
///
/// # Safety
/// In a handler of SIGSEGV, with what it got.
pub(crate) unsafe fn divert(info: &libc::siginfo_t, context: &mut libc::ucontext_t) -> bool {
    let base = ACTIVE.get();
    if base.is_null() {
        return false;
    }
    // SAFETY: `base` is that of the space whose translated code this thread runs: the frame lies
    // there, and was filled in for that code. It is interrupted, and only knows the frame's
    // address.
    let frame = unsafe { &mut *base.sub(FRAME_BELOW).cast::<Frame>() };
    let registers = &mut context.uc_mcontext.gregs;
    let pc = registers[libc::REG_RIP as usize] as usize;
    let offset = pc.wrapping_sub(frame.code);
    if offset >= frame.code_length {
        return false;
    }
    // SAFETY: the kernel has filled in the address for this signal.
    let address = unsafe { info.si_addr() } as usize;
    let in_guest = GUEST_RANGE.contains(&(address as i64).wrapping_sub(base as i64));
    // SAFETY: the table belongs to the code that runs.
    let site = unsafe { (*frame.sites).find(offset as u32) };
    let (Some(site), true) = (site, in_guest) else {
        const MESSAGE: &[u8] = b"sandtide: translated code accessed memory that is not its own\n";
        // SAFETY: both are async-signal-safe, and the message is ours.
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::abort()
        }
    };
    frame.site = site;
    for (kept, number) in frame.host.integers.iter_mut().zip(INTEGERS) {
        *kept = registers[number as usize] as u64;
    }
    let state = context.uc_mcontext.fpregs;
    // SAFETY: the kernel has saved the floating-point state, which translated code uses, there.
    for (kept, vector) in frame.host.floats.iter_mut().zip(unsafe { &(*state)._xmm }) {
        *kept = u64::from(vector.element[0]) | u64::from(vector.element[1]) << 32;
    }
    let stack = registers[libc::REG_RSP as usize] as u64 - BELOW;
    registers[libc::REG_RSP as usize] = (stack & !15) as i64;
    registers[libc::REG_RDI as usize] = base as i64;
    registers[libc::REG_RIP as usize] = land as *const () as i64;
    true
}

/// Brings the frame page up to date from the registers that the handler has kept. Returns where
/// the guest goes on.
unsafe extern "C" fn restore(base: *mut u8) -> u64 {
    // SAFETY: `land` calls with the base of the space whose code has run; nobody else knows of
    // the frame.
    let frame = unsafe { &mut *base.sub(FRAME_BELOW).cast::<Frame>() };
    // SAFETY: the table belongs to the code that has run, and is not in the frame.
    let sites = unsafe { &*frame.sites };
    // The handler has found it.
    let Some(site) = sites.get(frame.site) else { std::process::abort() };
    let host: HostRegisters = frame.host;
    let stack = |offset: i32| {
        let at = host.integers[RBP].wrapping_add(i64::from(offset) as u64);
        // SAFETY: a slot of the stack frame of the host function that faulted, which lies above
        // all that is used since.
        unsafe { ptr::read(at as *const u64) }
    };
    for (register, value) in sites.values(site, &host, stack) {
        match register {
            0..32 => frame.x[register as usize] = value,
            LEFT => frame.left = (value as i64) - i64::from(site.pending),
            _ => frame.f[register as usize - 32] = value,
        }
    }
    frame.stale |= site.stale;
    site.pc | leave::INTERPRET
}
