//! Programs with an interpreter, good and bad.

use std::{fs, sync::Arc};

use proptest::prelude::*;
use sandtide_engine::{Engine as _, Fault, FileGrant, Limits, LoadError, ProgramSource};

use super::{
    exits,
    guests::{CODE, Quiet, elf, execute, file, guest, has_kvm, source},
};
use crate::KvmEngine;

// Looks at the auxiliary vector: `AT_BASE` is its own beginning, `AT_ENTRY` the program's code.
guest!(interprets:
    "lea r14, [rip - 7]",
    "mov rcx, [rsp]", // argc
    "lea rbx, [rsp + 8 * rcx + 16]", // envp
    "2: mov rax, [rbx]", "add rbx, 8", "test rax, rax", "jnz 2b",
    "3: mov rax, [rbx]", "mov rdx, [rbx + 8]", "add rbx, 16",
    "cmp rax, 7", "je 4f",
    "cmp rax, 9", "je 5f",
    "test rax, rax", "jnz 3b",
    "mov edi, 1", "mov eax, 231", "syscall",
    "4: mov r12, rdx", "jmp 3b",
    "5: add r12, 0x1000", "cmp r12, r14", "jne 6f",
    "jmp rdx", // the program
    "6: mov edi, 2", "mov eax, 231", "syscall");

const PATH: &[u8] = b"/lib/interpreter\0";

/// Runs a program with this interpreter as a file of its own.
fn run(program: Vec<u8>, interpreter: &[u8]) -> Result<Result<u8, Fault>, LoadError> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("interpreter"), interpreter).unwrap();
    let grant =
        FileGrant { guest: "/lib".to_owned(), host: directory.path().to_owned(), public: false };
    let source = ProgramSource { image: program.into(), files: vec![grant], ..source(&[]) };
    let limits = Limits { memory: 8 << 20, ..Limits::default() };
    KvmEngine::new().execute(&source, &limits, Box::new(std::io::empty()), Arc::new(Quiet))
}

fn interpreter() -> Vec<u8> {
    file(3, 0x1000, interprets(), &[])
}

#[test]
fn an_interpreter_starts_its_program() {
    if has_kvm() {
        assert_eq!(run(file(2, CODE, exits(), PATH), &interpreter()).unwrap(), Ok(7));
    }
}

#[test]
fn what_is_wrong_with_an_interpreter_is_said_of_it() {
    if !has_kvm() {
        return;
    }
    let program = |path: &[u8]| file(2, CODE, exits(), path);
    let good = interpreter();
    let cut = &good[..0x1001];
    let cases: [(Vec<u8>, &[u8], &str); 8] = [
        (program(b"/lib/none\0"), &good, "cannot read the program's interpreter `/lib/none`"),
        (program(b"/lib\0"), &good, "cannot read the program's interpreter"),
        (program(b"/lib/../../etc/shadow\0"), &good, "cannot read the program's interpreter"),
        (program(b"lib/interpreter\0"), &good, "path is not one"),
        (program(b"/lib/interpreter"), &good, "path is not one"),
        (program(PATH), b"no program", "interpreter `/lib/interpreter`: not an ELF file"),
        (program(PATH), cut, "interpreter `/lib/interpreter`: a segment lies outside"),
        (
            program(PATH),
            &program(PATH),
            "interpreter `/lib/interpreter`: the program is dynamically",
        ),
    ];
    for (program, interpreter, text) in cases {
        let error = run(program, interpreter).unwrap_err();
        assert!(error.to_string().contains(text), "{error}: {text}");
        assert!(error.hint().is_some(), "{error}");
    }
    // One that is linked to the program's own place has it, which is the program's own problem.
    let end = run(program(PATH), &elf(exits())).unwrap();
    assert_eq!(end, Ok(7));
}

guest!(writes_restore: "movabs rax, 0x1000006000", "mov [rax], al");
guest!(writes_vectors: "movabs rax, 0x1000007000", "mov [rax], al");
guest!(runs_vectors: "movabs rax, 0x1000007000", "jmp rax");
// Goes the way back from a call that it has not made.
guest!(uses_restore:
    "lea rcx, [rip + 2f]", "mov r11d, 231", "mov edi, 7",
    "movabs rax, 0x1000006000", "jmp rax",
    "2: syscall");

#[test]
fn the_way_back_with_vectors_is_of_no_use_to_a_program() {
    if !has_kvm() {
        return;
    }
    for code in [writes_restore(), writes_vectors(), runs_vectors()] {
        let end = execute(code, &Limits::default());
        assert!(matches!(end, Err(Fault::Trap(_))), "{end:?}");
    }
    assert_eq!(execute(uses_restore(), &Limits::default()), Ok(7));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_spoilt_interpreter_is_refused_or_runs(
        changes in prop::collection::vec((0..0x120usize, any::<u8>()), 1..6),
        of_program: bool,
    ) {
        let (mut program, mut interpreter) = (file(2, CODE, exits(), PATH), interpreter());
        for (at, value) in changes {
            if of_program { program[at] = value } else { interpreter[at] = value }
        }
        if has_kvm() {
            match run(program, &interpreter) {
                Ok(end) => prop_assert!(!matches!(end, Err(Fault::Protocol(_))), "{end:?}"),
                Err(LoadError::Engine(error)) => prop_assert!(false, "{error:?}"),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
