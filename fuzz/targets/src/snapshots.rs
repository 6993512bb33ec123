//! `snapshots`: what is read from a snapshot on disk.
//!
//! Either a file, whose checksums are made to fit so that what they guard is looked at, or the state
//! of a process on either instruction set after some system calls, with some bytes changed.
//!
//! Must hold: it is refused, or it is what it says. A file's parts lie inside of it. A process can make
//! calls as any other, within its limits and its grants, and a reset restores it; one that was not changed
//! is taken.

use std::{fs, io::Write as _, path::Path};

use arbitrary::Unstructured;
use sandtide_engine::{Limits, Recipe, ToKeep, Warmup};
use sandtide_linux::Process;
use sandtide_snapshot::{About, Origin, SnapshotFile, with_checksum, write};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    fake_cpu::{Calling, FakeCpu},
    input::next,
    system_calls::{End, Guest, with_setup},
};

/// Bytes that may be changed in one run.
const MOST_CHANGES: u8 = 8;

/// Calls that a process makes behind its snapshot.
const MOST_CALLS: usize = 64;

/// The first byte chooses a process for x86-64 (1), or a file (2).
pub(crate) fn run(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice & 3 {
        0 => process::<FakeCpu<false>>(rest),
        1 => process::<FakeCpu<true>>(rest),
        _ => file(rest),
    }
}

/// Changes; then calls before the snapshot, and behind it.
fn process<C: Calling + Serialize + DeserializeOwned>(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let changes = next::<u8>(&mut input) % MOST_CHANGES;
    let changes: Vec<(u16, u8)> =
        (0..changes).map(|_| (next(&mut input), next(&mut input))).collect();
    let mut guest = Guest::<C>::start(&[]);
    for _ in 0..next::<u8>(&mut input) % 16 {
        if guest.call(&mut input) == End::Over {
            return;
        }
    }
    let reads = guest.process.take_reads();
    let mut bytes = guest.process.clone().save(&reads).expect("a process that is no secret");
    for (place, value) in &changes {
        let place = usize::from(*place) % bytes.len();
        bytes[place] = *value;
    }
    match with_setup(|setup| Process::restore(&bytes, setup)) {
        Ok(process) => guest.process = process,
        Err(error) => {
            assert!(!changes.is_empty(), "it was not changed: {error}");
            assert!(!error.to_string().is_empty());
            return;
        }
    }
    assert!(!guest.process.has_changed(), "changed before it ran");
    let snapshot = guest.process.clone();
    for _ in 0..MOST_CALLS {
        if input.is_empty() || guest.call(&mut input) == End::Over {
            break;
        }
    }
    guest.process.take_unknown_calls();
    guest.process.reset_from(&snapshot);
    assert!(!guest.process.has_changed(), "changed after a reset");
    assert_eq!(
        format!("{:?}", guest.process),
        format!("{snapshot:?}"),
        "the reset has left something"
    );
}

fn file(data: &[u8]) {
    let mut bytes = data.to_vec();
    with_checksum(&mut bytes);
    let mut place = tempfile::NamedTempFile::new().expect("a temporary file");
    place.write_all(&bytes).expect("room for it");
    if let Ok(file) = SnapshotFile::open(place.path()) {
        let kept = file.kept();
        assert_eq!(kept.pages_start + kept.pages_length, bytes.len() as u64);
        assert!(kept.pages_start >= kept.state.len() as u64);
        // Whatever its memory is.
        let _ = file.check_pages();
    }
}

/// A good file.
fn good(directory: &Path) -> Option<Vec<u8>> {
    let (program, place) = (directory.join("program"), directory.join("snapshot"));
    fs::write(&program, "program").ok()?;
    let about = About {
        engine: "kvm".to_owned(),
        conditions: Vec::new(),
        recipe: Recipe {
            name: String::new(),
            path: "/a".to_owned(),
            args: vec!["a".to_owned()],
            env: Vec::new(),
            reseed: false,
            files: Vec::new(),
            directory: "/".to_owned(),
            warmup: Warmup::default(),
            limits: Limits::default(),
        },
        program: Origin::of(&program, b"program").ok()?,
        files: Vec::new(),
        made: 0,
    };
    let parts = ToKeep { state: vec![1; 50], pages: Vec::new(), files: Vec::new() };
    write(&place, about, &parts).ok()?;
    fs::read(place).ok()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = crate::system_calls::seeds()
        .into_iter()
        // The same calls, before and behind the snapshot, with and without a change.
        .filter_map(|seed| Some((*seed.first()?, seed.get(11..)?.to_vec())))
        .flat_map(|(choice, calls)| {
            [vec![choice, 0], vec![choice, 1, 40, 0, 7]].map(|head| [head, calls.clone()].concat())
        })
        .collect();
    let good = tempfile::tempdir().ok().and_then(|directory| good(directory.path()));
    seeds.extend(good.map(|bytes| [vec![2], bytes].concat()));
    seeds
}
