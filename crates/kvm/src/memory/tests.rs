//! Memory against a model, without a guest: the host plays its part.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write as _,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::Arc,
};

use proptest::prelude::*;
use sandtide_linux::{MemoryError, Protection};
use sandtide_memory::Difference;

use super::*;
use crate::paging::{SYSTEM, TABLES};

const LIMIT: u64 = 4 << 20;
const RW: Protection = Protection { read: true, write: true, execute: false };
const R: Protection = Protection { read: true, write: false, execute: false };
const BASE: u64 = 0x10_0000;
const PAGES: u64 = 140;

fn memory() -> Memory {
    Memory::new(LIMIT, CallEntry::Ring3).unwrap()
}

fn booted() -> Memory {
    let mut memory = memory();
    memory.map(BASE, 4 * PAGE, RW);
    memory.view_mut(BASE, 3).unwrap().copy_from_slice(b"abc");
    Memory::from_snapshot(Arc::new(memory.freeze().unwrap()), LIMIT).unwrap()
}

/// A write that the guest makes and KVM reports.
fn guest_writes(memory: &mut Memory, address: u64, byte: u8) {
    memory.note_guest_write(address / PAGE);
    memory.bytes_mut(address, 1)[0] = byte;
}

#[test]
fn a_reset_copies_what_host_and_guest_have_written() {
    let mut memory = booted();
    for round in 0..1100 {
        guest_writes(&mut memory, BASE, b'x');
        memory.view_mut(BASE + PAGE, 1).unwrap()[0] = 1;
        memory.map(BASE + 8 * PAGE, PAGE, RW);
        guest_writes(&mut memory, BASE + 8 * PAGE, 2);
        memory.unmap(BASE + 2 * PAGE, PAGE);
        let _ = memory.reset().unwrap();
        if round % 64 == 0 || round > 1000 {
            assert_eq!(memory.differs_from_snapshot(), None);
        }
        assert_eq!(memory.view(BASE, 3), Ok(&b"abc"[..]));
        assert_eq!(memory.view(BASE + 8 * PAGE, 1), Err(MemoryError::Denied));
    }
}

#[test]
fn what_was_written_behind_the_table_is_found() {
    // In what the snapshot has, in what it has not, in the stubs and in the page tables.
    for address in [BASE + 1, BASE + 3 * PAGE, BASE + 40 * PAGE, SYSTEM, TABLES] {
        let mut memory = booted();
        memory.view_mut(BASE, 1).unwrap()[0] = 1;
        memory.write_behind(address, 7);
        let _ = memory.reset().unwrap();
        let page = address & !(PAGE - 1);
        let expected = (address != BASE + 1).then_some(Difference::Bytes(page));
        assert_eq!(memory.differs_from_snapshot(), expected, "{address:#x}");
        // A sample finds it sooner or later.
        let mut choices = 0..10_000u64;
        let choice = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let found = choices.find_map(|n| memory.verify_sample(choice(n)).unwrap());
        assert_eq!(found, expected, "{address:#x}");
    }
}

#[test]
fn a_wrong_table_is_found() {
    let mut memory = booted();
    let _ = memory.reset().unwrap();
    memory.table[(BASE / PAGE + 9) as usize] = READ;
    let page = BASE + 9 * PAGE;
    assert_eq!(memory.differs_from_snapshot(), Some(Difference::Access(page)));
}

#[test]
fn pages_that_are_not_written_any_more_leave_the_set() {
    let mut memory = memory();
    memory.map(BASE, 512 * PAGE, RW);
    let mut memory = Memory::from_snapshot(Arc::new(memory.freeze().unwrap()), LIMIT).unwrap();
    let exchange = |memory: &mut Memory, pages: u64| {
        (0..pages).for_each(|page| guest_writes(memory, BASE + page * PAGE, 1));
        let after = memory.reset().unwrap();
        assert_eq!(memory.differs_from_snapshot(), None);
        after
    };
    // A large request, then small ones: what it wrote is copied for a while.
    assert_eq!(exchange(&mut memory, 200), AfterReset::Ready);
    let copied: Vec<usize> = (0..256)
        .map(|_| {
            let _ = exchange(&mut memory, 80);
            memory.written_pages()
        })
        .collect();
    assert_eq!((copied[0], copied[100], copied[255]), (200, 200, 80));
    // As many as were written, again and again: the set stays.
    assert!((0..512).all(|_| exchange(&mut memory, 80) == AfterReset::Ready));
}

