/*
 * Sandtide for C (C99) and C++: answer HTTP requests.
 *
 *     #include "sandtide.h"
 *
 *     int main(void)
 *     {
 *         struct sandtide_request request;
 *         while (sandtide_next_request(&request) == 0)
 *             sandtide_respond_text(200, "Hello, World!\n");
 *         return 1;
 *     }
 *
 * In a sandbox, every request starts from the state the program had when it first called
 * sandtide_next_request: whatever is computed before that call is computed once, and whatever a
 * request changes is gone with its answer (unless the tenant has `isolation = "none"`).
 *
 * A program that keeps its state between requests can also hand it over to the next version of
 * itself: see sandtide_on_save.
 *
 * Run as an ordinary Linux program, it serves plain HTTP/1.1 by itself, on 127.0.0.1 and port
 * $PORT (8000 if unset): see sandtide_devserver.h. SANDTIDE_NO_DEVSERVER leaves that out.
 *
 * Errors: functions that return `int` or `long` return a negated errno value when they fail. In a
 * sandbox, most misuse (a response with a line break in a header, a second response, …) is not
 * an error to handle: it ends the exchange, and the reason is in the tenant's log.
 *
 * Names that end in an underscore are not for programs.
 */
#ifndef SANDTIDE_H
#define SANDTIDE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandtide_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One definition for all translation units of a program, off the hot path. */
#define SANDTIDE_SHARED_ __attribute__((weak, noinline, cold, visibility("hidden")))
#define SANDTIDE_UNLIKELY_(condition) __builtin_expect(!!(condition), 0)

/* ---- Types ------------------------------------------------------------------------------- */

/* Text that somebody else owns. What comes from a request is followed by a NUL. */
struct sandtide_string {
    const char *data;
    size_t length;
};

/* A header or trailer field. */
struct sandtide_field {
    const char *name;
    const char *value;
    uint32_t name_length;
    uint32_t value_length;
};

/* A field from two string literals, for initialisers. */
#define SANDTIDE_FIELD(name, value) \
    { "" name, "" value, (uint32_t)(sizeof(name) - 1), (uint32_t)(sizeof(value) - 1) }

/* A whole response. All pointers are only read, and only during the call. */
struct sandtide_response {
    uint32_t status; /* 200 to 599 */
    uint32_t header_count;
    const struct sandtide_field *headers;
    const void *body;
    uint64_t body_length;
    const struct sandtide_field *trailers;
    uint64_t trailer_count;
};

struct sandtide_span_ {
    uint32_t offset;
    uint32_t length;
};

/* The fixed part of a request block; see SANDTIDE_REQUEST_* in sandtide_abi.h. */
struct sandtide_block_ {
    uint32_t length;
    uint16_t version;
    uint16_t flags;
    uint64_t id;
    uint64_t time_ns;
    unsigned char random[SANDTIDE_REQUEST_RANDOM_LENGTH];
    uint64_t body_length;
    struct sandtide_span_ method;
    struct sandtide_span_ target;
    struct sandtide_span_ authority;
    struct sandtide_span_ headers; /* length: how many */
    struct sandtide_span_ body;
};

/* A request. Valid, with all it points to, until the next call of sandtide_next_request. */
struct sandtide_request {
    const struct sandtide_block_ *block_;
};

typedef char sandtide_abi_check_
    [sizeof(void *) == 8 && sizeof(struct sandtide_block_) == SANDTIDE_REQUEST_SIZE
             && offsetof(struct sandtide_block_, random) == SANDTIDE_REQUEST_RANDOM
             && offsetof(struct sandtide_block_, headers) == SANDTIDE_REQUEST_HEADERS
             && offsetof(struct sandtide_block_, body) == SANDTIDE_REQUEST_BODY
             && sizeof(struct sandtide_response) == SANDTIDE_RESPONSE_SIZE
             && offsetof(struct sandtide_response, trailers) == SANDTIDE_RESPONSE_TRAILERS
             && sizeof(struct sandtide_field) == SANDTIDE_FIELD_SIZE
             && offsetof(struct sandtide_field, name_length) == SANDTIDE_FIELD_NAME_LENGTH
         ? 1
         : -1];

