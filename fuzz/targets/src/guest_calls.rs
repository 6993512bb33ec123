//! `guest_calls`: the direct protocol, called in any order with any arguments.
//!
//! The input is a little program: it describes the request, then stores into guest memory, makes
//! guest calls and lets the host take the response.
//!
//! Must hold: no call panics or is our failure; a call writes nowhere but to the buffer that the
//! guest gave it; the request arrives whole and in order; the response that the host gets is one
//! that HTTP can carry, within its limit.

use std::{collections::VecDeque, task::Context, task::Waker};

use arbitrary::Unstructured;
use bytes::Bytes;
use http::HeaderMap;
use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::{call, field, request, response};
use sandtide_engine::{
    BodyError, Exchange, ExchangeId, Frame, Outcome, Purpose, RequestBody, Response,
};
use sandtide_linux::{
    GuestMemory, PAGE, Protection,
    protocol::{GuestCall, GuestCallContext, GuestCalls},
};

use crate::{
    exchange::{Client, Piece, head},
    guest_memory::{FakeMemory, READ_WRITE},
    input::next,
};

/// Guest memory: nothing at 0, then data, then a page that can only be read, a hole, and data.
const PAGES: usize = 24;
const READ_ONLY: u64 = 16 * PAGE;
const HOLE: u64 = 17 * PAGE;

/// How many of them can be written.
const FRESH: usize = 20;

/// Operations of one run.
const MOST_OPERATIONS: usize = 200;

pub(crate) fn run(data: &[u8]) {
    let mut input = Unstructured::new(data);
    let mut guest = Guest::new(&mut input);
    for _ in 0..MOST_OPERATIONS {
        if input.is_empty() {
            break;
        }
        if !guest.operate(&mut input) {
            break;
        }
    }
    guest.take_response();
}

struct Guest {
    memory: FakeMemory,
    exchange: Exchange,
    calls: GuestCalls,
    random: StdRng,
    /// The body's bytes as far as they will arrive, and how many the guest has read.
    body: Vec<u8>,
    read: usize,
    response_limit: u64,
    taken: u64,
    informed: usize,
}

impl Guest {
    fn new(input: &mut Unstructured<'_>) -> Self {
        let mut memory = FakeMemory::new(PAGES, FRESH);
        memory.map(PAGE, READ_ONLY - PAGE, READ_WRITE);
        memory.map(READ_ONLY, PAGE, Protection { read: true, ..Protection::default() });
        memory.map(HOLE + PAGE, (PAGES as u64) * PAGE - HOLE - PAGE, READ_WRITE);
        let (body, bytes) = request_body(input);
        let response_limit = u64::from(next::<u16>(input)) * 4;
        let kind = usize::from(next::<u8>(input));
        let target = ["/", "/a?b", "*", "/%zz"][kind % 4];
        let mut exchange = Exchange::new(ExchangeId(7), head("PUT", target), body, response_limit);
        exchange.purpose = [Purpose::Request, Purpose::Save, Purpose::Restore][kind / 4 % 3];
        Self {
            memory,
            exchange,
            calls: GuestCalls::default(),
            random: StdRng::seed_from_u64(1),
            body: bytes,
            read: 0,
            response_limit,
            taken: 0,
            informed: 0,
        }
    }

    /// Does one thing; false if the exchange is over.
    fn operate(&mut self, input: &mut Unstructured<'_>) -> bool {
        match next::<u8>(input) % 8 {
            0 => self.store_bytes(input),
            1 => self.store_response(input),
            2 => self.store_field(input),
            3 => self.take_response(),
            _ => return self.call(input),
        }
        true
    }

    fn store_bytes(&mut self, input: &mut Unstructured<'_>) {
        let at = address(input);
        let length = usize::from(next::<u8>(input)).min(input.len());
        let bytes = input.bytes(length).unwrap_or_default().to_vec();
        self.store(at, &bytes);
    }