#[test]
fn sandboxes_of_one_snapshot_do_not_see_each_other() {
    let mut memory = memory();
    memory.map(BASE, PAGE, RW);
    memory.view_mut(BASE, 1).unwrap()[0] = 1;
    let snapshot = Arc::new(memory.freeze().unwrap());
    let mut one = Memory::from_snapshot(Arc::clone(&snapshot), LIMIT).unwrap();
    let other = Memory::from_snapshot(snapshot, LIMIT).unwrap();
    one.view_mut(BASE, 1).unwrap()[0] = 9;
    assert_eq!(other.view(BASE, 1), Ok(&[1][..]));
}

#[test]
fn nothing_but_the_programs_addresses_is_seen() {
    let mut memory = memory();
    for (address, length) in [
        (USER_END, 1),
        (USER_END - 1, 2),
        (crate::paging::TABLES, 8),
        (u64::MAX, 1),
        (u64::MAX, u64::MAX),
        (0, u64::MAX),
    ] {
        assert_eq!(memory.view(address, length), Err(MemoryError::Denied));
        assert_eq!(memory.view_mut(address, length), Err(MemoryError::Denied));
    }
    memory.map(USER_END - PAGE, PAGE, RW);
    assert!(memory.view_mut(USER_END - PAGE, PAGE).is_ok());
    assert!(memory.chunks().pages().iter().any(|pages| pages.contains(&(USER_END / PAGE - 1))));
}

#[test]
fn what_is_mapped_in_large_parts_gets_its_page_tables_when_it_is_used() {
    const WRITE_FAULT: u64 = 6;
    let linked =
        |memory: &Memory, page: u64| memory.table[paging::table_of(page) as usize] & LINKED != 0;
    let entry = |memory: &Memory, page: u64| {
        let entry = memory.bytes(paging::entry_address(page), 8);
        u64::from_le_bytes(entry.try_into().unwrap())
    };
    let (end, middle) = (USER_END / PAGE - 1, (40 << 30) / PAGE + 5);
    let mut memory = booted();
    for _ in 0..2 {
        let (free, parts) = (memory.available(), memory.chunks().count());
        memory.map(BASE + 4 * PAGE, USER_END - BASE - 4 * PAGE, RW);
        assert_eq!((memory.available(), memory.chunks().count()), (free, parts));
        assert!(!linked(&memory, middle));
        assert_eq!(memory.view(USER_END - PAGE, 1), Ok(&[0][..]));
        memory.view_mut(middle * PAGE, 1).unwrap()[0] = 3;
        assert!(
            !memory.resolve(BASE - PAGE, WRITE_FAULT) && !memory.resolve(USER_END, WRITE_FAULT)
        );
        assert!(memory.resolve(middle * PAGE, WRITE_FAULT) && linked(&memory, middle));
        assert_eq!(entry(&memory, middle), paging::entry(middle, RW));
        assert!(memory.resolve(USER_END - 1, WRITE_FAULT));
        guest_writes(&mut memory, end * PAGE, 4);
        memory.protect(BASE + 4 * PAGE, USER_END - BASE - 4 * PAGE, R);
        assert_eq!(entry(&memory, end), paging::entry(end, R));
        assert!(!memory.resolve(USER_END - 1, WRITE_FAULT));
        assert!(memory.resolve((20 << 30) + 1, 4) && !memory.resolve((20 << 30) + 1, 16));
        assert_eq!(memory.untouched(4 << 30, 30 << 30), 30 << 30);
        assert_eq!(memory.untouched(4 << 30, 50 << 30), middle * PAGE - (4 << 30));
        assert_eq!(memory.untouched(middle * PAGE, PAGE), 0);
        let _ = memory.reset().unwrap();
        assert!(!linked(&memory, middle) && !linked(&memory, end));
        assert_eq!((entry(&memory, middle), entry(&memory, end)), (0, 0));
        assert_eq!(memory.view(end * PAGE, 1), Err(MemoryError::Denied));
        assert_eq!(memory.differs_from_snapshot(), None);
    }
}