/* ---- State ------------------------------------------------------------------------------- */

#define SANDTIDE_FIRST_CAPACITY_ 16128

/*
 * Starts on a page of its own: a small request and its response then write one page between them,
 * and one page is what the reset costs.
 */
struct sandtide_state_ {
    struct sandtide_response response;
    void *block;     /* NULL until the first sandtide_next_request */
    size_t capacity; /* of block */
    void *body;      /* what sandtide_read_body read; kept to be used again */
    size_t body_capacity;
    void *trailers;
    void *devserver; /* not NULL outside a sandbox */
    int (*save)(struct sandtide_string *state);
    int (*restore)(struct sandtide_string state);
    uint64_t first_block[SANDTIDE_FIRST_CAPACITY_ / 8];
};

__attribute__((weak, visibility("hidden"), aligned(4096))) struct sandtide_state_ sandtide_state_;

/* ---- Guest calls ------------------------------------------------------------------------- */

static inline long sandtide_guest_call_(long number, long first, long second)
{
#if defined(__riscv) && __riscv_xlen == 64 && defined(__linux__)
    register long a7 __asm__("a7") = number;
    register long a0 __asm__("a0") = first;
    register long a1 __asm__("a1") = second;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1) : "memory");
    return a0;
#elif defined(__x86_64__) && defined(__linux__)
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(first), "S"(second)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__) && defined(__linux__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = first;
    register long x1 __asm__("x1") = second;
    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
    return x0;
#else
    (void)number, (void)first, (void)second;
    return -ENOSYS;
#endif
}

#ifdef SANDTIDE_NO_DEVSERVER
static inline int sandtide_devserver_start_(void **server)
{
    (void)server;
    return -ENOSYS;
}

static inline long sandtide_devserver_call_(void *server, long number, long first, long second)
{
    (void)server, (void)number, (void)first, (void)second;
    return -ENOSYS;
}
#else
int sandtide_devserver_start_(void **server);
long sandtide_devserver_call_(void *server, long number, long first, long second);
#endif

/* A guest call that failed: in a sandbox a failure, elsewhere a call for the dev server. */
SANDTIDE_SHARED_ long sandtide_failed_(long number, long first, long second, long result)
{
    void *server = sandtide_state_.devserver;
    return server ? sandtide_devserver_call_(server, number, first, second) : result;
}

static inline long sandtide_call_(long number, const void *first, size_t second)
{
    long result = sandtide_guest_call_(number, (long)first, (long)second);
    if (SANDTIDE_UNLIKELY_(result < 0))
        result = sandtide_failed_(number, (long)first, (long)second, result);
    return result;
}

SANDTIDE_SHARED_ int sandtide_start_(void)
{
    struct sandtide_state_ *state = &sandtide_state_;
    long events = (state->save ? SANDTIDE_EVENT_SAVE : 0)
                  | (state->restore ? SANDTIDE_EVENT_RESTORE : 0);
    long version = sandtide_guest_call_(SANDTIDE_CALL_VERSION, 0, 0);
    if (version < 0) {
        /* Plain Linux. Not only ENOSYS: some seccomp filters choose another errno. */
        int error = sandtide_devserver_start_(&state->devserver);
        if (error)
            return error;
    } else if (version != SANDTIDE_ABI_VERSION) {
        return -EPROTO;
    } else if (events) {
        /* A server that does not know this call hands no state over. */
        sandtide_guest_call_(SANDTIDE_CALL_HANDLE, events, 0);
    }
    state->block = state->first_block;
    state->capacity = sizeof(state->first_block);
    return 0;
}

/* Whether a block is no client's request. */
static inline int sandtide_is_event_(const void *block)
{
    return (((const struct sandtide_block_ *)block)->flags
            & (SANDTIDE_REQUEST_FLAG_SAVE | SANDTIDE_REQUEST_FLAG_RESTORE))
           != 0;
}

void sandtide_event_(void);

