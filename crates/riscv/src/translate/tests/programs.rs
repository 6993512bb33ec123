//! Whole programs, interpreted and translated: the same registers and counts at every exit, the
//! same memory and output at the end.
//!
//! Both see the same chance. What looks at clocks is compared by its output alone.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::call;
use sandtide_build::{BuildOptions, CompilerChoice};
use sandtide_engine::{Console, Limits, ProgramSource, Stream, Translate, Warmup};
use sandtide_linux::{Cpu as _, protocol::Booting};

use super::{
    seed,
    trace::{Stop as Noted, Trace},
};
use crate::{
    machine::{Bounds, Machine, Stop},
    place::place_with,
    translator::{TranslationOptions, Translator},
};

/// Programs whose way depends on clocks: they sleep, or look at the times of files.
const TIMED: &[&str] = &["files", "pthread_tls", "threads", "time_sanity"];

/// Programs for the test that is not ignored: calls and strings, floats, exceptions, threads,
/// signals and their returns, code that is written and executed. A debug build translates a program
/// of a large C library for seconds.
const CHOSEN: &[&str] = &[
    "tests/guests/generated_code.c",
    "tests/guests/longjmps.c",
    "tests/guests/mathlib.c",
    "tests/guests/signals.c",
    "tests/guests/threads.cpp",
    "examples/echo/echo.c",
];

/// Keeps what a guest writes.
#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl Console for Kept {
    fn write(&self, _: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }

    fn flush(&self) {}
}

/// What a program has come to.
struct End {
    stops: Vec<Noted>,
    output: Vec<u8>,
    how: String,
    memory: u64,
    time: Duration,
}

/// Puts a program into memory, with chance that is the same each time.
fn placed(path: &Path, translate: Translate) -> Machine {
    let source = ProgramSource {
        name: "program".to_owned(),
        image: fs::read(path).unwrap().into(),
        args: vec!["program".to_owned()],
        env: Vec::new(),
        reseed: false,
        files: Vec::new(),
        network: None,
        path: "/program".to_owned(),
        directory: "/".to_owned(),
        translate,
        warmup: Warmup::default(),
    };
    let random = StdRng::seed_from_u64(1);
    // Whatever it is, it is translated before it runs.
    let options = TranslationOptions { small: u64::MAX, ..TranslationOptions::default() };
    let limits = Limits { translate_time: Duration::from_secs(1000), ..Limits::default() };
    place_with(&source, &limits, &Translator::new(options), random).unwrap().machine
}

/// Runs a program to its end or its first request.
fn run(mut machine: Machine, trace: Trace) -> End {
    machine.trace = Some(trace);
    let console = Kept::default();
    let mut stdin = io::empty();
    let now = Instant::now();
    let long = Duration::from_secs(1000);
    let mut bounds = Bounds::new(3_000_000_000, now, now + long, long);
    let mut calls = Booting::default();
    let how = loop {
        match machine.run(&mut bounds, &console, Some(&mut stdin)) {
            Stop::GuestCall { number: call::NEXT_REQUEST, .. } => break "waits".to_owned(),
            Stop::GuestCall { number, arguments } => {
                let result = calls.call(number, arguments).unwrap_or(0);
                machine.process.cpu().set_result(result);
            }
            // The guest sleeps.
            Stop::Idle { until } => {
                let until = until.unwrap_or_else(Instant::now);
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                bounds.renew();
            }
            stop => break format!("{stop:?}"),
        }
    };
    let mut hasher = DefaultHasher::new();
    machine.memory.0.data_pages().for_each(|bytes| bytes.hash(&mut hasher));
    End {
        stops: machine.trace.take().unwrap().stops,
        output: console.0.into_inner().unwrap(),
        how,
        memory: hasher.finish(),
        time: now.elapsed(),
    }
}

