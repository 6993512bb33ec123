//! The tables of keys in `docs/` are made from the declarations in this crate.
//! `SANDTIDE_REFRESH=1 cargo test -p sandtide-config` rewrites them.
#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use sandtide_config::{Surroundings, parse};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn is_filled_in(name: &str) {
    let path = path(name);
    let document = fs::read_to_string(&path).unwrap();
    let filled = sandtide_config::fill(&document).unwrap();
    if std::env::var_os("SANDTIDE_REFRESH").is_some() {
        fs::write(&path, filled).unwrap();
        return;
    }
    assert!(document == filled, "{name} is stale; refresh it with SANDTIDE_REFRESH=1");
}

#[test]
fn the_keys_of_the_configuration() {
    is_filled_in("docs/configuration.md");
}

#[test]
fn the_limits() {
    is_filled_in("docs/limits.md");
}

/// What is wrong with an example that shows a part of a configuration only.
const PARTS: [&str; 5] = [
    "no tenant is configured",
    "has nothing to serve",
    "cannot be reached",
    "there is no certificate",
    "cannot read",
];

fn examples_are_right(name: &str) {
    let document = fs::read_to_string(path(name)).unwrap();
    let examples: Vec<_> = document.split("```toml\n").skip(1).collect();
    assert!(!examples.is_empty());
    let surroundings = Surroundings { engines: &["riscv"], variable: &|_| Some("1".into()) };
    for example in examples {
        let example = example.split("```").next().unwrap();
        if let Err(problems) = parse(name, example, "".as_ref(), &surroundings) {
            let is_part = |message: &str| PARTS.iter().any(|part| message.contains(part));
            let wrong: Vec<_> =
                problems.0.iter().filter(|problem| !is_part(&problem.message)).collect();
            assert!(wrong.is_empty(), "{example}\n{wrong:#?}");
        }
    }
}

#[test]
fn the_examples() {
    examples_are_right("docs/configuration.md");
    examples_are_right("README.md");
}
