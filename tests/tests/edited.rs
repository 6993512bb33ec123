//! A program is loaded again when a file changes that it has read: docs/reload.md.

use std::{fs, path::PathBuf, process::Command};

use sandtide_tests::{Server, binary::top, guest::native};

fn node() -> Option<PathBuf> {
    // Whether there is KVM, as any native program shows.
    native(&top().join("tests/guests/exit_code.c"))?;
    let output = Command::new("node").args(["-p", "process.execPath"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    fs::canonicalize(path).ok()
}

const SCRIPT: &str = "
const { text } = require('./library/text.js');
require('http').createServer((request, response) => response.end(text)).listen(3000);
";

#[test]
fn a_library_of_a_script_is_edited() {
    let Some(node) = node() else { return eprintln!("SKIPPED: no node") };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    fs::create_dir(path.join("library")).expect("the directory is ours");
    fs::write(path.join("server.js"), SCRIPT).expect("the directory is ours");
    let library = path.join("library/text.js");
    let write = |text: &str| fs::write(&library, text).expect("the directory is ours");
    write("exports.text = 'one';");
    let server = Server::start(&format!(
        "[tenants.guest]\nauthorities = \"guest.test\"\nprogram = {node:?}\n\
         args = [\"/srv/server.js\"]\nfiles = {{ \"/srv\" = {path:?} }}\n\
         [tenants.guest.limits]\nboot_time = \"60 s\"\nmemory = \"1 GiB\"\nthreads = 64\n"
    ));
    let text = || server.get("guest", "/").text().to_owned();
    assert_eq!(text(), "one");

    let mark = server.log.mark();
    write("exports.text = 'two';");
    let line = server.log.wait_since(mark, "version 2", |line| line.contains("version=2"));
    assert!(line.contains("a file that it has read has changed"), "{line}");
    assert_eq!(text(), "two");

    // One that is broken replaces nothing, and is tried again when it changes.
    let mark = server.log.mark();
    write("exports.text = ;");
    server.log.wait_since(mark, "a failure", |line| line.contains("cannot load"));
    assert_eq!(text(), "two");
    let mark = server.log.mark();
    write("exports.text = 'three';");
    server.log.wait_since(mark, "version 3", |line| line.contains("version=3"));
    assert_eq!(text(), "three");
}
