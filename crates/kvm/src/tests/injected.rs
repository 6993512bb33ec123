//! Hostile code in a request: whatever it does, the exchange ends, the sandbox is what its snapshot is
//! after the reset, and the next request is answered.
//!
//! The guest waits for a request and goes to [`PLACE`], where the test has put code. What comes back
//! from there goes on to the guest's answer.

use std::{cell::RefCell, sync::Arc, time::Duration};

use proptest::{prelude::*, test_runner::TestRunner};
use sandtide_engine::{Fault, Limits, Outcome, Sandbox as _, Scrutiny};

use super::{
    guests::{Quiet, guest, has_kvm, source},
    hostile::instruction,
    sandboxes::{TIME, serve_some},
};
use crate::{
    paging::{END, PAGE, SYSTEM, SYSTEM_PAGES, TABLES, USER_END},
    program::{self, KvmProgram},
    sandbox::KvmSandbox,
    stubs::CALL_PORT,
};

/// Where a request's code lies.
const PLACE: u64 = 0x50_4000;

/// `jmp [0x503000]`, where the guest's answer is.
const ANSWER: [u8; 7] = [0xff, 0x24, 0x25, 0x00, 0x30, 0x50, 0x00];

guest!(goes_anywhere:
    // mprotect(0x500000, 64 KiB, everything)
    "mov edi, 0x500000", "mov esi, 0x10000", "mov edx, 7", "mov eax, 10", "syscall",
    "lea rax, [rip + 3f]", "mov [0x503000], rax",
    "2: mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall", // next request
    "mov eax, 0x504000", "jmp rax",
    "3: mov dword ptr [0x501000], 0x0a6b6f", // ok
    "mov dword ptr [0x502000], 200",
    "mov dword ptr [0x502004], 0",
    "mov qword ptr [0x502008], 0",
    "mov qword ptr [0x502010], 0x501000",
    "mov qword ptr [0x502018], 3",
    "mov qword ptr [0x502020], 0",
    "mov qword ptr [0x502028], 0",
    "mov edi, 0x502000", "mov eax, 0x535402", "syscall",
    "jmp 2b");

/// A program, and one sandbox of it at a time.
struct Bench {
    program: Arc<KvmProgram>,
    sandbox: KvmSandbox,
    /// Sandboxes that could not be reset.
    destroyed: usize,
}

impl Bench {
    fn new() -> Option<Self> {
        has_kvm().then(|| {
            let program =
                program::load(&source(goes_anywhere()), &Limits::default(), &Quiet).unwrap();
            let sandbox = KvmSandbox::new(Arc::clone(&program), Arc::new(Quiet)).unwrap();
            Self { program, sandbox, destroyed: 0 }
        })
    }

    /// Has a request run code.
    fn run(&mut self, code: &[u8], time: Duration) -> Result<String, Outcome> {
        let memory = &mut self.sandbox.machine().memory;
        let place = memory.view_mut(PLACE, (code.len() + ANSWER.len()) as u64).unwrap();
        place[..code.len()].copy_from_slice(code);
        place[code.len()..].copy_from_slice(&ANSWER);
        serve_some(&mut self.sandbox, time).0
    }

    /// The same, and then makes sure that nothing is left of it. How it ended.
    fn endure(&mut self, what: &str, code: &[u8], scrutiny: Scrutiny) -> Result<String, Outcome> {
        let end = self.run(code, Duration::from_millis(200));
        let is_orderly = matches!(end, Ok(_) | Err(Outcome::Fault(_) | Outcome::ClientGone));
        assert!(is_orderly, "{what}: {end:?}");
        let went_astray = matches!(
            &end,
            Err(Outcome::Fault(Fault::Protocol(why))) if why.contains("astray")
        );
        match self.sandbox.reset() {
            Ok(()) => {
                assert!(!went_astray, "{what}: reset after {end:?}");
                let verified = self.sandbox.verify(scrutiny);
                assert!(verified.is_ok(), "{what}: left {verified:?} after {end:?}");
            }
            Err(error) => {
                assert!(went_astray, "{what}: {error:?} after {end:?}");
                self.destroyed += 1;
                self.sandbox = KvmSandbox::new(Arc::clone(&self.program), Arc::new(Quiet)).unwrap();
            }
        }
        end
    }

