//! The direct protocol against a flat guest memory.

use std::task::Waker;

use bytes::Bytes;
use http::{HeaderMap, Request};
use rand::{SeedableRng, rngs::StdRng};
use sandtide_abi::{call, field, file, message, request, response};
use sandtide_engine::{BodySource, ExchangeId, Frame, RequestBody};

use super::{
    fields::{u32_at, u64_at},
    *,
};
use crate::memory::Protection;

/// Guest memory from address 0x1000 to 0x1000 + length, all of it accessible.
struct Flat(Vec<u8>);

const BASE: u64 = 0x1000;

impl Flat {
    fn range(&self, address: u64, length: u64) -> Result<std::ops::Range<usize>, MemoryError> {
        let start = address.checked_sub(BASE).ok_or(MemoryError::Denied)?;
        let end = start.checked_add(length).ok_or(MemoryError::Denied)?;
        if end > self.0.len() as u64 {
            return Err(MemoryError::Denied);
        }
        Ok(start as usize..end as usize)
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        self.view_mut(address, bytes.len() as u64).unwrap().copy_from_slice(bytes);
    }
}

impl GuestMemory for Flat {
    fn end(&self) -> u64 {
        BASE + self.0.len() as u64
    }
    fn view(&self, address: u64, length: u64) -> Result<&[u8], MemoryError> {
        Ok(&self.0[self.range(address, length)?])
    }
    fn view_mut(&mut self, address: u64, length: u64) -> Result<&mut [u8], MemoryError> {
        let range = self.range(address, length)?;
        Ok(&mut self.0[range])
    }
    fn map(&mut self, _: u64, _: u64, _: Protection) {}
    fn unmap(&mut self, _: u64, _: u64) {}
    fn protect(&mut self, _: u64, _: u64, _: Protection) {}
    fn available(&self) -> u64 {
        0
    }
}

struct Guest {
    memory: Flat,
    exchange: Exchange,
    calls: GuestCalls,
    random: StdRng,
}

impl Guest {
    fn new(request: http::request::Builder, body: RequestBody) -> Self {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Self {
            memory: Flat(vec![0; 0x4000]),
            exchange: Exchange::new(ExchangeId(7), parts, body, 1000),
            calls: GuestCalls::default(),
            random: StdRng::seed_from_u64(1),
        }
    }

    fn delivered() -> Self {
        let mut guest = Self::new(Request::get("/"), RequestBody::empty());
        guest.call(call::NEXT_REQUEST, [BASE, 0x1000]);
        guest
    }

    fn call(&mut self, number: u64, [first, second]: [u64; 2]) -> GuestCall {
        self.call3(number, [first, second, 0])
    }

    fn call3(&mut self, number: u64, [first, second, third]: [u64; 3]) -> GuestCall {
        self.calls.call(
            number,
            [first, second, third, 0, 0, 0],
            &mut GuestCallContext {
                memory: &mut self.memory,
                exchange: &mut self.exchange,
                cx: &mut Context::from_waker(Waker::noop()),
                random: &mut self.random,
            },
        )
    }

    fn value(&mut self, number: u64, arguments: [u64; 2]) -> i64 {
        match self.call(number, arguments) {
            GuestCall::Return(value) => value as i64,
            other => panic!("{other:?}"),
        }
    }

    fn fault(&mut self, number: u64, [first, second]: [u64; 2]) -> String {
        self.fault3(number, [first, second, 0])
    }

