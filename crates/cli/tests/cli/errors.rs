//! What is said when something is wrong: what, where, and what to do about it.

use std::net::TcpListener;

use crate::support::{Place, elf_header};
use insta::assert_snapshot;

/// Machine numbers of ELF.
const AARCH64: u16 = 183;
const RISCV: u16 = 243;

fn programs() -> Place {
    Place::new()
        .file("text.elf", "not a program\n")
        .file("arm.elf", elf_header(2, AARCH64))
        .file("rv32.elf", elf_header(1, RISCV))
        .file("cut.elf", b"\x7fELF\x02")
        .file("empty.elf", "")
        .file("main.c", "int main(void) { return 0; }\n")
}

#[test]
fn a_file_that_is_no_program_is_refused_with_what_it_is() {
    let place = programs();
    for file in ["missing.elf", "text.elf", "arm.elf", "rv32.elf", "cut.elf", "empty.elf", "main.c"]
    {
        let (name, _) = file.split_once('.').unwrap();
        assert_snapshot!(format!("run_{name}"), place.run(&["run", file]));
    }
    assert_snapshot!("run_directory", place.run(&["run", "."]));
}

#[test]
fn a_program_that_cannot_be_served_is_refused_before_listening() {
    let place = programs();
    assert_snapshot!("serve_arm", place.run(&["serve", "arm.elf", "--listen", "127.0.0.1:0"]));
    assert_snapshot!("serve_text", place.run(&["serve", "text.elf"]));
    assert_snapshot!("serve_source", place.run(&["serve", "main.c"]));
    assert_snapshot!("serve_missing", place.run(&["serve", "missing.elf"]));
    assert_snapshot!("serve_nothing", place.run(&["serve"]));
}

#[test]
fn a_wrong_configuration_is_shown_whole() {
    let place = Place::new().file(
        "sandtide.toml",
        "[server]\nlisten = \"localhost:80\"\n\n[tenants.shop]\nprogramm = \"shop.elf\"\n",
    );
    assert_snapshot!("check_wrong", place.run(&["check"]));
    assert_snapshot!("check_missing", place.run(&["check", "missing.toml"]));
}

#[test]
fn check_goes_through_all_tenants() {
    let config = "\
[tenants.constant]
default = true
respond = { status = 204 }
[tenants.arm]
authorities = \"arm.localhost\"
program = \"arm.elf\"
[tenants.missing]
authorities = \"missing.localhost\"
program = \"missing.elf\"
";
    let output = programs().file("sandtide.toml", config).run(&["check"]);
    // The time differs from run to run, and with it the width of the column.
    let untimed = output.lines().map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let Some(unit) = words.iter().position(|word| *word == "ms") else {
            return words.join(" ");
        };
        [&words[..unit - 1], &["TIME"], &words[unit..]].concat().join(" ")
    });
    assert_snapshot!(untimed.collect::<Vec<_>>().join("\n"));
}

#[test]
fn addresses_are_checked() {
    let place = Place::new()
        .file("sandtide.toml", "[tenants.a]\ndefault = true\nrespond = { body = \"x\" }\n");
    assert_snapshot!("listen_bad", place.run(&["serve", "--listen", "localhost:80"]));

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = place.run(&["serve", "--listen", &address.to_string()]);
    let port = address.port().to_string();
    assert_snapshot!("listen_taken", output.replace(&port, "PORT"));
}

#[test]
fn the_options_of_run_are_checked() {
    let place = Place::new();
    for (name, option, value) in [
        ("memory", "--memory", "64 MB"),
        ("time", "--time", "10"),
        ("instructions", "--instructions", "0"),
        ("file", "--file", "data=./data"),
        ("env", "--env", "NAME"),
    ] {
        assert_snapshot!(format!("run_bad_{name}"), place.run(&["run", option, value, "a.elf"]));
    }
}

#[test]
fn calls_are_checked() {
    let place = Place::new()
        .file("sandtide.toml", "[tenants.shop]\ndefault = true\nrespond = { body = \"x\" }\n");
    assert_snapshot!("call_tenant", place.run(&["call", "shp", "GET", "/"]));
    assert_snapshot!("call_path", place.run(&["call", "shop", "GET", "x"]));
    assert_snapshot!("call_method", place.run(&["call", "shop", "G T", "/"]));
    assert_snapshot!("call_header", place.run(&["call", "shop", "GET", "/", "-H", "x"]));
    assert_snapshot!("call_data", place.run(&["call", "shop", "PUT", "/", "-d", "@missing"]));
}