    fn store_response(&mut self, input: &mut Unstructured<'_>) {
        let at = address(input);
        let mut bytes = vec![0; response::SIZE];
        let status = 90 + u32::from(next::<u16>(input));
        bytes[response::STATUS..][..4].copy_from_slice(&status.to_le_bytes());
        let count = u32::from(next::<u16>(input));
        bytes[response::HEADER_COUNT..][..4].copy_from_slice(&count.to_le_bytes());
        for at in [response::HEADERS, response::BODY, response::TRAILERS] {
            bytes[at..][..8].copy_from_slice(&address(input).to_le_bytes());
        }
        for at in [response::BODY_LENGTH, response::TRAILER_COUNT] {
            bytes[at..][..8].copy_from_slice(&length(input).to_le_bytes());
        }
        self.store(at, &bytes);
    }

    fn store_field(&mut self, input: &mut Unstructured<'_>) {
        let at = address(input);
        let mut bytes = vec![0; field::SIZE];
        for at in [field::NAME, field::VALUE] {
            bytes[at..][..8].copy_from_slice(&address(input).to_le_bytes());
        }
        for at in [field::NAME_LENGTH, field::VALUE_LENGTH] {
            bytes[at..][..4].copy_from_slice(&(length(input) as u32).to_le_bytes());
        }
        self.store(at, &bytes);
    }

    /// A store of the guest's own; one that traps does nothing.
    fn store(&mut self, at: u64, bytes: &[u8]) {
        if let Ok(memory) = self.memory.view_mut(at, bytes.len() as u64) {
            memory.copy_from_slice(bytes);
        }
        self.memory.take_writes();
        self.memory.take_over_limit();
    }

    fn call(&mut self, input: &mut Unstructured<'_>) -> bool {
        let choice = u64::from(next::<u8>(input));
        let number = if choice == 255 { next(input) } else { call::BASE + choice % 10 };
        let arguments =
            [address(input), length(input), address(input), 0, 0, u64::from(next::<u8>(input))];
        let written_before = self.exchange.response.written();
        let result = self.calls.call(
            number,
            arguments,
            &mut GuestCallContext {
                memory: &mut self.memory,
                exchange: &mut self.exchange,
                cx: &mut Context::from_waker(Waker::noop()),
                random: &mut self.random,
            },
        );
        self.check_writes(number, arguments);
        let over_limit = self.memory.take_over_limit();
        assert_eq!(over_limit, matches!(result, GuestCall::MemoryLimit), "{result:?}");
        match result {
            GuestCall::Return(value) => self.check_value(number, arguments, value),
            GuestCall::Wait => {
                assert_eq!(self.exchange.response.written(), written_before, "waits half-way");
            }
            GuestCall::MemoryLimit => return false,
            GuestCall::Ended(outcome) => {
                match &outcome {
                    Outcome::Done => assert!(self.exchange.response.is_finished()),
                    Outcome::Fault(fault) => assert!(!fault.to_string().is_empty()),
                    Outcome::ClientGone => {}
                    Outcome::Engine(error) => panic!("our failure: {error:?}"),
                }
                // A sandbox that is kept goes on; here it may, so that order is tested too.
                return matches!(outcome, Outcome::Done);
            }
        }
        true
    }

    /// Only three calls write, and only to their buffer.
    fn check_writes(&mut self, number: u64, [buffer, capacity, ..]: [u64; 6]) {
        let writes = self.memory.take_writes();
        let may_write = matches!(number, call::NEXT_REQUEST | call::READ | call::TRAILERS);
        assert!(may_write || writes.is_empty(), "{number:#x} writes {writes:x?}");
        for write in writes {
            assert!(
                write.start >= buffer && write.end - buffer <= capacity,
                "{number:#x} writes {write:x?}, the buffer is {buffer:#x} + {capacity:#x}"
            );
        }
    }

    fn check_value(&mut self, number: u64, [buffer, capacity, ..]: [u64; 6], value: u64) {
        if (value as i64) < 0 {
            assert!((value as i64) >= -4095, "{value:#x} is no errno");
            return;
        }
        match number {
            call::HANDLE => panic!("events are told before there are requests"),
            call::NEXT_REQUEST if value <= capacity => self.check_block(buffer, value),
            call::READ => {
                assert!(value <= capacity, "{value} bytes for a buffer of {capacity}");
                let (start, end) = (self.read, self.read + value as usize);
                assert!(end <= self.body.len(), "more body than the client sent");
                if value > 0 {
                    let got = &self.memory.bytes()[buffer as usize..][..value as usize];
                    assert_eq!(got, &self.body[start..end], "the body is another one");
                }
                self.read = end;
            }
            call::VERSION => assert_eq!(value, sandtide_abi::VERSION),
            _ => {}
        }
    }

