//! What is not the same in everything that starts from one snapshot.

use super::*;

const WIPE: u64 = 18;
const KEEP: u64 = 19;

/// A process with 64 bytes that are kept fresh, and the descriptor that keeps them.
fn kept() -> (Machine, u64, u64) {
    let mut machine = Machine::new();
    let fd = machine.open("/sandtide/fresh", 0).unwrap();
    let address = machine.put(&[0; 64]);
    assert_eq!(machine.call("read", &[fd, address, 64]), Ok(64));
    (machine, fd, address)
}

fn refresh(machine: &mut Machine) {
    machine.process.refresh(&mut machine.memory, &mut machine.random).unwrap();
}

#[test]
fn memory_is_fresh_once_in_each_copy_and_not_in_the_original() {
    let (mut machine, _, address) = kept();
    let first = machine.bytes(address, 64);
    assert_ne!(first[0], 0);
    refresh(&mut machine);
    assert_eq!(machine.bytes(address, 64), first, "it is no copy");
    let snapshot = machine.process.clone();
    let mut seen = vec![first];
    machine.process = snapshot.clone();
    for _ in 0..300 {
        refresh(&mut machine);
        let bytes = machine.bytes(address, 64);
        assert!(bytes[0] != 0 && !seen.contains(&bytes));
        crate::guest::write(&mut machine.memory, address, &[0]).unwrap();
        refresh(&mut machine);
        assert_eq!(machine.bytes(address, 1), [0], "once is enough");
        seen.push(bytes);
        machine.process.reset_from(&snapshot);
    }
}

#[test]
fn the_bytes_that_a_program_starts_with_are_fresh() {
    let mut machine = Machine::new();
    let sp = machine.process.cpu().sp;
    let word = |address| u64::from_le_bytes(machine.bytes(address, 8).try_into().unwrap());
    const AT_RANDOM: u64 = 25;
    let key = (sp..).step_by(8).find(|address| word(*address) == AT_RANDOM).unwrap();
    let address = word(key + 8);
    let first = machine.bytes(address, 16);
    let snapshot = machine.process.clone();
    for _ in 0..3 {
        machine.process.reset_from(&snapshot);
        let before = machine.bytes(address, 16);
        refresh(&mut machine);
        assert_ne!(machine.bytes(address, 16), before);
        assert_ne!(machine.bytes(address, 16), first);
    }
}

#[test]
fn it_is_fresh_as_long_as_the_file_is_open() {
    let (mut machine, fd, address) = kept();
    let other = machine.call("dup", &[fd]).unwrap();
    machine.call("close", &[fd]).unwrap();
    let snapshot = machine.process.clone();
    machine.call("close", &[other]).unwrap();
    let closed = machine.process.clone();
    for (process, is_fresh) in [(&snapshot, true), (&closed, false)] {
        let before = machine.bytes(address, 64);
        machine.process = process.clone();
        refresh(&mut machine);
        assert_eq!(machine.bytes(address, 64) != before, is_fresh);
    }
    // What a request has had kept is nothing to the next.
    machine.process = closed.clone();
    let fd = machine.open("/sandtide/fresh", 0).unwrap();
    machine.call("read", &[fd, address, 64]).unwrap();
    machine.process.reset_from(&closed);
    let before = machine.bytes(address, 64);
    refresh(&mut machine);
    assert_eq!(machine.bytes(address, 64), before);
}

#[test]
fn memory_that_is_gone_is_left_alone() {
    let mut machine = Machine::new();
    let fd = machine.open("/sandtide/fresh", 0).unwrap();
    let address = machine.mmap(PAGE);
    machine.call("read", &[fd, address, 64]).unwrap();
    machine.call("mprotect", &[address, PAGE, 1]).unwrap();
    let before = machine.bytes(address, 64);
    machine.process = machine.process.clone();
    refresh(&mut machine);
    assert_eq!(machine.bytes(address, 64), before);
    machine.call("munmap", &[address, PAGE]).unwrap();
    machine.process = machine.process.clone();
    refresh(&mut machine);
}

#[test]
fn how_much_is_kept_fresh_is_limited() {
    let mut machine = Machine::new();
    let address = machine.mmap(2 * PAGE);
    let read = |machine: &mut Machine| {
        let fd = machine.open("/sandtide/fresh", 0).unwrap();
        machine.call("read", &[fd, address, 2 * PAGE])
    };
    for _ in 0..4 {
        assert_eq!(read(&mut machine), Ok(PAGE), "the longest");
    }
    assert_eq!(read(&mut machine), Err(Errno::NOMEM));
    // Who reads again has the new memory kept instead.
    assert_eq!(machine.call("read", &[3, address, 100]), Ok(100));
    assert_eq!(machine.call("read", &[7, address, PAGE - 100]), Ok(PAGE - 100));
    assert_eq!(machine.call("read", &[7, 0, 8]), Err(Errno::FAULT));
    assert_eq!(machine.call("read", &[7, 0, 0]), Ok(0));
}

#[test]
fn a_copy_finds_zeros_where_it_was_told_to() {
    let mut machine = Machine::new();
    let address = machine.mmap(3 * PAGE);
    for page in 0..3 {
        crate::guest::write(&mut machine.memory, address + page * PAGE, b"seed").unwrap();
    }
    machine.call("madvise", &[address, 2 * PAGE, WIPE]).unwrap();
    machine.call("madvise", &[address + PAGE, PAGE, KEEP]).unwrap();
    assert_eq!(machine.bytes(address, 4), b"seed", "the process itself keeps it");
    machine.process.part(&mut machine.memory);
    assert_eq!(machine.bytes(address, 4), [0; 4]);
    assert_eq!(machine.bytes(address + PAGE, 4), b"seed");
    // It stays as it is when it moves, and when nobody may read it for a while.
    crate::guest::write(&mut machine.memory, address, b"seed").unwrap();
    machine.call("mprotect", &[address, PAGE, 0]).unwrap();
    let moved = machine.call("mremap", &[address, PAGE, PAGE, 3, address + 16 * PAGE]).unwrap();
    machine.process.part(&mut machine.memory);
    machine.call("mprotect", &[moved, PAGE, 3]).unwrap();
    assert_eq!(machine.bytes(moved, 4), [0; 4]);
    // What is mapped in its place does not inherit it.
    machine.call("munmap", &[moved, PAGE]).unwrap();
    machine.call("mmap", &[moved, PAGE, 3, 0x32, u64::MAX, 0]).unwrap();
    crate::guest::write(&mut machine.memory, moved, b"data").unwrap();
    machine.process.part(&mut machine.memory);
    assert_eq!(machine.bytes(moved, 4), b"data");
    assert_eq!(machine.call("madvise", &[moved, PAGE, u64::MAX]), Err(Errno::INVAL));
}
