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
    "mov al, [rbx + 0x4fff]", "add al, 0x31", "mov [0x501000], al",
    "mov rdi, rbx", "mov ecx, 2560", "mov rax, 0x1122334455667788", "rep stosq",
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

/// The fewest exits of some exchanges, with its calls: a busy machine adds some. Each is answered with
/// `expected`.
fn fewest_exits(code: &[u8], expected: &str) -> (u64, u64) {
    let program = load(code, &Limits::default()).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    let exchanges = (0..20).map(|_| {
        assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), expected);
        let usage = sandbox.usage();
        sandbox.reset().unwrap();
        (usage.exits, usage.calls)
    });
    exchanges.min().unwrap()
}

guest!(answers_directly:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "mov dword ptr [0x502000], 200",
    "mov edi, 0x502000", "mov eax, 0x535402", "syscall");

/// A server that waits for a request on a connection that does not block (`r13`), by `poll`, runs these
/// lines, and answers with the bytes at 0x503000.
macro_rules! server {
    ($name:ident: $($line:expr),+ $(,)?) => {
        guest!($name:
            "mov edi, 2", "mov esi, 1", "xor edx, edx", "mov eax, 41", "syscall", // socket
            "mov r12d, eax",
            "mov edi, r12d", "mov esi, 1", "mov eax, 50", "syscall", // listen
            "mov edi, r12d", "xor esi, esi", "xor edx, edx", "mov r10d, 0x800", "mov eax, 288",
            "syscall", // accept4
            "mov r13d, eax",
            "mov [0x500100], r13d", "mov dword ptr [0x500104], 1",
            "mov edi, 0x500100", "mov esi, 1", "mov edx, -1", "mov eax, 7", "syscall", // poll
            $($line),+,
            "mov edi, 0x503100", "lea rsi, [rip + 98f]", "mov ecx, 38", "rep movsb",
            "mov ax, [0x503000]", "mov [0x503126], ax",
            "mov edi, r13d", "mov esi, 0x503100", "mov edx, 40", "mov eax, 1", "syscall", // write
            "99: mov edi, 9", "mov eax, 231", "syscall",
            "98: .ascii \"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n\"");
    };
}

server!(reads_once:
    "mov edi, r13d", "mov esi, 0x503000", "mov edx, 0x100", "xor eax, eax", "syscall",
    "cmp eax, 16", "jl 99f");

// The request is `GET / HTTP/1.1`: four bytes by `read`, one by `readv`, none to where they cannot
// be written, two by `recvfrom`, all others, and what there is behind them.
server!(reads_in_pieces:
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 4", "xor eax, eax", "syscall",
    "cmp eax, 4", "jne 99f", "cmp dword ptr [0x501000], 0x20544547", "jne 99f",
    "mov qword ptr [0x500200], 0x503000", "mov qword ptr [0x500208], 1",
    "mov edi, r13d", "mov esi, 0x500200", "mov edx, 1", "mov eax, 19", "syscall",
    "cmp eax, 1", "jne 99f",
    "mov edi, r13d", "lea rsi, [rip]", "mov edx, 4", "xor eax, eax", "syscall",
    "cmp rax, -14", "jne 99f",
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 2", "mov r10d, 0x40", "xor r8d, r8d",
    "mov eax, 45", "syscall",
    "cmp eax, 2", "jne 99f",
    "mov al, [0x501001]", "mov [0x503001], al",
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 0x1000", "xor eax, eax", "syscall",
    "cmp eax, 8", "jl 99f", "cmp dword ptr [0x501000], 0x2f505454", "jne 99f", // TTP/
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 0x1000", "xor eax, eax", "syscall",
    "cmp rax, -11", "jne 99f",
    // getpid is what it was; there is nobody to yield to, and to wake.
    "mov eax, 39", "syscall", "mov ebx, eax", "mov eax, 39", "syscall", "cmp eax, ebx", "jne 99f",
    "mov eax, 186", "syscall", "cmp eax, 100", "jne 99f",
    "mov eax, 24", "syscall", "test eax, eax", "jnz 99f",
    "mov edi, 0x500000", "mov esi, 129", "mov edx, 1", "mov eax, 202", "syscall",
    "test eax, eax", "jnz 99f");

