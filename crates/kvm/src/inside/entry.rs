//! The entry of system calls: what `SYSCALL` jumps to.
//!
//! ```text
//!   + 0   out CALL_PORT; back to the program      for what the desk has no answer to
//!   +16   look at the number                      LSTAR
//!         answers
//! ```
//!
//! An answer takes registers from the program, and puts them back. Where it touches memory that the
//! program has named, an exception may end it: the host takes the program's registers from the desk
//! then, and carries the call out as if it had come to it ([`interrupted_call`]). So an answer
//! changes nothing before that which the host would take in.
//!
//! Where `SYSCALL` enters ring 0, that is what runs here: addresses beyond the program's are left to
//! the host.
#![allow(unsafe_code, reason = "assembles guest code")]

use kvm_bindings::kvm_regs;

use crate::{
    inside::{
        code,
        desk::{DESK, at},
    },
    memory::Memory,
    paging::{PAGE, USER_END},
    stubs::{CALL_PORT, CallEntry, ENTRY, Frame},
};

/// Where a call begins.
pub(crate) const DISPATCH: u64 = ENTRY + 16;

/// The length of the `out` at [`ENTRY`].
pub(crate) const LEAVE_LENGTH: u64 = 2;

/// How many registers an answer takes.
const TAKEN: usize = 8;

/// Nanoseconds of the clock whose place on the desk is `r9`, to `rax`. The desk is at `r10`. Takes
/// `rdx` and `r8`.
macro_rules! now {
    () => {
        "20: mov r8, [r10 + {sequence}]
        lfence
        rdtsc
        shl rdx, 32
        or rax, rdx
        sub rax, [r10 + {ticks}]
        jae 21f
        xor eax, eax
        21: mul qword ptr [r10 + {rate}]
        shrd rax, rdx, 32
        cmp rax, [r10 + {least}]
        cmovb rax, [r10 + {least}]
        add rax, [r10 + r9]
        cmp r8, [r10 + {sequence}]
        jne 20b"
    };
}
pub(super) use now;

/// The place on the desk of the clock with the number in `edi`, to `r9`; to label 29 if it has none
/// there, or there is no time. Takes `r8`.
macro_rules! which_clock {
    () => {
        // Bits 0, 5 and 11: real time, coarse, and international; 1, 4 and 6: monotonic, raw, coarse.
        "cmp qword ptr [r10 + {rate}], 0
        je 29f
        cmp edi, 11
        ja 29f
        mov r8d, 0x821
        mov r9d, {real}
        bt r8d, edi
        jc 22f
        mov r8d, 0x52
        mov r9d, {monotonic}
        bt r8d, edi
        jc 22f
        mov r9d, {boot}
        cmp edi, 7
        jne 29f
        22:"
    };
}
pub(super) use which_clock;

/// Takes registers; the desk is at `r10` then.
macro_rules! take {
    () => {
        "mov [rip + 7b + {desk} + {registers} + 56], r10
        lea r10, [rip + 7b + {desk}]
        mov [r10 + {registers}], rax
        mov [r10 + {registers} + 8], rcx
        mov [r10 + {registers} + 16], rdx
        mov [r10 + {registers} + 24], rsi
        mov [r10 + {registers} + 32], rdi
        mov [r10 + {registers} + 40], r8
        mov [r10 + {registers} + 48], r9"
    };
}

/// Gives them back, but `rax`.
macro_rules! give_back {
    () => {
        "mov rcx, [r10 + {registers} + 8]
        mov rdx, [r10 + {registers} + 16]
        mov rsi, [r10 + {registers} + 24]
        mov rdi, [r10 + {registers} + 32]
        mov r8, [r10 + {registers} + 40]
        mov r9, [r10 + {registers} + 48]
        mov r10, [r10 + {registers} + 56]"
    };
}

