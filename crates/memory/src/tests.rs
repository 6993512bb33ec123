//! What a space promises, and a random walk against a model that copies everything.

use std::{collections::BTreeMap, iter, ops::Range, sync::Arc};

use proptest::prelude::*;

use crate::{
    Access, Denied, Difference, Look, PAGE, SHRINK_PERIOD, SPACE, Snapshot, Space,
    table::{PageNumber, READ},
};

const RW: Access = Access::READ.and(Access::WRITE);
const LIMIT: u64 = 1 << 20;

/// A snapshot of: code at page 1, "abc" at page 2, a zero page at 3.
fn booted() -> Space {
    let mut space = Space::new(LIMIT).unwrap();
    space.map(0x1000, 0x1000, Access::READ.and(Access::EXECUTE));
    space.initialise(0x1000, &[0x13, 0, 0, 0]).unwrap();
    space.set_lasting_code(iter::once(0x1000..0x1004));
    space.map(0x2000, 0x2000, RW);
    space.store(0x2000, *b"abc").unwrap();
    Space::from_snapshot(Arc::new(space.freeze().unwrap()), LIMIT).unwrap()
}

#[test]
fn untouched_memory_is_denied() {
    let mut space = booted();
    assert_eq!(space.load::<1>(0), Err(Denied::Protection));
    assert_eq!(space.load::<8>(u32::MAX), Err(Denied::Protection));
    assert_eq!(space.store(0x1000, [0]), Err(Denied::Protection));
    assert_eq!(space.store(0x4000, [0]), Err(Denied::Protection));
    assert_eq!(space.fetch(0x2000), Err(Denied::Protection));
    assert_eq!(space.fetch(0x1001), Err(Denied::Protection));
    assert_eq!(space.fetch(0x1000), Ok(0x13));
}

#[test]
fn an_access_across_a_page_end_needs_both_pages() {
    let mut space = booted();
    assert_eq!(space.store(0x3ffe, [1, 2, 3, 4]), Err(Denied::Protection));
    assert_eq!(space.load::<2>(0x3ffe), Ok([0, 0]));
    space.store(0x2ffe, [1, 2, 3, 4]).unwrap();
    assert_eq!(space.load::<4>(0x2ffe), Ok([1, 2, 3, 4]));
    assert_eq!(space.written_pages(), 2);
}

#[test]
fn both_ends_of_the_address_space_stay_without_access() {
    let mut space = Space::new(LIMIT).unwrap();
    for (start, length) in [(0, 0x2000), (0xffff_e000, 0x2000)] {
        space.map(start, length, RW);
        space.protect(start, length, RW.and(Access::EXECUTE));
    }
    assert_eq!(space.store(0xfff, [1]), Err(Denied::Protection));
    space.store(0x1000, [1]).unwrap();
    space.store(0xffff_effc, [1; 4]).unwrap();
    assert_eq!(space.load::<4>(0xffff_effe), Err(Denied::Protection));
    assert_eq!(space.store(0xffff_f000, [1]), Err(Denied::Protection));
    assert_eq!(space.store(0xffff_fffe, [1; 4]), Err(Denied::Protection));
    assert!(space.view(0xffff_ffff, 2).is_err());
    assert!(space.view(1, usize::MAX).is_err());
    assert_eq!(space.view(0xffff_ffff, 0).unwrap().len(), 0);
    assert!(Snapshot::borders(&space.freeze().unwrap()) == 4);
}

#[test]
fn reset_brings_bytes_and_access_back() {
    let mut space = booted();
    space.store(0x2001, *b"X").unwrap();
    space.store(0x3000, [7]).unwrap();
    space.unmap(0x2000, 0x1000);
    space.map(0x10_0000, 0x20_000, RW);
    space.store(0x10_0000, [9]).unwrap();
    space.protect(0x1000, 0x1000, RW);
    assert!(!space.code_is_pristine());
    space.store(0x1000, [1]).unwrap();
    assert!(space.differs_from_snapshot().is_some());
    space.reset().unwrap();
    assert_eq!(space.differs_from_snapshot(), None);
    assert!(space.code_is_pristine());
    assert_eq!(space.load(0x2000), Ok(*b"abc"));
    assert_eq!(space.load::<1>(0x10_0000), Err(Denied::Protection));
    assert_eq!(space.fetch(0x1000), Ok(0x13));
}

