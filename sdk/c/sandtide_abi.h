/*
 * The contract with guests: guest-call numbers and block layouts.
 *
 * Generated from crates/abi/src/lib.rs; do not edit. To make it anew:
 *     SANDTIDE_REFRESH=1 cargo test -p sandtide-abi
 */
#ifndef SANDTIDE_ABI_H
#define SANDTIDE_ABI_H

/* The version of this contract, as `call::VERSION` returns it. */
#define SANDTIDE_ABI_VERSION 1

/*
 * Guest-call numbers (riscv: `a7`, x86-64: `rax`). Arguments and result travel as in a Linux
 * system call; a result of `-4095..=-1` is a negated `errno`.
 */

/* The first number of the range. */
#define SANDTIDE_CALL_BASE 0x535400
/* How many numbers belong to the range. */
#define SANDTIDE_CALL_COUNT 0x100
/* `() -> version`. */
#define SANDTIDE_CALL_VERSION 0x535400
/*
 * `(block, capacity) -> length`: waits for a request and writes its `request` block.
 * If `length > capacity`, nothing was written: call again with a larger buffer.
 */
#define SANDTIDE_CALL_NEXT_REQUEST 0x535401
/* `(response) -> 0`: answers with a whole `response` and ends the exchange. */
#define SANDTIDE_CALL_RESPOND 0x535402
/*
 * `(response) -> 0`: sends status and headers; `body` and `trailers` of the struct are
 * ignored.
 */
#define SANDTIDE_CALL_BEGIN 0x535403
/* `(bytes, length) -> 0`: sends a piece of the body; waits while the client is slow. */
#define SANDTIDE_CALL_WRITE 0x535404
/*
 * `(fields, count) -> 0`: sends trailers (an array of `field`) and ends the
 * exchange.
 */
#define SANDTIDE_CALL_FINISH 0x535405
/*
 * `(buffer, capacity) -> length`: the next piece of the request body; 0 at its end;
 * `-ECONNRESET` if the client broke it off. The bytes that were inline in the request block
 * come first.
 */
#define SANDTIDE_CALL_READ 0x535406
/*
 * `(block, capacity) -> length`: the request's trailers as a `trailers` block, once
 * the body was read to its end. Capacity as in `NEXT_REQUEST`.
 */
#define SANDTIDE_CALL_TRAILERS 0x535407
/*
 * `(events) -> 0`: says which events beside requests the program handles, as bits of
 * `event`; the last call counts. Only before the first `NEXT_REQUEST`: later it is
 * a fault. `-EINVAL` if a bit is none of them: then nothing was changed.
 */
#define SANDTIDE_CALL_HANDLE 0x535408
/*
 * `(response) -> 0`: sends an interim response (status 102 to 199 and headers; `body` and
 * `trailers` of the struct are ignored). Up to `response::MAX_INTERIM` of them may
 * come before `RESPOND` or `BEGIN`. Where one cannot be sent, it is left out.
 */
#define SANDTIDE_CALL_INFORM 0x535409
/*
 * `(block, capacity) -> length`: what reading `file::REQUESTS` does: `NEXT_REQUEST`,
 * but `-EMSGSIZE` if the block does not fit.
 */
#define SANDTIDE_CALL_RECEIVE 0x53540a
/*
 * `(buffer, capacity, flags) -> length`: what reading `file::BODY` does: `READ`,
 * with `file::FLAG_NO_WAIT`.
 */
#define SANDTIDE_CALL_FETCH 0x53540b
/*
 * `(block, capacity, flags) -> length`: what reading `file::TRAILERS` does:
 * `TRAILERS`, but `-EMSGSIZE` if the block does not fit.
 */
#define SANDTIDE_CALL_FETCH_TRAILERS 0x53540c
/*
 * `(message, length, flags) -> length`: what writing to `file::RESPONSE` does: sends
 * a `message`. With `file::FLAG_GATHER`, `(ranges, count, flags)`.
 */
#define SANDTIDE_CALL_SEND 0x53540d

/*
 * The direct protocol as files, for languages that cannot make guest calls: reading and writing
 * is all that it takes. Only a sandbox has them. Each read and each write is one guest call; a
 * file that is open with `O_NONBLOCK` says `EAGAIN` where the call would wait.
 */