    fn is_well(&mut self) {
        assert_eq!(self.run(&[0x90], TIME).unwrap(), "ok\n");
        self.sandbox.reset().unwrap();
        self.sandbox.verify(Scrutiny::Everything).unwrap();
    }
}

/// Code by name.
macro_rules! cases {
    ($all:ident: $($name:ident: [$($line:literal),+ $(,)?])+) => {
        $(guest!($name: $($line),+);)+
        const $all: &[(&str, fn() -> &'static [u8])] = &[$((stringify!($name), $name)),+];
    };
}

cases!(KERNELS: // what only ring 0 may do
    disables_interrupts: ["cli"]
    enables_interrupts: ["sti"]
    stops: ["hlt"]
    loads_gdt: ["lgdt [0x500000]"]
    loads_idt: ["lidt [0x500000]"]
    loads_ldt: ["xor eax, eax", "lldt ax"]
    loads_task: ["mov eax, 0x30", "ltr ax"]
    clears_ts: ["clts"]
    loads_msw: ["mov eax, 1", "lmsw ax"]
    writes_cr0: ["xor eax, eax", "mov cr0, rax"]
    writes_cr2: ["mov cr2, rax"]
    writes_cr3: ["mov cr3, rax"]
    writes_cr4: ["mov cr4, rax"]
    writes_cr8: ["mov cr8, rax"]
    reads_cr3: ["mov rax, cr3"]
    writes_dr0: ["mov dr0, rax"]
    writes_dr7: ["mov eax, 0x401", "mov dr7, rax"]
    reads_dr6: ["mov rax, dr6"]
    writes_lstar: ["mov ecx, 0xc0000082", "mov eax, 0x504000", "xor edx, edx", "wrmsr"]
    writes_kernel_gs: ["mov ecx, 0xc0000102", "wrmsr"]
    writes_efer: ["mov ecx, 0xc0000080", "xor eax, eax", "xor edx, edx", "wrmsr"]
    reads_efer: ["mov ecx, 0xc0000080", "rdmsr"]
    reads_counter: ["xor ecx, ecx", "rdpmc"]
    invalidates_page: ["invlpg [0x500000]"]
    invalidates_space: ["xor eax, eax", "invpcid rax, [0x500000]"]
    invalidates_caches: ["invd"]
    writes_caches_back: ["wbinvd"]
    sets_features: ["xor ecx, ecx", "mov eax, 1", "xor edx, edx", "xsetbv"]
    swaps_gs: ["swapgs"]
    returns_to_user: ["lea rcx, [rip]", "xor r11d, r11d", "sysretq"]
    exits_to_user: ["sysexit"]
    waits_for_memory: ["mov eax, 0x500000", "monitor", "mwait"]
    saves_supervisor_state: ["mov eax, -1", "mov edx, eax", "xsaves [0x506000]"]
    restores_supervisor_state: ["mov eax, -1", "mov edx, eax", "xrstors [0x506000]"]
    irets_to_ring_0: ["push 0x10", "push rsp", "pushfq", "push 8", "push 0x504000", "iretq"]
    returns_far_to_ring_0: ["push 8", "push 0x504000", "retfq"]
    loads_stack_of_ring_0: ["mov eax, 0x10", "mov ss, ax"]
    loads_data_of_ring_0: ["mov eax, 0x10", "mov ds, ax"]
    jumps_to_task: ["push 0x30", "push 0", "jmp fword ptr [rsp]"]
    calls_ring_0: ["push 8", "push 0x504000", "call fword ptr [rsp]"]
);

#[test]
fn what_only_a_kernel_may_do_ends_a_request_and_nothing_else() {
    let Some(mut bench) = Bench::new() else { return };
    for (what, code) in KERNELS {
        let end = bench.endure(what, code(), Scrutiny::Everything);
        assert!(matches!(end, Err(Outcome::Fault(Fault::Trap(_)))), "{what}: {end:?}");
    }
    assert_eq!(bench.destroyed, 0);
    bench.is_well();
}

cases!(TRICKS: // what a program may do, and what it then asks for
    steps: ["pushfq", "or dword ptr [rsp], 0x100", "popfq", "mov eax, 39", "syscall", "nop"]
    checks_alignment: ["pushfq", "or dword ptr [rsp], 0x40000", "popfq", "mov eax, 39", "syscall",
        "mov rax, [0x500001]"]
    goes_down: ["std", "mov eax, 39", "syscall", "mov eax, 96", "mov edi, 0x500100", "xor esi, esi",
        "syscall"]
    nests: ["pushfq", "or dword ptr [rsp], 0x4000", "popfq", "mov eax, 39", "syscall"]
    wants_all_flags: ["push -1", "popfq", "mov eax, 39", "syscall"]
    wants_ports: ["pushfq", "or dword ptr [rsp], 0x3000", "popfq", "out 0x80, al"]
    wants_old_mode: ["pushfq", "or dword ptr [rsp], 0x20000", "popfq", "nop"]
    hits_a_breakpoint: ["int3"]
    hits_another: [".byte 0xf1"]
    undefined_0: ["ud2"]
    undefined_1: [".byte 0x0f, 0xb9, 0xc0"]
    undefined_2: [".byte 0x0f, 0xff, 0xc0"]
    long: [".byte 0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x66,0x90"]
    calls_a_hypervisor: ["mov eax, 1", "vmcall"]
    calls_another: ["mov eax, 1", "vmmcall"]
    is_a_hypervisor: ["vmxon [0x500000]"]
    runs_a_guest: ["mov eax, 0x500000", "vmrun rax"]
    loads_a_guest: ["mov eax, 0x500000", "vmload rax"]
    opens_interrupts: ["stgi"]
    asks_the_processor: ["mov eax, 0x40000000", "cpuid", "xor eax, eax", "cpuid", "rdtsc", "rdtscp",
        "xor ecx, ecx", "xgetbv"]
    stores_tables: ["sgdt [0x500000]", "sidt [0x500010]", "sldt ax", "str ax", "smsw ax"]
    sets_fs_high: ["movabs rax, 0x3fffffffffff", "wrfsbase rax", "mov eax, 39", "syscall",
        "mov al, fs:[0]"]
    sets_fs_to_stubs: ["movabs rax, 0x1000000000", "wrfsbase rax", "mov eax, 228", "xor edi, edi",
        "mov esi, 0x500100", "syscall", "mov fs:[0], al"]
    sets_fs_impossible: ["movabs rax, 0x800000000000", "wrfsbase rax"]
    sets_gs_negative: ["mov rax, -4096", "wrgsbase rax", "mov eax, 39", "syscall", "mov al, gs:[0]"]
    sets_gs_and_waits: ["mov eax, 0x505000", "wrgsbase rax", "mov eax, 24", "syscall",
        "rdgsbase rax"]
    loads_segments: ["mov eax, 0x23", "mov ds, ax", "mov es, ax", "mov fs, ax", "mov gs, ax",
        "mov eax, 39", "syscall"]
    loads_nothing: ["xor eax, eax", "mov ds, ax", "mov es, ax", "mov fs, ax", "mov gs, ax",
        "mov eax, 39", "syscall"]
    loads_null_stack: ["xor eax, eax", "mov ss, ax"]
    loads_code_as_data: ["mov eax, 0x2b", "mov ds, ax"]
    goes_to_32_bits: ["push 0x1b", "lea rax, [rip + 2f]", "push rax", "retfq",
        "2: .byte 0xcd, 0x80"]
    calls_from_32_bits: ["push 0x1b", "lea rax, [rip + 2f]", "push rax", "retfq",
        "2: .byte 0x0f, 0x05"]
    enters_from_32_bits: ["push 0x1b", "lea rax, [rip + 2f]", "push rax", "retfq",
        "2: .byte 0x0f, 0x34"]
    spins_in_32_bits: ["push 0x1b", "lea rax, [rip + 2f]", "push rax", "retfq",
        "2: .byte 0xeb, 0xfe"]
    enters: ["sysenter"]
    has_no_stack: ["xor esp, esp", "mov eax, 39", "syscall", "push rax"]
    has_an_impossible_stack: ["movabs rsp, 0x800000000000", "mov eax, 39", "syscall", "push rax"]
    has_a_stack_in_the_stubs: ["movabs rsp, 0x1000006000", "push rax"]
    fails_without_a_stack: ["xor esp, esp", "ud2"]
    returns_without_a_stack: ["xor esp, esp", "iretq"]
    goes_nowhere: ["movabs rax, 0x7fffffffffff", "jmp rax"]
    goes_where_nothing_is: ["movabs rax, 0x800000000000", "jmp rax"]
    calls_at_the_end: ["mov rcx, -1", "mov r11, -1", "mov eax, 39", "syscall"]
    restores_nonsense: ["mov edi, 0x506000", "mov ecx, 0x1000", "mov eax, 0xff", "rep stosb",
        "mov eax, -1", "mov edx, eax", "xrstor [0x506000]"]
    restores_reserved_mxcsr: ["mov edi, 0x506000", "mov ecx, 0x1000", "xor eax, eax", "rep stosb",
        "mov dword ptr [0x506018], -1", "mov eax, 3", "xor edx, edx", "xrstor [0x506000]"]
    restores_old_nonsense: ["mov edi, 0x506000", "mov ecx, 0x200", "mov eax, 0xff", "rep stosb",
        "fxrstor [0x506000]"]
    sets_reserved_mxcsr: ["mov dword ptr [0x500000], -1", "ldmxcsr [0x500000]"]
    fails_in_vectors: ["mov dword ptr [0x500000], 0", "ldmxcsr [0x500000]", "xorps xmm0, xmm0",
        "divps xmm0, xmm0", "mov eax, 39", "syscall"]
    fails_in_x87: ["push 0x0300", "fldcw [rsp]", "fldz", "fld1", "fdivrp st(1), st(0)",
        "mov eax, 39", "syscall", "fwait"]
    leaves_registers: ["fld1", "fld1", "pcmpeqd xmm0, xmm0", "pcmpeqd xmm15, xmm15",
        "mov dword ptr [0x500000], 0x9fc0", "ldmxcsr [0x500000]", "push 0x0f7f", "fldcw [rsp]",
        "mov eax, 0x506000", "wrfsbase rax", "wrgsbase rax", "mov eax, 39", "syscall"]
    changes_itself: ["lea rax, [rip + 2f]", "mov word ptr [rax], 0x0b0f", "2: nop", "nop"]
    changes_its_call: ["lea rax, [rip + 2f]", "mov word ptr [rax], 0x050f", "mov eax, 39", "2: nop", "nop"]
    looks_at_stubs: ["movabs rax, 0x1000001000", "mov rax, [rax]"]
    reads_tables: ["movabs rax, 0x1000010000", "mov rax, [rax]"]
    enters_vectors: ["movabs rax, 0x1000004000", "jmp rax"]
    runs_on_the_desk: ["movabs rax, 0x1000009000", "jmp rax"]
    spoils_the_desk: ["movabs rdi, 0x1000009000", "mov ecx, 0x1000", "mov eax, 0xff", "rep stosb",
        "mov eax, 228", "xor edi, edi", "mov esi, 0x500100", "syscall", "mov eax, 96",
        "mov edi, 0x500100", "xor esi, esi", "syscall", "mov eax, 39", "syscall"]
);

#[test]
fn tricks_end_one_request_at_most() {
    let Some(mut bench) = Bench::new() else { return };
    for (what, code) in TRICKS {
        // Twice: the second one goes on from a reset.
        for _ in 0..2 {
            let _ = bench.endure(what, code(), Scrutiny::Everything);
        }
        bench.is_well();
    }
}

#[test]
fn every_interrupt_and_every_port_is_refused() {
    let Some(mut bench) = Bench::new() else { return };
    for number in 0..=255 {
        for opcode in [0xcd, 0xe4, 0xe5, 0xe6, 0xe7] {
            let what = format!("{opcode:#x} {number:#x}");
            let end = bench.endure(&what, &[opcode, number], Scrutiny::Sample);
            match end {
                Err(Outcome::Fault(Fault::Trap(_))) => {}
                // Where system calls stay in ring 3, their port can be used, and a read from it
                // costs the sandbox.
                Err(Outcome::Fault(Fault::Protocol(_))) if is_port_of_calls(opcode, number) => {}
                // There are KVMs that take some for calls of their own.
                Ok(_) if opcode == 0xcd => {}
                end => panic!("{what}: {end:?}"),
            }
        }
        // Whatever was under way must not go on in the next request.
        bench.is_well();
    }
    for port in [u32::from(CALL_PORT), 0x100, 0x3f8, 0x510, 0x601, 0xcf8, 0xcfc, 0x5658, 0xffff] {
        // in al, dx; in eax, dx; out dx, al; out dx, eax; ins and outs, once and again and again
        let opcodes: [&[u8]; 10] = [
            &[0xec],
            &[0xed],
            &[0xee],
            &[0xef],
            &[0x6c],
            &[0x6d],
            &[0x6e],
            &[0x6f],
            &[0xf3, 0x6c],
            &[0xf3, 0x6e],
        ];
        for opcode in opcodes {
            // mov edx, port; mov ecx, 100; mov edi, 0x500000; mov esi, edi
            let registers = [0xb9, 100, 0, 0, 0, 0xbf, 0, 0, 0x50, 0, 0x89, 0xfe];
            let code = [&[0xba][..], &port.to_le_bytes(), &registers, opcode].concat();
            let what = format!("{opcode:x?} at port {port:#x}");
            let end = bench.endure(&what, &code, Scrutiny::Sample);
            let is_refused = matches!(end, Err(Outcome::Fault(Fault::Trap(_))));
            assert!(is_refused || port == u32::from(CALL_PORT), "{what}: {end:?}");
            bench.is_well();
        }
    }
    bench.is_well();
}

#[test]
fn interrupts_with_numbers_of_calls_change_nothing() {
    let Some(mut bench) = Bench::new() else { return };
    let numbers =
        (0..8).chain(0xff..0x110).chain(0x1708_8200..0x1708_8210).chain(0x1708_8300..0x1708_8310);
    for (call, number) in numbers.flat_map(|call| [0x19, 0x1a, 0x80].map(|number| (call, number))) {
        // mov eax, call; mov edi, 0x500000; mov esi, edi; int number
        let code = [
            &[0xb8],
            &u32::to_le_bytes(call)[..],
            &[0xbf, 0, 0, 0x50, 0, 0x89, 0xfe, 0xcd, number],
        ];
        let _ = bench.endure(
            &format!("{call:#x} by {number:#x}"),
            &code.concat(),
            Scrutiny::Everything,
        );
    }
    bench.is_well();
}

fn is_port_of_calls(opcode: u8, number: u8) -> bool {
    opcode == 0xe4 && u16::from(number) == CALL_PORT
}

/// `mov rcx, [0x503000]; mov r11, rcx; mov rsi, 0x500100; mov eax, 39`, then `movabs rdx, …; jmp rdx`:
/// to the stubs, as a call that returns to the answer would.
fn jump(to: u64) -> Vec<u8> {
    let mut code = vec![0x48, 0x8b, 0x0c, 0x25, 0x00, 0x30, 0x50, 0x00, 0x49, 0x89, 0xcb];
    code.extend([0x48, 0xc7, 0xc6, 0x00, 0x01, 0x50, 0x00, 0xb8, 39, 0, 0, 0, 0x48, 0xba]);
    code.extend(to.to_le_bytes());
    code.extend([0xff, 0xe2]);
    code
}

#[test]
fn the_stubs_may_be_entered_anywhere() {
    let Some(mut bench) = Bench::new() else { return };
    for page in 0..SYSTEM_PAGES {
        // Those that a program may execute have code at their start.
        for offset in (0..96).chain((96..PAGE).step_by(173)) {
            let to = SYSTEM + page * PAGE + offset;
            let _ = bench.endure(&format!("to {to:#x}"), &jump(to), Scrutiny::Sample);
        }
    }
    bench.is_well();
}

#[test]
fn nothing_can_be_mapped_over_what_is_ours() {
    let Some(mut bench) = Bench::new() else { return };
    let places = [SYSTEM, TABLES, END - PAGE, END, USER_END - PAGE, 1 << 47, PAGE.wrapping_neg()];
    let calls = [9u32, 10, 11, 25, 28, 12]; // mmap, mprotect, munmap, mremap, madvise, brk
    for (place, call) in places.into_iter().flat_map(|place| calls.map(|call| (place, call))) {
        for length in [PAGE, 64 * PAGE, 1 << 36, u64::MAX - PAGE + 1] {
            // Arguments: place, length, read | write | execute, private | fixed | anonymous, -1, 0.
            let mut code = vec![0x48, 0xbf];
            code.extend(place.to_le_bytes());
            code.extend([0x48, 0xbe]);
            code.extend(length.to_le_bytes());
            code.extend([0xba, 7, 0, 0, 0, 0x41, 0xba, 0x32, 0, 0, 0, 0x49, 0xc7, 0xc0]);
            code.extend([0xff, 0xff, 0xff, 0xff, 0x45, 0x31, 0xc9, 0xb8]);
            code.extend(call.to_le_bytes());
            code.extend([0x0f, 0x05]);
            let what = format!("call {call} at {place:#x} + {length:#x}");
            let end = bench.endure(&what, &code, Scrutiny::Sample);
            assert!(end.is_ok(), "{what}: {end:?}");
        }
        bench.is_well();
    }
}

#[test]
fn any_bytes_are_endured() {
    let Some(bench) = Bench::new() else { return };
    let mut bench = RefCell::new(bench);
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) };
    let mut runner = TestRunner::new(config);
    let code = prop::collection::vec(instruction(), 1..12);
    let code = code.prop_map(|parts| parts.concat());
    let outcome = runner.run(&(code, any::<bool>()), |(code, goes_on)| {
        // Two in a row: what one leaves under way would meet the other.
        let _ = bench.borrow_mut().endure(&format!("{code:x?}"), &code, Scrutiny::Sample);
        if goes_on {
            bench.borrow_mut().is_well();
        }
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    bench.get_mut().is_well();
}

/// Values that break things: small numbers, descriptors, all ones, the guest's own memory with and
/// without the right to write it, its end, nothing, the stubs, the page tables, beyond everything.
const WILD: [u64; 24] = [
    0,
    1,
    3,
    5,
    7,
    100,
    PAGE,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    u64::MAX,
    u64::MAX - 7,
    1 << 63,
    0x50_0800,
    0x50_0801,
    0x50_fff8,
    0x40_0000,
    0x60_0000,
    USER_END - 8,
    SYSTEM,
    SYSTEM + 9 * PAGE,
    TABLES,
    END - 8,
    1 << 47,
];

/// A system call: number and arguments.
fn call(number: u64, arguments: &[u64; 6]) -> Vec<u8> {
    // mov rax, …; rdi, rsi, rdx, r10, r8, r9; then syscall.
    let registers: [[u8; 2]; 7] = [
        [0x48, 0xb8],
        [0x48, 0xbf],
        [0x48, 0xbe],
        [0x48, 0xba],
        [0x49, 0xba],
        [0x49, 0xb8],
        [0x49, 0xb9],
    ];
    let values = [number].into_iter().chain(*arguments);
    let mut code: Vec<u8> = registers
        .into_iter()
        .zip(values)
        .flat_map(|(opcode, value)| opcode.into_iter().chain(value.to_le_bytes()))
        .collect();
    code.extend([0x0f, 0x05]);
    code
}

/// What calls need to come further than their first check: descriptors 3 to 9.
fn prepared() -> Vec<u8> {
    [
        call(291, &[0; 6]),                          // epoll_create1
        call(290, &[1, 0o4000, 0, 0, 0, 0]),         // eventfd2
        call(283, &[1, 0o4000, 0, 0, 0, 0]),         // timerfd_create
        call(53, &[1, 1, 0, 0x50_0900, 0, 0]),       // socketpair
        call(293, &[0x50_0908, 0o4000, 0, 0, 0, 0]), // pipe2
    ]
    .concat()
}

/// Every number that Linux has, some that it has not, and the guest calls; each on its own, and three
/// in a row.
#[test]
fn wild_arguments_of_every_call_are_endured() {
    let Some(mut bench) = Bench::new() else { return };
    let mut state = 1u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let prepared = prepared();
    for number in (0..512).chain(0x53_5400..0x53_5420) {
        for _ in 0..6 {
            let mut wild = || WILD[random() as usize % WILD.len()];
            let arguments = [(); 6].map(|()| wild());
            let mut code = prepared.clone();
            code.extend(call(number, &arguments));
            for _ in 0..2 {
                let more = [(); 6].map(|()| WILD[random() as usize % WILD.len()]);
                code.extend(call(random() % 440, &more));
            }
            let what = format!("call {number} with {arguments:x?}");
            let _ = bench.endure(&what, &code, Scrutiny::Sample);
        }
        if number % 16 == 0 {
            bench.is_well();
        }
    }
    assert_eq!(bench.destroyed, 0, "a call took the machine astray");
    bench.is_well();
}