#[test]
fn only_changes_of_lasting_code_count() {
    let mut space = booted();
    let all = RW.and(Access::EXECUTE);
    for page in [0x3000, 0x8000] {
        space.protect(page, 0x1000, all);
        space.store(page as u32, [0x13, 0, 0, 0]).unwrap();
        space.protect(page, 0x1000, RW);
        space.unmap(page, 0x1000);
        assert!(space.code_is_pristine());
    }
    for change in [
        |space: &mut Space| space.protect(0x1000, 0x1000, Access::READ),
        |space: &mut Space| space.unmap(0x1000, 0x1000),
        |space: &mut Space| space.map(0x1000, 0x1000, RW),
    ] {
        change(&mut space);
        assert!(!space.code_is_pristine());
        space.reset().unwrap();
        assert!(space.code_is_pristine());
    }
}

#[test]
fn mapped_memory_is_zero_even_where_something_was() {
    let mut space = booted();
    space.map(0x2000, 0x1000, RW);
    assert_eq!(space.load::<3>(0x2000), Ok([0; 3]));
    for (length, fill) in [(0x1000, 1), (0x20_000, 2)] {
        space.map(0x10_0000, length, RW);
        space.view_mut(0x10_0000, length as usize).unwrap().fill(fill);
        space.unmap(0x10_0000, length);
        space.map(0x10_0000, length, RW);
        assert!(space.view(0x10_0000, length as usize).unwrap().iter().all(|byte| *byte == 0));
    }
    space.reset().unwrap();
    assert_eq!(space.load(0x2000), Ok(*b"abc"));
}

#[test]
fn fresh_pages_count_against_the_limit() {
    let mut space = booted();
    space.map(0x100_0000, 2 * LIMIT, RW);
    let room = space.available();
    assert_eq!(room, LIMIT - 2 * PAGE as u64, "the snapshot has two pages");
    space.view_mut(0x100_0000, room as usize).unwrap();
    assert_eq!(space.store(0x100_0000 + room as u32, [1]), Err(Denied::Limit));
    space.store(0x2000, [1]).unwrap();
    space.unmap(0x100_0000, 16 * PAGE as u64);
    assert_eq!(space.available(), 16 * PAGE as u64);
    space.reset().unwrap();
    assert_eq!(space.available(), room);
}

#[test]
fn memory_that_is_no_longer_written_is_given_back() {
    let mut space = booted();
    space.map(0x100_0000, 0x40_000, RW);
    space.view_mut(0x100_0000, 0x40_000).unwrap().fill(1);
    space.store(0x2000, [1]).unwrap();
    space.reset().unwrap();
    let large = space.private_bytes();
    assert!(large >= 0x40_000);
    for _ in 0..2 * SHRINK_PERIOD {
        space.store(0x3000, [1]).unwrap();
        space.reset().unwrap();
    }
    assert_eq!(space.private_bytes(), PAGE as u64, "only the page that is still written");
    assert_eq!(space.load(0x2000), Ok(*b"abc"));
    assert_eq!(space.differs_from_snapshot(), None);
}

#[test]
fn the_lists_stay_bounded_when_a_guest_maps_and_unmaps() {
    let mut space = booted();
    for _ in 0..5_000 {
        space.map(0x100_0000, 0x10_000, RW);
        space.view_mut(0x100_0000, 0x10_000).unwrap();
        space.unmap(0x100_0000, 0x10_000);
    }
    assert!(space.written_pages() < 10_000, "{}", space.written_pages());
}

