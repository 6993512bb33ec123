//! The engine, from outside: programs that end well and badly, and hostile ones.
#![allow(unsafe_code, reason = "guests are assembled code, taken from between two labels")]

mod dynamic;
mod guests;
mod hostile;
mod injected;
mod inside;
mod kept;
mod sandboxes;
mod verify;

use std::time::Duration;

use sandtide_engine::{Fault, Limits, TrapCause};

use guests::{CODE, DATA, execute, guest, has_kvm};

guest!(exits: "mov edi, 7", "mov eax, 231", "syscall");

guest!(calculates:
    // Vectors, the red zone and registers outlive a system call.
    "mov rbx, 0x123456789abcdef",
    "movq xmm5, rbx",
    "mov [rsp - 8], rbx",
    "mov eax, 39", // getpid
    "syscall",
    "cmp eax, 100",
    "jne 2f",
    "movq rcx, xmm5",
    "cmp rcx, rbx",
    "jne 2f",
    "cmp [rsp - 8], rbx",
    "jne 2f",
    "mov edi, 1",
    "jmp 3f",
    "2: mov edi, 2",
    "3: mov eax, 231",
    "syscall");

#[test]
fn a_program_runs_to_its_end() {
    if has_kvm() {
        assert_eq!(execute(exits(), &Limits::default()), Ok(7));
        assert_eq!(execute(calculates(), &Limits::default()), Ok(1));
    }
}

guest!(illegal: "nop", "ud2");
guest!(reads_nothing: "mov rax, [0x10]");
guest!(writes_code: "lea rax, [rip]", "mov [rax], al");
guest!(jumps_to_data: "mov eax, 0x500000", "jmp rax");
guest!(divides: "xor ecx, ecx", "xor edx, edx", "div ecx");
guest!(halts: "hlt");
guest!(breaks: "int3");
guest!(impossible: "movabs rax, 0x8000000000000000", "mov al, [rax]");
guest!(high: "movabs rax, 0x7f0000000000", "mov al, [rax]");
guest!(jumps_far: "movabs rax, 0x1000000000000000", "jmp rax");

#[test]
fn what_cannot_be_executed_is_a_trap() {
    let cases: [(&[u8], TrapCause, Option<u64>); 9] = [
        (illegal(), TrapCause::IllegalInstruction, Some(CODE + 1)),
        (reads_nothing(), TrapCause::Load, Some(0x10)),
        (writes_code(), TrapCause::Store, Some(CODE + 7)),
        (jumps_to_data(), TrapCause::Fetch, Some(DATA)),
        (divides(), TrapCause::Arithmetic, Some(CODE + 4)),
        (halts(), TrapCause::Protection, None),
        (breaks(), TrapCause::Breakpoint, None),
        (impossible(), TrapCause::Protection, None),
        (high(), TrapCause::Load, Some(0x7f00_0000_0000)),
    ];
    if has_kvm() {
        for (code, cause, address) in cases {
            match execute(code, &Limits::default()) {
                Err(Fault::Trap(trap)) => {
                    assert_eq!(trap.cause, cause, "{trap:?}");
                    assert_eq!(address.unwrap_or(trap.address), trap.address, "{trap:?}");
                }
                other => panic!("{cause:?}: {other:?}"),
            }
        }
        let jumped = execute(jumps_far(), &Limits::default());
        assert!(matches!(jumped, Err(Fault::Trap(_))), "{jumped:?}");
    }
}

guest!(spins: "2: jmp 2b");
guest!(calls_for_ever: "2: mov eax, 39", "syscall", "jmp 2b");

#[test]
fn a_program_that_never_ends_meets_its_deadline() {
    let limits = Limits { wall_time: Duration::from_millis(30), ..Limits::default() };
    if has_kvm() {
        for code in [spins(), calls_for_ever()] {
            let end = execute(code, &limits);
            assert!(matches!(end, Err(Fault::Deadline { .. })), "{end:?}");
        }
    }
}

guest!(fills_memory:
    // mmap(0, 1 GiB, read and write, private, anonymous, unreserved)
    "xor edi, edi", "mov esi, 0x40000000", "mov edx, 3", "mov r10d, 0x4022", "mov r8, -1",
    "xor r9d, r9d", "mov eax, 9", "syscall",
    "2: mov byte ptr [rax], 1",
    "add rax, 4096",
    "jmp 2b");

#[test]
fn a_program_that_fills_its_memory_meets_its_limit() {
    let limits = Limits { memory: 32 << 20, ..Limits::default() };
    if has_kvm() {
        let end = execute(fills_memory(), &limits);
        assert!(matches!(end, Err(Fault::Memory { .. })), "{end:?}");
    }
}

