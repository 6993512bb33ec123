//! What `build` makes, refuses and remembers, with the compilers of this machine.
#![allow(clippy::unwrap_used)]

mod support;

use std::{fs, path::Path};

use object::{Object, ObjectSymbol};
use sandtide_build::{BuildError, CompilerChoice};
use support::{Server, build, has_qemu, program, root, split};

const EACH: [CompilerChoice; 2] = [CompilerChoice::Zig, CompilerChoice::Gnu];

#[test]
fn hello_serves_plain_http_outside_a_sandbox() {
    for compiler in EACH {
        let scratch = tempfile::tempdir().unwrap();
        let source = root().join("examples/hello/hello.c");
        let Some(program) = program(&source, scratch.path(), compiler) else { continue };
        if !has_qemu() {
            return;
        }
        let server = Server::start(&program);
        let answer = server.exchange("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let (status, head, body) = split(&answer);
        assert_eq!((status, body.as_str()), (200, "Hello, World!\n"));
        assert!(head.contains("content-length: 14"), "{head}");
    }
}

#[test]
fn programs_are_static_and_have_names_but_no_debug_information() {
    for compiler in EACH {
        let scratch = tempfile::tempdir().unwrap();
        let source = root().join("examples/hello/hello.c");
        let Some(program) = program(&source, scratch.path(), compiler) else { continue };
        let elf = fs::read(program).unwrap();
        let file = object::File::parse(&*elf).unwrap();
        assert_eq!(file.architecture(), object::Architecture::Riscv64);
        assert!(file.section_by_name(".interp").is_none(), "it needs no dynamic linker");
        assert!(file.section_by_name(".debug_info").is_none());
        assert!(file.symbols().any(|symbol| symbol.name() == Ok("sandtide_start_")));
    }
}

#[test]
fn a_build_is_repeated_only_if_something_that_it_includes_changed() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("a.c");
    let write = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
    write("a.c", "#include \"b.h\"\nint main(void) { return B; }\n");
    write("b.h", "#define B 3\n");
    let cached = || {
        let built = build(&source, scratch.path(), CompilerChoice::Auto);
        built.result.map(|output| output.cached)
    };
    match cached() {
        Err(BuildError::NoCompiler { .. }) => return,
        first => assert!(!first.unwrap()),
    }
    assert!(cached().unwrap());
    write("b.h", "#define B 4\n");
    assert!(!cached().unwrap());
    write("b.h", "#define B 3\n");
    assert!(cached().unwrap());
}

#[test]
fn what_the_compiler_says_is_shown_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("wrong.c");
    fs::write(&source, "int main(void) { return nothing; }\n").unwrap();
    let built = build(&source, scratch.path(), CompilerChoice::Auto);
    match built.result {
        Err(BuildError::NoCompiler { .. }) => return,
        Err(BuildError::Refused { path, .. }) => assert_eq!(path, source),
        other => panic!("{other:?}"),
    }
    let said = built.said.join("\n");
    assert!(said.contains("wrong.c:1:25: error:") && said.contains("nothing"), "{said}");
    assert!(!scratch.path().join("program.elf").exists());
}

#[test]
fn an_include_that_is_missing_is_shown() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("wrong.cpp");
    fs::write(&source, "#include \"missing.h\"\n").unwrap();
    let built = build(&source, scratch.path(), CompilerChoice::Auto);
    assert!(built.result.is_err());
    if !matches!(built.result, Err(BuildError::NoCompiler { .. })) {
        assert!(built.said.join("\n").contains("missing.h"), "{:?}", built.said);
    }
}

/// The GNU compiler, if it is there: zig would first build its C++ library.
fn python(source: &Path, scratch: &Path) -> Option<std::path::PathBuf> {
    let gnu = build(source, scratch, CompilerChoice::Gnu);
    match gnu.result {
        Err(BuildError::NoCompiler { .. }) => program(source, scratch, CompilerChoice::Auto),
        _ => program(source, scratch, CompilerChoice::Gnu),
    }
}

#[test]
fn a_python_page_is_served_and_its_start_is_heard() {
    let scratch = tempfile::tempdir().unwrap();
    let source = root().join("examples/python/page.py");
    let Some(program) = python(&source, scratch.path()) else { return };
    if !has_qemu() {
        return;
    }
    let mut server = Server::start(&program);
    for _ in 0..2 {
        let answer = server.exchange("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let (status, head, body) = split(&answer);
        assert_eq!(status, 200);
        assert!(head.contains("content-type: text/plain"), "{head}");
        assert!(body.starts_with("this is a very long string"), "{body}");
    }
    assert_eq!(server.first_line(), "Hello from Python\n");
}

#[test]
fn a_python_program_looks_at_the_request_and_chooses_the_response() {
    let scratch = tempfile::tempdir().unwrap();
    let source = root().join("examples/python-request/page.py");
    let Some(program) = python(&source, scratch.path()) else { return };
    if !has_qemu() {
        return;
    }
    let server = Server::start(&program);
    let ask = |line: &str, body: &str| {
        let length = body.len();
        server.exchange(&format!(
            "{line} HTTP/1.1\r\nHost: h\r\nUser-Agent: me\r\nConnection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        ))
    };
    assert_eq!(split(&ask("GET /", "")).2, "Hello, me\n");
    assert_eq!(split(&ask("GET /sum?n=4&x=1&n=38", "")).2, "42\n");
    assert_eq!(split(&ask("POST /upper", "shout")).2, "SHOUT");
    let answer = ask("GET /upper", "");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST"), "{answer}");
    assert_eq!(split(&ask("GET /nowhere", "")).0, 404);
    assert_eq!(split(&ask("GET /sum?n=x", "")).0, 500);
    assert_eq!(split(&ask("GET /sum?n=1", "")).2, "1\n");
}

#[test]
fn a_python_program_that_cannot_be_served_is_refused_with_its_line() {
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("page.py");
    fs::write(&source, "x = 1\n\ndef on_client_request(methud):\n    return \"a\"\n").unwrap();
    let built = build(&source, scratch.path(), CompilerChoice::Auto);
    match built.result {
        Err(BuildError::NoCompiler { .. } | BuildError::NoPythran { .. }) => return,
        Err(BuildError::Refused { .. }) => {}
        other => panic!("{other:?}"),
    }
    let said = built.said.join("\n");
    assert!(said.contains("page.py:3: ") && said.contains("`methud`"), "{said}");
    assert!(said.contains("hint: "), "{said}");
}
