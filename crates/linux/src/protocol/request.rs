//! The request block and the block of request trailers.

use std::{
    task::Poll,
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, Version};
use sandtide_abi::{call, request, trailers};
use sandtide_engine::{Exchange, Purpose, authority_of, headers_of};

use super::{GuestCall, GuestCallContext, body_ended, fields, misuse};
use crate::memory::GuestMemory;

/// Writes the request block if it fits, and returns its length.
///
/// A body that is here in full goes inline if there is room for it. It is not consumed: a guest
/// that reads it piece by piece sees the same bytes.
pub(super) fn write<M: GuestMemory + ?Sized>(
    block: u64,
    capacity: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<u64, GuestCall> {
    let Exchange { id, purpose, request: parts, added, body, .. } = &mut *context.exchange;
    let added = added.as_deref();
    let authority = authority_of(parts);
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let strings = [parts.method.as_str(), target, authority];
    let (count, table) = fields::measure(headers_of(parts, added, authority));
    let head = request::SIZE + table + strings.iter().map(|text| text.len() + 1).sum::<usize>();
    if head as u64 > capacity {
        return Ok(head as u64);
    }
    let known_length = body.known_length();
    let mut inline: &[u8] = &[];
    if known_length != Some(0)
        && let Poll::Ready(data) = body.poll_data(context.cx)
    {
        // A body that has broken off is told when the guest reads it.
        let data = data.unwrap_or_default();
        if known_length == Some(data.len() as u64) && (data.len() + head) as u64 <= capacity {
            inline = data;
        }
    }
    let length = head + inline.len();
    let block = context.memory.view_mut(block, length as u64)?;
    block[head..].copy_from_slice(inline);
    let is_complete = known_length == Some(inline.len() as u64);
    let event = match purpose {
        Purpose::Request => 0,
        Purpose::Save => request::FLAG_SAVE,
        Purpose::Restore => request::FLAG_RESTORE,
    };
    let version = match parts.version {
        Version::HTTP_10 => request::FLAG_HTTP_1_0,
        Version::HTTP_2 => request::FLAG_HTTP_2,
        _ => 0,
    };
    let flags = event | version | if is_complete { request::FLAG_BODY_COMPLETE } else { 0 };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    fields::put_u32(block, request::LENGTH, length);
    put_u16(block, request::VERSION, sandtide_abi::VERSION as u16);
    put_u16(block, request::FLAGS, flags);
    put_u64(block, request::ID, id.0);
    put_u64(block, request::TIME_NS, now.as_nanos() as u64);
    context.random.fill_bytes(&mut block[request::RANDOM..][..request::RANDOM_LENGTH]);
    let announced = known_length.unwrap_or(request::BODY_LENGTH_UNKNOWN);
    put_u64(block, request::BODY_LENGTH, announced);
    fields::put_u32(block, request::HEADERS, request::SIZE);
    fields::put_u32(block, request::HEADERS + 4, count);
    fields::put_u32(block, request::BODY, head);
    fields::put_u32(block, request::BODY + 4, inline.len());
    let headers = headers_of(parts, added, authority);
    let behind = request::SIZE + count * request::FIELD_SIZE;
    let mut at = fields::write_table(block, headers, request::SIZE, behind);
    for (entry, text) in [request::METHOD, request::TARGET, request::AUTHORITY].iter().zip(strings)
    {
        fields::put_u32(block, *entry, at);
        fields::put_u32(block, entry + 4, text.len());
        at = fields::put_string(block, at, text.as_bytes());
    }
    debug_assert_eq!(at, head);
    Ok(length as u64)
}

fn put_u16(block: &mut [u8], at: usize, value: u16) {
    block[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put_u64(block: &mut [u8], at: usize, value: u64) {
    block[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// `TRAILERS`: writes the request's trailers if they fit, and returns the block's length.
pub(super) fn write_trailers<M: GuestMemory + ?Sized>(
    block: u64,
    capacity: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    match context.exchange.body.poll_data(context.cx) {
        Poll::Pending => return Ok(GuestCall::Wait),
        Poll::Ready(data) => {
            if !data.map_err(body_ended)?.is_empty() {
                return Err(misuse(call::TRAILERS, "the body has not been read to its end"));
            }
        }
    }
    let none = HeaderMap::new();
    let map = context.exchange.body.trailers().unwrap_or(&none);
    let (count, table) = fields::measure(fields::of(map));
    let length = trailers::SIZE + table;
    if length as u64 <= capacity {
        let bytes = context.memory.view_mut(block, length as u64)?;
        fields::put_u32(bytes, trailers::LENGTH, length);
        fields::put_u32(bytes, trailers::COUNT, count);
        let strings = trailers::SIZE + count * request::FIELD_SIZE;
        fields::write_table(bytes, fields::of(map), trailers::SIZE, strings);
    }
    Ok(GuestCall::Return(length as u64))
}
