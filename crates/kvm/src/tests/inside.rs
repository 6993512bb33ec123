//! What guests are answered without an exit, and guests that spoil what the answers are made from.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use sandtide_engine::{Fault, Limits};

use super::{
    guests::{Quiet, execute, guest, has_kvm, load},
    sandboxes::{TIME, serve},
};

// clock_gettime(CLOCK_MONOTONIC), twice into memory and then to where nothing can be written; exits
// with 1 if the second is not before the first and the third is EFAULT with every register kept.
guest!(reads_clocks:
    "mov rbx, 0x1122334455667788",
    "mov rdx, rbx", "mov r8, rbx", "mov r9, rbx", "mov r10, rbx",
    "mov edi, 1", "mov esi, 0x500000", "mov eax, 228", "stc", "syscall", "jnc 9f",
    "test eax, eax", "jnz 9f",
    "mov edi, 1", "mov esi, 0x500010", "mov eax, 228", "syscall",
    "imul rax, [0x500000], 1000000000", "add rax, [0x500008]",
    "imul rcx, [0x500010], 1000000000", "add rcx, [0x500018]",
    "cmp rcx, rax", "jb 9f",
    "mov edi, 1", "lea rsi, [rip]", "mov eax, 228", "stc", "syscall", "jnc 9f",
    "cmp rax, -14", "jne 9f",
    "cmp rdx, rbx", "jne 9f", "cmp r8, rbx", "jne 9f", "cmp r9, rbx", "jne 9f", "cmp r10, rbx", "jne 9f",
    "mov edi, 1",
    "8: mov eax, 231", "syscall",
    "9: mov edi, 2", "jmp 8b");

#[test]
fn a_clock_is_read_and_keeps_every_register() {
    if has_kvm() {
        assert_eq!(execute(reads_clocks(), &Limits::default()), Ok(1));
    }
}

// Fills the desk, asks for the time, and answers with what lay at its end.
guest!(spoils:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "movabs rbx, 0x1000009000",
    "mov al, [rbx + 0xfff]", "add al, 0x31", "mov [0x501000], al",
    "mov rdi, rbx", "mov ecx, 512", "mov rax, 0x1122334455667788", "rep stosq",
    "mov edi, 1", "mov esi, 0x500000", "mov eax, 228", "syscall",
    "mov edi, 0x500000", "xor esi, esi", "mov eax, 96", "syscall",
    "xor edi, edi", "mov eax, 201", "syscall",
    "mov edi, 1", "lea rsi, [rip]", "mov eax, 228", "syscall",
    "mov dword ptr [0x502000], 200",
    "mov qword ptr [0x502010], 0x501000",
    "mov qword ptr [0x502018], 1",
    "mov edi, 0x502000", "mov eax, 0x535402", "syscall");

/// A guest's code with another number in the place of one.
fn with(code: &[u8], number: u64, other: u64) -> Vec<u8> {
    let (number, other) = (number.to_le_bytes(), other.to_le_bytes());
    let at = code.windows(8).position(|bytes| bytes == number).expect("the number is there");
    [&code[..at], &other, &code[at + 8..]].concat()
}

#[test]
fn a_guest_that_spoils_its_desk_harms_itself_alone() {
    if !has_kvm() {
        return;
    }
    for filler in [0, 1, u64::MAX, 1 << 63, 0x10_0000_0000, 0x10_0000_5ff8, 0x4242_4242_4242_4242] {
        let code = with(spoils(), 0x1122_3344_5566_7788, filler);
        let program = load(&code, &Limits::default()).unwrap();
        let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
        for _ in 0..3 {
            assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), "1", "{filler:#x}");
            sandbox.reset().unwrap();
        }
    }
}

guest!(jumps_into_the_entry:
    "mov eax, 228", "mov edi, 1", "mov esi, 0x500000", "lea rcx, [rip + 2f]",
    "mov rdx, 0x1122334455667788", "jmp rdx",
    "2: mov edi, 1", "mov eax, 231", "syscall");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_jump_into_the_entry_is_a_call_or_a_trap(offset in 0u64..0x300) {
        let code = with(jumps_into_the_entry(), 0x1122_3344_5566_7788, 0x10_0000_0000 + offset);
        let limits = Limits { wall_time: Duration::from_millis(20), ..Limits::default() };
        if has_kvm() {
            let end = execute(&code, &limits);
            prop_assert!(!matches!(end, Err(Fault::Protocol(_))), "{end:?}");
        }
    }
}
