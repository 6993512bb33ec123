//! Programs that go on from a snapshot on disk.

use std::{fs::File, io::Write as _, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use sandtide_engine::{Engine as _, Kept, Limits, LoadError, Outcome, Program};

use super::{
    guests::{Quiet, guest, has_kvm, load, source},
    sandboxes::{TIME, counts, serve},
};
use crate::KvmEngine;

/// A program's snapshot, in a file behind a page of something else.
fn keep(program: &dyn Program) -> Kept {
    let kept = program.to_keep().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[0xff; 4096]).unwrap();
    kept.pages.iter().for_each(|pages| file.write_all(pages).unwrap());
    Kept {
        source: source(&[]),
        limits: Limits::default(),
        pages_length: kept.pages.iter().map(|pages| pages.len() as u64).sum(),
        state: kept.state.into(),
        file: Arc::new(file),
        pages_start: 4096,
    }
}

fn restore(kept: &Kept) -> Result<Arc<dyn Program>, LoadError> {
    KvmEngine::new().restore(kept)
}

#[test]
fn every_exchange_starts_from_the_snapshot_on_disk() {
    if !has_kvm() {
        return;
    }
    let program = load(counts(), &Limits::default()).unwrap();
    let (kept, id) = (keep(&*program), program.id());
    drop(program);
    let program = restore(&kept).unwrap();
    assert_eq!(program.id(), id);
    let mut sandboxes = [(); 2].map(|()| program.spawn(Arc::new(Quiet)).unwrap());
    for _ in 0..3 {
        for sandbox in &mut sandboxes {
            assert_eq!(serve(&mut **sandbox, TIME).0.unwrap(), "111111\n");
            sandbox.reset().unwrap();
        }
    }
    let error = program.to_keep().err().unwrap().to_string();
    assert_eq!(error, "it was itself started from a snapshot");
}

guest!(traps_on_request:
    "mov edi, 0x508000", "mov esi, 0x4000", "mov eax, 0x535401", "syscall",
    "mov byte ptr [0x500000], 1", "ud2");

#[test]
fn faults_and_limits_are_as_before() {
    if !has_kvm() {
        return;
    }
    let kept = keep(&*load(traps_on_request(), &Limits::default()).unwrap());
    let program = restore(&kept).unwrap();
    let mut sandbox = program.spawn(Arc::new(Quiet)).unwrap();
    let (outcome, _) = serve(&mut *sandbox, TIME);
    let Err(Outcome::Fault(fault)) = outcome else { panic!("{outcome:?}") };
    assert!(fault.to_string().contains("illegal instruction"), "{fault}");
    sandbox.reset().unwrap();
    let tight = Kept { limits: Limits { memory: 0, ..Limits::default() }, ..kept };
    let mut sandbox = restore(&tight).unwrap().spawn(Arc::new(Quiet)).unwrap();
    let outcome = serve(&mut *sandbox, TIME).0;
    assert!(matches!(outcome, Err(Outcome::Fault(_))), "{outcome:?}");
}

#[test]
fn memory_that_is_not_there_is_refused() {
    if !has_kvm() {
        return;
    }
    let kept = keep(&*load(counts(), &Limits::default()).unwrap());
    let shorter = Kept { pages_length: kept.pages_length - 4096, ..kept };
    let error = restore(&shorter).err().unwrap().to_string();
    assert!(error.contains("its memory contradicts itself"), "{error}");
    let none = Kept { state: Bytes::new(), ..shorter };
    let error = restore(&none).err().unwrap().to_string();
    assert!(error.contains("its state cannot be read"), "{error}");
}

#[test]
fn the_processor_is_the_same_wherever_it_is_asked_for() {
    if !has_kvm() {
        return;
    }
    let conditions = KvmEngine::new().conditions().unwrap();
    let names: Vec<_> = conditions.iter().map(|condition| condition.name.as_str()).collect();
    assert_eq!(names, ["build", "processor", "processor features", "system calls"]);
    assert!(conditions.iter().all(|condition| !condition.value.is_empty()), "{conditions:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// The bytes of a state may be anything: what is not refused runs like any hostile guest.
    #[test]
    fn any_state_is_refused_or_runs(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        use std::sync::OnceLock;
        static KEPT: OnceLock<Kept> = OnceLock::new();
        if has_kvm() {
            let kept = KEPT.get_or_init(|| {
                keep(&*load(counts(), &Limits::default()).unwrap())
            });
            let mut state = kept.state.to_vec();
            for (place, value) in changes {
                let place = place.index(state.len());
                state[place] = value;
            }
            let file: Arc<File> = Arc::clone(&kept.file);
            let changed = Kept {
                source: kept.source.clone(),
                limits: kept.limits.clone(),
                state: state.into(),
                file,
                ..*kept
            };
            if let Ok(program) = restore(&changed)
                && let Ok(mut sandbox) = program.spawn(Arc::new(Quiet))
            {
                let time = std::time::Duration::from_millis(20);
                let _ = serve(&mut *sandbox, time);
                let _ = sandbox.reset();
            }
        }
    }
}
