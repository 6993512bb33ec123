//! `sdk/c/sandtide_abi.h` is made from this crate: its comments from the doc comments in `lib.rs`,
//! its values from the constants. `SANDTIDE_REFRESH=1 cargo test -p sandtide-abi` rewrites it.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

const SOURCE: &str = include_str!("../src/lib.rs");

macro_rules! constants {
    ($($module:ident { $($name:ident)* })*) => {
        [$($((concat!(stringify!($module), "::", stringify!($name)),
              u64::try_from(sandtide_abi::$module::$name).unwrap())),*),*]
    };
}

/// Every constant of the crate but its version, by `module::NAME`.
fn values() -> BTreeMap<&'static str, u64> {
    let mut values = BTreeMap::from(constants! {
        call {
            BASE COUNT VERSION NEXT_REQUEST RESPOND BEGIN WRITE FINISH READ TRAILERS HANDLE INFORM
            RECEIVE FETCH FETCH_TRAILERS SEND
        }
        file { FLAG_NO_WAIT FLAG_GATHER }
        message { KIND STATUS FIELDS_LENGTH TRAILERS_LENGTH SIZE MAX_LENGTH }
        event { SAVE RESTORE ALL }
        request {
            LENGTH VERSION FLAGS ID TIME_NS RANDOM RANDOM_LENGTH BODY_LENGTH METHOD TARGET AUTHORITY
            HEADERS BODY SIZE FIELD_SIZE FLAG_BODY_COMPLETE FLAG_SAVE
            FLAG_RESTORE FLAG_HTTP_1_0 FLAG_HTTP_2 BODY_LENGTH_UNKNOWN
        }
        trailers { LENGTH COUNT SIZE }
        response {
            STATUS HEADER_COUNT HEADERS BODY BODY_LENGTH TRAILERS TRAILER_COUNT SIZE MAX_INTERIM
        }
        field { NAME VALUE NAME_LENGTH VALUE_LENGTH SIZE MAX_COUNT MAX_BYTES }
    });
    values.insert("abi::VERSION", sandtide_abi::VERSION);
    values
}

/// A doc comment without rustdoc's link and code-block marks.
fn comment(docs: &[&str]) -> String {
    let lines: Vec<String> = docs
        .iter()
        .filter(|line| !line.starts_with("```"))
        .map(|line| line.replace("[`", "`").replace("`]", "`").replace("crate::", ""))
        .collect();
    if let [line] = lines.as_slice() {
        return format!("/* {line} */\n");
    }
    let mut text = String::from("/*\n");
    for line in &lines {
        text.push_str(format!(" * {line}").trim_end());
        text.push('\n');
    }
    text + " */\n"
}

fn header() -> String {
    let values = values();
    let mut seen = 0;
    let mut out = String::from(
        "/*\n * The contract with guests: guest-call numbers and block layouts.\n *\n * Generated \
         from crates/abi/src/lib.rs; do not edit. To make it anew:\n *     SANDTIDE_REFRESH=1 \
         cargo test -p sandtide-abi\n */\n#ifndef SANDTIDE_ABI_H\n#define SANDTIDE_ABI_H\n\n",
    );
    let mut module = String::from("abi");
    let mut docs = Vec::new();
    for line in SOURCE.lines().map(str::trim_start) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.strip_prefix(' ').unwrap_or(doc));
            continue;
        }
        if let Some(name) = line.strip_prefix("pub mod ").and_then(|l| l.strip_suffix(" {")) {
            module = name.to_owned();
            writeln!(out, "\n{}", comment(&docs)).unwrap();
        } else if let Some(rest) = line.strip_prefix("pub const ") {
            let name = rest.split(':').next().unwrap();
            let prefix = module.to_uppercase();
            if let Some((_, text)) = rest.split_once(": &str = ") {
                let text = text.trim_end_matches(';');
                writeln!(out, "{}#define SANDTIDE_{prefix}_{name} {text}", comment(&docs)).unwrap();
                docs.clear();
                continue;
            }
            let key = format!("{module}::{name}");
            let value = values.get(key.as_str()).unwrap_or_else(|| {
                panic!("`{key}` is missing from the table at the top of this test")
            });
            let value = match module.as_str() {
                "call" => format!("{value:#x}"),
                _ if *value > u64::from(u32::MAX) => format!("{value:#x}ULL"),
                _ => value.to_string(),
            };
            writeln!(out, "{}#define SANDTIDE_{prefix}_{name} {value}", comment(&docs)).unwrap();
            seen += 1;
        }
        docs.clear();
    }
    assert_eq!(seen, values.len(), "a constant of the table is not in lib.rs");
    out + "\n#endif\n"
}

#[test]
fn the_c_header_says_what_the_crate_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/c/sandtide_abi.h");
    let expected = header();
    if std::env::var_os("SANDTIDE_REFRESH").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == expected,
        "sdk/c/sandtide_abi.h is out of date: SANDTIDE_REFRESH=1 cargo test -p sandtide-abi"
    );
}
