//! Measures exchanges and resets of a configuration's tenants from inside, without a socket: how
//! long each takes, what the guest did in it and how much the reset copies. Prints JSON lines.
//!
//! Usage: `inside CONFIG`

use std::{
    env,
    path::Path,
    sync::Arc,
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use sandtide_config::{Surroundings, Tenant};
use sandtide_control::{Content, load};
use sandtide_engine::{
    Console, Engine, Exchange, ExchangeId, Limits, Outcome, Progress, RequestBody, Sandbox, Slice,
    Turn, Usage,
};
use sandtide_kvm::KvmEngine;
use sandtide_riscv::RiscvEngine;

const PAGE: u64 = 4096;
/// Measurements of each tenant; the figures are their medians.
const ROUNDS: usize = 100;
/// How long one of them takes, about.
const ROUND: Duration = Duration::from_millis(20);
/// The requests of one of them, at most.
const MOST: u32 = 1000;
/// Sandboxes that are made to see how long that takes.
const SPAWNED: usize = 20;

fn main() -> anyhow::Result<()> {
    let path = env::args().nth(1).context("usage: inside CONFIG")?;
    let engines: Vec<Arc<dyn Engine>> =
        vec![Arc::new(RiscvEngine::new()), Arc::new(KvmEngine::new())];
    let names: Vec<_> = engines.iter().map(|engine| engine.name()).collect();
    let config = sandtide_config::load(Path::new(&path), &Surroundings::of_process(&names))?;
    for tenant in config.tenants {
        measure(tenant, &engines)?;
    }
    Ok(())
}

fn measure(tenant: Tenant, engines: &[Arc<dyn Engine>]) -> anyhow::Result<()> {
    let loaded = load(tenant, engines);
    let name = &loaded.tenant.name;
    let limits = &loaded.tenant.limits;
    let Content::Program(program) =
        loaded.content.with_context(|| format!("cannot load {name}"))?
    else {
        return Ok(());
    };
    let console: Arc<dyn Console> = loaded.log.console();
    let mut spawns = Vec::new();
    for _ in 0..SPAWNED {
        let start = Instant::now();
        program.spawn(console.clone())?;
        spawns.push(start.elapsed().as_secs_f64() * 1e6);
    }
    let mut sandbox = program.spawn(console)?;
    let requests = requests_a_round(&mut *sandbox, limits)?;
    let samples = (0..ROUNDS)
        .map(|_| round(&mut *sandbox, limits, requests))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let of = |pick: fn(&Sample) -> f64| median(samples.iter().map(pick).collect());
    for (metric, value, unit) in [
        ("load", loaded.time.as_secs_f64() * 1e3, "ms"),
        ("spawn", median(spawns), "us"),
        ("exchange", of(|sample| sample.exchange), "ns"),
        ("reset", of(|sample| sample.reset), "ns"),
        ("reset_copied", of(|sample| (sample.usage.pages_written * PAGE) as f64), "bytes"),
        ("calls", of(|sample| sample.usage.calls as f64), "calls"),
        ("exits", of(|sample| sample.usage.exits as f64), "exits"),
        ("guest_instructions", of(|sample| sample.usage.instructions as f64), "instructions"),
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As many as make a round long enough.
fn requests_a_round(sandbox: &mut dyn Sandbox, limits: &Limits) -> anyhow::Result<u32> {
    let start = Instant::now();
    let mut requests = 0;
    while start.elapsed() < ROUND && requests < MOST {
        serve(sandbox, limits)?;
        sandbox.reset()?;
        requests += 1;
    }
    Ok(requests)
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
fn round(sandbox: &mut dyn Sandbox, limits: &Limits, requests: u32) -> anyhow::Result<Sample> {
    let mut exchange = Duration::ZERO;
    let mut usage = Usage::default();
    let whole = Instant::now();
    for _ in 0..requests {
        serve(sandbox, limits)?;
        sandbox.reset()?;
    }
    let whole = whole.elapsed();
    let clock = clock_cost();
    for _ in 0..requests {
        let start = Instant::now();
        serve(sandbox, limits)?;
        exchange += start.elapsed().saturating_sub(clock);
        usage = sandbox.usage();
        sandbox.reset()?;
    }
    let per = |time: Duration| time.as_nanos() as f64 / f64::from(requests);
    Ok(Sample { exchange: per(exchange), reset: per(whole) - per(exchange), usage })
}

fn clock_cost() -> Duration {
    let start = Instant::now();
    (0..1000).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    start.elapsed() / 1000
}

/// One exchange, to its end.
fn serve(sandbox: &mut dyn Sandbox, limits: &Limits) -> anyhow::Result<()> {
    let (parts, ()) = http::Request::get("/")
        .header("host", "hello.localhost")
        .header("user-agent", "inside")
        .body(())?
        .into_parts();
    let mut exchange =
        Exchange::new(ExchangeId(1), parts, RequestBody::empty(), limits.response_body);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut now = Instant::now();
    let deadline = now + limits.wall_time;
    loop {
        let progress = sandbox.run(&mut Turn {
            cx: &mut cx,
            exchange: &mut exchange,
            now,
            slice: Slice(Duration::from_millis(100)),
            deadline,
            interrupt: &|| false,
        });
        let taken = std::hint::black_box(exchange.response.take_data());
        match progress {
            Progress::Ended(Outcome::Done) => return Ok(()),
            Progress::Sliced => {}
            Progress::Waiting { .. } if taken.is_some() => {}
            Progress::Waiting { until: Some(until) } => {
                thread::park_timeout(until.saturating_duration_since(Instant::now()));
            }
            other => bail!("the program did not answer: {other:?}"),
        }
        now = Instant::now();
    }
}

/// Wakes the thread that serves.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