#[test]
fn pages_between_those_of_a_snapshot_need_not_be_there() {
    let mut space = Space::new(LIMIT).unwrap();
    for page in [1, 3] {
        space.map(page * PAGE as u64, PAGE as u64, RW);
        space.store((page as usize * PAGE) as u32, [page as u8]).unwrap();
    }
    let space = Space::from_snapshot(Arc::new(space.freeze().unwrap()), LIMIT).unwrap();
    assert_eq!(space.load(PAGE as u32), Ok([1]));
    assert_eq!(space.load::<1>(2 * PAGE as u32), Err(Denied::Protection));
    assert_eq!(space.load(3 * PAGE as u32), Ok([3]));
}

/// Writes without the table's knowing.
fn write_behind(space: &Space, address: usize, byte: u8) {
    // SAFETY: inside the reservation, in a page that the test knows to be open.
    unsafe { space.memory.base().add(address).write(byte) };
}

#[test]
fn what_was_written_behind_the_table_is_found() {
    // Where the snapshot has bytes, where it has zeros, where the guest sees nothing.
    for address in [0x2001, 0x3001, 0x10_0000] {
        let mut space = booted();
        space.store(0x2000, [1]).unwrap();
        space.reset().unwrap();
        if address == 0x10_0000 {
            crate::mirror::protect(&space.memory, 0x100..0x101, true).unwrap();
        }
        write_behind(&space, address, 7);
        space.reset().unwrap();
        let page = (address & !0xfff) as u64;
        assert_eq!(space.differs_from_snapshot(), Some(Difference::Bytes(page)));
        let elsewhere = Look { pages: 0x200..0x300, copies: usize::MAX };
        assert_eq!(space.verify(&elsewhere).unwrap(), None);
        let nothing = Look { copies: 0, ..Look::ALL };
        assert_eq!(space.verify(&nothing).unwrap(), None);
    }
}

#[test]
fn a_wrong_table_is_found() {
    let mut space = booted();
    space.store(0x2000, [1]).unwrap();
    space.reset().unwrap();
    space.table.set(PageNumber::new(0x1234), READ);
    assert_eq!(space.differs_from_snapshot(), Some(Difference::Access(0x123_4000)));
}

proptest! {
    #[test]
    fn tables_are_compared_by_their_masks(
        table in prop::collection::vec(any::<u8>(), 0..40),
        at in any::<prop::sample::Index>(),
        bit in 0..8u32,
        mask in any::<u8>(),
    ) {
        let mut other = table.clone();
        prop_assert_eq!(crate::first_difference(&table, &other, mask), None);
        if !table.is_empty() {
            let at = at.index(table.len());
            other[at] ^= 1 << bit;
            let found = (mask >> bit & 1 != 0).then_some(at);
            prop_assert_eq!(crate::first_difference(&table, &other, mask), found);
        }
    }
}

#[test]
fn sandboxes_of_one_snapshot_do_not_see_each_other() {
    let space = booted();
    let snapshot = space.snapshot.clone().unwrap();
    let mut other = Space::from_snapshot(snapshot, LIMIT).unwrap();
    other.store(0x2000, *b"xyz").unwrap();
    assert_eq!(space.load(0x2000), Ok(*b"abc"));
}

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, bool),
    Hide(u64, u64),
    Store(u32, u8),
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let range = (1u64..96, 1u64..40);
    prop_oneof![
        range.clone().prop_map(|(start, pages)| Step::Map(start, pages)),
        range.clone().prop_map(|(start, pages)| Step::Unmap(start, pages)),
        range.clone().prop_map(|(start, pages)| Step::Hide(start, pages)),
        (range, any::<bool>()).prop_map(|((start, pages), w)| Step::Protect(start, pages, w)),
        (0u32..136 * PAGE as u32, any::<u8>()).prop_map(|(at, byte)| Step::Store(at, byte)),
        (0u32..136 * PAGE as u32, any::<u8>()).prop_map(|(at, byte)| Step::Store(at, byte)),
        Just(Step::Reset),
    ]
}