    /// Every offset in a request block points into it, and every string ends with a NUL.
    fn check_block(&self, at: u64, length: u64) {
        let block = &self.memory.bytes()[at as usize..][..length as usize];
        let word = |at: usize| {
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]) as usize
        };
        assert_eq!(word(request::LENGTH) as u64, length);
        let flags = word(request::VERSION) >> 16 & !usize::from(request::FLAG_BODY_COMPLETE);
        let event = match self.exchange.purpose {
            Purpose::Request => 0,
            Purpose::Save => request::FLAG_SAVE,
            Purpose::Restore => request::FLAG_RESTORE,
        };
        assert_eq!(flags, usize::from(event), "the flags are not those of the exchange");
        let text = |entry: usize| {
            let (start, length) = (word(entry), word(entry + 4));
            assert_eq!(block[start + length], 0, "no NUL behind a string");
            &block[start..start + length]
        };
        assert_eq!(text(request::METHOD), self.exchange.request.method.as_str().as_bytes());
        text(request::TARGET);
        assert_eq!(text(request::AUTHORITY), b"h.example");
        let (table, count) = (word(request::HEADERS), word(request::HEADERS + 4));
        assert_eq!(count, self.exchange.request.headers.len());
        for entry in (0..count).map(|index| table + index * request::FIELD_SIZE) {
            text(entry);
            text(entry + 8);
        }
        let (body, inline) = (word(request::BODY), word(request::BODY + 4));
        assert_eq!(&block[body..body + inline], &self.body[self.read..self.read + inline]);
    }

    /// Takes what a host takes, and checks that it can be sent.
    fn take_response(&mut self) {
        let response = &mut self.exchange.response;
        for head in response.take_interim() {
            assert!((102..200).contains(&head.status.as_u16()), "status {}", head.status);
            check_fields(&head.headers);
            self.informed += 1;
        }
        assert!(self.informed <= Response::MAX_INTERIM, "{} interim responses", self.informed);
        if let Some(head) = response.take_head() {
            assert!((200..600).contains(&head.status.as_u16()), "status {}", head.status);
            check_fields(&head.headers);
        }
        while let Some(data) = response.take_data() {
            self.taken += data.len() as u64;
        }
        assert!(self.taken <= self.response_limit, "over the limit: {}", self.taken);
        assert_eq!(self.taken, response.written());
        if let Some(trailers) = response.take_trailers() {
            assert!(response.is_finished());
            check_fields(&trailers);
        }
    }
}

/// What must hold for headers and trailers that a host gets.
pub(crate) fn check_fields(fields: &HeaderMap) {
    assert!(fields.len() <= field::MAX_COUNT as usize);
    let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(bytes <= field::MAX_BYTES, "{bytes} bytes of fields");
    for (name, value) in fields {
        assert!(!name.as_str().is_empty());
        let is_token =
            |byte: u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(&byte);
        assert!(name.as_str().bytes().all(is_token), "`{name}` is no field name");
        let breaks = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
        assert!(!value.as_bytes().iter().any(breaks), "the value of `{name}` breaks HTTP");
    }
}

/// Mostly somewhere in memory, at a step of 8; else anything.
fn address(input: &mut Unstructured<'_>) -> u64 {
    match next::<u8>(input) {
        255 => next(input),
        254 => u64::MAX - u64::from(next::<u8>(input)),
        253 => (PAGES as u64 * PAGE).wrapping_sub(u64::from(next::<u8>(input))),
        252 => READ_ONLY + u64::from(next::<u8>(input)) * 64,
        page => u64::from(page % 16) * PAGE + u64::from(next::<u8>(input)) * 8,
    }
}

/// Mostly short; else anything.
fn length(input: &mut Unstructured<'_>) -> u64 {
    match next::<u8>(input) {
        255 => next(input),
        254 => u64::from(next::<u16>(input)),
        253 => u64::MAX - u64::from(next::<u8>(input)),
        252 => PAGE,
        short => u64::from(short),
    }
}

