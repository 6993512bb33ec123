//! `sandtide run`: output and exit code are the guest's own, and a fault says where.

use insta::assert_snapshot;

use crate::{guest, support::Place};

#[test]
fn output_and_exit_code_are_handed_on() {
    let place = Place::new()
        .file("out.elf", guest::print(1, "to stdout\n"))
        .file("err.elf", guest::print(2, "to stderr\n"));
    assert_snapshot!(place.run(&["run", "out.elf"]), @"
    exit: 7
    --- stdout
    to stdout
    --- stderr
    ");
    assert_snapshot!(place.run(&["run", "err.elf"]), @"
    exit: 7
    --- stdout
    --- stderr
    to stderr
    ");
}

#[test]
fn faults_are_shown_with_their_place_and_become_exit_codes() {
    let bad_write = [guest::sd(guest::ZERO, guest::ZERO, 16)];
    let place = Place::new()
        .file("write.elf", guest::elf(&bad_write, b""))
        .file("illegal.elf", guest::elf(&[guest::ILLEGAL], b""))
        .file("break.elf", guest::elf(&[guest::EBREAK], b""))
        .file("spin.elf", guest::elf(&[guest::back(0)], b""));
    assert_snapshot!(place.run(&["run", "write.elf"]), @"
    exit: 139
    --- stdout
    --- stderr
    error: `write.elf` ended badly
      caused by: bad write of 0x10 at 0x10078
        at 0x10078
    ");
    assert_snapshot!(place.run(&["run", "illegal.elf"]), @"
    exit: 132
    --- stdout
    --- stderr
    error: `illegal.elf` ended badly
      caused by: illegal instruction at 0x10078
        at 0x10078
    ");
    assert_snapshot!(place.run(&["run", "break.elf"]), @"
    exit: 133
    --- stdout
    --- stderr
    error: `break.elf` ended badly
      caused by: breakpoint at 0x10078
        at 0x10078
    ");
    assert_snapshot!(place.run(&["run", "--instructions", "1000", "spin.elf"]), @"
    exit: 152
    --- stdout
    --- stderr
    error: `spin.elf` ended badly
      caused by: used up its 1000 instructions at 0x10078
        at 0x10078

    hint: raise `--instructions`
    ");
    assert_snapshot!(place.run(&["run", "--time", "30 ms", "spin.elf"]), @"
    exit: 124
    --- stdout
    --- stderr
    error: `spin.elf` ended badly
      caused by: no answer within 30ms at 0x10078
        at 0x10078

    hint: raise `--time`
    ");
}

#[test]
fn a_profile_is_shown_however_the_program_ends_and_without_names() {
    let place = Place::new().file("spin.elf", guest::elf(&[guest::back(0)], b""));
    let run = &["run", "--translate", "off", "--profile", "--instructions", "1000000", "spin.elf"];
    let output = place.run(run);
    assert!(output.contains("profile: 1,000,000 instructions in "), "{output}");
    assert!(output.contains("\n 100.0 %       100.0 %         0 %  0x10078\n"), "{output}");
    assert!(output.ends_with("hint: raise `--instructions`\n"), "{output}");
}

#[test]
fn arguments_behind_the_program_are_its_own() {
    let place = Place::new().file("count.elf", guest::elf(&guest::exit_with_argc(), b""));
    for (args, count) in [
        (&["count.elf"][..], 1),
        (&["count.elf", "--help"], 2),
        (&["count.elf", "-x", "--time", "y"], 4),
        (&["--", "count.elf", "--time"], 2),
    ] {
        let output = place.run(&[&["run"], args].concat());
        assert!(output.starts_with(&format!("exit: {count}\n")), "{args:?}: {output}");
    }
    assert_snapshot!(place.run(&["run", "--bogus", "count.elf"]), @"
    exit: 2
    --- stdout
    --- stderr
    error: unexpected argument '--bogus' found

      tip: to pass '--bogus' as a value, use '-- --bogus'

    Usage: sandtide run [OPTIONS] <PROGRAM> [ARGS]...

    For more information, try '--help'.
    ");
}