/* Read: the next request, as a `request` block. Waits for it, always. */
#define SANDTIDE_FILE_REQUESTS "/sandtide/requests"
/* Read: the request's body. */
#define SANDTIDE_FILE_BODY "/sandtide/body"
/*
 * Read: the request's trailers as a `trailers` block, once the body was read to its
 * end.
 */
#define SANDTIDE_FILE_TRAILERS "/sandtide/trailers"
/* Write: the response, as a `message` a write. */
#define SANDTIDE_FILE_RESPONSE "/sandtide/response"
/* Flag: `-EAGAIN` instead of waiting. */
#define SANDTIDE_FILE_FLAG_NO_WAIT 1
/* Flag: the message lies in several places: an array of `{ u64 address, u64 length }`. */
#define SANDTIDE_FILE_FLAG_GATHER 2

/*
 * What is written to `file::RESPONSE`: a fixed part, fields, trailers and bytes of the body, one
 * behind the other. A field is its name and its value, each followed by a NUL.
 *
 *   0  u32  kind             a guest call, less `call::BASE`: RESPOND, BEGIN, WRITE, FINISH, INFORM
 *   4  u32  status           RESPOND, BEGIN, INFORM
 *   8  u32  fields_length    bytes of fields: headers, or the trailers of a FINISH
 *  12  u32  trailers_length  bytes of trailers: RESPOND
 *  16  fields, trailers, then the body: all of it (RESPOND), or a piece
 */

/* Offset of the kind. */
#define SANDTIDE_MESSAGE_KIND 0
/* Offset of the status. */
#define SANDTIDE_MESSAGE_STATUS 4
/* Offset of the length of the fields. */
#define SANDTIDE_MESSAGE_FIELDS_LENGTH 8
/* Offset of the length of the trailers. */
#define SANDTIDE_MESSAGE_TRAILERS_LENGTH 12
/* Size of the fixed part. */
#define SANDTIDE_MESSAGE_SIZE 16
/* The longest message, in bytes: a longer body goes in pieces. */
#define SANDTIDE_MESSAGE_MAX_LENGTH 1048576

/*
 * Events beside requests that a program can handle (`call::HANDLE`). They come as requests
 * whose block has a flag set (`request::FLAG_SAVE`, `request::FLAG_RESTORE`), in the place of
 * a client's request, and only to programs that said that they handle them.
 */

/* The program can hand over its state, because another version takes its place. */
#define SANDTIDE_EVENT_SAVE 1
/* The program can take over the state of the version before it. */
#define SANDTIDE_EVENT_RESTORE 2
/* Every event. */
#define SANDTIDE_EVENT_ALL 3

/*
 * The block that `call::NEXT_REQUEST` writes: a header of fixed size, the table of header
 * fields, then the strings and the body they point to.
 *
 *   0  u32  length       of the whole block, in bytes
 *   4  u16  version      of this contract
 *   6  u16  flags
 *   8  u64  id           correlation id, also in the server's log
 *  16  u64  time_ns      real time, nanoseconds since 1970 UTC
 *  24  [32] random       fresh for every request
 *  56  u64  body_length  as announced by the client, or u64::MAX
 *  64  u32  method, u32 method_length          offsets from the start of the block
 *  72  u32  target, u32 target_length          path and query as received
 *  80  u32  authority, u32 authority_length    `Host` or `:authority`; may be empty
 *  88  u32  headers, u32 header_count          offset of the table
 *  96  u32  body, u32 body_inline              what was here already
 * 104  table of header_count × { u32 name, u32 name_length, u32 value, u32 value_length }
 *      strings, each followed by a NUL; header names in lower case
 */

/* Offset of the length of the whole block. */
#define SANDTIDE_REQUEST_LENGTH 0
/* Offset of the version. */
#define SANDTIDE_REQUEST_VERSION 4
/* Offset of the flags. */
#define SANDTIDE_REQUEST_FLAGS 6
/* Offset of the correlation id. */
#define SANDTIDE_REQUEST_ID 8
/* Offset of the time. */
#define SANDTIDE_REQUEST_TIME_NS 16
/* Offset of the random bytes. */
#define SANDTIDE_REQUEST_RANDOM 24
/* How many random bytes. */
#define SANDTIDE_REQUEST_RANDOM_LENGTH 32
/* Offset of the announced body length. */
#define SANDTIDE_REQUEST_BODY_LENGTH 56
/* Offset of the method's offset and length. */
#define SANDTIDE_REQUEST_METHOD 64
/* Offset of the target's offset and length. */
#define SANDTIDE_REQUEST_TARGET 72
/* Offset of the authority's offset and length. */
#define SANDTIDE_REQUEST_AUTHORITY 80
/* Offset of the header table's offset and count. */
#define SANDTIDE_REQUEST_HEADERS 88
/* Offset of the inline body's offset and length. */
#define SANDTIDE_REQUEST_BODY 96
/* Size of the fixed part. */
#define SANDTIDE_REQUEST_SIZE 104
/* Size of an entry of the header table. */
#define SANDTIDE_REQUEST_FIELD_SIZE 16
/* Flag: the inline body is the whole body, and there are no trailers to wait for. */
#define SANDTIDE_REQUEST_FLAG_BODY_COMPLETE 1
/*
 * Flag: not a client's request, but `event::SAVE`. The program
 * answers with its state as the body of a 200; any other status says that it cannot. Method
 * and target are `SAVE *`, but the flag alone tells: a client may send those, too.
 */