/*
 * The rest of sandtide_next_request when the block was too small, the call failed, or an event came
 * in place of a request. (It does not see the caller's request, which can so stay in a register: no
 * write to the stack, no page.)
 */
SANDTIDE_SHARED_ int sandtide_next_slow_(long length)
{
    struct sandtide_state_ *state = &sandtide_state_;
    for (;;) {
        if (length < 0 && state->devserver)
            length = sandtide_devserver_call_(state->devserver, SANDTIDE_CALL_NEXT_REQUEST,
                                              (long)state->block, (long)state->capacity);
        if (length < 0)
            return (int)length;
        if ((size_t)length <= state->capacity) {
            if (!sandtide_is_event_(state->block))
                return 0;
            sandtide_event_();
        } else {
            void *larger = malloc((size_t)length);
            if (!larger)
                return -ENOMEM;
            if (state->block != (void *)state->first_block)
                free(state->block);
            state->block = larger;
            state->capacity = (size_t)length;
        }
        length = sandtide_guest_call_(SANDTIDE_CALL_NEXT_REQUEST, (long)state->block,
                                      (long)state->capacity);
    }
}

/* ---- Requests ---------------------------------------------------------------------------- */

/*
 * Waits for the next request. 0, or a negated errno: ENOSYS outside a sandbox with
 * SANDTIDE_NO_DEVSERVER, EPROTO if the server speaks another version of the protocol, ENOMEM, or
 * what kept the built-in server from starting.
 */
static inline int sandtide_next_request(struct sandtide_request *request)
{
    struct sandtide_state_ *state = &sandtide_state_;
    if (SANDTIDE_UNLIKELY_(!state->block)) {
        int error = sandtide_start_();
        if (error)
            return error;
    }
    void *block = state->block;
    size_t capacity = state->capacity;
    long length =
        sandtide_guest_call_(SANDTIDE_CALL_NEXT_REQUEST, (long)block, (long)capacity);
    if (SANDTIDE_UNLIKELY_((size_t)length > capacity /* or negative */
                           || sandtide_is_event_(block))) {
        int error = sandtide_next_slow_(length);
        if (error)
            return error;
        block = state->block;
    }
    request->block_ = (const struct sandtide_block_ *)block;
    return 0;
}

static inline struct sandtide_string sandtide_text_(const struct sandtide_request *request,
                                                    struct sandtide_span_ span)
{
    struct sandtide_string text;
    text.data = (const char *)request->block_ + span.offset;
    text.length = span.length;
    return text;
}

/* `GET`, `POST`, …: as the client sent it. */
static inline struct sandtide_string sandtide_method(const struct sandtide_request *request)
{
    return sandtide_text_(request, request->block_->method);
}

/* Path and query as the client sent them, percent-encoding and all. */
static inline struct sandtide_string sandtide_target(const struct sandtide_request *request)
{
    return sandtide_text_(request, request->block_->target);
}

/* The target up to the first `?`. Not followed by a NUL if there is a query. */
static inline struct sandtide_string sandtide_path(const struct sandtide_request *request)
{
    struct sandtide_string path = sandtide_target(request);
    const char *mark = (const char *)memchr(path.data, '?', path.length);
    if (mark)
        path.length = (size_t)(mark - path.data);
    return path;
}

/* The target behind the first `?`; empty if there is none. */
static inline struct sandtide_string sandtide_query(const struct sandtide_request *request)
{
    struct sandtide_string target = sandtide_target(request), path = sandtide_path(request), query;
    size_t skip = path.length < target.length ? path.length + 1 : path.length;
    query.data = target.data + skip;
    query.length = target.length - skip;
    return query;
}

/* Whom the request is for: `Host`, with the port if there is one. May be empty. */
static inline struct sandtide_string sandtide_authority(const struct sandtide_request *request)
{
    return sandtide_text_(request, request->block_->authority);
}

/* The correlation id, which the server's log has too. */
static inline uint64_t sandtide_id(const struct sandtide_request *request)
{
    return request->block_->id;
}

