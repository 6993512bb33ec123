//! Clients that share no code with the server, where this machine has them.

use std::{env, path::PathBuf, process::Command};

use crate::binary::top;

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

/// What `scripts/setup test` puts at a path of `build`: `npm/bin/deno`, `npm/bin/bun`,
/// `apps/bin/python`. Says so if it is not there.
///
/// # Panics
/// If it is not there, and `SANDTIDE_REQUIRE_TOOLCHAIN` is set.
pub fn installed(path: &str) -> Option<PathBuf> {
    let file = top().join("build").join(path);
    let is_here = file.is_file();
    assert!(
        is_here || env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_none(),
        "no file `{}`\nhint: run `scripts/setup test`",
        file.display()
    );
    if !is_here {
        eprintln!("SKIPPED: no file `{}`; run `scripts/setup test`", file.display());
    }
    is_here.then_some(file)
}
