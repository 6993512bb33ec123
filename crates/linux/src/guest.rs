//! Reading and writing guest memory in the shapes that system calls use.

use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::{GuestMemory, MemoryError, PAGE, kernel::Stop};

/// The longest path, with its NUL, in bytes (`PATH_MAX`).
pub(crate) const PATH_MAX: u64 = 4096;

/// The most ranges that one call may name (`IOV_MAX`).
const IOV_MAX: u64 = 1024;

/// The most bytes that one call moves. A caller that wants more is told how far it came.
pub(crate) const CHUNK: u64 = 1 << 20;

/// A range of guest addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) length: u64,
}

pub(crate) fn read_u32(memory: &dyn GuestMemory, address: u64) -> Result<u32, MemoryError> {
    array(memory, address).map(u32::from_le_bytes)
}

pub(crate) fn read_u64(memory: &dyn GuestMemory, address: u64) -> Result<u64, MemoryError> {
    array(memory, address).map(u64::from_le_bytes)
}

/// `N` bytes.
pub(crate) fn array<const N: usize>(
    memory: &dyn GuestMemory,
    address: u64,
) -> Result<[u8; N], MemoryError> {
    let bytes = memory.view(address, N as u64)?;
    bytes.try_into().map_err(|_| MemoryError::Denied)
}

/// `N` words of 64 bits.
pub(crate) fn words<const N: usize>(
    memory: &dyn GuestMemory,
    address: u64,
) -> Result<[u64; N], MemoryError> {
    let bytes = memory.view(address, 8 * N as u64)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(words)
}

pub(crate) fn write(
    memory: &mut dyn GuestMemory,
    address: u64,
    bytes: &[u8],
) -> Result<(), MemoryError> {
    if !bytes.is_empty() {
        memory.view_mut(address, bytes.len() as u64)?.copy_from_slice(bytes);
    }
    Ok(())
}

pub(crate) fn write_u32(
    memory: &mut dyn GuestMemory,
    address: u64,
    value: u32,
) -> Result<(), MemoryError> {
    write(memory, address, &value.to_le_bytes())
}

pub(crate) fn write_words(
    memory: &mut dyn GuestMemory,
    address: u64,
    words: &[u64],
) -> Result<(), MemoryError> {
    let bytes = memory.view_mut(address, 8 * words.len() as u64)?;
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    Ok(())
}

/// The bytes of a string before its NUL.
pub(crate) fn string(
    memory: &dyn GuestMemory,
    address: u64,
    capacity: u64,
    too_long: Errno,
) -> Result<Vec<u8>, Stop> {
    let mut bytes = Vec::new();
    let mut at = address;
    loop {
        // Up to the end of the page: the next one may not be mapped, and need not be.
        let length = (PAGE - at % PAGE).min(capacity - bytes.len() as u64);
        if length == 0 {
            return Err(too_long.into());
        }
        let piece = memory.view(at, length)?;
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            bytes.extend_from_slice(&piece[..end]);
            return Ok(bytes);
        }
        bytes.extend_from_slice(piece);
        at = at.checked_add(length).ok_or(Errno::FAULT)?;
    }
}

/// A path.
pub(crate) fn path(memory: &dyn GuestMemory, address: u64) -> Result<Vec<u8>, Stop> {
    string(memory, address, PATH_MAX, Errno::NAMETOOLONG)
}

/// A `struct timespec` that is a length of time.
pub(crate) fn duration(memory: &dyn GuestMemory, address: u64) -> Result<Duration, Stop> {
    let [seconds, nanoseconds] = words(memory, address)?;
    if seconds > i64::MAX as u64 || nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL.into());
    }
    Ok(Duration::new(seconds, nanoseconds as u32))
}

/// The ranges of a `struct iovec` array, cut to [`CHUNK`] bytes in total, empty ones left out.
pub(crate) fn ranges(
    memory: &dyn GuestMemory,
    address: u64,
    count: u64,
) -> Result<Vec<Range>, Stop> {
    if count > IOV_MAX {
        return Err(Errno::INVAL.into());
    }
    if count == 0 {
        return Ok(Vec::new());
    }
    let bytes = memory.view(address, 16 * count)?;
    let mut room = CHUNK;
    let mut ranges = Vec::new();
    for pair in bytes.as_chunks::<8>().0.as_chunks::<2>().0 {
        let [address, length] = pair.map(u64::from_le_bytes);
        if length > i64::MAX as u64 {
            return Err(Errno::INVAL.into());
        }
        let length = length.min(room);
        if length > 0 {
            ranges.push(Range { address, length });
            room -= length;
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Protection, testing::FlatMemory};

    fn memory() -> FlatMemory {
        let mut memory = FlatMemory::new(16 * PAGE);
        memory.map(PAGE, PAGE, Protection { read: true, write: true, execute: false });
        memory
    }

    #[test]
    fn a_string_may_end_at_the_end_of_what_is_mapped() {
        let mut memory = memory();
        write(&mut memory, 2 * PAGE - 3, b"ab\0").unwrap();
        assert_eq!(path(&memory, 2 * PAGE - 3).unwrap(), b"ab");
        write(&mut memory, 2 * PAGE - 3, b"abc").unwrap();
        assert_eq!(path(&memory, 2 * PAGE - 3), Err(Errno::FAULT.into()));
    }

    #[test]
    fn a_string_has_a_longest_length() {
        let mut memory = memory();
        memory.map(2 * PAGE, 4 * PAGE, Protection { read: true, write: true, execute: false });
        write(&mut memory, PAGE, &[b'a'; 4096]).unwrap();
        assert_eq!(path(&memory, PAGE), Err(Errno::NAMETOOLONG.into()));
        assert_eq!(path(&memory, PAGE + 1).unwrap().len(), 4095);
    }

    #[test]
    fn ranges_are_counted_and_cut() {
        let mut memory = memory();
        write_words(&mut memory, PAGE, &[8, 4, 16, 0, 24, CHUNK]).unwrap();
        assert_eq!(
            ranges(&memory, PAGE, 3).unwrap(),
            [Range { address: 8, length: 4 }, Range { address: 24, length: CHUNK - 4 }]
        );
        assert_eq!(ranges(&memory, PAGE, 1025), Err(Errno::INVAL.into()));
        write_words(&mut memory, PAGE, &[8, u64::MAX]).unwrap();
        assert_eq!(ranges(&memory, PAGE, 1), Err(Errno::INVAL.into()));
        assert_eq!(ranges(&memory, 2 * PAGE - 8, 1), Err(Errno::FAULT.into()));
    }
}
