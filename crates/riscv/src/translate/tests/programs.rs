//! Whole programs, interpreted and translated: every exit of every run is the same.
//!
//! The programs are given by `SANDTIDE_LOCKSTEP`, paths with `:` between them.

use std::{
    env, fs, io,
    io::Write as _,
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::call;
use sandtide_engine::{Console, Limits, ProgramSource, Stream, Translate};
use sandtide_linux::{Cpu as _, protocol::Booting};

use super::Run;
use crate::{
    machine::{Bounds, Stop},
    place::place,
};

/// Keeps what a guest writes.
#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl Console for Kept {
    fn write(&self, _: Stream, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }

    fn flush(&self) {}
}

/// Runs a program to its end or its first request.
fn trace(path: &Path, translate: Translate) -> (Vec<Run>, Vec<u8>, String, Duration) {
    let source = ProgramSource {
        name: "program".to_owned(),
        image: fs::read(path).unwrap().into(),
        args: vec!["program".to_owned()],
        env: Vec::new(),
        files: Vec::new(),
        translate,
    };
    let limits = Limits::default();
    let mut machine = place(&source, &limits).unwrap().machine;
    machine.random = StdRng::seed_from_u64(1);
    machine.trace = Some(Vec::new());
    let console = Kept::default();
    let mut stdin = io::empty();
    let now = Instant::now();
    let long = Duration::from_secs(1000);
    let mut bounds = Bounds::new(3_000_000_000, now, now + long, long);
    let mut calls = Booting::default();
    let end = loop {
        match machine.run(&mut bounds, &console, Some(&mut stdin)) {
            Stop::GuestCall { number: call::NEXT_REQUEST, .. } => break "waits".to_owned(),
            Stop::GuestCall { number, arguments } => {
                let result = calls.call(number, arguments).unwrap_or(0);
                machine.process.cpu().set_result(result);
            }
            Stop::Idle { .. } => {}
            stop => break format!("{stop:?}"),
        }
    };
    (machine.trace.take().unwrap(), console.0.into_inner().unwrap(), end, now.elapsed())
}

#[test]
#[ignore = "shows what is found in programs"]
fn summaries() {
    let paths = env::var("SANDTIDE_LOCKSTEP").unwrap_or_default();
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        let data = fs::read(path).unwrap();
        let image = crate::elf::parse(&data).unwrap();
        let symbols = crate::symbols::Symbols::read(&data, image.base);
        let source = ProgramSource {
            name: "program".to_owned(),
            image: data.clone().into(),
            args: vec!["program".to_owned()],
            env: Vec::new(),
            files: Vec::new(),
            translate: Translate::Off,
        };
        let machine = place(&source, &Limits::default()).unwrap().machine;
        let now = Instant::now();
        let (_, summary) = crate::translate::Translation::new(
            &machine.memory.0,
            &machine.code,
            image.entry,
            symbols.addresses(),
            &crate::translate::Bounds::default(),
        )
        .unwrap();
        let symbols = symbols.addresses().count();
        let _ = writeln!(io::stderr(), "{path}: {summary:?} {symbols} {:?}", now.elapsed());
    }
}

#[test]
#[ignore = "needs programs"]
fn programs_agree() {
    let paths = env::var("SANDTIDE_LOCKSTEP").unwrap_or_default();
    let mut failed = Vec::new();
    for path in paths.split(':').filter(|path| !path.is_empty()) {
        let path = Path::new(path);
        let (expected, output, end, time) = trace(path, Translate::Off);
        let (actual, other_output, other_end, other_time) = trace(path, Translate::Auto);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let difference =
            expected.iter().zip(&actual).position(|(expected, actual)| expected != actual);
        let _ = writeln!(
            io::stderr(),
            "{name}: {} runs, {end}, {:?} {:?} {}",
            expected.len(),
            time,
            other_time,
            if difference.is_some() { "DIFFERENT" } else { "" },
        );
        if let Some(index) = difference {
            let _ = writeln!(
                io::stderr(),
                "  run {index}:\n   after {:?}\n   {:?}\n   {:?}",
                expected.get(index.wrapping_sub(1)),
                expected[index],
                actual[index]
            );
        }
        if difference.is_some() || (output, end) != (other_output, other_end) {
            failed.push(name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
