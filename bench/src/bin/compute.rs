//! Runs a program to its end, as a tenant's program would run: interpreted or translated.
//!
//! `compute PROGRAM auto|off` copies the program's output, and prints the CPU time that it took
//! in seconds, loading included, as the last line of its standard error.

use std::{
    env, fs, io,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use sandtide_engine::{Console, Engine, Limits, ProgramSource, Stream, Translate};
use sandtide_riscv::RiscvEngine;

struct Through;

impl Console for Through {
    fn write(&self, _: Stream, bytes: &[u8]) {
        let _ = io::stdout().write_all(bytes);
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, mode] = &arguments[..] else { bail!("usage: compute PROGRAM auto|off") };
    let translate = match mode.as_str() {
        "auto" => Translate::Auto,
        "off" => Translate::Off,
        other => bail!("no mode `{other}`, use `auto` or `off`"),
    };
    let source = ProgramSource {
        name: path.clone(),
        image: fs::read(path).with_context(|| format!("cannot read `{path}`"))?.into(),
        args: vec![path.clone()],
        env: Vec::new(),
        files: Vec::new(),
        translate,
    };
    let limits = Limits {
        instructions: u64::MAX / 2,
        wall_time: Duration::from_secs(3600),
        ..Limits::default()
    };
    let start = Instant::now();
    let engine = RiscvEngine::new();
    let end = engine.execute(&source, &limits, Box::new(io::empty()), Arc::new(Through))?;
    eprintln!("{}", start.elapsed().as_secs_f64());
    match end {
        Ok(0) => Ok(()),
        Ok(code) => bail!("it ended with {code}"),
        Err(fault) => bail!("{fault}"),
    }
}
