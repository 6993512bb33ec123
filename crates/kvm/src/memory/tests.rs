//! Memory against a model, without a guest: the host plays its part.

use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use sandtide_linux::{MemoryError, Protection};

use super::*;

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

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
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
        range.clone().prop_map(|(start, pages)| Step::Unmap(start, pages)),
        (range, any::<bool>()).prop_map(|((start, pages), w)| Step::Protect(start, pages, w)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::HostWrites(at, byte)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::GuestWrites(at, byte)),
        (0..PAGES, any::<u8>()).prop_map(|(at, byte)| Step::GuestWrites(at, byte)),
        Just(Step::Reset),
    ]
}

/// What a page is in the model: whether it may be written, and its first byte.
type Model = BTreeMap<u64, (bool, u8)>;

fn take(memory: &mut Memory, model: &mut Model, snapshot: &Model, step: &Step) {
    let address = |page: u64| BASE + page * PAGE;
    match *step {
        Step::Map(start, pages) => {
            memory.map(address(start), pages * PAGE, RW);
            model.extend((start..start + pages).map(|page| (page, (true, 0))));
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
        for step in before {
            if !matches!(step, Step::Reset) {
                take(&mut memory, &mut model, &Model::new(), &step);
            }
        }
        let snapshot = model.clone();
        let mut memory = Memory::from_snapshot(Arc::new(memory.freeze().unwrap()), LIMIT).unwrap();
        for step in after {
            take(&mut memory, &mut model, &snapshot, &step);
            check(&memory, &model);
            memory.settle().unwrap();
        }
        let _ = memory.reset().unwrap();
        check(&memory, &snapshot);
        prop_assert_eq!(memory.differs_from_snapshot(), None);
    }
}
