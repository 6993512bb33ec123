//! The direct protocol: guest calls, as `sandtide_abi` lays them down, for every engine.

mod fields;
mod message;
mod request;
mod response;

#[cfg(test)]
mod tests;

use std::task::{Context, Poll};

use rand::RngCore;
use sandtide_abi::{call, event, file};
use sandtide_engine::{BodyError, Events, Exchange, Fault, Outcome};

use crate::memory::{GuestMemory, MemoryError};

/// How a guest call went.
#[derive(Debug)]
pub enum GuestCall {
    /// The guest goes on with this result.
    Return(u64),
    /// The call must be made again when the host has something new.
    Wait,
    /// The exchange is over.
    Ended(Outcome),
    /// Writing the result would take the guest over its memory limit.
    MemoryLimit,
}

/// Where the direct protocol stands in one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestCalls {
    delivered: bool,
    /// The result of the call that ends the exchange.
    ended: u64,
}

/// What a guest call works on.
pub struct GuestCallContext<'a, 'cx, M: ?Sized> {
    /// The guest's memory.
    pub memory: &'a mut M,
    /// The exchange that the sandbox serves.
    pub exchange: &'a mut Exchange,
    /// Wakes the exchange when a body frame arrives.
    pub cx: &'a mut Context<'cx>,
    /// Fills the request's random bytes.
    pub random: &'a mut dyn RngCore,
}

const EAGAIN: u64 = 11;
const EFAULT: u64 = 14;
const EINVAL: u64 = 22;
const ENOSYS: u64 = 38;
const EMSGSIZE: u64 = 90;
const ECONNRESET: u64 = 104;

/// A result that says what went wrong, as Linux does.
fn errno(number: u64) -> GuestCall {
    GuestCall::Return(number.wrapping_neg())
}

impl From<MemoryError> for GuestCall {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Denied => errno(EFAULT),
            MemoryError::Limit => Self::MemoryLimit,
        }
    }
}

impl From<Fault> for GuestCall {
    fn from(fault: Fault) -> Self {
        Self::Ended(Outcome::Fault(fault))
    }
}

/// Guest calls that need no request, which is all that a program can make before it waits for its
/// first one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Booting {
    /// What [`call::HANDLE`] has said.
    pub events: Events,
}

impl Booting {
    /// Carries out a guest call and returns its result; `None` if it needs a request.
    pub fn call(&mut self, number: u64, arguments: [u64; 6]) -> Option<u64> {
        match number {
            call::VERSION => Some(sandtide_abi::VERSION),
            call::HANDLE if arguments[0] & !event::ALL != 0 => Some(EINVAL.wrapping_neg()),
            call::HANDLE => {
                let has = |bit| arguments[0] & bit != 0;
                self.events = Events { save: has(event::SAVE), restore: has(event::RESTORE) };
                Some(0)
            }
            _ => None,
        }
    }
}

impl GuestCalls {
    /// Carries out a guest call.
    ///
    /// A pointer to memory that is not the guest's yields `-EFAULT`; an unknown number `-ENOSYS`.
    /// What breaks the order of calls, HTTP or a limit ends the exchange with a fault that says
    /// what was wrong.
    pub fn call<M: GuestMemory + ?Sized>(
        &mut self,
        number: u64,
        arguments: [u64; 6],
        context: &mut GuestCallContext<'_, '_, M>,
    ) -> GuestCall {
        let [first, second, flags, ..] = arguments;
        let patiently = |result| match result {
            Ok(GuestCall::Wait) if flags & file::FLAG_NO_WAIT != 0 => Ok(errno(EAGAIN)),
            result => result,
        };
        let result = match number {
            call::VERSION => return GuestCall::Return(sandtide_abi::VERSION),
            call::NEXT_REQUEST => self.next_request(first, second, context),
            call::RECEIVE => self.next_request(first, second, context).map(|end| fit(end, second)),
            // The host has asked already what the program handles.
            call::HANDLE => Err(misuse(number, "the program waits for requests already")),
            _ if !self.delivered && call::name(number).is_some() => {
                Err(misuse(number, "there is no request yet"))
            }
            call::RESPOND => response::respond(first, context),
            call::INFORM => response::inform(first, context),
            call::BEGIN => response::begin(first, context),
            call::WRITE => response::write(first, second, context),
            call::FINISH => response::finish(first, second, context),
            call::READ => read(first, second, context),
            call::TRAILERS => request::write_trailers(first, second, context),
            call::FETCH => patiently(read(first, second, context)),
            call::FETCH_TRAILERS => patiently(request::write_trailers(first, second, context))
                .map(|end| fit(end, second)),
            call::SEND => patiently(self.send(first, second, flags, context)),
            _ => return errno(ENOSYS),
        };
        result.unwrap_or_else(|end| end)
    }

    /// `SEND`: a message.
    fn send<M: GuestMemory + ?Sized>(
        &mut self,
        address: u64,
        length: u64,
        flags: u64,
        context: &mut GuestCallContext<'_, '_, M>,
    ) -> Result<GuestCall, GuestCall> {
        let message = message::read(address, length, flags, context.memory)?;
        let end = message::send(&message, &mut context.exchange.response)?;
        self.ended = message.len() as u64;
        Ok(end)
    }

    /// The result of the call that has ended the exchange, for a guest that goes on behind it.
    pub fn result_of_end(&self) -> u64 {
        self.ended
    }

    fn next_request<M: GuestMemory + ?Sized>(
        &mut self,
        block: u64,
        capacity: u64,
        context: &mut GuestCallContext<'_, '_, M>,
    ) -> Result<GuestCall, GuestCall> {
        if self.delivered {
            if context.exchange.response.is_finished() {
                return Ok(GuestCall::Wait);
            }
            // Whose body was cut off need not be answered: that is the client's doing.
            if let Some(error) = context.exchange.body.broken() {
                return Err(Fault::RequestBody(error.clone()).into());
            }
            return Err(misuse(call::NEXT_REQUEST, "the request before it has no answer yet"));
        }
        let length = request::write(block, capacity, context)?;
        self.delivered = length <= capacity;
        Ok(GuestCall::Return(length))
    }
}

/// To whoever reads a file, a block that does not fit is an error.
fn fit(end: GuestCall, capacity: u64) -> GuestCall {
    match end {
        GuestCall::Return(length) if length > capacity => errno(EMSGSIZE),
        end => end,
    }
}

/// A guest call that came at the wrong time.
fn misuse(number: u64, why: &str) -> GuestCall {
    let name = call::name(number).unwrap_or("?");
    Fault::Protocol(format!("guest call `{name}`: {why}")).into()
}

/// `READ`: the next piece of the request body.
fn read<M: GuestMemory + ?Sized>(
    buffer: u64,
    capacity: u64,
    context: &mut GuestCallContext<'_, '_, M>,
) -> Result<GuestCall, GuestCall> {
    let data = match context.exchange.body.poll_data(context.cx) {
        Poll::Pending => return Ok(GuestCall::Wait),
        Poll::Ready(data) => data.map_err(body_ended)?,
    };
    let length = data.len().min(usize::try_from(capacity).unwrap_or(usize::MAX));
    context.memory.view_mut(buffer, length as u64)?.copy_from_slice(&data[..length]);
    context.exchange.body.consume(length);
    Ok(GuestCall::Return(length as u64))
}

fn body_ended(error: BodyError) -> GuestCall {
    match error {
        // The guest may still have something to put in order.
        BodyError::Aborted => errno(ECONNRESET),
        error => Fault::RequestBody(error).into(),
    }
}
