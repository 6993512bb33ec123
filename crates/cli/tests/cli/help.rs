//! What the commands say about themselves.

use crate::support::Place;
use insta::assert_snapshot;

#[test]
fn the_commands_describe_themselves() {
    let place = Place::new();
    for command in ["", "serve", "run", "call", "check", "snapshot", "schema", "build"] {
        let args: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let name = if command.is_empty() { "sandtide" } else { command };
        assert_snapshot!(format!("help_{name}"), place.run(&args));
    }
}

#[test]
fn no_command_is_a_mistake_with_the_help() {
    assert_snapshot!(Place::new().run(&[]));
}

#[test]
fn the_version_is_the_one_of_the_crate() {
    let version = format!("sandtide {}\n", env!("CARGO_PKG_VERSION"));
    assert!(Place::new().run(&["--version"]).contains(&version));
}
