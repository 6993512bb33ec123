//! Guests that do what programs do not do.

use std::time::Duration;

use proptest::prelude::*;
use sandtide_engine::{Fault, Limits};

use super::guests::{execute, guest, has_kvm};

guest!(writes_ports: "mov dx, 0x3f8", "out dx, al");
guest!(writes_exception_port: "out 0x2e, al");
guest!(reads_ports: "in al, 0x60");
guest!(writes_call_port: "out 0x10, al");
guest!(sets_tables: "xor eax, eax", "mov cr3, rax");
guest!(sets_registers: "mov ecx, 0xc0000082", "xor eax, eax", "xor edx, edx", "wrmsr");
guest!(interrupts: "int 0x80");
guest!(stops_interrupts: "cli");
guest!(loads_descriptors: "lidt [0x500000]");
guest!(reads_stubs: "movabs rax, 0x1000001000", "mov rax, [rax]");
guest!(writes_stubs: "movabs rax, 0x1000000000", "mov [rax], al");
guest!(writes_tables: "movabs rax, 0x1000010000", "mov [rax], al");
guest!(returns_to_ring_0: "push 0x10", "push rsp", "pushfq", "push 8", "lea rax, [rip]", "push rax", "iretq");
guest!(returns_far: "push 8", "lea rax, [rip]", "push rax", "retfq");
guest!(enters_the_old_way: "sysenter");
guest!(leaves_the_new_way: "xor ecx, ecx", "sysretq");
guest!(invalidates: "invlpg [0x500000]");
guest!(calls_a_monitor: "vmcall", "vmmcall", "ud2");

#[test]
fn what_only_a_kernel_may_do_is_a_trap() {
    let cases: [(&str, &[u8]); 18] = [
        ("port", writes_ports()),
        ("exception port", writes_exception_port()),
        ("port read", reads_ports()),
        ("call port", writes_call_port()),
        ("cr3", sets_tables()),
        ("wrmsr", sets_registers()),
        ("int 0x80", interrupts()),
        ("cli", stops_interrupts()),
        ("lidt", loads_descriptors()),
        ("descriptors", reads_stubs()),
        ("stubs", writes_stubs()),
        ("tables", writes_tables()),
        ("iretq", returns_to_ring_0()),
        ("retfq", returns_far()),
        ("sysenter", enters_the_old_way()),
        ("sysretq", leaves_the_new_way()),
        ("invlpg", invalidates()),
        ("vmcall", calls_a_monitor()),
    ];
    if has_kvm() {
        for (name, code) in cases {
            let end = execute(code, &Limits::default());
            assert!(matches!(end, Err(Fault::Trap(_))), "{name}: {end:?}");
        }
    }
}

guest!(enters_the_stub:
    // As if it had made the call getpid, to return to the code behind.
    "lea rcx, [rip + 2f]", "mov eax, 39", "movabs rdx, 0x1000000000", "jmp rdx",
    "2: mov edi, eax", "mov eax, 231", "syscall");
guest!(spins_in_the_stub: "movabs rcx, 0x1000000002", "jmp rcx");
guest!(calls_from_the_end: "mov rsp, -1", "mov rbp, -8", "mov eax, 39", "syscall", "push rax");
guest!(makes_single_steps: "pushfq", "or dword ptr [rsp], 0x100", "popfq", "nop", "nop");

#[test]
fn the_stubs_are_of_no_use_to_a_program() {
    let limits = Limits { wall_time: Duration::from_millis(30), ..Limits::default() };
    if has_kvm() {
        // Ring 3 may execute the stub only where it has to.
        let end = execute(enters_the_stub(), &Limits::default());
        assert!(matches!(end, Ok(100) | Err(Fault::Trap(_))), "{end:?}");
        let end = execute(spins_in_the_stub(), &limits);
        assert!(matches!(end, Err(Fault::Deadline { .. } | Fault::Trap(_))), "{end:?}");
        for code in [calls_from_the_end(), makes_single_steps()] {
            let end = execute(code, &Limits::default());
            assert!(matches!(end, Err(Fault::Trap(_))), "{end:?}");
        }
    }
}

guest!(returns_from_no_signal: "mov rsp, 0x500800", "mov eax, 15", "syscall");

guest!(returns_to_nonsense:
    // A frame of ones, with vector registers that no processor has.
    "mov edi, 0x500000", "mov eax, 0xff", "mov ecx, 0x10000", "rep stosb",
    "mov qword ptr [0x5008e0], 0x504000",
    "mov rsp, 0x500800", "mov eax, 15", "syscall");

#[test]
fn a_forged_signal_frame_is_the_programs_own_problem() {
    if has_kvm() {
        for code in [returns_from_no_signal(), returns_to_nonsense()] {
            let end = execute(code, &Limits::default());
            assert!(matches!(end, Err(Fault::Trap(_) | Fault::Signal { .. })), "{end:?}");
        }
    }
}

/// Bytes that are more often instructions of interest than chance would have it.
pub(super) fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let interesting: [&'static [u8]; 12] = [
        &[0x0f, 0x05],             // syscall
        &[0x0f, 0x01],             // descriptor tables, xgetbv, vmcall, …
        &[0x0f, 0x00],             // task and local descriptors
        &[0x0f, 0x22],             // to a control register
        &[0x0f, 0x23],             // to a debug register
        &[0x0f, 0x30],             // wrmsr
        &[0x0f, 0xae],             // save and restore extended state, segment bases
        &[0x48, 0xcf],             // iretq
        &[0x8e],                   // to a segment register
        &[0xe6, 0x10],             // out
        &[0x9d],                   // popfq
        &[0x48, 0xb8, 0, 0, 0, 0], // an address
    ];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..8),
        prop::sample::select(interesting.to_vec()).prop_map(<[u8]>::to_vec),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_a_program_that_ends(code in prop::collection::vec(instruction(), 1..12)) {
        let limits = Limits { wall_time: Duration::from_millis(20), ..Limits::default() };
        if has_kvm() {
            let end = execute(&code.concat(), &limits);
            prop_assert!(!matches!(end, Err(Fault::Protocol(_))), "{end:?}");
        }
    }
}
