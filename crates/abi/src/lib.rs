//! The contract with guests: guest calls and the layouts that pass through them.
//!
//! A guest call is a system call with a number in Sandtide's own range, which Linux does not use
//! on any architecture: run on plain Linux, the same instruction returns `-ENOSYS`, and that is
//! how the SDK finds out that it has to serve plain HTTP by itself.
//!
//! All integers are little-endian. Pointers are 64 bits wide on every instruction set. Lengths
//! never count the NUL that follows every string of a block.
//!
//! These values are compiled into programs that are already out there. A change of a number or
//! an offset is a new [`VERSION`]; the assertions at the end of each layout are there to remind.
#![forbid(unsafe_code)]
#![no_std]

/// The version of this contract, as [`call::VERSION`] returns it.
pub const VERSION: u64 = 1;

/// Guest-call numbers (riscv: `a7`, x86-64: `rax`). Arguments and result travel as in a Linux
/// system call; a result of `-4095..=-1` is a negated `errno`.
pub mod call {
    /// The first number of the range.
    pub const BASE: u64 = 0x53_5400;
    /// How many numbers belong to the range.
    pub const COUNT: u64 = 0x100;

    /// `() -> version`.
    pub const VERSION: u64 = BASE;
    /// `(block, capacity) -> length`: waits for a request and writes its [`crate::request`] block.
    /// If `length > capacity`, nothing was written: call again with a larger buffer.
    pub const NEXT_REQUEST: u64 = BASE + 1;
    /// `(response) -> 0`: answers with a whole [`crate::response`] and ends the exchange.
    pub const RESPOND: u64 = BASE + 2;
    /// `(response) -> 0`: sends status and headers; `body` and `trailers` of the struct are
    /// ignored.
    pub const BEGIN: u64 = BASE + 3;
    /// `(bytes, length) -> 0`: sends a piece of the body; waits while the client is slow.
    pub const WRITE: u64 = BASE + 4;
    /// `(fields, count) -> 0`: sends trailers (an array of [`crate::field`]) and ends the
    /// exchange.
    pub const FINISH: u64 = BASE + 5;
    /// `(buffer, capacity) -> length`: the next piece of the request body; 0 at its end;
    /// `-ECONNRESET` if the client broke it off. The bytes that were inline in the request block
    /// come first.
    pub const READ: u64 = BASE + 6;
    /// `(block, capacity) -> length`: the request's trailers as a [`crate::trailers`] block, once
    /// the body was read to its end. Capacity as in [`NEXT_REQUEST`].
    pub const TRAILERS: u64 = BASE + 7;
    /// `(events) -> 0`: says which events beside requests the program handles, as bits of
    /// [`crate::event`]; the last call counts. Only before the first [`NEXT_REQUEST`]: later it is
    /// a fault. `-EINVAL` if a bit is none of them: then nothing was changed.
    pub const HANDLE: u64 = BASE + 8;
    /// `(response) -> 0`: sends an interim response (status 102 to 199 and headers; `body` and
    /// `trailers` of the struct are ignored). Up to [`crate::response::MAX_INTERIM`] of them may
    /// come before [`RESPOND`] or [`BEGIN`]. Where one cannot be sent, it is left out.
    pub const INFORM: u64 = BASE + 9;
    /// `(block, capacity) -> length`: what reading [`crate::file::REQUESTS`] does: [`NEXT_REQUEST`],
    /// but `-EMSGSIZE` if the block does not fit.
    pub const RECEIVE: u64 = BASE + 10;
    /// `(buffer, capacity, flags) -> length`: what reading [`crate::file::BODY`] does: [`READ`],
    /// with [`crate::file::FLAG_NO_WAIT`].
    pub const FETCH: u64 = BASE + 11;
    /// `(block, capacity, flags) -> length`: what reading [`crate::file::TRAILERS`] does:
    /// [`TRAILERS`], but `-EMSGSIZE` if the block does not fit.
    pub const FETCH_TRAILERS: u64 = BASE + 12;
    /// `(message, length, flags) -> length`: what writing to [`crate::file::RESPONSE`] does: sends
    /// a [`crate::message`]. With [`crate::file::FLAG_GATHER`], `(ranges, count, flags)`.
    pub const SEND: u64 = BASE + 13;

