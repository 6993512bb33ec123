//! Header and trailer fields between guest memory and `http`'s map.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, InvalidHeaderName},
};
use sandtide_abi::field;
use sandtide_engine::Fault;

use super::GuestCall;
use crate::memory::{GuestMemory, MemoryError};

/// The least number of headers that a map is made for. A host may use a response's map again for
/// the next request of the connection: so many are the headers of most, with those that it adds.
const ROOM: usize = 6;

/// Reads an array of `count` fields that the guest made.
pub(super) fn read<M: GuestMemory + ?Sized>(
    memory: &M,
    array: u64,
    count: u64,
) -> Result<HeaderMap, GuestCall> {
    if count == 0 {
        return Ok(HeaderMap::new());
    }
    if count > u64::from(field::MAX_COUNT) {
        return Err(broken(format!("{count} fields, the most is {}", field::MAX_COUNT)));
    }
    let entries = memory.view(array, count * field::SIZE as u64)?;
    let mut map = HeaderMap::with_capacity((count as usize).max(ROOM));
    let mut bytes = 0;
    for entry in entries.chunks_exact(field::SIZE) {
        let name = string(memory, entry, field::NAME, field::NAME_LENGTH)?;
        let value = string(memory, entry, field::VALUE, field::VALUE_LENGTH)?;
        bytes += name.len() + value.len();
        if bytes > field::MAX_BYTES {
            return Err(broken(format!("more than {} bytes of fields", field::MAX_BYTES)));
        }
        let name = field_name(name)
            .map_err(|_| broken(format!("`{}` is no field name", name.escape_ascii())))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            broken(format!("the value of `{name}` has a byte that no field may have"))
        })?;
        map.append(name, value);
    }
    Ok(map)
}

/// A field's name. The ones that nearly every response has are found without a look at each of
/// their bytes.
fn field_name(bytes: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    match bytes {
        b"content-type" => Ok(header::CONTENT_TYPE),
        b"cache-control" => Ok(header::CACHE_CONTROL),
        b"location" => Ok(header::LOCATION),
        b"set-cookie" => Ok(header::SET_COOKIE),
        _ => HeaderName::from_bytes(bytes),
    }
}

fn string<'m, M: GuestMemory + ?Sized>(
    memory: &'m M,
    entry: &[u8],
    pointer: usize,
    length: usize,
) -> Result<&'m [u8], MemoryError> {
    let length = u64::from(u32_at(entry, length));
    memory.view(u64_at(entry, pointer), length)
}

fn broken(what: String) -> GuestCall {
    Fault::Protocol(format!("bad response: {what}")).into()
}

/// How many fields there are, and how long a block's table of them and their strings are.
pub(super) fn measure<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>) -> (usize, usize) {
    fields.fold((0, 0), |(count, length), (name, value)| {
        (count + 1, length + sandtide_abi::request::FIELD_SIZE + name.len() + value.len() + 2)
    })
}

/// The fields of a map.
pub(super) fn of(map: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    map.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// Writes a block's field table at `table` and its strings from `strings` on; returns where the
/// strings end.
pub(super) fn write_table<'a>(
    block: &mut [u8],
    fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    mut table: usize,
    mut strings: usize,
) -> usize {
    for (name, value) in fields {
        for text in [name.as_bytes(), value] {
            put_u32(block, table, strings);
            put_u32(block, table + 4, text.len());
            table += 8;
            strings = put_string(block, strings, text);
        }
    }
    strings
}

/// Writes a string and its NUL; returns the offset behind them.
pub(super) fn put_string(block: &mut [u8], at: usize, text: &[u8]) -> usize {
    let end = at + text.len();
    block[at..end].copy_from_slice(text);
    block[end] = 0;
    end + 1
}

/// Writes an offset or a length. Blocks are far shorter than 4 GiB.
pub(super) fn put_u32(block: &mut [u8], at: usize, value: usize) {
    block[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(value)
}