#[test]
fn what_kvm_keeps_counts_and_is_not_kept_for_ever() {
    let mut memory = booted();
    let free = memory.available();
    memory.map(1 << 30, 32 << 30, RW);
    let mut touched = 0;
    while !memory.is_over_limit() {
        assert!(memory.resolve((1 << 30) + (touched << 23), 6));
        touched += 1;
    }
    // A page table and KVM's own memory for each, and for some of the page tables' own parts.
    assert!((free / PAGE / 7..=free / PAGE / 6 + 1).contains(&touched), "{touched}");
    assert!(memory.has_sprawled());
    let _ = memory.reset().unwrap();
    assert_eq!(memory.available(), free);
    assert!(memory.has_sprawled() && !booted().has_sprawled());
}

#[test]
fn a_snapshot_knows_what_has_no_page_tables() {
    let mut memory = memory();
    memory.map(1 << 30, 1 << 30, RW);
    let memory = Memory::from_snapshot(Arc::new(memory.freeze().unwrap()), LIMIT).unwrap();
    assert_eq!(memory.view((2 << 30) - 1, 1), Ok(&[0][..]));
    assert_eq!(memory.view(2 << 30, 1), Err(MemoryError::Denied));
}

#[test]
fn the_limit_counts_what_anybody_writes() {
    let mut memory = booted();
    memory.map(BASE, 2 * LIMIT, RW);
    let available = memory.available();
    assert!(available < LIMIT && available > LIMIT / 2);
    assert_eq!(memory.view_mut(BASE + LIMIT, available + PAGE), Err(MemoryError::Limit));
    for page in 0..available / PAGE {
        assert!(!memory.is_over_limit());
        guest_writes(&mut memory, BASE + LIMIT + page * PAGE, 1);
    }
    assert_eq!(memory.available(), 0);
    guest_writes(&mut memory, BASE + 2 * LIMIT - PAGE, 1);
    assert!(memory.is_over_limit());
    let _ = memory.reset().unwrap();
    assert!(memory.available() >= available);
}

#[test]
fn the_lists_stay_bounded_when_a_guest_maps_and_unmaps() {
    let mut memory = booted();
    for _ in 0..2_000 {
        memory.map(BASE, 32 * PAGE, RW);
        for page in 4..32 {
            guest_writes(&mut memory, BASE + page * PAGE, 1);
        }
        memory.unmap(BASE, 32 * PAGE);
    }
    assert!(memory.written_pages() < 20_000, "{}", memory.written_pages());
}

/// A file of so many pages, of which each begins with its number, counted from 1.
fn file(pages: u8) -> File {
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    for page in 1..=pages {
        let mut bytes = [0; PAGE as usize];
        bytes[0] = page;
        file.write_all(&bytes).unwrap();
    }
    file
}