// Another thread waits for a futex. Wakes it, in vain for a second time, and answers when it has
// run.
guest!(wakes_a_thread:
    "mov edi, 0x50f00", "mov esi, 0x504000", "xor edx, edx", "xor r10d, r10d", "xor r8d, r8d",
    "mov eax, 56", "syscall", // clone
    "test eax, eax", "jz 5f",
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "mov edi, 0x500300", "mov esi, 129", "mov edx, 7", "mov eax, 202", "syscall",
    "cmp eax, 1", "jne 9f",
    "mov edi, 0x500300", "mov esi, 129", "mov edx, 7", "mov eax, 202", "syscall",
    "test eax, eax", "jnz 9f",
    "3: mov eax, 24", "syscall",
    "cmp dword ptr [0x500308], 1", "jne 3b",
    "mov dword ptr [0x502000], 200",
    "mov edi, 0x502000", "mov eax, 0x535402", "syscall",
    "5: mov edi, 0x500300", "mov esi, 128", "xor edx, edx", "xor r10d, r10d", "mov eax, 202",
    "syscall",
    "mov dword ptr [0x500308], 1",
    "mov edi, 0x500310", "mov esi, 128", "xor edx, edx", "xor r10d, r10d", "mov eax, 202",
    "syscall",
    "9: mov edi, 9", "mov eax, 231", "syscall");

#[test]
fn a_thread_that_was_woken_inside_runs() {
    if has_kvm() {
        // The calls that leave the processor to another thread, and the answer.
        assert_eq!(fewest_exits(wakes_a_thread(), ""), (3, 5));
    }
}

#[test]
fn a_request_takes_one_exit() {
    if has_kvm() {
        assert_eq!(fewest_exits(answers_directly(), ""), (1, 1));
        assert_eq!(fewest_exits(reads_once(), "GE"), (1, 2));
    }
}

#[test]
fn what_is_answered_inside_is_as_if_the_host_had_answered() {
    if has_kvm() {
        // `readv`, the pointer that is bad, `write`.
        assert_eq!(fewest_exits(reads_in_pieces(), "/H"), (3, 12));
    }
}

// Says that it has read so much, and reads.
server!(lies_about_what_it_has_read:
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 4", "xor eax, eax", "syscall",
    "movabs rbx, 0x1000009000", "mov rax, 0x1122334455667788", "mov [rbx + 72], rax",
    "mov edi, r13d", "mov esi, 0x501000", "mov edx, 4", "xor eax, eax", "syscall",
    "mov eax, 39", "syscall",
    "movabs rbx, 0x1000009000", "mov rax, 0x1122334455667788", "mov [rbx + 64], rax",
    "mov qword ptr [0x500200], 0x503000", "mov qword ptr [0x500208], 2",
    "mov edi, r13d", "mov esi, 0x500200", "mov edx, 1", "mov eax, 19", "syscall");

#[test]
fn a_guest_that_lies_about_what_it_has_read_reads_something_else() {
    if !has_kvm() {
        return;
    }
    for number in [0, 1, 3, 5, 4096, 1 << 32, 1 << 63, u64::MAX] {
        let code = with(
            &with(lies_about_what_it_has_read(), 0x1122_3344_5566_7788, number),
            0x1122_3344_5566_7788,
            number,
        );
        let program = load(&code, &Limits::default()).unwrap();
        let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
        let first = serve(&mut *sandbox, TIME).0.unwrap();
        for _ in 0..3 {
            assert!(sandbox.usage().calls < 1 << 33, "{:?}", sandbox.usage());
            sandbox.reset().unwrap();
            assert_eq!(serve(&mut *sandbox, TIME).0.unwrap(), first, "{number:#x}");
        }
    }
}