    fn fault3(&mut self, number: u64, arguments: [u64; 3]) -> String {
        match self.call3(number, arguments) {
            GuestCall::Ended(Outcome::Fault(fault)) => fault.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Lays a response with one header into memory and returns its address.
    fn answer(&mut self, status: u32, name: &[u8], value: &[u8], body: &[u8]) -> u64 {
        let (at, table, name_at, value_at, body_at) =
            (BASE + 0x2000, BASE + 0x2100, BASE + 0x2200, BASE + 0x2400, BASE + 0x2800);
        self.memory.put(name_at, name);
        self.memory.put(value_at, value);
        self.memory.put(body_at, body);
        let mut entry = [0; field::SIZE];
        entry[field::NAME..][..8].copy_from_slice(&name_at.to_le_bytes());
        entry[field::VALUE..][..8].copy_from_slice(&value_at.to_le_bytes());
        entry[field::NAME_LENGTH..][..4].copy_from_slice(&(name.len() as u32).to_le_bytes());
        entry[field::VALUE_LENGTH..][..4].copy_from_slice(&(value.len() as u32).to_le_bytes());
        self.memory.put(table, &entry);
        let mut answer = [0; response::SIZE];
        answer[response::STATUS..][..4].copy_from_slice(&status.to_le_bytes());
        answer[response::HEADER_COUNT..][..4].copy_from_slice(&1u32.to_le_bytes());
        answer[response::HEADERS..][..8].copy_from_slice(&table.to_le_bytes());
        answer[response::BODY..][..8].copy_from_slice(&body_at.to_le_bytes());
        answer[response::BODY_LENGTH..][..8].copy_from_slice(&(body.len() as u64).to_le_bytes());
        self.memory.put(at, &answer);
        at
    }
}

fn text(block: &[u8], entry: usize) -> &[u8] {
    let at = u32_at(block, entry) as usize;
    let length = u32_at(block, entry + 4) as usize;
    assert_eq!(block[at + length], 0, "strings end with a NUL");
    &block[at..at + length]
}

#[test]
fn the_block_holds_the_whole_request() {
    let mut guest = Guest::new(
        Request::post("/a/b?c=d").header("host", "h.example").header("x-one", "1"),
        RequestBody::whole(Bytes::from_static(b"body!")),
    );
    let length = guest.value(call::NEXT_REQUEST, [BASE, 0x1000]) as u64;
    let block = guest.memory.view(BASE, length).unwrap().to_vec();
    assert_eq!(u64::from(u32_at(&block, request::LENGTH)), length);
    assert_eq!(text(&block, request::METHOD), b"POST");
    assert_eq!(text(&block, request::TARGET), b"/a/b?c=d");
    assert_eq!(text(&block, request::AUTHORITY), b"h.example");
    assert_eq!(u64_at(&block, request::ID), 7);
    assert_eq!(u64_at(&block, request::BODY_LENGTH), 5);
    assert_eq!(
        u32_at(&block, request::VERSION),
        (u32::from(request::FLAG_BODY_COMPLETE) << 16) | 1
    );
    let table = u32_at(&block, request::HEADERS) as usize;
    assert_eq!(u32_at(&block, request::HEADERS + 4), 2);
    assert_eq!(text(&block, table + request::FIELD_SIZE), b"x-one");
    assert_eq!(text(&block, table + request::FIELD_SIZE + 8), b"1");
    let body = u32_at(&block, request::BODY) as usize;
    assert_eq!(&block[body..], b"body!");
}

#[test]
fn a_block_that_does_not_fit_is_not_written_and_can_be_asked_again() {
    let mut guest = Guest::new(Request::get("/"), RequestBody::empty());
    let length = guest.value(call::NEXT_REQUEST, [BASE, 16]);
    assert!(length > 16);
    assert!(guest.memory.0.iter().all(|byte| *byte == 0));
    assert_eq!(guest.value(call::NEXT_REQUEST, [BASE, length as u64]), length);
    assert!(guest.fault(call::NEXT_REQUEST, [BASE, 0x1000]).contains("has no answer yet"));
}

#[test]
fn random_bytes_differ_between_requests() {
    let take = |guest: &Guest| guest.memory.0[request::RANDOM..][..32].to_vec();
    let mut guest = Guest::delivered();
    let first = take(&guest);
    guest.calls = GuestCalls::default();
    guest.value(call::NEXT_REQUEST, [BASE, 0x1000]);
    assert_ne!(first, take(&guest));
}

#[test]
fn a_body_is_read_in_pieces() {
    let body = RequestBody::whole(Bytes::from_static(b"abcdef"));
    let mut guest = Guest::new(Request::post("/"), body);
    guest.value(call::NEXT_REQUEST, [BASE, 0x1000]);
    assert!(guest.fault(call::TRAILERS, [BASE, 0x100]).contains("not been read to its end"));
    assert_eq!(guest.value(call::READ, [BASE, 4]), 4);
    assert_eq!(&guest.memory.0[..4], b"abcd");
    assert_eq!(guest.value(call::READ, [BASE, 4]), 2);
    assert_eq!(guest.value(call::READ, [BASE, 4]), 0);
    assert_eq!(guest.value(call::TRAILERS, [BASE, 0x100]), 8);
}

#[test]
fn a_response_arrives_as_the_guest_made_it() {
    let mut guest = Guest::delivered();
    let answer = guest.answer(404, b"Content-Type", b"text/html", b"<p>");
    let GuestCall::Ended(Outcome::Done) = guest.call(call::RESPOND, [answer, 0]) else { panic!() };
    let head = guest.exchange.response.take_head().unwrap();
    assert_eq!(head.status, 404);
    assert_eq!(head.headers["content-type"], "text/html");
    assert_eq!(guest.exchange.response.take_data().unwrap(), "<p>");
}

#[test]
fn interim_responses_come_before_the_response() {
    let mut guest = Guest::delivered();
    for status in [102, 103, 199] {
        let hints = guest.answer(status, b"Link", b"</style.css>; rel=preload", b"not sent");
        assert_eq!(guest.value(call::INFORM, [hints, 0]), 0);
        let interim = guest.exchange.response.take_interim();
        assert_eq!(interim.len(), 1);
        assert_eq!(u32::from(interim[0].status.as_u16()), status);
        assert_eq!(interim[0].headers["link"], "</style.css>; rel=preload");
    }
    assert_eq!(guest.value(call::INFORM, [u64::MAX, 0]), -14);
    let answer = guest.answer(200, b"a", b"b", b"");
    guest.value(call::BEGIN, [answer, 0]);
    let hints = guest.answer(103, b"a", b"b", b"");
    assert!(guest.fault(call::INFORM, [hints, 0]).contains("already begun"));
    for status in [100, 101, 200, 70_000] {
        let mut guest = Guest::delivered();
        let hints = guest.answer(status, b"a", b"b", b"");
        assert!(guest.fault(call::INFORM, [hints, 0]).contains("not an interim status"));
    }
    let mut guest = Guest::delivered();
    let hints = guest.answer(103, b"a", b"b\r\n\r\nHTTP/1.1 200 OK", b"");
    assert!(guest.fault(call::INFORM, [hints, 0]).contains("no field may have"));
    assert!(!guest.exchange.response.has_interim());
}

#[test]
fn a_flag_says_what_an_exchange_is_for() {
    let flags = |exchange| {
        let mut guest = Guest::delivered();
        (guest.exchange, guest.calls) = (exchange, GuestCalls::default());
        let length = guest.value(call::NEXT_REQUEST, [BASE, 0x1000]) as u64;
        let block = guest.memory.view(BASE, length).unwrap();
        assert_eq!(text(block, request::TARGET), b"*");
        (u32_at(block, request::VERSION) >> 16) as u16 & !request::FLAG_BODY_COMPLETE
    };
    let id = ExchangeId(1);
    assert_eq!(flags(Exchange::save(id, 10)), request::FLAG_SAVE);
    let state = Bytes::from_static(b"state");
    assert_eq!(flags(Exchange::restore(id, state, 10)), request::FLAG_RESTORE);
    // Whatever a client sends.
    let (parts, ()) = Request::builder().method("SAVE").uri("*").body(()).unwrap().into_parts();
    assert_eq!(flags(Exchange::new(id, parts, RequestBody::empty(), 10)), 0);
}

#[test]
fn events_are_told_before_the_first_request() {
    let mut booting = Booting::default();
    let mut call = |number, argument| booting.call(number, [argument, 0, 0, 0, 0, 0]);
    assert_eq!(call(call::VERSION, 0), Some(sandtide_abi::VERSION));
    assert_eq!(call(call::HANDLE, 1), Some(0));
    for unknown in [4, 7, 1 << 63, u64::MAX] {
        assert_eq!(call(call::HANDLE, unknown), Some((-22i64) as u64));
    }
    assert_eq!(call(call::NEXT_REQUEST, 0), None);
    assert_eq!(call(call::RESPOND, 0), None);
    assert_eq!(booting.events, Events { save: true, restore: false });
    booting.call(call::HANDLE, [2, 0, 0, 0, 0, 0]);
    assert_eq!(booting.events, Events { save: false, restore: true });

    let mut guest = Guest::new(Request::get("/"), RequestBody::empty());
    assert!(guest.fault(call::HANDLE, [1, 0]).contains("waits for requests already"));
    assert!(Guest::delivered().fault(call::HANDLE, [1, 0]).contains("already"));
}

#[test]
fn a_response_cannot_break_http() {
    for (status, name, value, what) in [
        (200, &b"x y"[..], &b"v"[..], "no field name"),
        (200, b"", b"v", "no field name"),
        (200, b"x", b"v\r\nset-cookie: a=b", "no field may have"),
        (200, b"x", b"v\0", "no field may have"),
        (99, b"x", b"v", "not a final status"),
        (101, b"x", b"v", "not a final status"),
        (70_000, b"x", b"v", "not a final status"),
    ] {
        let mut guest = Guest::delivered();
        let answer = guest.answer(status, name, value, b"");
        let fault = guest.fault(call::RESPOND, [answer, 0]);
        assert!(fault.contains(what), "{fault}");
        assert!(!guest.exchange.response.is_begun());
    }
}

#[test]
fn limits_end_the_exchange() {
    let mut guest = Guest::delivered();
    let answer = guest.answer(200, b"a", b"b", b"");
    guest.value(call::BEGIN, [answer, 0]);
    assert!(guest.fault(call::WRITE, [BASE, 1001]).contains("over the limit of 1000 bytes"));
    let count = u64::from(field::MAX_COUNT) + 1;
    assert!(guest.fault(call::FINISH, [BASE, count]).contains("the most is 256"));
}

#[test]
fn wild_pointers_are_the_guests_error() {
    let wild = [0, 1, BASE - 1, BASE + 0x3fff, u64::MAX, u64::MAX - 7, 1 << 32, 1 << 63];
    for pointer in wild {
        for length in [1, 64, 4096, u64::MAX, 1 << 63] {
            for number in call::BASE..call::BASE + 16 {
                let mut guest = Guest::delivered();
                let outcome = guest.call(number, [pointer, length]);
                let fine = matches!(
                    outcome,
                    GuestCall::Return(_) | GuestCall::Ended(Outcome::Fault(_)) | GuestCall::Wait
                );
                assert!(fine, "{number:#x} {pointer:#x} {length:#x}: {outcome:?}");
            }
        }
    }
    let mut guest = Guest::delivered();
    assert_eq!(guest.value(call::RESPOND, [u64::MAX, 0]), -14);
    assert_eq!(guest.value(call::BASE + 0x50, [0, 0]), -38);
}

#[test]
fn nothing_can_be_answered_before_a_request() {
    let mut guest = Guest::new(Request::get("/"), RequestBody::empty());
    let answer = guest.answer(200, b"a", b"b", b"");
    assert!(guest.fault(call::RESPOND, [answer, 0]).contains("no request yet"));
}

#[test]
fn a_full_response_makes_the_guest_wait() {
    let mut guest = Guest::delivered();
    guest.exchange.response = Exchange::new(
        ExchangeId(1),
        Request::new(()).into_parts().0,
        RequestBody::empty(),
        1 << 20,
    )
    .response;
    guest.exchange.response.begin(200, HeaderMap::new()).unwrap();
    for _ in 0..4 {
        assert_eq!(guest.value(call::WRITE, [BASE, 0x4000]), 0);
    }
    assert!(matches!(guest.call(call::WRITE, [BASE, 1]), GuestCall::Wait));
    guest.exchange.response.take_data();
    assert_eq!(guest.value(call::WRITE, [BASE, 1]), 0);
}

/// A message with these fields and this rest.
fn message(kind: u64, status: u32, fields: &[u8], trailers: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; message::SIZE];
    let lengths = [fields.len() as u32, trailers.len() as u32];
    let words = [(kind - call::BASE) as u32, status, lengths[0], lengths[1]];
    for (at, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *at = word.to_le_bytes();
    }
    [bytes.as_slice(), fields, trailers, rest].concat()
}

#[test]
fn a_message_is_a_whole_response() {
    let mut guest = Guest::delivered();
    let fields = b"set-cookie\0a=1\0set-cookie\0b\0";
    let sent = message(call::RESPOND, 201, fields, b"x-sum\x007\0", b"body");
    guest.memory.put(BASE, &sent);
    // In two places.
    let ranges = [BASE, 20, BASE + 20, sent.len() as u64 - 20];
    guest.memory.put(BASE + 0x1000, &ranges.map(u64::to_le_bytes).concat());
    let end = guest.call3(call::SEND, [BASE + 0x1000, 2, file::FLAG_GATHER]);
    assert!(matches!(end, GuestCall::Ended(Outcome::Done)), "{end:?}");
    assert_eq!(guest.calls.result_of_end(), sent.len() as u64);
    let response = &mut guest.exchange.response;
    let head = response.take_head().unwrap();
    assert_eq!((head.status.as_u16(), head.headers.len()), (201, 2));
    assert_eq!(response.take_data().as_deref(), Some(&b"body"[..]));
    assert_eq!(response.take_trailers().unwrap()["x-sum"], "7");
}

#[test]
fn messages_are_pieces_of_a_response() {
    let mut guest = Guest::delivered();
    let (parts, ()) = Request::get("/").body(()).unwrap().into_parts();
    guest.exchange = Exchange::new(ExchangeId(7), parts, RequestBody::empty(), u64::MAX);
    let mut send = |kind, status, fields: &[u8], rest: &[u8], flags| {
        let sent = message(kind, status, fields, b"", rest);
        guest.memory.put(BASE, &sent);
        guest.call3(call::SEND, [BASE, sent.len() as u64, flags])
    };
    assert!(matches!(send(call::INFORM, 103, b"link\0<a>\0", b"", 0), GuestCall::Return(25)));
    assert!(matches!(send(call::BEGIN, 200, b"", b"a", 0), GuestCall::Return(17)));
    let full = vec![b'b'; 0x3000];
    for _ in 0..6 {
        send(call::WRITE, 0, b"", &full, 0);
    }
    assert!(matches!(send(call::WRITE, 0, b"", b"c", 0), GuestCall::Wait));
    let no_wait = send(call::WRITE, 0, b"", b"c", file::FLAG_NO_WAIT);
    assert!(matches!(no_wait, GuestCall::Return(value) if value == EAGAIN.wrapping_neg()));
    let end = send(call::FINISH, 0, b"x\0y\0", b"", 0);
    assert!(matches!(end, GuestCall::Ended(Outcome::Done)), "{end:?}");
    assert_eq!(guest.exchange.response.written(), 1 + 6 * 0x3000);
}

#[test]
fn broken_messages_are_faults() {
    let field = |name: &str| [name.as_bytes(), b"\0v\0"].concat();
    let many: Vec<u8> = field("x").repeat(field::MAX_COUNT as usize + 1);
    let long = [b"x\0".to_vec(), vec![b'v'; field::MAX_BYTES], vec![0]].concat();
    let cases: [(Vec<u8>, &str); 11] = [
        (vec![0; 15], "fixed part"),
        (message(call::HANDLE, 0, b"", b"", b""), "no kind 8"),
        (message(call::RESPOND, 200, b"a", b"", b""), "no NUL"),
        (message(call::RESPOND, 200, b"a\0", b"", b""), "no value"),
        (message(call::RESPOND, 200, b"a b\0c\0", b"", b""), "no field name"),
        (message(call::RESPOND, 200, b"a\0\r\n\0", b"", b""), "no field may have"),
        (message(call::RESPOND, 200, &many, b"", b""), "more than 256 fields"),
        (message(call::RESPOND, 200, &long, b"", b""), "bytes of fields"),
        (message(call::RESPOND, 99, b"", b"", b""), "99"),
        (message(call::WRITE, 0, b"", b"", b""), "no status yet"),
        (message(call::RESPOND, 200, b"ab\0c\0", b"", b"")[..18].to_vec(), "end behind"),
    ];
    for (sent, expected) in cases {
        let mut guest = Guest::delivered();
        guest.memory.0.resize(0x40000, 0);
        guest.memory.put(BASE, &sent);
        match guest.call3(call::SEND, [BASE, sent.len() as u64, 0]) {
            GuestCall::Ended(Outcome::Fault(fault)) => {
                assert!(fault.to_string().contains(expected), "{fault}: {expected}");
            }
            other => panic!("{expected}: {other:?}"),
        }
        assert!(!guest.exchange.response.is_begun());
    }
}

#[test]
fn a_message_has_a_longest_length() {
    let mut guest = Guest::delivered();
    let errno = |end| match end {
        GuestCall::Return(value) => (value as i64).wrapping_neg() as u64,
        other => panic!("{other:?}"),
    };
    let too_long = message::MAX_LENGTH + 1;
    assert_eq!(errno(guest.call3(call::SEND, [BASE, too_long, 0])), EMSGSIZE);
    assert_eq!(errno(guest.call3(call::SEND, [BASE, u64::MAX, 0])), EMSGSIZE);
    let ranges = [0, u64::MAX, 0, u64::MAX].map(u64::to_le_bytes).concat();
    guest.memory.put(BASE, &ranges);
    assert_eq!(errno(guest.call3(call::SEND, [BASE, 2, file::FLAG_GATHER])), EMSGSIZE);
    assert_eq!(errno(guest.call3(call::SEND, [0, 64, 0])), EFAULT);
    assert_eq!(errno(guest.call3(call::SEND, [0, 1, file::FLAG_GATHER])), EFAULT);
    assert!(guest.fault3(call::SEND, [BASE, 1025, file::FLAG_GATHER]).contains("1025 ranges"));
}

/// A client that sends nothing.
struct Silence;

impl BodySource for Silence {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Pending
    }
}

#[test]
fn a_file_says_what_does_not_fit_and_what_would_wait() {
    let mut guest = Guest::new(Request::get("/"), RequestBody::streaming(Box::new(Silence), None));
    let negated = |errno: u64| errno.wrapping_neg() as i64;
    assert_eq!(guest.value(call::RECEIVE, [BASE, 10]), negated(EMSGSIZE));
    assert!(guest.value(call::RECEIVE, [BASE, 0x1000]) > 104);
    let fetch = guest.call3(call::FETCH, [BASE, 10, file::FLAG_NO_WAIT]);
    assert!(matches!(fetch, GuestCall::Return(value) if value == EAGAIN.wrapping_neg()));
    assert!(matches!(guest.call3(call::FETCH, [BASE, 10, 0]), GuestCall::Wait));
    assert!(matches!(guest.call3(call::FETCH_TRAILERS, [BASE, 10, 0]), GuestCall::Wait));

    let mut guest = Guest::delivered();
    assert_eq!(guest.value(call::FETCH_TRAILERS, [BASE, 7]), negated(EMSGSIZE));
    assert_eq!(guest.value(call::FETCH_TRAILERS, [BASE, 8]), 8);
}
