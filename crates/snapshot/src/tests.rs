//! Files as they should be, and as they should not.

use std::{
    borrow::Cow,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::SystemTime,
};

use proptest::prelude::*;
use sandtide_engine::{Condition, Limits, Recipe, ToKeep, Warmup};

use crate::{
    About, Origin, PIECE, SnapshotFile, Unusable,
    file::{checksum, decode},
    is_snapshot, write,
};

struct Place {
    directory: tempfile::TempDir,
    file: PathBuf,
}

fn about(program: &Path) -> About {
    About {
        engine: "kvm".to_owned(),
        conditions: vec![Condition::new("build", "1"), Condition::new("processor", "fast")],
        recipe: Recipe {
            name: "program".to_owned(),
            path: "/program".to_owned(),
            args: vec!["one".to_owned()],
            env: Vec::new(),
            reseed: true,
            files: Vec::new(),
            directory: "/".to_owned(),
            warmup: Warmup::default(),
            limits: Limits::default(),
        },
        program: Origin::of(program, b"program").unwrap(),
        files: vec!["/lib/libc.so.6".to_owned()],
        made: 1_700_000_000,
    }
}

fn parts() -> ToKeep<'static> {
    let pages = [3, 100, 1].map(|count| {
        let bytes = (0..count * 4096).map(|at: u32| (at / 7) as u8).collect();
        Cow::Owned(bytes)
    });
    ToKeep { state: b"state".to_vec(), pages: pages.to_vec(), files: Vec::new() }
}

fn place() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    fs::write(&program, "program").unwrap();
    let file = directory.path().join("file.snapshot");
    write(&file, about(&program), &parts()).unwrap();
    Place { directory, file }
}

/// Lets a file be changed, as no file is.
fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).unwrap();
    change(&mut bytes);
    fs::remove_file(file).unwrap();
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let Place { directory, file } = place();
    let read = SnapshotFile::open(&file).unwrap();
    assert_eq!(*read.about(), about(&directory.path().join("program")));
    assert_eq!(read.pages_length(), 104 * 4096);
    assert!(read.pages_length() > PIECE, "more than one piece");
    read.check_pages().unwrap();
    let kept = read.kept();
    assert_eq!(kept.state, &b"state"[..]);
    assert_eq!(kept.source.args, ["one"]);
    let bytes = fs::read(&file).unwrap();
    let pages = &bytes[kept.pages_start as usize..];
    assert_eq!(pages, parts().pages.concat());
    assert!(is_snapshot(&bytes) && !is_snapshot(b"\x7fELF"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o400);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left over");
}

#[test]
fn who_has_a_file_open_keeps_it_when_another_takes_its_place() {
    let Place { directory, file } = place();
    let open = SnapshotFile::open(&file).unwrap();
    let other = ToKeep { state: b"other".to_vec(), ..parts() };
    write(&file, about(&directory.path().join("program")), &other).unwrap();
    open.check_pages().unwrap();
    let new = SnapshotFile::open(&file).unwrap();
    assert_eq!(new.kept().state, &b"other"[..]);
    assert_ne!(new.checksum(), open.checksum());
}

#[test]
fn what_differs_is_named() {
    let Place { directory, .. } = place();
    let about = about(&directory.path().join("program"));
    let here = |values: &[(&str, &str)]| {
        let here: Vec<_> = values.iter().map(|(name, value)| Condition::new(name, value)).collect();
        about.check(&here).map_err(|error| error.to_string())
    };
    assert_eq!(here(&[("build", "1"), ("processor", "fast")]), Ok(()));
    assert_eq!(
        here(&[("build", "1"), ("processor", "slow")]).unwrap_err(),
        "the snapshot was made with processor `fast`, here it is `slow`"
    );
    assert!(here(&[("build", "1")]).is_err());
    assert!(here(&[("build", "1"), ("processor", "fast"), ("more", "x")]).is_err());
}