/// A body and the bytes that the guest can read from it.
fn request_body(input: &mut Unstructured<'_>) -> (RequestBody, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut data = |length: usize| {
        let start = bytes.len();
        bytes.extend((start..start + length).map(|index| (index % 251) as u8));
        Bytes::copy_from_slice(&bytes[start..])
    };
    let body = match next::<u8>(input) % 3 {
        0 => RequestBody::empty(),
        1 => RequestBody::whole(data(usize::from(next::<u16>(input) % 9000))),
        _ => {
            let count = next::<u8>(input) % 16;
            let pieces: VecDeque<Piece> = (0..count)
                .map(|_| match next::<u8>(input) {
                    0..32 => Piece::Pending,
                    32..48 => {
                        let mut trailers = HeaderMap::new();
                        trailers.insert("x-end", http::HeaderValue::from_static("1"));
                        Piece::Frame(Frame::Trailers(trailers))
                    }
                    48..56 => Piece::Broken(BodyError::Aborted),
                    56..64 => Piece::Broken(BodyError::TooLarge { limit: 5 }),
                    length => Piece::Frame(Frame::Data(data(usize::from(length) - 64))),
                })
                .collect();
            // An announced length is the client's word, and may be wrong.
            let announced = count.is_multiple_of(2).then(|| u64::from(next::<u8>(input)));
            RequestBody::streaming(Box::new(Client(pieces)), announced)
        }
    };
    (body, bytes)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    // No body, response limit, target; then operations as `operate` reads them.
    let start = [0, 0xff, 0xff, 0];
    let next_request = [4, 1, 1, 0, 252, 1, 0, 0];
    let respond = [4, 2, 2, 0, 0, 1, 0, 0];
    // Status 200, one header from 0x2080, a body of 5 bytes at 0x2100, no trailers.
    let answer = [1, 2, 0, 110, 0, 1, 0, 2, 16, 2, 32, 2, 0, 5, 0];
    // Its name of 1 byte at 0x2100, its value of 3 at 0x2108.
    let header = [2, 2, 16, 2, 32, 2, 33, 1, 3];
    // The same with status 103, at 0x3000.
    let hints = [1, 3, 0, 13, 0, 1, 0, 2, 16, 2, 32, 2, 0, 5, 0];
    let text = [0, 2, 32, 11, b'x', 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c'];
    let mut whole: Vec<u8> = start.to_vec();
    for part in [&next_request[..], &answer, &header, &text, &respond, &[3]] {
        whole.extend(part);
    }
    // The host asks for the guest's state.
    let mut informed = vec![0, 0xff, 0xff, 4];
    let inform = [4, 9, 3, 0, 0, 1, 0, 0];
    for part in
        [&next_request[..], &hints, &header, &text, &inform, &inform, &[3], &answer, &respond, &[3]]
    {
        informed.extend(part);
    }
    let mut streamed = vec![2, 4, 100, 0, 90, 33, 26, 0xff, 0xff, 1];
    let call = |number: u8, at: u8, length: u8| [4, number, at, 0, length, 1, 0, 0];
    for part in [
        &next_request[..],
        &call(6, 3, 20),
        &call(6, 3, 200),
        // One that waits, and the second piece; then the end.
        &call(6, 3, 200),
        &call(6, 3, 200),
        &call(6, 3, 200),
        &call(7, 3, 200),
        &answer,
        &header,
        &text,
        &call(3, 2, 0),
        &call(4, 2, 9),
        &[3],
        &call(5, 2, 0),
        &[3],
    ] {
        streamed.extend(part);
    }
    vec![whole, streamed, informed, vec![]]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response of a seed, as far as its host has not taken it.
    fn guest_after(seed: &[u8]) -> Guest {
        let mut input = Unstructured::new(seed);
        let mut guest = Guest::new(&mut input);
        while !input.is_empty() && guest.operate(&mut input) {}
        guest
    }

    #[test]
    fn the_seeds_answer() {
        let whole = guest_after(&seeds()[0]);
        assert!(whole.exchange.response.is_finished());
        assert_eq!(whole.taken, 5);
        let streamed = guest_after(&seeds()[1]);
        assert!(streamed.exchange.response.is_finished());
        assert_eq!((streamed.taken, streamed.read), (9, streamed.body.len()));
        let informed = guest_after(&seeds()[2]);
        assert!(informed.exchange.response.is_finished());
        assert_eq!((informed.informed, informed.taken), (2, 5));
        assert_eq!(informed.exchange.purpose, Purpose::Save);
    }
}