    /// The name of a guest call, for messages; `None` outside the defined numbers.
    pub fn name(number: u64) -> Option<&'static str> {
        Some(match number {
            VERSION => "version",
            NEXT_REQUEST => "next_request",
            RESPOND => "respond",
            BEGIN => "begin",
            WRITE => "write",
            FINISH => "finish",
            READ => "read",
            TRAILERS => "trailers",
            HANDLE => "handle",
            INFORM => "inform",
            RECEIVE => "receive",
            FETCH => "fetch",
            FETCH_TRAILERS => "fetch_trailers",
            SEND => "send",
            _ => return None,
        })
    }

    /// Whether a number lies in Sandtide's range.
    pub fn is_guest_call(number: u64) -> bool {
        number.wrapping_sub(BASE) < COUNT
    }
}

/// The direct protocol as files, for languages that cannot make guest calls: reading and writing
/// is all that it takes. Only a sandbox has them. Each read and each write is one guest call; a
/// file that is open with `O_NONBLOCK` says `EAGAIN` where the call would wait.
pub mod file {
    /// Read: the next request, as a [`crate::request`] block. Waits for it, always.
    pub const REQUESTS: &str = "/sandtide/requests";
    /// Read: the request's body.
    pub const BODY: &str = "/sandtide/body";
    /// Read: the request's trailers as a [`crate::trailers`] block, once the body was read to its
    /// end.
    pub const TRAILERS: &str = "/sandtide/trailers";
    /// Write: the response, as a [`crate::message`] a write.
    pub const RESPONSE: &str = "/sandtide/response";

    /// Flag: `-EAGAIN` instead of waiting.
    pub const FLAG_NO_WAIT: u64 = 1;
    /// Flag: the message lies in several places: an array of `{ u64 address, u64 length }`.
    pub const FLAG_GATHER: u64 = 2;
}

/// What is written to [`file::RESPONSE`]: a fixed part, fields, trailers and bytes of the body, one
/// behind the other. A field is its name and its value, each followed by a NUL.
///
/// ```text
///   0  u32  kind             a guest call, less `call::BASE`: RESPOND, BEGIN, WRITE, FINISH, INFORM
///   4  u32  status           RESPOND, BEGIN, INFORM
///   8  u32  fields_length    bytes of fields: headers, or the trailers of a FINISH
///  12  u32  trailers_length  bytes of trailers: RESPOND
///  16  fields, trailers, then the body: all of it (RESPOND), or a piece
/// ```
pub mod message {
    /// Offset of the kind.
    pub const KIND: usize = 0;
    /// Offset of the status.
    pub const STATUS: usize = 4;
    /// Offset of the length of the fields.
    pub const FIELDS_LENGTH: usize = 8;
    /// Offset of the length of the trailers.
    pub const TRAILERS_LENGTH: usize = 12;
    /// Size of the fixed part.
    pub const SIZE: usize = 16;
    /// The longest message, in bytes: a longer body goes in pieces.
    pub const MAX_LENGTH: u64 = 1 << 20;
}

/// Events beside requests that a program can handle ([`call::HANDLE`]). They come as requests
/// whose block has a flag set ([`request::FLAG_SAVE`], [`request::FLAG_RESTORE`]), in the place of
/// a client's request, and only to programs that said that they handle them.
pub mod event {
    /// The program can hand over its state, because another version takes its place.
    pub const SAVE: u64 = 1;
    /// The program can take over the state of the version before it.
    pub const RESTORE: u64 = 2;
    /// Every event.
    pub const ALL: u64 = SAVE | RESTORE;
}

/// The block that [`call::NEXT_REQUEST`] writes: a header of fixed size, the table of header
/// fields, then the strings and the body they point to.
///
/// ```text
///   0  u32  length       of the whole block, in bytes
///   4  u16  version      of this contract
///   6  u16  flags
///   8  u64  id           correlation id, also in the server's log
///  16  u64  time_ns      real time, nanoseconds since 1970 UTC
///  24  [32] random       fresh for every request
///  56  u64  body_length  as announced by the client, or u64::MAX
///  64  u32  method, u32 method_length          offsets from the start of the block
///  72  u32  target, u32 target_length          path and query as received
///  80  u32  authority, u32 authority_length    `Host` or `:authority`; may be empty
///  88  u32  headers, u32 header_count          offset of the table
///  96  u32  body, u32 body_inline              what was here already
/// 104  table of header_count × { u32 name, u32 name_length, u32 value, u32 value_length }
///      strings, each followed by a NUL; header names in lower case
/// ```
pub mod request {
    /// Offset of the length of the whole block.
    pub const LENGTH: usize = 0;
    /// Offset of the version.
    pub const VERSION: usize = 4;
    /// Offset of the flags.
    pub const FLAGS: usize = 6;
    /// Offset of the correlation id.
    pub const ID: usize = 8;
    /// Offset of the time.
    pub const TIME_NS: usize = 16;
    /// Offset of the random bytes.
    pub const RANDOM: usize = 24;
    /// How many random bytes.
    pub const RANDOM_LENGTH: usize = 32;
    /// Offset of the announced body length.
    pub const BODY_LENGTH: usize = 56;
    /// Offset of the method's offset and length.
    pub const METHOD: usize = 64;
    /// Offset of the target's offset and length.
    pub const TARGET: usize = 72;
    /// Offset of the authority's offset and length.
    pub const AUTHORITY: usize = 80;
    /// Offset of the header table's offset and count.
    pub const HEADERS: usize = 88;
    /// Offset of the inline body's offset and length.
    pub const BODY: usize = 96;
    /// Size of the fixed part.
    pub const SIZE: usize = 104;
    /// Size of an entry of the header table.
    pub const FIELD_SIZE: usize = 16;

