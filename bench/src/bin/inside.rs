//! Measures one exchange and its reset from inside, without a socket: how long each takes, how
//! many instructions the guest runs and how many bytes the reset copies. Prints JSON lines.
//!
//! Usage: `inside PROGRAM`

use std::{
    path::Path,
    sync::Arc,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use sandtide_engine::{
    Console, Engine, Exchange, ExchangeId, Limits, Outcome, ProgramSource, Progress, RequestBody,
    Sandbox, Slice, Stream, Translate, Turn, Usage, Warmup,
};
use sandtide_riscv::RiscvEngine;

const PAGE: u64 = 4096;
const ROUNDS: usize = 200;
const EXCHANGES: u32 = 1000;

struct Silent;

impl Console for Silent {
    fn write(&self, _: Stream, _: &[u8]) {}
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).context("usage: inside PROGRAM")?;
    let image = std::fs::read(&path).with_context(|| format!("cannot read {path}"))?;
    let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let source = ProgramSource {
        name: path.clone(),
        image: image.into(),
        args: vec![path],
        env: Vec::new(),
        files: Vec::new(),
        path: "/program".to_owned(),
        directory: "/".to_owned(),
        translate: Translate::default(),
        warmup: Warmup::default(),
    };
    let limits = Limits::default();
    let console: Arc<dyn Console> = Arc::new(Silent);
    let start = Instant::now();
    let program = RiscvEngine::new().load(&source, &limits, Arc::clone(&console))?;
    let load = start.elapsed();
    let start = Instant::now();
    let mut sandbox = program.spawn(console)?;
    let spawn = start.elapsed();

    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        samples.push(round(&mut *sandbox, &limits)?);
    }
    let median = |pick: fn(&Sample) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let usage = samples[samples.len() - 1].usage;
    for (metric, value, unit) in [
        ("load", load.as_secs_f64() * 1e3, "ms"),
        ("spawn", spawn.as_secs_f64() * 1e6, "us"),
        ("exchange", median(|sample| sample.exchange), "ns"),
        ("reset", median(|sample| sample.reset), "ns"),
        ("reset_copied", (usage.pages_written * PAGE) as f64, "bytes"),
        ("guest_instructions", usage.instructions as f64, "instructions"),
        ("sandbox_resident", sandbox.resident_bytes() as f64, "bytes"),
    ] {
        let bench = format!("inside/{name}");
        println!(
            "{}",
            serde_json::json!({ "bench": bench, "metric": metric, "value": value, "unit": unit })
        );
    }
    Ok(())
}

struct Sample {
    /// Nanoseconds for one exchange, without its reset.
    exchange: f64,
    /// Nanoseconds for one reset.
    reset: f64,
    usage: Usage,
}

/// Times exchanges with and without the clock between exchange and reset, so that the clock's own
/// cost is not counted to either.
fn round(sandbox: &mut dyn Sandbox, limits: &Limits) -> anyhow::Result<Sample> {
    let mut exchange = Duration::ZERO;
    let mut usage = Usage::default();
    let whole = Instant::now();
    for _ in 0..EXCHANGES {
        serve(sandbox, limits)?;
        sandbox.reset()?;
    }
    let whole = whole.elapsed();
    let clock = clock_cost();
    for _ in 0..EXCHANGES {
        let start = Instant::now();
        serve(sandbox, limits)?;
        exchange += start.elapsed().saturating_sub(clock);
        usage = sandbox.usage();
        sandbox.reset()?;
    }
    let per = |time: Duration| time.as_nanos() as f64 / f64::from(EXCHANGES);
    Ok(Sample { exchange: per(exchange), reset: per(whole) - per(exchange), usage })
}

fn clock_cost() -> Duration {
    let start = Instant::now();
    (0..1000).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    start.elapsed() / 1000
}

fn serve(sandbox: &mut dyn Sandbox, limits: &Limits) -> anyhow::Result<()> {
    let (parts, ()) = http::Request::get("/")
        .header("host", "hello.localhost")
        .header("user-agent", "inside")
        .body(())?
        .into_parts();
    let mut exchange =
        Exchange::new(ExchangeId(1), parts, RequestBody::empty(), limits.response_body);
    let now = Instant::now();
    let progress = sandbox.run(&mut Turn {
        cx: &mut Context::from_waker(Waker::noop()),
        exchange: &mut exchange,
        now,
        slice: Slice(Duration::from_millis(100)),
        deadline: now + limits.wall_time,
        interrupt: &|| false,
    });
    match progress {
        Progress::Ended(Outcome::Done) => {
            std::hint::black_box(exchange.response.take_data());
            Ok(())
        }
        other => bail!("the program did not answer at once: {other:?}"),
    }
}
