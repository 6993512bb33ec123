//! The table and its documentation.

use std::{collections::HashSet, fmt::Write, fs, path::Path};

use super::*;

const BOTH: [Architecture; 2] = [Architecture::Riscv64, Architecture::X86_64];

fn number(architecture: Architecture, entry: &Entry) -> Option<u64> {
    (0..NUMBERS as u64).find(|number| name(architecture, *number) == entry.name)
}

#[test]
fn every_entry_has_a_number_and_is_found_by_it() {
    let mut names = HashSet::new();
    for entry in TABLE {
        assert!(names.insert(entry.name), "{} is there twice", entry.name);
        let numbers = BOTH.map(|architecture| number(architecture, entry));
        assert_ne!(numbers, [None, None], "{} has no number", entry.name);
        for (architecture, number) in BOTH.into_iter().zip(numbers) {
            if let Some(number) = number {
                assert_eq!(find(architecture, number).map(|found| found.name), Some(entry.name));
            }
        }
    }
}

#[test]
fn numbers_are_those_of_linux() {
    let number_of = |name: &str| {
        let entry = TABLE.iter().find(|entry| entry.name == name).unwrap();
        BOTH.map(|architecture| number(architecture, entry))
    };
    assert_eq!(number_of("write"), [Some(64), Some(1)]);
    assert_eq!(number_of("newfstatat"), [Some(79), Some(262)]);
    assert_eq!(number_of("open"), [None, Some(2)]);
    assert_eq!(number_of("riscv_flush_icache"), [Some(259), None]);
    assert!(find(Architecture::Riscv64, u64::MAX).is_none());
    assert_eq!(name(Architecture::Riscv64, u64::MAX), "unassigned");
}

fn documentation() -> String {
    let mut text = String::from(
        "# System calls\n\n\
         What a guest can call, in both instruction sets. Every other call returns `ENOSYS` and is\n\
         counted by name. This page is made from the table in `crates/linux/src/table.rs`.\n",
    );
    let column = |number: Option<u64>| number.map_or("–".to_owned(), |number| number.to_string());
    let mut entries = TABLE.iter();
    for (title, count) in SUBJECTS {
        write!(text, "\n## {title}\n\n| call | riscv64 | x86-64 | notes |\n|---|---|---|---|\n")
            .unwrap();
        for entry in entries.by_ref().take(*count) {
            let [riscv64, x86_64] = BOTH.map(|architecture| column(number(architecture, entry)));
            let (name, notes) = (entry.name, entry.notes);
            writeln!(text, "| `{name}` | {riscv64} | {x86_64} | {notes} |").unwrap();
        }
    }
    text
}

#[test]
fn the_documentation_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/syscalls.md");
    let expected = documentation();
    if std::env::var_os("SANDTIDE_REFRESH").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "docs/syscalls.md differs from the table: \
         run `SANDTIDE_REFRESH=1 cargo test -p sandtide-linux documentation`"
    );
}