/* When the request was handed over: nanoseconds since 1970 UTC. */
static inline uint64_t sandtide_time_ns(const struct sandtide_request *request)
{
    return request->block_->time_ns;
}

/* 32 random bytes, fresh for this request, fit for keys and tokens. */
static inline const unsigned char *sandtide_random(const struct sandtide_request *request)
{
    return request->block_->random;
}

static inline size_t sandtide_header_count(const struct sandtide_request *request)
{
    return request->block_->headers.length;
}

/* The field at `entry` of the table of a block: a name's span and a value's span. */
static inline struct sandtide_field sandtide_entry_(const void *block,
                                                    const struct sandtide_span_ *entry)
{
    struct sandtide_field field;
    field.name = (const char *)block + entry[0].offset;
    field.value = (const char *)block + entry[1].offset;
    field.name_length = entry[0].length;
    field.value_length = entry[1].length;
    return field;
}

/* The header at `index` < sandtide_header_count, in the client's order; names in lower case. */
static inline struct sandtide_field sandtide_header_at(const struct sandtide_request *request,
                                                       size_t index)
{
    const char *block = (const char *)request->block_;
    const struct sandtide_span_ *table =
        (const struct sandtide_span_ *)(const void *)(block + request->block_->headers.offset);
    return sandtide_entry_(block, table + 2 * index);
}

/* Whether a text is exactly `other`, which ends with a NUL. */
static inline int sandtide_equal(struct sandtide_string text, const char *other)
{
    return strlen(other) == text.length && memcmp(text.data, other, text.length) == 0;
}

/*
 * The first header with this name, whatever its case. `data` is NULL if there is none. Nothing is
 * parsed before it is asked for: the cost is one walk over the table.
 */
static inline struct sandtide_string sandtide_header(const struct sandtide_request *request,
                                                     const char *name)
{
    struct sandtide_string none = {NULL, 0};
    size_t length = strlen(name), count = sandtide_header_count(request);
    for (size_t i = 0; i < count; i++) {
        struct sandtide_field field = sandtide_header_at(request, i);
        size_t at = 0;
        if (field.name_length != length)
            continue;
        while (at < length) {
            char c = name[at];
            if ((c >= 'A' && c <= 'Z' ? (char)(c + 32) : c) != field.name[at])
                break;
            at++;
        }
        if (at == length) {
            struct sandtide_string value;
            value.data = field.value;
            value.length = field.value_length;
            return value;
        }
    }
    return none;
}

/* ---- Request bodies ---------------------------------------------------------------------- */

/* The length that the client announced, or SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN. */
static inline uint64_t sandtide_body_length(const struct sandtide_request *request)
{
    return request->block_->body_length;
}

/* Whether sandtide_body_inline is the whole body. Usual for small bodies. */
static inline int sandtide_body_complete(const struct sandtide_request *request)
{
    return (request->block_->flags & SANDTIDE_REQUEST_FLAG_BODY_COMPLETE) != 0;
}

/* What of the body came with the request. sandtide_read gives it again, from the start. */
static inline struct sandtide_string sandtide_body_inline(const struct sandtide_request *request)
{
    return sandtide_text_(request, request->block_->body);
}

/*
 * The next piece of the body, at most `capacity` bytes, as it arrives. Returns its length, 0 at
 * the end of the body, or a negated errno: ECONNRESET if the client broke the body off (outside a
 * sandbox: EPIPE if it went away, EPROTO if it broke HTTP).
 */
static inline long sandtide_read(void *buffer, size_t capacity)
{
    return sandtide_call_(SANDTIDE_CALL_READ, buffer, capacity);
}

