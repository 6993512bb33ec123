//! What the processor's exceptions are for Linux (AMD64 Architecture Programmer's Manual Vol. 2, 8.2
//! "Vectors").

use sandtide_engine::TrapCause;

use crate::stubs::Frame;

/// An exception, as the program and its owner are told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exception {
    /// The signal that Linux sends.
    pub(crate) signal: u8,
    /// `si_code`.
    pub(crate) code: i32,
    /// What a fault says.
    pub(crate) cause: TrapCause,
}

const DIVIDE: u16 = 0;
const DEBUG: u16 = 1;
const BREAKPOINT: u16 = 3;
const OVERFLOW: u16 = 4;
const BOUNDS: u16 = 5;
const INVALID: u16 = 6;
const PAGE: u16 = 14;
const FLOATING: u16 = 16;
const ALIGNMENT: u16 = 17;
const VECTOR: u16 = 19;

/// An instruction that only a kernel may use.
pub(crate) const PRIVILEGED: Exception =
    Exception { signal: 11, code: 0x80, cause: TrapCause::Protection };

/// What a vector and its error code mean.
pub(crate) fn of(vector: u16, error: u64) -> Exception {
    const PRESENT: u64 = 1;
    const WRITE: u64 = 2;
    const FETCH: u64 = 16;
    let exception = |signal, code, cause| Exception { signal, code, cause };
    match vector {
        DIVIDE => exception(8, 1, TrapCause::Arithmetic),
        DEBUG => exception(5, 2, TrapCause::Breakpoint),
        BREAKPOINT => exception(5, 0x80, TrapCause::Breakpoint),
        OVERFLOW | BOUNDS => exception(11, 0x80, TrapCause::Protection),
        INVALID => exception(4, 2, TrapCause::IllegalInstruction),
        PAGE => {
            let code = if error & PRESENT != 0 { 2 } else { 1 };
            let cause = match error {
                _ if error & FETCH != 0 => TrapCause::Fetch,
                _ if error & WRITE != 0 => TrapCause::Store,
                _ => TrapCause::Load,
            };
            exception(11, code, cause)
        }
        FLOATING | VECTOR => exception(8, 7, TrapCause::Arithmetic),
        ALIGNMENT => exception(7, 1, TrapCause::MisalignedAtomic),
        // General protection, stack, segments: what Linux has no better word for.
        _ => PRIVILEGED,
    }
}

/// Whether the processor found no translation of an address, or one that forbids the access.
pub(crate) fn is_page_fault(vector: u16) -> bool {
    vector == PAGE
}

/// Whether memory that was accessed by an instruction may be to blame.
pub(crate) fn is_of_memory(vector: u16) -> bool {
    const PROTECTION: u16 = 13;
    matches!(vector, PROTECTION | PAGE | ALIGNMENT)
}

/// `si_addr`: the data for a page fault, the instruction for what is wrong with that.
pub(crate) fn address(vector: u16, fault: u64, frame: &Frame) -> u64 {
    match vector {
        PAGE => fault,
        DIVIDE | DEBUG | INVALID | FLOATING | VECTOR => frame.rip,
        _ => 0,
    }
}

/// Whether a system call is about the vector registers: a new thread begins with those of its maker.
pub(crate) fn needs_vectors(number: u64) -> bool {
    const CLONE: u64 = 56;
    const CLONE3: u64 = 435;
    matches!(number, CLONE | CLONE3)
}

/// Whether a system call is about the thread pointer, which programs can set without one.
pub(crate) fn needs_thread_pointer(number: u64) -> bool {
    const ARCH_PRCTL: u64 = 158;
    number == ARCH_PRCTL
}