/// Runs a program in several ways. Tells what differs.
fn differences(path: &Path) -> Vec<String> {
    let name = path.file_stem().unwrap().to_string_lossy().into_owned();
    let expected = run(placed(path, Translate::Off), Trace::default());
    let whole = placed(path, Translate::Auto);
    let mut pieces = placed(path, Translate::Off);
    pieces.host_code = Arc::clone(&whole.host_code);
    let ways =
        [("whole", whole, Trace::default()), ("pieces", pieces, Trace::in_pieces(seed(), 300))];
    let is_timed = TIMED.iter().any(|timed| name.starts_with(timed));
    let mut found = Vec::new();
    for (way, machine, trace) in ways {
        assert!(machine.host_code.get().is_some(), "{name} is not translated");
        let actual = run(machine, trace);
        let _ = writeln!(
            io::stderr(),
            "{name} {way}: {} stops, {}, {:?} {:?}",
            expected.stops.len(),
            expected.how,
            expected.time,
            actual.time
        );
        if (&expected.output, &expected.how) != (&actual.output, &actual.how) {
            found.push(format!("{name} {way}: {} or output, not {}", actual.how, expected.how));
        }
        if is_timed {
            continue;
        }
        let stops = expected.stops.iter().zip(&actual.stops);
        if let Some(index) = stops.clone().position(|(expected, actual)| expected != actual) {
            found.push(format!(
                "{name} {way}: stop {index}, after {:?}\n   {:?}\n   {:?}",
                index.checked_sub(1).map(|index| &expected.stops[index]),
                expected.stops[index],
                actual.stops[index]
            ));
        } else if expected.stops.len() != actual.stops.len() || expected.memory != actual.memory {
            found.push(format!("{name} {way}: number of stops, or memory"));
        }
    }
    found
}

/// The program made from a source file, in a directory; `None` and a loud note without a compiler.
fn built(source: &str, directory: &Path) -> Option<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let output = directory.join(Path::new(source).with_extension("elf").file_name().unwrap());
    let options = BuildOptions {
        output: Some(output),
        compiler: CompilerChoice::Auto,
        project: Some(top.to_owned()),
        ..BuildOptions::default()
    };
    let result = sandtide_build::build(&top.join(source), &options, &mut |_| {});
    match result {
        Ok(output) => Some(output.program),
        Err(error) => {
            let required = env::var_os("SANDTIDE_REQUIRE_TOOLCHAIN").is_some();
            assert!(!required, "{source}: {error}");
            let _ = writeln!(io::stderr(), "SKIPPED: {source}: {error}");
            None
        }
    }
}

#[test]
fn programs_agree() {
    let directory = tempfile::tempdir().unwrap();
    let built = CHOSEN.iter().filter_map(|source| built(source, directory.path()));
    let found: Vec<_> = built.flat_map(|path| differences(&path)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
#[ignore = "needs programs: `SANDTIDE_LOCKSTEP` names them, with `:` between them"]
fn given_programs_agree() {
    let paths = env::var("SANDTIDE_LOCKSTEP").unwrap_or_default();
    let paths = paths.split(':').filter(|path| !path.is_empty());
    let found: Vec<_> = paths.flat_map(|path| differences(Path::new(path))).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
#[ignore = "shows what is found in programs"]
fn summaries() {
    let paths = env::var("SANDTIDE_LOCKSTEP").unwrap_or_default();
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        let machine = placed(Path::new(path), Translate::Auto);
        let _ = writeln!(io::stderr(), "{path}: {:?}", machine.host_code.status());
    }
}

#[test]
#[ignore = "writes the host code of programs to `SANDTIDE_DUMP`, to be disassembled"]
fn dumps() {
    let paths = env::var("SANDTIDE_LOCKSTEP").unwrap_or_default();
    let directory = PathBuf::from(env::var("SANDTIDE_DUMP").unwrap_or_default());
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        let machine = placed(Path::new(path), Translate::Auto);
        let name = Path::new(path).file_stem().unwrap();
        let (code, entries) = machine.host_code.get().unwrap().dump();
        fs::write(directory.join(name).with_extension("bin"), code).unwrap();
        fs::write(directory.join(name).with_extension("entries"), entries).unwrap();
    }
}
