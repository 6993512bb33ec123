//! Messages: responses and parts of them, in one piece of bytes each.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use sandtide_abi::{call, field, file, message};
use sandtide_engine::{Fault, Outcome, Response};

use super::{EMSGSIZE, GuestCall, errno, fields::u32_at};
use crate::memory::GuestMemory;

/// The most ranges that one message may lie in (`IOV_MAX`).
const MAX_RANGES: u64 = 1024;

/// The bytes of a message.
pub(super) fn read<M: GuestMemory + ?Sized>(
    address: u64,
    length: u64,
    flags: u64,
    memory: &M,
) -> Result<Cow<'_, [u8]>, GuestCall> {
    if flags & file::FLAG_GATHER == 0 {
        check_length(length)?;
        return Ok(memory.view(address, length)?.into());
    }
    if length > MAX_RANGES {
        return Err(broken(format!("{length} ranges, the most is {MAX_RANGES}")));
    }
    let ranges = memory.view(address, 16 * length)?.as_chunks::<8>().0;
    let ranges: Vec<u64> = ranges.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let mut bytes = Vec::new();
    for [address, length] in ranges.as_chunks().0 {
        check_length(length.saturating_add(bytes.len() as u64))?;
        bytes.extend_from_slice(memory.view(*address, *length)?);
    }
    Ok(bytes.into())
}

/// A message that is too long is refused whole.
fn check_length(length: u64) -> Result<(), GuestCall> {
    if length > message::MAX_LENGTH { Err(errno(EMSGSIZE)) } else { Ok(()) }
}

/// Does what a message says. Nothing of it is sent if any part is wrong.
pub(super) fn send(message: &[u8], response: &mut Response) -> Result<GuestCall, GuestCall> {
    let Some((head, rest)) = message.split_at_checked(message::SIZE) else {
        let size = message::SIZE;
        return Err(broken(format!("{} bytes, the fixed part has {size}", message.len())));
    };
    let part = |at| u32_at(head, at) as usize;
    let short = || broken("its fields end behind it".to_owned());
    let (fields, rest) = rest.split_at_checked(part(message::FIELDS_LENGTH)).ok_or_else(short)?;
    let (trailers, body) =
        rest.split_at_checked(part(message::TRAILERS_LENGTH)).ok_or_else(short)?;
    let status = u16::try_from(u32_at(head, message::STATUS)).unwrap_or(u16::MAX);
    let kind = u64::from(u32_at(head, message::KIND)).saturating_add(call::BASE);
    let result = || GuestCall::Return(message.len() as u64);
    match kind {
        call::RESPOND => {
            let (headers, trailers) = (parse(fields)?, parse(trailers)?);
            response.begin(status, headers)?;
            response.write(body)?;
            response.finish((!trailers.is_empty()).then_some(trailers))?;
            return Ok(GuestCall::Ended(Outcome::Done));
        }
        call::BEGIN => {
            response.begin(status, parse(fields)?)?;
            response.write(body)?;
        }
        call::INFORM => response.inform(status, parse(fields)?)?,
        call::WRITE | call::FINISH => {
            response.check_room(body.len() as u64)?;
            if response.is_full() && !body.is_empty() {
                return Ok(GuestCall::Wait);
            }
            let trailers = parse(fields)?;
            response.write(body)?;
            if kind == call::FINISH {
                response.finish((!trailers.is_empty()).then_some(trailers))?;
                return Ok(GuestCall::Ended(Outcome::Done));
            }
        }
        _ => return Err(broken(format!("there is no kind {}", u32_at(head, message::KIND)))),
    }
    Ok(result())
}

/// Names and values, each followed by a NUL.
fn parse(bytes: &[u8]) -> Result<HeaderMap, GuestCall> {
    let Some((end, strings)) = bytes.split_last() else { return Ok(HeaderMap::new()) };
    if *end != 0 {
        return Err(broken("a field has no NUL behind it".to_owned()));
    }
    if bytes.len() > field::MAX_BYTES {
        return Err(broken(format!("more than {} bytes of fields", field::MAX_BYTES)));
    }
    let mut strings = strings.split(|byte| *byte == 0);
    let mut map = HeaderMap::new();
    while let Some(name) = strings.next() {
        let Some(value) = strings.next() else {
            return Err(broken(format!("the field `{}` has no value", name.escape_ascii())));
        };
        if map.len() == field::MAX_COUNT as usize {
            return Err(broken(format!("more than {} fields", field::MAX_COUNT)));
        }
        let name = HeaderName::from_bytes(name)
            .map_err(|_| broken(format!("`{}` is no field name", name.escape_ascii())))?;
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            broken(format!("the value of `{name}` has a byte that no field may have"))
        })?;
        map.append(name, value);
    }
    Ok(map)
}

fn broken(what: String) -> GuestCall {
    Fault::Protocol(format!("bad message: {what}")).into()
}