#[test]
fn pages_of_files_are_shared_and_count_when_they_are_written() {
    let mut memory = memory();
    let available = memory.available();
    let file = file(250);
    let number = memory.share(file.as_fd()).unwrap();
    assert_eq!(memory.share(file.as_fd()), Some(number), "a file is read once");
    memory.map(BASE, 2 * 256 * PAGE, R);
    assert!(memory.place(number, BASE, 256 * PAGE, 0));
    assert!(memory.place(number, BASE + 256 * PAGE, 256 * PAGE, 16 * PAGE));
    // Page tables, and what KVM keeps, are all that it takes.
    assert!(available - memory.available() < 16 * PAGE);
    // A loader puts another part of the file, zeros, and data of its own over what it has mapped.
    assert!(memory.place(number, BASE + 8 * PAGE, 4 * PAGE, 100 * PAGE));
    memory.map(BASE + 20 * PAGE, PAGE, RW);
    memory.map(BASE + 30 * PAGE, 40 * PAGE, RW);
    memory.protect(BASE + 2 * PAGE, 2 * PAGE, RW);
    let before = memory.available();
    guest_writes(&mut memory, BASE + 2 * PAGE, 77);
    guest_writes(&mut memory, BASE + 3 * PAGE, 0);
    assert_eq!(before - memory.available(), 2 * PAGE);
    let expected: Vec<u8> = (0..512)
        .map(|page: u64| match page {
            2 => 77,
            3 | 20 | 30..70 | 250..256 | 490.. => 0,
            8..12 => 101 + (page - 8) as u8,
            0..256 => page as u8 + 1,
            _ => (page - 256) as u8 + 17,
        })
        .collect();
    let seen = |memory: &Memory| -> Vec<u8> {
        (0..512).map(|page| memory.view(BASE + page * PAGE, PAGE).unwrap()[0]).collect()
    };
    assert_eq!(seen(&memory), expected);

    let room = memory.available();
    let snapshot = Arc::new(memory.freeze().unwrap());
    let mut sandbox = Memory::from_snapshot(Arc::clone(&snapshot), LIMIT).unwrap();
    assert_eq!(seen(&sandbox), expected);
    assert!(sandbox.available() >= room);
    for _ in 0..3 {
        let room = sandbox.available();
        sandbox.map(BASE, 40 * PAGE, RW);
        assert_eq!(seen(&sandbox)[..40], [0; 40]);
        assert!(room - sandbox.available() >= 25 * PAGE, "what was not written before is");
        guest_writes(&mut sandbox, BASE + 300 * PAGE, 9);
        sandbox.unmap(BASE + 100 * PAGE, PAGE);
        assert_eq!(sandbox.share(file.as_fd()), None, "a reset would have to undo that");
        let _ = sandbox.reset().unwrap();
        assert_eq!(seen(&sandbox), expected);
        assert_eq!(sandbox.differs_from_snapshot(), None);
    }
    let other = Memory::from_snapshot(Arc::clone(&snapshot), LIMIT).unwrap();
    assert_eq!(seen(&other), expected);

    // On disk it has what it shares.
    let disk = rustix::fs::memfd_create("disk", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut disk = File::from(disk);
    snapshot.runs().for_each(|run| disk.write_all(run).unwrap());
    let layout = snapshot.layout();
    assert!(layout.is_consistent());
    assert_eq!(layout.length(), disk.metadata().unwrap().len());
    let kept = Arc::new(Snapshot::of_file(disk.into(), 0, layout).unwrap());
    let kept = Memory::from_snapshot(kept, LIMIT).unwrap();
    assert_eq!(seen(&kept), expected);
    assert_eq!(kept.available(), other.available());
    assert_eq!(kept.differs_from_snapshot(), None);
}

#[test]
fn programs_share_what_is_the_same() {
    let bytes = vec![7; 20 * PAGE as usize];
    let place = |bytes: &[u8]| {
        let mut memory = memory();
        memory.map(BASE, 32 * PAGE, R);
        assert_eq!(
            memory.initialise_shared(BASE + 10, bytes).unwrap(),
            BASE + PAGE..BASE + 20 * PAGE
        );
        assert_eq!(memory.view(BASE + PAGE, 1), Ok(&[7][..]));
        memory
    };
    let same = |one: &Memory, other: &Memory| one.files[0].is_shared_with(&other.files[0]);
    let (one, two) = (place(&bytes), place(&bytes));
    assert!(same(&one, &two));
    let mut other = bytes;
    other[19 * PAGE as usize] = 8;
    assert!(!same(&one, &place(&other)));
    assert_eq!(one.view(BASE + PAGE, 1), two.view(BASE + PAGE, 1));
}

#[test]
fn what_cannot_be_shared_is_copied() {
    let mut memory = memory();
    let (reader, _writer) = std::io::pipe().unwrap();
    assert_eq!(memory.share(reader.as_fd()), None, "who reads that might wait");
    assert_eq!(memory.share(file(15).as_fd()), None, "too short");
    let long = file(0);
    long.set_len((4 << 20) + 1).unwrap();
    assert_eq!(memory.share(long.as_fd()), None, "too long");
    long.set_len(4 << 20).unwrap();
    for number in 0..4 {
        long.write_all_at(&[number], 0).unwrap();
        assert_eq!(memory.share(long.as_fd()), Some(number.into()));
    }
    assert_eq!(memory.share(file(16).as_fd()), None, "too many");
}

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
    Place(u64, u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, bool),
    HostWrites(u64, u8),
    GuestWrites(u64, u8),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0u64..96, 1u64..40);
    prop_oneof![
        range.clone().prop_map(|(start, pages)| Step::Map(start, pages)),
        (range.clone(), 0u64..40)
            .prop_map(|((start, pages), offset)| Step::Place(start, pages, offset)),
        range.clone().prop_map(|(start, pages)| Step::Unmap(start, pages)),
        (range, any::<bool>()).prop_map(|((start, pages), w)| Step::Protect(start, pages, w)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::HostWrites(at, byte)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::GuestWrites(at, byte)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::GuestWrites(at, byte)),
        Just(Step::Reset),
    ]
}