SANDTIDE_SHARED_ int sandtide_read_rest_(const struct sandtide_request *request, size_t limit,
                                         struct sandtide_string *body)
{
    struct sandtide_state_ *state = &sandtide_state_;
    uint64_t announced = sandtide_body_length(request);
    size_t length = 0;
    if (announced == SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN)
        announced = 4096;
    else if (announced > limit)
        return -EFBIG;
    for (;;) {
        /* One byte more than announced, to see the end without growing. */
        size_t wanted = length ? length * 2 : (size_t)announced + 1;
        if (state->body_capacity == length || !state->body) {
            void *larger = realloc(state->body, wanted);
            if (!larger)
                return -ENOMEM;
            state->body = larger;
            state->body_capacity = wanted;
        }
        long piece = sandtide_read((char *)state->body + length, state->body_capacity - length);
        if (piece < 0)
            return (int)piece;
        if (piece == 0)
            break;
        length += (size_t)piece;
        if (length > limit)
            return -EFBIG;
    }
    body->data = (const char *)state->body;
    body->length = length;
    return 0;
}

/*
 * The whole body. 0, or a negated errno: EFBIG if it is longer than `limit` bytes, ENOMEM, or as
 * sandtide_read. Valid until the next sandtide_next_request; copies nothing if the body came with
 * the request. Not to be mixed with sandtide_read.
 */
static inline int sandtide_read_body(const struct sandtide_request *request, size_t limit,
                                     struct sandtide_string *body)
{
    if (SANDTIDE_UNLIKELY_(!sandtide_body_complete(request)))
        return sandtide_read_rest_(request, limit, body);
    *body = sandtide_body_inline(request);
    return body->length > limit ? -EFBIG : 0;
}

/*
 * The request's trailers, once the body was read to its end: sets `fields` and returns how many
 * there are, or a negated errno. Valid until the next call of this function.
 */
SANDTIDE_SHARED_ long sandtide_trailers(const struct sandtide_field **fields)
{
    struct sandtide_state_ *state = &sandtide_state_;
    const struct sandtide_span_ *entries;
    struct sandtide_field *list;
    size_t capacity = 512, count, room;
    for (;;) {
        /* The list of fields goes behind the block; the block's length bounds its size. */
        room = (capacity + 7) / 8 * 8;
        void *larger = realloc(state->trailers, room + capacity / 16 * sizeof(*list));
        if (!larger)
            return -ENOMEM;
        state->trailers = larger;
        long length = sandtide_call_(SANDTIDE_CALL_TRAILERS, larger, capacity);
        if (length < 0)
            return length;
        if ((size_t)length <= capacity)
            break;
        capacity = (size_t)length;
    }
    count = ((const uint32_t *)state->trailers)[1];
    entries = (const struct sandtide_span_ *)state->trailers + 1;
    list = (struct sandtide_field *)(void *)((char *)state->trailers + room);
    for (size_t i = 0; i < count; i++)
        list[i] = sandtide_entry_(state->trailers, entries + 2 * i);
    *fields = list;
    return (long)count;
}

/* ---- Responses --------------------------------------------------------------------------- */

/*
 * Answers with a whole response. 0, or a negated errno (EFAULT: a pointer is bad; outside a
 * sandbox also EINVAL: a bad status or field, EALREADY: a second response, EPIPE: the client is
 * gone). `Content-Length` and the like are the server's business.
 */
static inline int sandtide_send(const struct sandtide_response *response)
{
    return (int)sandtide_call_(SANDTIDE_CALL_RESPOND, response, 0);
}

/* Answers with status, headers and body. Returns as sandtide_send. */
static inline int sandtide_respond(int status, const struct sandtide_field *headers, size_t count,
                                   const void *body, size_t length)
{
    struct sandtide_response *response = &sandtide_state_.response;
    response->status = (uint32_t)status;
    response->header_count = (uint32_t)count;
    response->headers = headers;
    response->body = body;
    response->body_length = length;
    return sandtide_send(response);
}

/* Answers with text, which ends with a NUL, as `text/plain`. Returns as sandtide_send. */
static inline int sandtide_respond_text(int status, const char *text)
{
    static const struct sandtide_field plain =
        SANDTIDE_FIELD("content-type", "text/plain; charset=utf-8");
    return sandtide_respond(status, &plain, 1, text, strlen(text));
}

