//! Measures how long a program takes to load: interpreted, translated with an empty cache, and from
//! the cache. Prints JSON lines.
//!
//! Usage: `loading PROGRAM`

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};
use sandtide_engine::{
    CacheUse, Console, Engine, Limits, ProgramSource, Stream, Translate, Translation,
    TranslationState, Warmup,
};
use sandtide_riscv::{Cache, RiscvEngine, TranslationOptions};

/// How often each way is measured, in turn with the others.
const ROUNDS: usize = 11;

const MOST_CACHED: u64 = 1 << 30;

struct Silent;

impl Console for Silent {
    fn write(&self, _: Stream, _: &[u8]) {}
}

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).context("usage: loading PROGRAM")?;
    let image = std::fs::read(&path).with_context(|| format!("cannot read {path}"))?;
    let name = Path::new(&path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let source = |translate| ProgramSource {
        name: path.clone(),
        image: image.clone().into(),
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
    let mut times = [const { Vec::new() }; 3];
    let mut translated = None;
    for _ in 0..ROUNDS {
        let directory = tempfile::tempdir()?;
        times[0].push(load(&source(Translate::Off), RiscvEngine::new())?.0);
        for (number, from_cache) in [(1, false), (2, true)] {
            // A server that has just started: it knows nothing but the directory.
            let cache = Some(Cache::open(directory.path(), MOST_CACHED)?);
            let options =
                TranslationOptions { small: u64::MAX, cache, ..TranslationOptions::default() };
            let (time, translation) = load(&source(Translate::Auto), RiscvEngine::with(options))?;
            let translation = translation.context("the engine does not translate")?;
            anyhow::ensure!(
                translation.state == TranslationState::Translated
                    && (translation.cache == CacheUse::Hit) == from_cache,
                "loaded otherwise than meant: {translation:?}"
            );
            times[number].push(time);
            translated = Some(translation);
        }
    }
    let bench = format!("load/{name}");
    let print = |metric: String, value: f64, unit: &str| {
        let line =
            serde_json::json!({ "bench": bench, "metric": metric, "value": value, "unit": unit });
        println!("{line}");
    };
    for (way, times) in ["interpreted", "translated", "from_cache"].iter().zip(times) {
        let median = |pick: fn(&Times) -> Duration| {
            let mut values: Vec<Duration> = times.iter().map(pick).collect();
            values.sort();
            values[ROUNDS / 2].as_secs_f64() * 1e3
        };
        print(format!("{way}_wall"), median(|times| times.wall), "ms");
        print(format!("{way}_cpu"), median(|times| times.cpu), "ms");
    }
    if let Some(translation) = translated {
        print("functions".to_owned(), translation.functions as f64, "functions");
        print("code_and_tables".to_owned(), translation.bytes as f64, "bytes");
    }
    Ok(())
}

struct Times {
    wall: Duration,
    /// Of the whole process.
    cpu: Duration,
}

/// One load, up to the first request that the program waits for.
fn load(
    source: &ProgramSource,
    engine: RiscvEngine,
) -> anyhow::Result<(Times, Option<Translation>)> {
    let (start, cpu) = (Instant::now(), cpu_time());
    let program = engine.load(source, &Limits::default(), Arc::new(Silent))?;
    let times = Times { wall: start.elapsed(), cpu: cpu_time() - cpu };
    Ok((times, program.translation()))
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