/// Defines an entry. `leave` is behind the `out`, `back` behind an answer in `rax`.
macro_rules! entry {
    ($name:ident: $leave:literal, $back:literal $(, $constant:ident = $value:expr)*) => {
        code!($name: [
            "out {port}, al",
            $leave,
            ".balign 16",
            "cmp rax, 228",
            "je 50f",
            "cmp rax, 96",
            "je 51f",
            "cmp rax, 201",
            "je 52f",
            "test rax, rax",
            "jz 60f",
            "cmp rax, 45",
            "je 61f",
            "cmp rax, 202",
            "je 43f",
            "cmp rax, 39",
            "je 40f",
            "cmp rax, 186",
            "je 41f",
            "cmp rax, 24",
            "je 42f",
            "jmp 7b",

            // getpid()
            "40: mov rax, [rip + 7b + {desk} + {process}]",
            "test rax, rax",
            "jnz 32f",
            "mov eax, 39",
            "jmp 7b",

            // gettid()
            "41: mov rax, [rip + 7b + {desk} + {thread}]",
            "test rax, rax",
            "jnz 32f",
            "mov eax, 186",
            "jmp 7b",

            // sched_yield()
            "42: cmp qword ptr [rip + 7b + {desk} + {alone}], 1",
            "jne 7b",
            "xor eax, eax",
            "jmp 32f",

            // futex(at, FUTEX_WAKE or FUTEX_WAKE_PRIVATE, …)
            "43: cmp qword ptr [rip + 7b + {desk} + {knows_waiters}], 1",
            "jne 7b",
            "cmp esi, 1",
            "je 44f",
            "cmp esi, 129",
            "jne 7b",
            "44: test dil, 3",
            "jnz 7b",
            take!(),
            "lea r8, [r10 + {waiters}]",
            "mov r9d, 16",
            "45: cmp [r8], rdi",
            "je 46f",
            "add r8, 16",
            "dec r9d",
            "jnz 45b",
            "xor eax, eax",
            "jmp 31f",
            "46: mov rax, [r8 + 8]",
            "mov edx, edx",
            "cmp rax, rdx",
            "cmova rax, rdx",
            "test rax, rax",
            "jz 31f",
            "mov r9, [r10 + {wakes}]",
            "cmp r9, 16",
            "jae 29f",
            "inc qword ptr [r10 + {wakes}]",
            "sub [r8 + 8], rax",
            "shl r9, 4",
            "mov [r10 + r9 + {woken}], rdi",
            "mov [r10 + r9 + {woken} + 8], rax",
            "jmp 31f",

            // recvfrom(fd, to, length, 0 or MSG_DONTWAIT or MSG_NOSIGNAL, 0, …)
            "61: test r8, r8",
            "jnz 7b",
            "test r10d, 0xffffbfbf",
            "jnz 7b",

            // read(fd, to, length)
            "60: cmp rdi, [rip + 7b + {desk} + {fd}]",
            "jne 7b",
            take!(),
            "mov r8, [r10 + {length}]",
            "mov r9, [r10 + {read}]",
            "sub r8, r9",
            "jbe 62f",
            "cmp rdx, r8",
            "cmovb r8, rdx",
            "test r8, r8",
            "jz 29f",
            "movabs rdx, {user_end}",
            "sub rdx, r8",
            "jb 29f",
            "cmp rsi, rdx",
            "ja 29f",
            "mov rdi, rsi",
            "lea rsi, [r10 + r9 + {bytes}]",
            "mov rcx, r8",
            "cld",
            "rep movsb",
            "add [r10 + {read}], r8",
            "mov rax, r8",
            "jmp 31f",
            "62: cmp qword ptr [r10 + {is_nonblocking}], 1",
            "jne 29f",
            "test rdx, rdx",
            "jz 29f",
            "mov rax, -11",
            "jmp 31f",

            // clock_gettime(clock, to)
            "50:", take!(), which_clock!(),
            "movabs rdx, {user_end}",
            "cmp rsi, rdx",
            "ja 29f",
            now!(),
            "xor edx, edx",
            "mov r8d, 1000000000",
            "div r8",
            "mov [rsi], rax",
            "mov [rsi + 8], rdx",
            "xor eax, eax",
            "jmp 31f",

            // gettimeofday(to, 0)
            "51: test rsi, rsi",
            "jnz 7b",
            take!(),
            "cmp qword ptr [r10 + {rate}], 0",
            "je 29f",
            "movabs rdx, {user_end}",
            "cmp rdi, rdx",
            "ja 29f",
            "mov r9d, {real}",
            now!(),
            "xor edx, edx",
            "mov r8d, 1000000000",
            "div r8",
            "mov [rdi], rax",
            "mov eax, edx",
            "xor edx, edx",
            "mov r8d, 1000",
            "div r8d",
            "mov [rdi + 8], rax",
            "xor eax, eax",
            "jmp 31f",

            // time(0)
            "52: test rdi, rdi",
            "jnz 7b",
            take!(),
            "cmp qword ptr [r10 + {rate}], 0",
            "je 29f",
            "mov r9d, {real}",
            now!(),
            "xor edx, edx",
            "mov r8d, 1000000000",
            "div r8",

            "31:", give_back!(),
            "32: inc qword ptr [rip + 7b + {desk} + {calls}]",
            $back,

            // The host is to answer.
            "29: mov rax, [r10 + {registers}]",
            give_back!(),
            "jmp 7b",
        ],
            port = CALL_PORT,
            // From the beginning of the entry.
            desk = DESK - ENTRY,
            registers = at::REGISTERS,
            sequence = at::SEQUENCE,
            ticks = at::TICKS,
            rate = at::RATE,
            least = at::LEAST,
            real = at::REAL,
            monotonic = at::MONOTONIC,
            boot = at::BOOT,
            calls = at::CALLS,
            process = at::PROCESS,
            thread = at::THREAD,
            alone = at::ALONE,
            knows_waiters = at::KNOWS_WAITERS,
            waiters = at::WAITERS,
            wakes = at::WAKES,
            woken = at::WOKEN,
            fd = at::FD,
            length = at::LENGTH,
            read = at::READ,
            is_nonblocking = at::IS_NONBLOCKING,
            bytes = at::BYTES,
            // What can hold the largest structure.
            user_end = USER_END - 16
            $(, $constant = $value)*
        );
    };
}

