//! Configurations of several files.

use std::path::Path;

use insta::assert_snapshot;
use tempfile::TempDir;

use super::SURROUNDINGS;
use crate::{Config, LoadError, Serves, load};

/// Loads `sandtide.toml` of a directory with these files.
fn read(files: &[(&str, &str)]) -> (TempDir, Result<Config, String>) {
    let directory = TempDir::new().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let config = load(&directory.path().join("sandtide.toml"), &SURROUNDINGS);
    let place = format!("{}/", directory.path().display());
    let config = config.map_err(|error| match error {
        LoadError::Wrong(problems) => problems.to_string().replace(&place, ""),
        error @ LoadError::Read { .. } => panic!("{error}"),
    });
    (directory, config)
}

fn tenant(name: &str) -> String {
    format!("[tenants.{name}]\nauthorities = \"{name}.localhost\"\nprogram = \"{name}.elf\"\n")
}

fn names(config: &Config) -> Vec<&str> {
    config.tenants.iter().map(|tenant| tenant.name.as_str()).collect()
}

#[test]
fn files_are_included_in_the_order_of_their_names() {
    let (directory, config) = read(&[
        (
            "sandtide.toml",
            &format!("include = [\"groups.toml\", \"d/*.toml\", \"none/*\"]\n{}", tenant("main")),
        ),
        ("groups.toml", "[groups.g]\nweight = 5\n"),
        ("d/b.toml", &tenant("b")),
        ("d/a.toml", &format!("{}group = \"g\"\nfiles = {{ \"/x\" = \"x\" }}\n", tenant("a"))),
        ("d/.hidden.toml", "not TOML"),
        ("d/a.toml~", "not TOML"),
    ]);
    let config = config.unwrap();
    assert_eq!(names(&config), ["main", "a", "b"]);
    assert_eq!(config.tenants[1].weight, 5);
    // Paths start from the file that they stand in.
    let Serves::Program(program) = &config.tenants[1].serves else { panic!("{config:?}") };
    assert_eq!(program.file, directory.path().join("d/a.elf"));
    assert_eq!(program.files[0].host, directory.path().join("d/x"));
    let files: Vec<_> =
        config.files.iter().map(|file| file.strip_prefix(directory.path()).unwrap()).collect();
    let expected = ["sandtide.toml", "groups.toml", "d/a.toml", "d/b.toml", "d", "none"];
    assert_eq!(files, expected.map(Path::new));
}

#[test]
fn a_file_is_read_once() {
    let (_directory, config) = read(&[
        ("sandtide.toml", "include = [\"*.toml\", \"a.toml\", \"./d/../a.toml\", \"**/*.toml\"]\n"),
        ("a.toml", &tenant("a")),
        ("d/b.toml", &tenant("b")),
    ]);
    assert_eq!(names(&config.unwrap()), ["a", "b"]);
}

#[test]
fn each_problem_names_its_own_file() {
    let (_directory, config) = read(&[
        ("sandtide.toml", &format!("include = [\"d/*\"]\n{}queue = -1\n", tenant("a"))),
        ("d/1", &format!("\n{}wieght = 3\n[server]\n", tenant("a"))),
        ("d/2", "[tenants.b"),
        ("d/3", "include = []\n[groups.g]\n[groups.h]\ngroup = \"i\"\n"),
        ("d/4", "[groups.g]\nqueue = \"many\"\n"),
    ]);
    assert_snapshot!(config.unwrap_err(), @"
    sandtide.toml:5:9: `queue`: -1 is outside 0 to 65536

    d/1:2:10: tenant `a` is there twice
    hint: the other is at sandtide.toml:2

    d/1:5:1: unknown key `wieght` in `[tenants.a]`
    hint: did you mean `weight`?

    d/1:6:2: `server` cannot stand in a file that another includes
    hint: move it to the including file

    d/2:1:11: unclosed table, expected `]`

    d/3:1:1: `include` cannot stand in a file that another includes
    hint: move it to the including file

    d/4:1:9: group `g` is there twice
    hint: the other is at d/3:2

    d/4:2:9: `queue`: must be an integer, not a string
    ");
}

#[test]
fn what_cannot_be_included_is_said() {
    let (_directory, config) = read(&[
        ("sandtide.toml", "include = [\"a.toml\", \"d\", \"[\", \"${UNSET}\"]\n"),
        ("d/x", ""),
    ]);
    assert_snapshot!(config.unwrap_err(), @"
    sandtide.toml:1:32: `include`: environment variable `UNSET` is not set
    hint: set it, or say what to use instead: `${UNSET:-default}`
    ");
    let (_directory, config) =
        read(&[("sandtide.toml", "include = [\"a.toml\", \"d\", \"[\"]\n"), ("d/x", "")]);
    assert_snapshot!(config.unwrap_err(), @"
    sandtide.toml:1:12: `include`: cannot read `a.toml`: No such file or directory (os error 2)
    hint: name a file that exists, or a pattern such as `tenants.d/*.toml`

    sandtide.toml:1:22: `include`: cannot read `d`: Is a directory (os error 21)
    hint: name a file that exists, or a pattern such as `tenants.d/*.toml`

    sandtide.toml:1:27: `include`: `[` is not a pattern: invalid range pattern
    ");
}
