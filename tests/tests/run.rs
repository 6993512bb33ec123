//! `sandtide run` and `sandtide call`: what goes in, what comes out, and the exit code.

use std::{fs, path::Path};

use sandtide_tests::{
    Run,
    binary::{running, top},
    built, guest, sandtide,
};

fn run(program: &Path, options: &[&str], args: &[&str], stdin: &[u8]) -> Run {
    let says_how = options.contains(&"--translate");
    let mut command = if says_how { sandtide() } else { running("run") };
    if says_how {
        command.arg("run");
    }
    command.args(options).arg(program).args(args);
    Run::of(&mut command, stdin)
}

#[test]
fn exit_codes_are_handed_on() {
    let Some(program) = guest("suite_run.c") else { return };
    for code in [0, 1, 7, 124, 255] {
        let text = code.to_string();
        assert_eq!(run(&program, &[], &["exit", &text], b"").code, Some(code));
    }
}

#[test]
fn arguments_environment_and_input_are_passed_on() {
    let Some(program) = guest("suite_run.c") else { return };
    let arguments = run(&program, &[], &["arguments", "a b", "--flag", "", "ä"], b"");
    assert_eq!(arguments.stdout, "arguments\na b\n--flag\n\nä\n");
    let options = ["--env", "A=1", "--env", "EMPTY="];
    // Exactly what was given, and nothing of our own.
    let environment = run(&program, &options, &["environment"], b"");
    assert_eq!(environment.stdout, "A=1\nEMPTY=\n");
    let input: Vec<u8> = (0..200_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
    let copied = run(&program, &[], &["copy"], &input);
    assert_eq!(copied.code, Some(0));
    assert!(copied.stdout.as_bytes() == input, "{} bytes", copied.stdout.len());
}

#[test]
fn output_and_errors_stay_apart() {
    let Some(program) = guest("suite_run.c") else { return };
    let both = run(&program, &[], &["both"], b"");
    assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("to stdout", "to stderr"));
}

#[test]
fn files_are_those_that_are_given() {
    let Some(program) = guest("suite_run.c") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::write(directory.path().join("page"), "content").expect("the directory is ours");
    let grant = format!("/data={}", directory.path().display());
    let options = ["--file", grant.as_str()];
    assert_eq!(run(&program, &options, &["show", "/data/page"], b"").stdout, "content");
    assert_eq!(run(&program, &[], &["show", "/data/page"], b"").code, Some(2));
    assert_eq!(run(&program, &options, &["show", "/etc/passwd"], b"").code, Some(2));
}

#[test]
fn faults_are_shown_with_where_they_were() {
    let Some(program) = guest("suite_run.c") else { return };
    for (way, code, said) in [
        ("trap", 139, "bad write of 0x10"),
        ("illegal", 132, "illegal instruction"),
        ("abort", 134, "signal 6"),
    ] {
        let ended = run(&program, &[], &[way], b"");
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
        assert!(ended.stderr.contains("    at 0x"), "{}", ended.stderr);
        assert!(ended.stderr.contains("(main+0x"), "{}", ended.stderr);
    }
}

#[test]
fn limits_end_it() {
    let Some(program) = guest("suite_run.c") else { return };
    let ended = |options: &[&str], way: &str| run(&program, options, &[way], b"");
    let instructions = ended(&["--instructions", "1000000"], "spin");
    assert_eq!(instructions.code, Some(152), "{instructions:?}");
    let time = ended(&["--time", "50 ms"], "spin");
    assert_eq!(time.code, Some(124), "{time:?}");
    let sleep = ended(&["--time", "50 ms"], "sleep");
    assert_eq!(sleep.code, Some(124), "{sleep:?}");
    let memory = ended(&["--memory", "2 MiB"], "memory");
    assert_eq!(memory.code, Some(137), "{memory:?}");
    for run in [instructions, time, sleep, memory] {
        assert!(run.stderr.contains("hint: "), "{}", run.stderr);
    }
}

