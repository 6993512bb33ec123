//! Requests over an emulated socket: HTTP/1.1 with a server that knows nothing of us.
//!
//! ```text
//!   exchange ─▶ head, body ─▶ connection ─▶ guest reads
//!            ◀─ response   ◀─ connection ◀─ guest writes        until the response is over
//! ```

use std::task::Poll;

use http::Method;
use sandtide_engine::{
    BodyError, Console, EngineError, Exchange, Fault, Next, Outcome, Progress, Response, Turn,
};

use super::{Machine, Served, Stop};
use crate::{
    Connection, Cpu, Listener, Process,
    http1::{self, BadResponse, Framing, ResponseReader},
};

const ENOSYS: u64 = 38;

/// The delivery over sockets.
#[derive(Debug)]
pub struct Sockets {
    listener: Listener,
    /// A connection on which the guest waits for a request.
    idle: Option<Connection>,
    current: Option<Current>,
    /// Room in which a head is made.
    room: Vec<u8>,
}

/// An exchange under way.
#[derive(Debug)]
struct Current {
    connection: Connection,
    /// Whether the guest may be tired of the connection, since it is older than the request.
    may_be_stale: bool,
    reader: ResponseReader,
    body: Body,
}

/// What of a request's body has to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// So many bytes.
    Length(u64),
    Chunks,
    Over,
}

/// Why an exchange cannot go on.
#[derive(Debug)]
struct Ended(Outcome);

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self(Outcome::Fault(fault))
    }
}

impl From<BadResponse> for Ended {
    fn from(error: BadResponse) -> Self {
        Fault::from(error).into()
    }
}

impl Sockets {
    pub(super) fn new(listener: Listener, idle: Option<Connection>) -> Self {
        Self { listener, idle, current: None, room: Vec::new() }
    }

    pub(super) fn reset(&mut self, listener: Listener, idle: Option<Connection>) {
        (self.listener, self.idle, self.current) = (listener, idle, None);
    }

    pub(super) fn is_reset(&self, listener: Listener, idle: Option<Connection>) -> bool {
        // What is left in the room is overwritten before it is sent.
        let Self { listener: own, idle: own_idle, current, room: _ } = self;
        (*own, *own_idle) == (listener, idle) && current.is_none()
    }

    /// The next request of the same client goes on over this connection, if the guest keeps it. Others
    /// get one of their own: what the guest still wants to do to this one is its own business.
    pub(super) fn keep<C: Cpu>(&mut self, process: &mut Process<C>, next: Next) {
        self.idle = None;
        let Some(Current { connection, body, .. }) = self.current.take() else { return };
        if next == Next::SameClient && body == Body::Over && process.go_on(connection) {
            self.idle = Some(connection);
        } else {
            process.hang_up(connection);
        }
    }

    pub(super) fn run<M: Machine>(
        &mut self,
        machine: &mut M,
        bounds: &mut M::Bounds<'_>,
        console: &dyn Console,
        turn: &mut Turn<'_, '_>,
    ) -> Result<Served<M::End>, EngineError> {
        loop {
            // First, so that what was sent before the end of a response is on its way.
            machine.parts().process.exchange_outside(turn.cx);
            if let Err(Ended(outcome)) = self.exchange(machine.parts().process, turn) {
                return Ok(Served::Progress(Progress::Ended(outcome)));
            }
            let progress = match machine.run(bounds, console, None)? {
                Stop::Output => continue,
                Stop::GuestCall { number, .. } => {
                    let result = match number {
                        sandtide_abi::call::VERSION => sandtide_abi::VERSION,
                        // Requests come to its socket.
                        _ => ENOSYS.wrapping_neg(),
                    };
                    machine.parts().process.cpu().set_result(result);
                    continue;
                }
                Stop::Sliced => Progress::Sliced,
                // What every thread waits for has come.
                Stop::Idle { .. } if machine.parts().process.exchange_outside(turn.cx) => continue,
                Stop::Idle { until } => match self.exchange(machine.parts().process, turn) {
                    // What every thread waits for has come.
                    Ok(true) => continue,
                    Ok(false) if until.is_some() || self.may_go_on(machine, turn.exchange) => {
                        Progress::Waiting { until }
                    }
                    Ok(false) => match turn.exchange.body.broken() {
                        Some(error) => body_ended(error),
                        None => return Ok(Served::Over(M::STALLED)),
                    },
                    Err(Ended(outcome)) => Progress::Ended(outcome),
                },
                Stop::Exit(code) => {
                    let outcome = self.exited(machine.parts().process, turn, code);
                    Progress::Ended(outcome)
                }
                Stop::Over(end) => return Ok(Served::Over(end)),
            };
            return Ok(Served::Progress(progress));
        }
    }

    /// Whether anything that the client does may wake a guest of which every thread waits.
    fn may_go_on<M: Machine>(&self, machine: &mut M, exchange: &Exchange) -> bool {
        let Some(current) = &self.current else { return false };
        let process = machine.parts().process;
        let has_output = !process.received(current.connection).is_empty();
        let has_more = current.body != Body::Over && process.room(current.connection) > 0;
        has_more || has_output || process.awaits_outside() || exchange.response.is_full()
    }

