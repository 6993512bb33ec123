//! Clients that share no code with the server, where this machine has them.

use std::{env, process::Command};

/// Whether these programs are here: `curl`, `nghttp`, `h2load`, `openssl`. Says so if one is not.
///
/// # Panics
/// If one is missing, and `SANDTIDE_REQUIRE_TOOLCHAIN` is set.
pub fn has_tools(names: &[&str]) -> bool {
    let is_here = |name: &&&str| {
        let argument = if **name == "openssl" { "version" } else { "--version" };
        Command::new(name).arg(argument).output().is_ok_and(|output| output.status.success())
    };
    let missing: Vec<_> = names.iter().filter(|name| !is_here(name)).collect();
    assert!(
        missing.is_empty() || env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(),
        "not installed: {missing:?}\nhint: run `scripts/setup test`"
    );
    if !missing.is_empty() {
        eprintln!("SKIPPED: not installed: {missing:?}; run `scripts/setup test`");
    }
    missing.is_empty()
}