/// What a page is in the model: what the guest may do, and its bytes that are not zero.
type Model = BTreeMap<u64, (Access, BTreeMap<usize, u8>)>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_random_walk_agrees_with_a_model(
        before in prop::collection::vec(step(), 0..30),
        after in prop::collection::vec(step(), 0..80),
    ) {
        let mut space = Space::new(LIMIT).unwrap();
        let mut model = Model::new();
        for step in before {
            if !matches!(step, Step::Reset) {
                take(&mut space, &mut model, &Model::new(), &step);
            }
        }
        let snapshot = model.clone();
        let mut space = Space::from_snapshot(Arc::new(space.freeze().unwrap()), LIMIT).unwrap();
        for step in after {
            take(&mut space, &mut model, &snapshot, &step);
            check(&space, &model);
        }
        space.reset().unwrap();
        check(&space, &snapshot);
        prop_assert_eq!(space.differs_from_snapshot(), None);
    }
}

fn take(space: &mut Space, model: &mut Model, snapshot: &Model, step: &Step) {
    let page = PAGE as u64;
    match *step {
        Step::Map(start, pages) => {
            space.map(start * page, pages * page, RW);
            model.extend((start..start + pages).map(|page| (page, (RW, BTreeMap::new()))));
        }
        Step::Unmap(start, pages) => {
            space.unmap(start * page, pages * page);
            model.retain(|page, _| !(start..start + pages).contains(page));
        }
        Step::Protect(start, pages, write) => {
            protect(space, model, start..start + pages, if write { RW } else { Access::READ });
        }
        Step::Hide(start, pages) => protect(space, model, start..start + pages, Access::NONE),
        Step::Store(at, byte) => {
            let stored = space.store(at, [byte]);
            match model.get_mut(&(u64::from(at) / page)) {
                Some((access, bytes)) if *access == RW => {
                    assert_eq!(stored, Ok(()));
                    bytes.insert(at as usize % PAGE, byte);
                }
                _ => assert_eq!(stored, Err(Denied::Protection)),
            }
        }
        Step::Reset => {
            space.reset().unwrap();
            model.clone_from(snapshot);
        }
    }
}

/// As a system call would: only pages that are mapped.
fn protect(space: &mut Space, model: &mut Model, pages: Range<u64>, access: Access) {
    for (index, (is, _)) in model.range_mut(pages) {
        space.protect(index * PAGE as u64, PAGE as u64, access);
        *is = access;
    }
}

fn check(space: &Space, model: &Model) {
    check_host(space);
    for index in 0..140u64 {
        let seen = space.view((index * PAGE as u64) as u32, PAGE);
        match model.get(&index) {
            None => assert!(seen.is_err()),
            Some((access, _)) if *access == Access::NONE => assert!(seen.is_err()),
            Some((_, bytes)) => {
                let mut expected = [0; PAGE];
                bytes.iter().for_each(|(offset, byte)| expected[*offset] = *byte);
                assert!(seen.unwrap() == expected, "page {index}");
            }
        }
    }
}

/// The host's mappings of guest memory, as the kernel tells: ranges of pages, and whether they are
/// open.
fn mappings(space: &Space) -> Vec<(Range<usize>, bool)> {
    let base = space.memory.base() as usize;
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (start, end) = words.next()?.split_once('-')?;
            let page = |text| {
                let address = usize::from_str_radix(text, 16).unwrap();
                address.saturating_sub(base).min(SPACE) / PAGE
            };
            let pages = page(start)..page(end);
            (!pages.is_empty()).then(|| (pages, words.next().unwrap().starts_with("rw")))
        })
        .collect()
}

/// The host's protection is as the table says.
fn check_host(space: &Space) {
    for (pages, is_open) in mappings(space) {
        for index in pages.start..pages.end.min(200) {
            let access = space.table.get(PageNumber::new(index));
            assert_eq!(is_open, access & READ != 0, "page {index}");
        }
    }
}

