//! Whatever stands in a file, it is read or refused with places in it.

use proptest::prelude::*;

use super::SURROUNDINGS;
use crate::{Problems, parse};

fn check(text: &str) -> Result<(), TestCaseError> {
    let Err(Problems(problems)) = parse("x.toml", text, "/srv".as_ref(), &SURROUNDINGS) else {
        return Ok(());
    };
    prop_assert!(!problems.is_empty());
    let lines: Vec<_> = text.split('\n').collect();
    for problem in problems {
        let line = lines.get(problem.line - 1).copied();
        let fits = line.is_some_and(|line| problem.column <= line.chars().count() + 1);
        prop_assert!(fits, "{problem} is not in the text");
        prop_assert!(!problem.message.is_empty());
    }
    Ok(())
}

/// Every key that there is, as the schema has them.
fn keys() -> Vec<String> {
    fn collect(value: &serde_json::Value, keys: &mut Vec<String>) {
        if let Some(object) = value.as_object() {
            if let Some(properties) = object.get("properties").and_then(|p| p.as_object()) {
                keys.extend(properties.keys().cloned());
            }
            object.values().for_each(|value| collect(value, keys));
        }
    }
    let mut keys = Vec::new();
    collect(&serde_json::from_str(&crate::schema(&["riscv"])).unwrap(), &mut keys);
    assert!(keys.len() > 60, "{keys:?}");
    keys
}

#[test]
fn the_example_has_every_key() {
    let example = super::EVERY_KEY;
    let words: Vec<_> = example.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let missing: Vec<_> = keys()
        .into_iter()
        .filter(|key| !words.contains(&key.as_str()) && key != "defaults")
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// A line of a file in which most words mean something.
fn line() -> impl Strategy<Value = String> {
    let key = || proptest::sample::select(keys());
    let value = prop_oneof![
        (-3i64..70_000).prop_map(|number| number.to_string()),
        "(\"[a-z${}:/*.-]{0,8}\"|[0-9]{1,3} (KiB|s|ms))".prop_map(|text| format!("{text:?}")),
        proptest::sample::select(vec![
            "true",
            "[]",
            "{}",
            "\"never\"",
            "\"a.localhost\"",
            "\"/\"",
            "1.5",
            "1979-05-27",
            "[\"a\", 1]",
            "{ a = 1 }",
            "[{ address = \"[::1]:1\", tls = true }]",
            "\"g\"",
        ])
        .prop_map(str::to_owned),
    ];
    let table = prop_oneof![
        proptest::sample::select(vec![
            "server",
            "server.forwarded",
            "tls",
            "admin",
            "access_log",
            "defaults",
            "groups.g",
            "groups.h",
            "tenants.a",
            "tenants.b",
            "tenants.b.limits",
            "groups.g.limits",
        ])
        .prop_map(str::to_owned),
        key(),
    ];
    prop_oneof![
        4 => (key(), value).prop_map(|(key, value)| format!("{key} = {value}\n")),
        1 => table.prop_map(|table| format!("[{table}]\n")),
    ]
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC*") {
        check(&text)?;
    }

    #[test]
    fn no_configuration_makes_the_reader_panic(lines in proptest::collection::vec(line(), 0..30)) {
        check(&lines.concat())?;
    }

    #[test]
    fn no_cut_or_change_makes_the_reader_panic(at in 0..1usize << 16, with in "\\PC{0,3}") {
        let mut text = super::EVERY_KEY.to_owned();
        let at = at % text.len();
        if text.is_char_boundary(at) {
            text.replace_range(at..(at + 1).min(text.len()), &with);
            check(&text)?;
        }
    }
}