/*
 * Sends an interim response: a status from 102 to 199, and headers. At most
 * SANDTIDE_RESPONSE_MAX_INTERIM of them, and none once the response has begun. A client may never
 * see one: they are left out in HTTP/1.0, and wherever the server cannot send them. Returns as
 * sandtide_send; ENOSYS if the server does not know interim responses.
 */
static inline int sandtide_inform(int status, const struct sandtide_field *headers, size_t count)
{
    struct sandtide_response *response = &sandtide_state_.response;
    response->status = (uint32_t)status;
    response->header_count = (uint32_t)count;
    response->headers = headers;
    return (int)sandtide_call_(SANDTIDE_CALL_INFORM, response, 0);
}

/*
 * Tells the client what to fetch while the response is made (103 Early Hints, RFC 8297): `link` is
 * the value of a Link header, such as `</style.css>; rel=preload; as=style`. Returns as
 * sandtide_inform.
 */
static inline int sandtide_early_hints(const char *link)
{
    struct sandtide_field field;
    field.name = "link";
    field.value = link;
    field.name_length = 4;
    field.value_length = (uint32_t)strlen(link);
    return sandtide_inform(103, &field, 1);
}

/* Begins a response that is sent piece by piece. Returns as sandtide_send. */
static inline int sandtide_begin(int status, const struct sandtide_field *headers, size_t count)
{
    struct sandtide_response *response = &sandtide_state_.response;
    response->status = (uint32_t)status;
    response->header_count = (uint32_t)count;
    response->headers = headers;
    return (int)sandtide_call_(SANDTIDE_CALL_BEGIN, response, 0);
}

/* Sends a piece of the body; waits while the client is slow. Returns as sandtide_send. */
static inline int sandtide_write(const void *data, size_t length)
{
    return (int)sandtide_call_(SANDTIDE_CALL_WRITE, data, length);
}

/* Ends a response that was begun, with trailers if there are any. Returns as sandtide_send. */
static inline int sandtide_finish(const struct sandtide_field *trailers, size_t count)
{
    return (int)sandtide_call_(SANDTIDE_CALL_FINISH, trailers, count);
}

/* ---- State across versions --------------------------------------------------------------- */

/*
 * A tenant with `isolation = "none"` keeps its state between requests. When its program is replaced,
 * the server asks the old version to save its state and hands that to the new one, between two
 * requests: docs/state.md. Both functions are to be called before the first sandtide_next_request;
 * later they fail with EALREADY. Outside a sandbox there is one version only: handlers are never
 * called.
 *
 * `save` sets `state` to the bytes to hand over, which must stay until it is called again, and
 * returns 0; anything else says that it cannot.
 */
static inline int sandtide_on_save(int (*save)(struct sandtide_string *state))
{
    if (sandtide_state_.block)
        return -EALREADY;
    sandtide_state_.save = save;
    return 0;
}

/*
 * `restore` takes what an older version has saved, and returns 0; anything else says that it
 * cannot. The bytes are there only during the call, and the program may have been any version.
 */
static inline int sandtide_on_restore(int (*restore)(struct sandtide_string state))
{
    if (sandtide_state_.block)
        return -EALREADY;
    sandtide_state_.restore = restore;
    return 0;
}

/* Answers an event. */
SANDTIDE_SHARED_ void sandtide_event_(void)
{
    struct sandtide_state_ *state = &sandtide_state_;
    struct sandtide_request request;
    struct sandtide_string bytes = {NULL, 0};
    int failed = 1;
    request.block_ = (const struct sandtide_block_ *)state->block;
    if (request.block_->flags & SANDTIDE_REQUEST_FLAG_SAVE) {
        if (state->save)
            failed = state->save(&bytes);
    } else if (state->restore && !sandtide_read_body(&request, SIZE_MAX - 1, &bytes)) {
        failed = state->restore(bytes);
        bytes.length = 0;
    }
    sandtide_respond(failed ? 500 : 200, NULL, 0, bytes.data, failed ? 0 : bytes.length);
}

#ifdef __cplusplus
}
#endif

#ifndef SANDTIDE_NO_DEVSERVER
#include "sandtide_devserver.h"
#endif

#endif
