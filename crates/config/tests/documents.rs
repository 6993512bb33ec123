//! The tables of keys in `docs/` are made from the declarations in this crate.
//! `SANDTIDE_REFRESH=1 cargo test -p sandtide-config` rewrites them.
#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

fn is_filled_in(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let document = fs::read_to_string(&path).unwrap();
    let filled = sandtide_config::fill(&document).unwrap();
    if std::env::var_os("SANDTIDE_REFRESH").is_some() {
        fs::write(&path, filled).unwrap();
        return;
    }
    assert!(document == filled, "docs/{name} is stale; refresh it with SANDTIDE_REFRESH=1");
}

#[test]
fn the_keys_of_the_configuration() {
    is_filled_in("configuration.md");
}

#[test]
fn the_limits() {
    is_filled_in("limits.md");
}
