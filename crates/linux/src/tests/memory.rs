//! Mappings and the heap.

use super::*;

const FIXED: u64 = 0x10;
const ANONYMOUS: u64 = 0x22;

#[test]
fn mappings_are_zero_protected_and_really_unmapped() {
    let mut machine = Machine::new();
    let address = machine.mmap(3 * PAGE - 5);
    assert_eq!(machine.bytes(address, 3 * PAGE), vec![0; 3 * PAGE as usize]);
    machine.call("mprotect", &[address + PAGE, PAGE, 1]).unwrap();
    assert!(machine.memory.view_mut(address + PAGE, 1).is_err());
    assert!(machine.memory.view(address + PAGE, 1).is_ok());
    machine.call("munmap", &[address + PAGE, PAGE]).unwrap();
    assert!(machine.memory.view(address + PAGE, 1).is_err());
    assert_eq!(machine.call("mprotect", &[address, 3 * PAGE, 3]), Err(Errno::NOMEM));
    assert_eq!(machine.call("munmap", &[address + 1, PAGE]), Err(Errno::INVAL));
    assert_eq!(machine.mmap(PAGE), address + PAGE);
}

#[test]
fn a_reservation_costs_nothing_until_it_is_writable() {
    let mut machine = Machine::new();
    machine.memory.available = 4 * PAGE;
    let none = machine.call("mmap", &[0, 1 << 20, 0, ANONYMOUS, u64::MAX, 0]).unwrap();
    assert!(machine.memory.view(none, 1).is_err());
    assert_eq!(machine.call("mprotect", &[none, 5 * PAGE, 3]), Err(Errno::NOMEM));
    machine.call("mprotect", &[none, 4 * PAGE, 3]).unwrap();
    assert_eq!(machine.bytes(none, 4 * PAGE), vec![0; 4 * PAGE as usize]);
    assert_eq!(machine.call("mmap", &[0, 5 * PAGE, 3, ANONYMOUS, 0, 0]), Err(Errno::NOMEM));
    let noreserve = 0x4000;
    machine.call("mmap", &[0, 1 << 20, 3, ANONYMOUS | noreserve, 0, 0]).unwrap();
    assert_eq!(machine.call("mmap", &[0, 1 << 40, 0, ANONYMOUS, 0, 0]), Err(Errno::NOMEM));
}

#[test]
fn data_survives_protection_and_not_dontneed() {
    let mut machine = Machine::new();
    let address = machine.mmap(2 * PAGE);
    crate::guest::write(&mut machine.memory, address, b"data").unwrap();
    machine.call("mprotect", &[address, PAGE, 0]).unwrap();
    assert!(machine.memory.view(address, 1).is_err());
    machine.call("mprotect", &[address, PAGE, 3]).unwrap();
    assert_eq!(machine.bytes(address, 4), b"data");
    machine.call("madvise", &[address, PAGE, 4]).unwrap();
    assert_eq!(machine.bytes(address, 4), [0; 4]);
}

#[test]
fn fixed_mappings_replace_unless_told_not_to() {
    let mut machine = Machine::new();
    let address = machine.mmap(2 * PAGE);
    crate::guest::write(&mut machine.memory, address, b"data").unwrap();
    let noreplace = 0x10_0000;
    let args = [address, PAGE, 3, ANONYMOUS | noreplace, 0, 0];
    assert_eq!(machine.call("mmap", &args), Err(Errno::EXIST));
    let args = [address, PAGE, 3, ANONYMOUS | FIXED, 0, 0];
    assert_eq!(machine.call("mmap", &args), Ok(address));
    assert_eq!(machine.bytes(address, 4), [0; 4]);
    let outside = [16 << 20, PAGE, 3, ANONYMOUS | FIXED, 0, 0];
    assert_eq!(machine.call("mmap", &outside), Err(Errno::NOMEM));
}

#[test]
fn the_heap_grows_and_shrinks_within_the_limit() {
    let mut machine = Machine::new();
    let start = machine.call("brk", &[0]).unwrap();
    assert_eq!(machine.call("brk", &[start + 100]), Ok(start + 100));
    crate::guest::write(&mut machine.memory, start, b"heap").unwrap();
    assert_eq!(machine.call("brk", &[start + PAGE + 1]), Ok(start + PAGE + 1));
    assert_eq!(machine.bytes(start, 4), b"heap");
    assert_eq!(machine.call("brk", &[start]), Ok(start));
    assert!(machine.memory.view(start, 1).is_err());
    assert_eq!(machine.call("brk", &[u64::MAX]), Ok(start));
    assert_eq!(machine.call("brk", &[start + (5 << 20)]), Ok(start));
    machine.memory.available = PAGE;
    assert_eq!(machine.call("brk", &[start + 2 * PAGE]), Ok(start));
}

#[test]
fn a_mapping_moves_with_what_it_holds() {
    let mut machine = Machine::new();
    let first = machine.mmap(2 * PAGE);
    let wall = machine.mmap(PAGE);
    assert_eq!(wall, first + 2 * PAGE);
    crate::guest::write(&mut machine.memory, first + PAGE, b"data").unwrap();
    assert_eq!(machine.call("mremap", &[first, 2 * PAGE, 4 * PAGE, 0]), Err(Errno::NOMEM));
    let moved = machine.call("mremap", &[first, 2 * PAGE, 4 * PAGE, 1]).unwrap();
    assert_ne!(moved, first);
    assert_eq!(machine.bytes(moved + PAGE, 4), b"data");
    assert!(machine.memory.view(first, 1).is_err());
    let grown = machine.call("mremap", &[moved, 4 * PAGE, 6 * PAGE, 0]).unwrap();
    assert_eq!(grown, moved);
    assert_eq!(machine.bytes(moved + 4 * PAGE, 2 * PAGE), vec![0; 2 * PAGE as usize]);
    assert_eq!(machine.call("mremap", &[moved, 6 * PAGE, PAGE, 0]), Ok(moved));
    assert!(machine.memory.view(moved + PAGE, 1).is_err());
}

#[test]
fn a_file_is_mapped_as_a_copy() {
    let mut machine = Machine::new();
    let fd = machine.open("/tmp/file", 0o102).unwrap();
    machine.write(fd, b"contents").unwrap();
    let address = machine.call("mmap", &[0, 2 * PAGE, 1, 2, fd, 0]).unwrap();
    assert_eq!(machine.bytes(address, 10), b"contents\0\0");
    assert!(machine.memory.view_mut(address, 1).is_err());
    assert_eq!(machine.call("mmap", &[0, PAGE, 3, 1, fd, 0]), Err(Errno::NODEV));
    assert_eq!(machine.call("mmap", &[0, PAGE, 1, 2, 1, 0]), Err(Errno::ACCESS));
    assert_eq!(machine.call("mmap", &[0, PAGE, 1, 2, fd, 1]), Err(Errno::INVAL));
}
