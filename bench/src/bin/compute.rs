//! Runs a program of the benchmark's compute part to its end in a sandbox, translated or interpreted.
//!
//! `compute PROGRAM MODE` copies the program's output. Of the lines that the program writes to its
//! standard error (`bench/guests/measure.h`) those with times have the CPU time of this process
//! instead, load and translation apart from the computation. Modes are `auto`, `off`, and with the
//! feature `measure` also `uncounted` and `unchecked-stores`, which are translated without that.

use std::{
    env, fs, io,
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::time::{ClockId, clock_gettime};
use sandtide_engine::{Console, Engine, Limits, ProgramSource, Stream, Translate, Warmup};
#[cfg(feature = "measure")]
use sandtide_riscv::measure::{Part, leave_out};
use sandtide_riscv::{RiscvEngine, TranslationOptions};

/// CPU time of this process: all threads, user and system.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Copies the output, with our own times.
struct Stopwatch {
    /// When the program wrote its last line.
    last: Mutex<Duration>,
}

impl Console for Stopwatch {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let now = cpu_time();
        if stream == Stream::Stdout {
            let _ = io::stdout().write_all(bytes);
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(bytes);
        let words: Vec<&str> = text.split_whitespace().collect();
        let seconds = now.saturating_sub(*last).as_secs_f64();
        match words[..] {
            ["loaded", _] => eprintln!("loaded {seconds:.6}"),
            ["end", _, instructions] => eprintln!("end {seconds:.6} {instructions}"),
            _ => eprint!("{text}"),
        }
        *last = cpu_time();
    }
}

/// Translated, without a part of what makes it safe.
#[cfg(feature = "measure")]
fn without(part: Part) -> Translate {
    leave_out(part);
    Translate::Auto
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, mode] = &arguments[..] else { bail!("usage: compute PROGRAM MODE") };
    let translate = match mode.as_str() {
        "auto" => Translate::Auto,
        "off" => Translate::Off,
        #[cfg(feature = "measure")]
        "uncounted" => without(Part::Counting),
        #[cfg(feature = "measure")]
        "unchecked-stores" => without(Part::StoreChecks),
        other => {
            bail!("no mode `{other}`, use `auto` or `off`, or build with `--features measure`")
        }
    };
    let source = ProgramSource {
        name: path.clone(),
        image: fs::read(path).with_context(|| format!("cannot read `{path}`"))?.into(),
        args: vec![path.clone()],
        env: Vec::new(),
        reseed: false,
        files: Vec::new(),
        network: None,
        path: "/program".to_owned(),
        directory: "/".to_owned(),
        translate,
        warmup: Warmup::default(),
    };
    let limits = Limits {
        instructions: u64::MAX / 2,
        wall_time: Duration::from_secs(3600),
        ..Limits::default()
    };
    let console = Arc::new(Stopwatch { last: Mutex::new(cpu_time()) });
    // However large it is, it is to be translated before it runs.
    let options = TranslationOptions { small: u64::MAX, ..TranslationOptions::default() };
    let engine = RiscvEngine::with(options);
    match engine.execute(&source, &limits, Box::new(io::empty()), console)? {
        Ok(0) => Ok(()),
        Ok(code) => bail!("it ended with {code}"),
        Err(fault) => bail!("{fault}"),
    }
}