entry!(entry_of_ring_0: "sysretq", "sysretq");

// A jump leaves the flags as they are: the processor takes the program's from a stack of one word.
entry!(entry_of_ring_3: "jmp rcx",
    "mov [rip + 7b + {desk} + {rsp}], rsp
    lea rsp, [rip + 7b + {desk} + {stack_top}]
    push r11
    popfq
    mov rsp, [rip + 7b + {desk} + {rsp}]
    jmp rcx",
    rsp = at::REGISTERS + 8 * TAKEN as u64,
    stack_top = at::STACK_TOP
);

/// The code at [`ENTRY`].
pub(crate) fn entry(entry: CallEntry) -> &'static [u8] {
    match entry {
        CallEntry::Ring0 => entry_of_ring_0(),
        CallEntry::Ring3 => entry_of_ring_3(),
    }
}

/// The registers of a program whose call was being answered when an exception came, from those of
/// the processor; `None` if none was.
///
/// Nothing says that this is so: a program may jump here, and write to the desk. Then it makes some call
/// or other.
pub(crate) fn interrupted_call(
    entry: CallEntry,
    frame: &Frame,
    registers: &kvm_regs,
    memory: &Memory,
) -> Option<kvm_regs> {
    let is_there = (DISPATCH..ENTRY + PAGE).contains(&frame.rip);
    if !is_there || frame.is_users() != (entry == CallEntry::Ring3) {
        return None;
    }
    let mut taken = [0; TAKEN];
    let bytes = memory.system::<{ 8 * TAKEN }>(DESK + at::REGISTERS);
    for (word, bytes) in taken.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    let [rax, rcx, rdx, rsi, rdi, r8, r9, r10] = taken;
    Some(kvm_regs { rax, rcx, rdx, rsi, rdi, r8, r9, r10, rsp: frame.rsp, ..*registers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_begins_with_the_way_out_and_fits_in_its_page() {
        for code in [entry_of_ring_0(), entry_of_ring_3()] {
            assert_eq!(code[..2], [0xe6, CALL_PORT as u8]);
            assert_ne!(code[16], 0, "the dispatch begins there");
            assert!(code.len() < PAGE as usize);
        }
    }
}
