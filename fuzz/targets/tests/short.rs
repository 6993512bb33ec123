//! Each target for a few seconds, on any compiler: its seeds, spoilt seeds and random bytes.
//!
//! `SANDTIDE_FUZZ_ITERATIONS` sets how many inputs each target gets, and `SANDTIDE_FUZZ_SEED` where
//! they start; a failure prints both, and leaves its input in the target directory.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use sandtide_fuzz_targets::{TARGETS, Target};

/// No input may take longer: guests must not be able to hold a thread.
const SLOWEST: Duration = Duration::from_secs(20);

/// The longest input.
const LONGEST: usize = 4096;

/// How long a target runs if nothing else is said.
const USUAL_TIME: Duration = Duration::from_secs(5);

/// However fast they are, as many inputs are enough if nothing else is said.
const USUAL_ITERATIONS: u64 = 20_000;

#[test]
fn config() {
    fuzz("config");
}

#[test]
fn elf() {
    fuzz("elf");
}

#[test]
fn guest_calls() {
    fuzz("guest_calls");
}

#[test]
fn instructions() {
    fuzz("instructions");
}

#[test]
fn reset() {
    fuzz("reset");
}

#[test]
fn resolver() {
    fuzz("resolver");
}

#[test]
fn responses() {
    fuzz("responses");
}

#[test]
fn snapshots() {
    fuzz("snapshots");
}

#[test]
fn system_calls() {
    fuzz("system_calls");
}

#[test]
fn translation() {
    fuzz("translation");
}

#[test]
fn unwind() {
    fuzz("unwind");
}

#[test]
fn every_target_is_fuzzed_here_and_by_cargo_fuzz() {
    let this = include_str!("short.rs");
    let manifest = fs::read_to_string(top().join("Cargo.toml")).unwrap();
    for Target { name, .. } in TARGETS {
        assert!(this.contains(&format!("fuzz(\"{name}\")")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        let glue = fs::read_to_string(top().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(glue.contains(&format!("\"{name}\"")), "{name}");
    }
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn number_from(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

fn fuzz(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seeds = seeds(target);
    assert!(!seeds.is_empty());
    for (from, input) in &seeds {
        feed(target, input, from);
    }
    let told = number_from("SANDTIDE_FUZZ_ITERATIONS");
    let first = number_from("SANDTIDE_FUZZ_SEED").unwrap_or(0);
    let start = Instant::now();
    let mut iterations = 0;
    while iterations < told.unwrap_or(USUAL_ITERATIONS)
        && (told.is_some() || start.elapsed() < USUAL_TIME)
    {
        let number = first + iterations;
        let input = input(&seeds, &mut StdRng::seed_from_u64(number));
        let from = format!("SANDTIDE_FUZZ_SEED={number} SANDTIDE_FUZZ_ITERATIONS=1");
        feed(target, &input, &from);
        iterations += 1;
    }
    println!("{name}: {} seeds, {iterations} inputs in {:?}", seeds.len(), start.elapsed());
}

/// The seeds of a target, with where they are from.
fn seeds(target: &Target) -> Vec<(String, Vec<u8>)> {
    let made = (target.seeds)().into_iter().enumerate();
    let mut seeds: Vec<_> =
        made.map(|(index, input)| (format!("seed {index} of the target"), input)).collect();
    let folder = top().join("seeds").join(target.name);
    if let Ok(entries) = fs::read_dir(folder) {
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a seed").path()).collect();
        paths.sort();
        seeds.extend(
            paths
                .into_iter()
                .map(|path| (path.display().to_string(), fs::read(&path).expect("a seed"))),
        );
    }
    seeds
}

/// Random bytes, or a seed with changes.
fn input(seeds: &[(String, Vec<u8>)], random: &mut StdRng) -> Vec<u8> {
    if random.random_ratio(1, 4) {
        let mut bytes = vec![0; random.random_range(0..512)];
        random.fill(&mut bytes[..]);
        return bytes;
    }
    let mut bytes = seeds[random.random_range(0..seeds.len())].1.clone();
    for _ in 0..random.random_range(1..16) {
        spoil(&mut bytes, seeds, random);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn spoil(bytes: &mut Vec<u8>, seeds: &[(String, Vec<u8>)], random: &mut StdRng) {
    const TELLING: [u8; 10] = [0, 1, 2, 0x7f, 0x80, 0xff, 0xfe, 0x73, 0x13, 16];
    let at = random.random_range(0..=bytes.len());
    let other = |random: &mut StdRng| {
        let seed = &seeds[random.random_range(0..seeds.len())].1;
        let start = random.random_range(0..=seed.len());
        seed[start..seed.len().min(start + random.random_range(0..64))].to_vec()
    };
    match random.random_range(0..8) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.random()),
        2 if at < bytes.len() => drop(bytes.remove(at)),
        3 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        4 if at < bytes.len() => bytes[at] = TELLING[random.random_range(0..TELLING.len())],
        5 => drop(bytes.splice(at..at, other(random))),
        6 => {
            let length = random.random_range(0..32);
            bytes.splice(at..at, (0..length).map(|_| random.random::<u8>()).collect::<Vec<_>>());
        }
        _ if at < bytes.len() => bytes[at] = random.random(),
        _ => bytes.extend(other(random)),
    }
}

/// Feeds one input. A failure leaves it, made smaller, in a file.
fn feed(target: &Target, input: &[u8], from: &str) {
    let start = Instant::now();
    if fails(target, input) {
        let smaller = minimise(target, input);
        let path = keep(target, &smaller);
        panic!(
            "target `{}` fails on {from} ({} bytes, kept with {} bytes in {})\nhint: {}",
            target.name,
            input.len(),
            smaller.len(),
            path.display(),
            "when it is repaired, move the file to fuzz/seeds",
        );
    }
    let took = start.elapsed();
    if took > SLOWEST {
        let path = keep(target, input);
        panic!("target `{}` took {took:?} on {from} (kept in {})", target.name, path.display());
    }
}

fn fails(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err()
}

/// Leaves out what the failure does not need, for a while.
fn minimise(target: &Target, input: &[u8]) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut input = input.to_vec();
    let mut piece = input.len().div_ceil(2);
    while piece > 0 && Instant::now() < end {
        let mut at = 0;
        while at < input.len() && Instant::now() < end {
            let mut without = input.clone();
            without.drain(at..input.len().min(at + piece));
            if fails(target, &without) { input = without } else { at += piece }
        }
        piece /= 2;
    }
    input
}

fn keep(target: &Target, input: &[u8]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
    fs::create_dir_all(&folder).expect("a folder for failures");
    let path = folder.join(format!("{}-{}", target.name, std::process::id()));
    fs::write(&path, input).expect("room for a failure");
    path
}
