//! System calls: one set of programs for both instruction sets, run on Linux itself, in a virtual
//! machine and on the interpreter, with the same output.

use std::{fs, path::PathBuf, process::Command};

use sandtide_tests::{
    Run,
    binary::{running, top},
    guest::{built_by, compilers, has_toolchain, native},
};

/// The programs of `tests/guests/calls`.
fn programs() -> Vec<PathBuf> {
    let entries = fs::read_dir(top().join("tests/guests/calls")).expect("the guests are there");
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut programs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "c")).collect();
    programs.sort();
    assert!(programs.len() >= 8, "{programs:?}");
    programs
}

/// The first line that differs, and how it ended if nothing does.
fn difference(found: &Run, expected: &Run) -> Option<String> {
    let lines = |run: &Run| -> Vec<String> { run.stdout.lines().map(str::to_owned).collect() };
    let (ours, theirs) = (lines(found), lines(expected));
    let pairs = (0..ours.len().max(theirs.len())).map(|at| (ours.get(at), theirs.get(at)));
    let different: Vec<_> = pairs
        .filter(|(ours, theirs)| ours != theirs)
        .take(4)
        .map(|(ours, theirs)| format!("  {ours:?}, on Linux {theirs:?}\n"))
        .collect();
    if different.is_empty() && (found.code, found.signal) == (expected.code, expected.signal) {
        return None;
    }
    Some(format!("exit code {:?}\n{}{}", found.code, different.concat(), found.stderr))
}

#[test]
fn system_calls_do_in_both_engines_what_they_do_on_linux() {
    let mut differences = Vec::new();
    for source in programs() {
        let Some(here) = native(&source) else { return };
        let expected = Run::of(&mut Command::new(&here), b"");
        let mut engines = vec![("kvm", here)];
        // Only glibc's headers have all of these calls.
        if has_toolchain() && compilers().contains(&"gnu") {
            engines.push(("riscv", built_by("gnu", &source)));
        }
        for (engine, program) in engines {
            let found = Run::of(running("run").arg(&program), b"");
            if let Some(difference) = difference(&found, &expected) {
                differences.push(format!("{}, {engine}: {difference}", source.display()));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