const FILE_PAGES: u64 = 32;

/// What a page is in the model: whether it may be written, and its first byte.
type Model = BTreeMap<u64, (bool, u8)>;

fn take(memory: &mut Memory, model: &mut Model, snapshot: &Model, file: &File, step: &Step) {
    let address = |page: u64| BASE + page * PAGE;
    match *step {
        Step::Map(start, pages) => {
            memory.map(address(start), pages * PAGE, RW);
            model.extend((start..start + pages).map(|page| (page, (true, 0))));
        }
        Step::Place(start, pages, offset) => {
            memory.map(address(start), pages * PAGE, R);
            let shared = memory.share(file.as_fd());
            let placed = shared.is_some_and(|number| {
                memory.place(number, address(start), pages * PAGE, offset * PAGE)
            });
            assert_eq!(placed, memory.snapshot.is_none());
            model.extend((start..start + pages).map(|page| {
                let shown = page - start + offset;
                (page, (false, if placed && shown < FILE_PAGES { shown as u8 + 1 } else { 0 }))
            }));
        }
        Step::Unmap(start, pages) => {
            memory.unmap(address(start), pages * PAGE);
            model.retain(|page, _| !(start..start + pages).contains(page));
        }
        Step::Protect(start, pages, write) => {
            for page in (start..start + pages).filter(|page| model.contains_key(page)) {
                memory.protect(address(page), PAGE, if write { RW } else { R });
            }
            model.range_mut(start..start + pages).for_each(|(_, entry)| entry.0 = write);
        }
        Step::HostWrites(page, byte) => {
            match (memory.view_mut(address(page), 1), model.get_mut(&page)) {
                (Ok(bytes), Some((true, model))) => (bytes[0], *model) = (byte, byte),
                (Err(MemoryError::Denied), None | Some((false, _))) => {}
                (seen, model) => panic!("{seen:?}, {model:?}"),
            }
        }
        Step::GuestWrites(page, byte) => {
            // What the processor lets the guest do is what the tables say.
            if let Some((true, model)) = model.get_mut(&page) {
                guest_writes(memory, address(page), byte);
                *model = byte;
            }
        }
        Step::Reset => {
            let _ = memory.reset().unwrap();
            model.clone_from(snapshot);
        }
    }
}

fn check(memory: &Memory, model: &Model) {
    for page in 0..PAGES {
        let entry = memory.bytes(paging::entry_address(BASE / PAGE + page), 8);
        let entry = u64::from_le_bytes(entry.try_into().unwrap());
        let seen = memory.view(BASE + page * PAGE, PAGE);
        let access = match model.get(&page) {
            None => {
                assert!(seen.is_err());
                Protection::default()
            }
            Some((write, byte)) => {
                let seen = seen.unwrap();
                assert!(seen[0] == *byte && seen[1..].iter().all(|byte| *byte == 0), "page {page}");
                if *write { RW } else { R }
            }
        };
        assert_eq!(entry, paging::entry(BASE / PAGE + page, access), "page {page}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_random_walk_agrees_with_a_model(
        before in prop::collection::vec(step(), 0..30),
        after in prop::collection::vec(step(), 0..80),
    ) {
        let mut memory = memory();
        let mut model = Model::new();
        let file = file(FILE_PAGES as u8);
        for step in before {
            if !matches!(step, Step::Reset) {
                take(&mut memory, &mut model, &Model::new(), &file, &step);
            }
        }
        let snapshot = model.clone();
        let mut memory = Memory::from_snapshot(Arc::new(memory.freeze().unwrap()), LIMIT).unwrap();
        for step in after {
            take(&mut memory, &mut model, &snapshot, &file, &step);
            check(&memory, &model);
            memory.settle().unwrap();
        }
        let _ = memory.reset().unwrap();
        check(&memory, &snapshot);
        prop_assert_eq!(memory.differs_from_snapshot(), None);
    }
}
