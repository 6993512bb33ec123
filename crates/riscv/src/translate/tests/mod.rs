//! Tests of the translator.

mod flags;
mod flows;
mod lockstep;
mod programs;
mod speed;
mod trace;

pub(crate) use trace::Trace;

use std::{
    env,
    io::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use sandtide_memory::Space;

use super::{Bounds, Translation};
use crate::isa::{Code, tests::CODE};

/// Translates test code.
fn translated(space: &Space, code: &Code, symbols: &[u64]) -> Translation {
    let symbols = symbols.iter().copied();
    let translation = Translation::new(space, code, u64::from(CODE), symbols, &Bounds::default());
    translation.unwrap().0
}

/// Where the chance of a test starts: `SANDTIDE_SEED`, or another place each day. It is printed.
fn seed() -> u64 {
    let days = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let seed = env::var("SANDTIDE_SEED").map_or_else(|_| days(), |seed| seed.parse().unwrap());
    let _ = writeln!(io::stderr(), "SANDTIDE_SEED={seed}");
    seed
}