    /// Moves what can be moved between the exchange and the guest. Whether there was something.
    fn exchange<C: Cpu>(
        &mut self,
        process: &mut Process<C>,
        turn: &mut Turn<'_, '_>,
    ) -> Result<bool, Ended> {
        let mut moved = false;
        if self.current.is_none() {
            self.current = Some(self.begin(process, turn.exchange)?);
            moved = true;
        }
        let Some(current) = &mut self.current else { return Ok(false) };
        if current.may_be_stale && current.is_given_up(process) {
            let unread = process.hang_up(current.connection);
            current.connection = connect(process, self.listener)?;
            current.may_be_stale = false;
            process.send(current.connection, &unread);
            moved = true;
        }
        moved |= current.take_response(process, &mut turn.exchange.response).map_err(|ended| {
            // Whose body was cut off need not be answered: that is the client's doing.
            match (&ended.0, turn.exchange.body.broken()) {
                (Outcome::Fault(_), Some(error)) => Fault::RequestBody(error.clone()).into(),
                _ => ended,
            }
        })?;
        match current.send_body(process, turn, &mut self.room) {
            Ok(sent) => Ok(moved | sent),
            Err(error) => Err(Fault::RequestBody(error).into()),
        }
    }

    /// Begins an exchange: sends its head.
    fn begin<C: Cpu>(
        &mut self,
        process: &mut Process<C>,
        exchange: &Exchange,
    ) -> Result<Current, Ended> {
        let (connection, may_be_stale) = match self.idle.take() {
            Some(connection) => (connection, true),
            None => (connect(process, self.listener)?, false),
        };
        self.room.clear();
        let body = match http1::head(exchange, &mut self.room) {
            Framing::None | Framing::Length(0) => Body::Over,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunks,
        };
        process.send(connection, &self.room);
        let reader = ResponseReader::new(exchange.request.method == Method::HEAD);
        Ok(Current { connection, may_be_stale, reader, body })
    }

    /// The program has left: that is well if it is how it ends a response.
    fn exited<C: Cpu>(
        &mut self,
        process: &mut Process<C>,
        turn: &mut Turn<'_, '_>,
        code: u8,
    ) -> Outcome {
        let exit = || Outcome::Fault(Fault::Exit { code });
        let Some(current) = &mut self.current else { return exit() };
        let response = &mut turn.exchange.response;
        match current.take_response(process, response) {
            Err(Ended(Outcome::Done)) => Outcome::Done,
            // More would have to wait for the client, and nobody is left to wait.
            _ if !process.received(current.connection).is_empty() => exit(),
            _ if current.reader.end(response).is_ok() => Outcome::Done,
            _ => exit(),
        }
    }
}

/// The end of an exchange whose request broke off.
fn body_ended(error: &BodyError) -> Progress {
    Progress::Ended(Outcome::Fault(Fault::RequestBody(error.clone())))
}

/// A connection of its own.
fn connect<C: Cpu>(process: &mut Process<C>, listener: Listener) -> Result<Connection, Fault> {
    let gone =
        || Fault::Protocol("the program does not listen for connections any more".to_owned());
    process.connect(listener).ok_or_else(gone)
}

impl Current {
    /// Whether the guest has done with the connection before it has seen the request, as servers
    /// do with connections on which nothing has come for too long.
    fn is_given_up<C: Cpu>(&self, process: &Process<C>) -> bool {
        let has_said = !process.received(self.connection).is_empty();
        !process.has_read(self.connection) && (has_said || process.has_ended(self.connection))
    }

    /// Reads what the guest has written, if it has. `Err` when the exchange is over.
    fn take_response<C: Cpu>(
        &mut self,
        process: &mut Process<C>,
        response: &mut Response,
    ) -> Result<bool, Ended> {
        let taken = self.reader.read(process.received(self.connection), response)?;
        process.take_received(self.connection, taken);
        let has_all = process.received(self.connection).is_empty();
        if !self.reader.is_over() && has_all && process.has_ended(self.connection) {
            self.reader.end(response)?;
        }
        if self.reader.is_over() { Err(Ended(Outcome::Done)) } else { Ok(taken > 0) }
    }

    /// Sends what has come of the body, as far as there is room. Whether that was something.
    fn send_body<C: Cpu>(
        &mut self,
        process: &mut Process<C>,
        turn: &mut Turn<'_, '_>,
        piece: &mut Vec<u8>,
    ) -> Result<bool, BodyError> {
        let mut sent = false;
        while self.body != Body::Over {
            let room = process.room(self.connection);
            if room == 0 {
                break;
            }
            let body = &mut turn.exchange.body;
            let data = match body.poll_data(turn.cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(data)) => data,
                Poll::Ready(Err(BodyError::Aborted)) => {
                    // The guest may still have something to put in order.
                    process.break_off(self.connection);
                    self.body = Body::Over;
                    return Ok(true);
                }
                Poll::Ready(Err(error)) => return Err(error),
            };
            sent = true;
            let length = data.len().min(room);
            match &mut self.body {
                Body::Length(left) => {
                    let length = length.min(usize::try_from(*left).unwrap_or(usize::MAX));
                    process.send(self.connection, &data[..length]);
                    *left -= length as u64;
                    // A client whose body is shorter than it said has broken it off.
                    let is_short = data.is_empty() && *left > 0;
                    body.consume(length);
                    if is_short {
                        process.break_off(self.connection);
                    }
                    if is_short || *left == 0 {
                        self.body = Body::Over;
                    }
                }
                _ => {
                    piece.clear();
                    if length == 0 {
                        http1::last_chunk(body.trailers(), piece);
                        self.body = Body::Over;
                    } else {
                        http1::chunk(&data[..length], piece);
                        body.consume(length);
                    }
                    process.send(self.connection, piece);
                }
            }
        }
        Ok(sent)
    }
}
