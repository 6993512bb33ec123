//! What a guest answers.

use http::HeaderMap;
use sandtide_abi::response;
use sandtide_engine::{Fault, Outcome, Response, ResponseError};

use super::{GuestCall, GuestCallContext, fields};
use crate::memory::GuestMemory;

const _: () = assert!(Response::MAX_INTERIM == response::MAX_INTERIM);

impl From<ResponseError> for GuestCall {
    fn from(error: ResponseError) -> Self {
        Fault::Response(error).into()
    }
}

/// `RESPOND`: a whole response. Nothing is sent if any part of it is wrong.
pub(super) fn respond<M: GuestMemory + ?Sized>(
    pointer: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    let memory = &*context.memory;
    let answer = memory.view(pointer, response::SIZE as u64)?;
    let (status, headers) = head(answer, memory)?;
    let body = memory.view(
        fields::u64_at(answer, response::BODY),
        fields::u64_at(answer, response::BODY_LENGTH),
    )?;
    let trailers = trailers(
        memory,
        fields::u64_at(answer, response::TRAILERS),
        fields::u64_at(answer, response::TRAILER_COUNT),
    )?;
    let response = &mut context.exchange.response;
    response.begin(status, headers)?;
    response.write(body)?;
    response.finish(trailers)?;
    Ok(GuestCall::Ended(Outcome::Done))
}

/// `INFORM`: status and headers of an interim response.
pub(super) fn inform<M: GuestMemory + ?Sized>(
    pointer: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    let memory = &*context.memory;
    let (status, headers) = head(memory.view(pointer, response::SIZE as u64)?, memory)?;
    context.exchange.response.inform(status, headers)?;
    Ok(GuestCall::Return(0))
}

/// `BEGIN`: status and headers.
pub(super) fn begin<M: GuestMemory + ?Sized>(
    pointer: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    let memory = &*context.memory;
    let (status, headers) = head(memory.view(pointer, response::SIZE as u64)?, memory)?;
    context.exchange.response.begin(status, headers)?;
    Ok(GuestCall::Return(0))
}

fn head<M: GuestMemory + ?Sized>(answer: &[u8], memory: &M) -> Result<(u16, HeaderMap), GuestCall> {
    let status = fields::u32_at(answer, response::STATUS);
    let count = fields::u32_at(answer, response::HEADER_COUNT);
    let headers = fields::u64_at(answer, response::HEADERS);
    let headers = fields::read(memory, headers, u64::from(count))?;
    Ok((u16::try_from(status).unwrap_or(u16::MAX), headers))
}

/// `WRITE`: a piece of the body. Waits while the host has not taken what came before.
pub(super) fn write<M: GuestMemory + ?Sized>(
    pointer: u64,
    length: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    context.exchange.response.check_room(length)?;
    if context.exchange.response.is_full() {
        return Ok(GuestCall::Wait);
    }
    let bytes = context.memory.view(pointer, length)?;
    context.exchange.response.write(bytes)?;
    Ok(GuestCall::Return(0))
}

/// `FINISH`: the end of a streamed response.
pub(super) fn finish<M: GuestMemory + ?Sized>(
    pointer: u64,
    count: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    let trailers = trailers(context.memory, pointer, count)?;
    context.exchange.response.finish(trailers)?;
    Ok(GuestCall::Ended(Outcome::Done))
}

fn trailers<M: GuestMemory + ?Sized>(
    memory: &M,
    array: u64,
    count: u64,
) -> Result<Option<HeaderMap>, GuestCall> {
    if count == 0 { Ok(None) } else { fields::read(memory, array, count).map(Some) }
}