#define SANDTIDE_REQUEST_FLAG_SAVE 2
/*
 * Flag: not a client's request, but `event::RESTORE`. The body
 * is what the version before it has saved. The program answers 200 if it has taken that over;
 * any other status says that it cannot. Method and target are `RESTORE *`.
 */
#define SANDTIDE_REQUEST_FLAG_RESTORE 4
/* Flag: the client speaks HTTP/1.0. Without it and `FLAG_HTTP_2`, it speaks HTTP/1.1. */
#define SANDTIDE_REQUEST_FLAG_HTTP_1_0 8
/* Flag: the client speaks HTTP/2. */
#define SANDTIDE_REQUEST_FLAG_HTTP_2 16
/* `body_length` of a body whose length the client did not announce. */
#define SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN 0xffffffffffffffffULL

/*
 * The block that `call::TRAILERS` writes: `u32 length, u32 count`, then the table and the
 * strings as in a `request` block.
 */

/* Offset of the length of the whole block. */
#define SANDTIDE_TRAILERS_LENGTH 0
/* Offset of the number of fields. */
#define SANDTIDE_TRAILERS_COUNT 4
/* Size of the fixed part; the table follows. */
#define SANDTIDE_TRAILERS_SIZE 8

/*
 * The struct that `call::RESPOND` and `call::BEGIN` read.
 *
 *   0  u32  status
 *   4  u32  header_count
 *   8  u64  headers        pointer to an array of `field`
 *  16  u64  body           pointer
 *  24  u64  body_length
 *  32  u64  trailers       pointer to an array of `field`
 *  40  u64  trailer_count
 */

/* Offset of the status. */
#define SANDTIDE_RESPONSE_STATUS 0
/* Offset of the number of headers. */
#define SANDTIDE_RESPONSE_HEADER_COUNT 4
/* Offset of the pointer to the headers. */
#define SANDTIDE_RESPONSE_HEADERS 8
/* Offset of the pointer to the body. */
#define SANDTIDE_RESPONSE_BODY 16
/* Offset of the body's length. */
#define SANDTIDE_RESPONSE_BODY_LENGTH 24
/* Offset of the pointer to the trailers. */
#define SANDTIDE_RESPONSE_TRAILERS 32
/* Offset of the number of trailers. */
#define SANDTIDE_RESPONSE_TRAILER_COUNT 40
/* Size of the struct. */
#define SANDTIDE_RESPONSE_SIZE 48
/* The most interim responses to one request. */
#define SANDTIDE_RESPONSE_MAX_INTERIM 16

/*
 * A header or trailer field as a guest hands it over.
 *
 *   0  u64  name           pointer
 *   8  u64  value          pointer
 *  16  u32  name_length
 *  20  u32  value_length
 */

/* Offset of the pointer to the name. */
#define SANDTIDE_FIELD_NAME 0
/* Offset of the pointer to the value. */
#define SANDTIDE_FIELD_VALUE 8
/* Offset of the name's length. */
#define SANDTIDE_FIELD_NAME_LENGTH 16
/* Offset of the value's length. */
#define SANDTIDE_FIELD_VALUE_LENGTH 20
/* Size of the struct. */
#define SANDTIDE_FIELD_SIZE 24
/* The most fields that one response may have, headers and trailers each. */
#define SANDTIDE_FIELD_MAX_COUNT 256
/* The most bytes of names and values that one response may have, headers and trailers each. */
#define SANDTIDE_FIELD_MAX_BYTES 65536

#endif