#[test]
fn changes_of_access_that_the_host_need_not_know_cost_no_mapping() {
    let mut space = booted();
    let before = mappings(&space);
    space.protect(0x1000, 0x1000, RW);
    space.protect(0x2000, 0x2000, Access::READ);
    assert_eq!(mappings(&space), before);
    check_host(&space);
    space.protect(0x2000, 0x1000, Access::NONE);
    space.unmap(0x1000, 0x1000);
    check_host(&space);
    space.reset().unwrap();
    assert_eq!(mappings(&space), before);
}

#[test]
fn hidden_bytes_stay_until_they_are_unmapped_or_reset() {
    let mut space = booted();
    space.map(0x10_0000, 0x2000, RW);
    space.store(0x10_0000, *b"x").unwrap();
    space.store(0x2000, *b"x").unwrap();
    for page in [0x2000, 0x10_0000] {
        space.protect(page, 0x1000, Access::NONE);
        assert_eq!(space.load::<1>(page as u32), Err(Denied::Protection));
        space.protect(page, 0x1000, Access::READ);
        assert_eq!(space.load(page as u32), Ok(*b"x"));
        space.protect(page, 0x1000, Access::NONE);
    }
    space.reset().unwrap();
    assert_eq!(space.differs_from_snapshot(), None);
    check_host(&space);
    space.map(0x10_0000, 0x1000, RW);
    assert_eq!(space.load(0x10_0000), Ok([0]));
    assert_eq!(space.load(0x2000), Ok(*b"abc"));
}

#[test]
fn a_program_may_be_loaded_where_it_cannot_be_read() {
    let mut space = Space::new(LIMIT).unwrap();
    space.protect(0x1000, 0x1000, Access::NONE);
    space.initialise(0x1ffe, b"abcd").unwrap();
    check_host(&space);
    let snapshot = Arc::new(space.freeze().unwrap());
    check_host(&space);
    let mut space = Space::from_snapshot(snapshot, LIMIT).unwrap();
    check_host(&space);
    space.protect(0x1000, 0x2000, Access::READ);
    assert_eq!(space.load(0x1ffe), Ok(*b"abcd"));
    space.map(0x1000, 0x1000, Access::NONE);
    space.protect(0x1000, 0x1000, Access::READ);
    assert_eq!(space.load(0x1ffe), Ok([0, 0, b'c', b'd']));
    space.reset().unwrap();
    assert_eq!(space.differs_from_snapshot(), None);
    check_host(&space);
}

#[test]
fn a_guest_cannot_use_up_the_mappings_of_the_host() {
    let mut space = booted();
    let before = mappings(&space);
    for page in (0x1000..0x8000).step_by(2) {
        space.map(page * PAGE as u64, PAGE as u64, RW);
    }
    assert!(!space.is_mirrored());
    assert!(mappings(&space).len() < before.len() + 8, "everything is open");
    assert_eq!(space.load(0x100_0000), Ok([0]));
    assert_eq!(space.load::<1>(0x100_1000), Err(Denied::Protection));
    space.store(0x100_0000, [7]).unwrap();
    space.reset().unwrap();
    assert!(space.is_mirrored());
    assert_eq!(mappings(&space), before);
    assert_eq!(space.differs_from_snapshot(), None);
    assert_eq!(space.load::<1>(0x100_0000), Err(Denied::Protection));
}

#[test]
fn a_snapshot_in_many_pieces_is_not_mirrored() {
    let mut space = Space::new(LIMIT).unwrap();
    for page in (0x1000..0x8000).step_by(2) {
        space.map(page * PAGE as u64, PAGE as u64, RW);
    }
    let snapshot = Arc::new(space.freeze().unwrap());
    let mut space = Space::from_snapshot(snapshot, LIMIT).unwrap();
    assert!(!space.is_mirrored());
    space.unmap(0x100_0000, 0x400_0000);
    space.reset().unwrap();
    assert_eq!(space.load(0x100_0000), Ok([0]));
    assert!(!space.is_mirrored());
}