#[test]
fn a_profile_names_the_functions_that_compute() {
    let Some(program) = guest("suite_run.c") else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let folded = directory.path().join("folded");
    let option = format!("--profile={}", folded.display());
    for mode in ["auto", "off"] {
        let ended = run(&program, &["--translate", mode, &option], &["compute"], b"");
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
        // Of a row: own, with callees, translated, function.
        let row = |function: &str| -> Vec<f64> {
            let line = ended.stderr.lines().find(|line| line.ends_with(&format!("  {function}")));
            let line = line.unwrap_or_else(|| panic!("no {function}: {}", ended.stderr));
            line.split(' ').filter_map(|word| word.parse().ok()).collect()
        };
        let [compute, hot, cold] = ["compute", "hot", "cold"].map(row);
        assert!(compute[0] > 99.0 && compute[1] > 99.0, "{}", ended.stderr);
        assert_eq!(compute[2] > 90.0, mode == "auto", "{}", ended.stderr);
        // Exact in instructions, whatever the machine does: only the draw of samples varies.
        assert!((88.0..92.0).contains(&hot[1]), "{}", ended.stderr);
        assert!((8.0..12.0).contains(&cold[1]), "{}", ended.stderr);
        let stacks = fs::read_to_string(&folded).expect("it was written");
        let weight = |stack: &str| -> u64 {
            let line = stacks.lines().find_map(|line| line.split_once(stack)?.1.parse().ok());
            line.unwrap_or_else(|| panic!("no {stack}: {stacks}"))
        };
        assert!(weight(";main;hot;compute ") > 7 * weight(";main;cold;compute "), "{stacks}");
    }
}

#[test]
fn what_cannot_be_run_is_our_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let garbage = directory.path().join("garbage");
    fs::write(&garbage, "garbage").expect("the directory is ours");
    for program in [garbage.as_path(), Path::new("no/such/file"), directory.path()] {
        let ended = run(program, &[], &[], b"");
        assert_eq!(ended.code, Some(125), "{ended:?}");
        assert!(ended.stderr.contains("hint: "), "{}", ended.stderr);
    }
}

/// A program that asks for requests has none here.
#[test]
fn a_tenant_is_not_run_but_called() {
    let Some(program) = built(&top().join("examples/hello/hello.c")) else { return };
    let ended = run(&program, &[], &[], b"");
    assert_ne!(ended.code, Some(0));
    assert!(ended.stderr.contains("error: "), "{}", ended.stderr);
}

#[test]
fn calls_need_no_server() {
    let echo = built(&top().join("examples/echo/echo.c"));
    let Some((echo, limits)) = echo.zip(guest("suite_limits.c")) else { return };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("sandtide.toml");
    let text = format!(
        "[tenants.echo]\nauthorities = \"echo.test\"\nprogram = {echo:?}\n\
         [tenants.limits]\nauthorities = \"limits.test\"\nprogram = {limits:?}\n\
         [tenants.limits.limits]\ninstructions = 1_000_000\n\
         [tenants.constant]\ndefault = true\nrespond = {{ status = 404, body = \"none\" }}\n"
    );
    fs::write(&config, text).expect("the directory is ours");
    let call = |args: &[&str], stdin: &[u8]| {
        let mut command = running("call");
        command.arg("--config").arg(&config).args(args);
        Run::of(&mut command, stdin)
    };
    let plain = call(&["echo", "GET", "/a?b=c"], b"");
    assert_eq!(
        (plain.code, plain.stdout.as_str()),
        (Some(0), "GET /a?b=c\necho.test\nhost: echo.test\n")
    );
    let posted = call(&["-i", "echo", "POST", "/", "-H", "x-a: b", "-d", "@-"], b"from stdin");
    assert!(posted.stdout.starts_with("HTTP/1.1 200 OK\n"), "{}", posted.stdout);
    assert!(posted.stdout.contains("\nx-a: b\n"), "{}", posted.stdout);
    assert!(posted.stdout.ends_with("from stdin"), "{}", posted.stdout);
    let constant = call(&["-i", "constant", "GET", "/"], b"");
    assert_eq!(constant.code, Some(0));
    assert!(constant.stdout.starts_with("HTTP/1.1 404 Not Found\n"), "{}", constant.stdout);
    assert!(constant.stdout.ends_with("\n\nnone"), "{}", constant.stdout);
    let spinning = call(&["limits", "GET", "/spin"], b"");
    assert_eq!(spinning.code, Some(1), "{spinning:?}");
    for said in ["used up its 1000000 instructions", "(spin_for_ever+0x", "used: ", "hint: "] {
        assert!(spinning.stderr.contains(said), "{}", spinning.stderr);
    }
    let unknown = call(&["eco", "GET", "/"], b"");
    assert_eq!(unknown.code, Some(1));
    assert!(unknown.stderr.contains("hint: "), "{}", unknown.stderr);
}