guest!(maps_much:
    // mmap(0x100000000, 32 GiB, read and write, private, anonymous, fixed, unreserved)
    "movabs rdi, 0x100000000", "movabs rsi, 0x800000000", "mov edx, 3", "mov r10d, 0x4032",
    "mov r8, -1", "xor r9d, r9d", "mov eax, 9", "syscall",
    "mov rbx, rax",
    "movabs rcx, 0x712345678",
    "mov byte ptr [rbx + rcx], 5", // 28 GiB behind the start
    "cmp byte ptr [rbx], 0",
    "jne 2f",
    // mremap(start, 32 GiB, 31 GiB)
    "mov rdi, rbx", "movabs rsi, 0x800000000", "movabs rdx, 0x7c0000000", "xor r10d, r10d",
    "mov eax, 25", "syscall",
    "cmp rax, rbx",
    "jne 2f",
    "movabs rcx, 0x712345678",
    "movzx edi, byte ptr [rbx + rcx]",
    "3: mov eax, 231", "syscall",
    "2: mov edi, 1", "jmp 3b");

#[test]
fn a_program_may_map_more_than_there_is() {
    if has_kvm() {
        assert_eq!(execute(maps_much(), &Limits::default()), Ok(5));
    }
}

guest!(protects:
    // mmap a page, write it, forbid that, write it again.
    "xor edi, edi", "mov esi, 0x1000", "mov edx, 3", "mov r10d, 0x22", "mov r8, -1",
    "xor r9d, r9d", "mov eax, 9", "syscall",
    "mov rbx, rax",
    "mov byte ptr [rbx], 1",
    "mov rdi, rbx", "mov esi, 0x1000", "mov edx, 1", "mov eax, 10", "syscall",
    "mov byte ptr [rbx], 2");

guest!(unmaps:
    "xor edi, edi", "mov esi, 0x1000", "mov edx, 3", "mov r10d, 0x22", "mov r8, -1",
    "xor r9d, r9d", "mov eax, 9", "syscall",
    "mov rbx, rax",
    "mov byte ptr [rbx], 1",
    "mov rdi, rbx", "mov esi, 0x1000", "mov eax, 11", "syscall",
    "mov al, [rbx]");

#[test]
fn what_is_taken_away_is_gone_at_once() {
    let is_trap = |code, cause| match execute(code, &Limits::default()) {
        Err(Fault::Trap(trap)) => assert_eq!(trap.cause, cause),
        other => panic!("{other:?}"),
    };
    if has_kvm() {
        is_trap(protects(), TrapCause::Store);
        is_trap(unmaps(), TrapCause::Load);
    }
}

guest!(handles_a_signal:
    // rt_sigaction(SIGSEGV, { handler, SA_RESTORER | SA_SIGINFO, restorer })
    "lea rax, [rip + 4f]", "mov [0x500000], rax",
    "mov qword ptr [0x500008], 0x04000004",
    "lea rax, [rip + 5f]", "mov [0x500010], rax",
    "mov qword ptr [0x500018], 0",
    "mov edi, 11", "mov esi, 0x500000", "xor edx, edx", "mov r10d, 8", "mov eax, 13", "syscall",
    "mov rbx, 0x1122334455667788",
    "movq xmm3, rbx",
    "xor ecx, ecx",
    "mov [rcx + 0x20], ecx", // the handler skips these three bytes
    "movq rax, xmm3",
    "cmp rax, rbx",
    "jne 3f",
    "cmp qword ptr [0x500020], 0x20", // si_addr
    "jne 3f",
    "mov edi, 5",
    "2: mov eax, 231", "syscall",
    "3: mov edi, 6", "jmp 2b",
    "4: mov rax, [rsi + 16]", "mov [0x500020], rax", // siginfo
    "add qword ptr [rdx + 168], 3", // ucontext: rip
    "pxor xmm3, xmm3",
    "ret",
    "5: mov eax, 15", "syscall");

#[test]
fn a_signal_handler_returns_to_the_same_registers() {
    if has_kvm() {
        assert_eq!(execute(handles_a_signal(), &Limits::default()), Ok(5));
    }
}

guest!(keeps_its_thread_pointer:
    // arch_prctl(ARCH_SET_FS, 0x500100)
    "mov qword ptr [0x500100], 77",
    "mov edi, 0x1002", "mov esi, 0x500100", "mov eax, 158", "syscall",
    "mov eax, 39", "syscall",
    "mov rdi, fs:[0]",
    "mov eax, 231", "syscall");

#[test]
fn the_thread_pointer_is_set() {
    if has_kvm() {
        assert_eq!(execute(keeps_its_thread_pointer(), &Limits::default()), Ok(77));
    }
}