    /// Flag: the inline body is the whole body, and there are no trailers to wait for.
    pub const FLAG_BODY_COMPLETE: u16 = 1;
    /// Flag: not a client's request, but [`crate::event::SAVE`]. The program
    /// answers with its state as the body of a 200; any other status says that it cannot. Method
    /// and target are `SAVE *`, but the flag alone tells: a client may send those, too.
    pub const FLAG_SAVE: u16 = 2;
    /// Flag: not a client's request, but [`crate::event::RESTORE`]. The body
    /// is what the version before it has saved. The program answers 200 if it has taken that over;
    /// any other status says that it cannot. Method and target are `RESTORE *`.
    pub const FLAG_RESTORE: u16 = 4;
    /// Flag: the client speaks HTTP/1.0. Without it and [`FLAG_HTTP_2`], it speaks HTTP/1.1.
    pub const FLAG_HTTP_1_0: u16 = 8;
    /// Flag: the client speaks HTTP/2.
    pub const FLAG_HTTP_2: u16 = 16;
    /// `body_length` of a body whose length the client did not announce.
    pub const BODY_LENGTH_UNKNOWN: u64 = u64::MAX;

    const _: () = assert!(RANDOM + RANDOM_LENGTH == BODY_LENGTH && BODY + 8 == SIZE);
}

/// The block that [`call::TRAILERS`] writes: `u32 length, u32 count`, then the table and the
/// strings as in a [`request`] block.
pub mod trailers {
    /// Offset of the length of the whole block.
    pub const LENGTH: usize = 0;
    /// Offset of the number of fields.
    pub const COUNT: usize = 4;
    /// Size of the fixed part; the table follows.
    pub const SIZE: usize = 8;
}

/// The struct that [`call::RESPOND`] and [`call::BEGIN`] read.
///
/// ```text
///   0  u32  status
///   4  u32  header_count
///   8  u64  headers        pointer to an array of `field`
///  16  u64  body           pointer
///  24  u64  body_length
///  32  u64  trailers       pointer to an array of `field`
///  40  u64  trailer_count
/// ```
pub mod response {
    /// Offset of the status.
    pub const STATUS: usize = 0;
    /// Offset of the number of headers.
    pub const HEADER_COUNT: usize = 4;
    /// Offset of the pointer to the headers.
    pub const HEADERS: usize = 8;
    /// Offset of the pointer to the body.
    pub const BODY: usize = 16;
    /// Offset of the body's length.
    pub const BODY_LENGTH: usize = 24;
    /// Offset of the pointer to the trailers.
    pub const TRAILERS: usize = 32;
    /// Offset of the number of trailers.
    pub const TRAILER_COUNT: usize = 40;
    /// Size of the struct.
    pub const SIZE: usize = 48;
    /// The most interim responses to one request.
    pub const MAX_INTERIM: usize = 16;
}

/// A header or trailer field as a guest hands it over.
///
/// ```text
///   0  u64  name           pointer
///   8  u64  value          pointer
///  16  u32  name_length
///  20  u32  value_length
/// ```
pub mod field {
    /// Offset of the pointer to the name.
    pub const NAME: usize = 0;
    /// Offset of the pointer to the value.
    pub const VALUE: usize = 8;
    /// Offset of the name's length.
    pub const NAME_LENGTH: usize = 16;
    /// Offset of the value's length.
    pub const VALUE_LENGTH: usize = 20;
    /// Size of the struct.
    pub const SIZE: usize = 24;
    /// The most fields that one response may have, headers and trailers each.
    pub const MAX_COUNT: u32 = 256;
    /// The most bytes of names and values that one response may have, headers and trailers each.
    pub const MAX_BYTES: usize = 64 << 10;
}