#[test]
fn a_program_that_was_copied_or_touched_is_the_same() {
    let Place { directory, file } = place();
    let program = directory.path().join("program");
    let read = SnapshotFile::open(&file).unwrap();
    let check = || read.about().program.check();
    check().unwrap();
    let touched = fs::File::options().write(true).open(&program).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    check().unwrap();
    fs::remove_file(&program).unwrap();
    assert!(matches!(check(), Err(Unusable::Program { .. })));
    fs::write(&program, "program").unwrap();
    check().unwrap();
    for other in ["Program", "program and more"] {
        fs::write(&program, other).unwrap();
        let error = check().unwrap_err().to_string();
        assert!(error.ends_with("has changed since the snapshot was made"), "{error}");
    }
    assert!(Origin::of(&program, b"program").is_err(), "it has changed while it was loaded");
}

#[test]
fn what_others_could_have_written_is_not_believed() {
    let Place { directory: _directory, file } = place();
    for (mode, is_right) in [(0o600, true), (0o444, true), (0o620, false), (0o602, false)] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let result = SnapshotFile::open(&file);
        assert_eq!(result.is_ok(), is_right, "{mode:o}");
        assert!(is_right || matches!(result, Err(Unusable::Unsafe { .. })));
    }
    assert!(matches!(SnapshotFile::open(Path::new("/nowhere")), Err(Unusable::Read { .. })));
    assert!(matches!(SnapshotFile::open(Path::new("/dev/null")), Err(Unusable::Read { .. })));
}

#[test]
fn another_format_is_told_from_damage() {
    let Place { directory: _directory, file } = place();
    change(&file, |bytes| bytes[8] = 9);
    let error = SnapshotFile::open(&file).err().unwrap();
    assert!(error.to_string().ends_with("has format 9, this build reads 1"), "{error}");
}

#[test]
fn damaged_memory_is_found_by_who_reads_it_all() {
    let Place { directory: _directory, file } = place();
    for back in [1, PIECE as usize + 5] {
        change(&file, |bytes| {
            let place = bytes.len() - back;
            bytes[place] ^= 1;
        });
        let read = SnapshotFile::open(&file).unwrap();
        assert!(matches!(read.check_pages(), Err(Unusable::Damaged { .. })));
        change(&file, |bytes| {
            let place = bytes.len() - back;
            bytes[place] ^= 1;
        });
    }
    SnapshotFile::open(&file).unwrap().check_pages().unwrap();
}

/// The bytes of a whole file.
fn bytes() -> &'static Vec<u8> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let Place { directory: _directory, file } = place();
        fs::read(file).unwrap()
    })
}

proptest! {
    #[test]
    fn every_cut_is_found(length in any::<prop::sample::Index>()) {
        let mut bytes = bytes().clone();
        bytes.truncate(length.index(bytes.len()));
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        prop_assert!(SnapshotFile::open(file.path()).is_err());
    }

    #[test]
    fn every_damaged_byte_is_found(at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut bytes = bytes().clone();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let result = SnapshotFile::open(file.path()).and_then(|read| read.check_pages());
        prop_assert!(result.is_err());
    }

    /// With a checksum that fits, whatever the rest is.
    #[test]
    fn any_head_is_read_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let bytes = bytes();
        let (mut head, length) = {
            let length = 104 * 4096;
            (bytes[..bytes.len() - length].to_vec(), length as u64)
        };
        for (place, value) in changes {
            let place = place.index(head.len());
            head[place] = value;
        }
        let sum = checksum(&head);
        head[48..56].copy_from_slice(&sum.to_le_bytes());
        let size = head.len() as u64 + length;
        if let Ok((header, front, state)) = decode(&head, size) {
            prop_assert!(state.end <= head.len());
            prop_assert_eq!(front.sums.len() as u64, header.pages_length.div_ceil(PIECE));
        }
    }
}
