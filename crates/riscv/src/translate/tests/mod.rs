//! Tests of the translator.

mod adversarial;
mod faults;
mod flags;
mod flows;
mod generated;
mod hostile;
mod lockstep;
mod programs;
mod rounds;
mod snapshots;
mod speed;
mod trace;
mod traps;

pub(crate) use trace::Trace;

use std::{
    env,
    fmt::Write as _,
    io::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use sandtide_memory::Space;

use super::{
    Allowance, Artifact, Bounds, Reached, Translation,
    artifact::{EntryAt, Summary},
    translate,
};
use crate::isa::{Code, tests::CODE};

/// Translates test code.
pub(crate) fn translated(space: &Space, code: &Code, symbols: &[u64]) -> Translation {
    let (symbols, bounds) = (symbols.iter().copied(), Bounds::default());
    let allowance = Allowance::new(bounds.time, &|| true);
    let artifact = translate(space, code, u64::from(CODE), symbols, &bounds, &allowance);
    Translation::new(&artifact.unwrap()).unwrap()
}

/// A translation that does nothing.
pub(crate) fn artifact() -> Artifact {
    let entry = |pc, function, resume| EntryAt { pc, function, resume };
    Artifact {
        code: vec![0xc3; 100],
        table: (0x1_0000, 64),
        entries: vec![entry(0x1_0000, Some(16), 0), entry(0x1_0002, None, 1)],
        helpers: [1, 2, 3, 4, 5, 6],
        sites: super::sites::Sites::default(),
        summary: Summary { regions: 1, left: 0, instructions: 2, reached: Some(Reached::Bytes) },
    }
}

/// Where the chance of a test starts: `SANDTIDE_SEED`, or another place each day. It is printed.
fn seed() -> u64 {
    let days = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400;
    let seed = env::var("SANDTIDE_SEED").map_or_else(|_| days(), |seed| seed.parse().unwrap());
    let _ = writeln!(io::stderr(), "SANDTIDE_SEED={seed}");
    seed
}

impl Translation {
    /// Its code, and a line for each guest address that has an entry: guest address, offset, number.
    fn dump(&self) -> (Vec<u8>, String) {
        let mut text = String::new();
        let (start, bytes) = self.entries.range();
        for pc in (start..start + bytes).step_by(2) {
            if let Some(entry) = self.entries.at(pc) {
                let offset = entry.function - self.code.range().0;
                let _ = writeln!(text, "{pc:x} {offset:x} {}", entry.resume);
            }
        }
        (self.code.bytes().to_vec(), text)
    }
}
