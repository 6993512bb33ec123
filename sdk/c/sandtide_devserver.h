/*
 * The HTTP/1.1 server that a Sandtide program is when it runs outside a sandbox: guest calls,
 * carried out over a socket. Included by sandtide.h; programs use nothing of it.
 *
 * A developer's tool: correct HTTP (RFC 9112), one connection at a time, and no defence against
 * a client that means harm. It listens on 127.0.0.1 only. A connection that is idle gives way to
 * the next one, so that a browser's spare connections do not block it.
 */
#ifndef SANDTIDE_DEVSERVER_H
#define SANDTIDE_DEVSERVER_H

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#ifndef MSG_MORE /* a hint that only Linux has */
#define MSG_MORE 0
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SANDTIDE_DEV_INPUT_ = 65536,    /* the most bytes of a request's head, and of its trailers */
    SANDTIDE_DEV_FIELDS_ = 128,     /* the most header fields, and trailer fields */
    SANDTIDE_DEV_PATIENCE_ = 30000, /* ms to wait for the next bytes of a request */
    SANDTIDE_DEV_DRAIN_ = 1 << 22   /* the most bytes of an unread body to read and drop */
};

enum sandtide_dev_framing_ { SANDTIDE_DEV_LENGTH_, SANDTIDE_DEV_CHUNKED_ };

struct sandtide_devserver_ {
    int listener;
    int connection; /* -1: none */
    uint64_t id;

    /* Received and not yet used: input[start..end]. */
    size_t start, end;
    unsigned char input[SANDTIDE_DEV_INPUT_];

    /* The request whose head was received last. Texts point into head, fields to their texts. */
    int waiting; /* not yet handed over */
    int keep_alive, http11, head_only, expects_continue;
    struct sandtide_string method, target, authority;
    struct sandtide_field fields[SANDTIDE_DEV_FIELDS_];
    size_t field_count;
    char head[SANDTIDE_DEV_INPUT_];

    /* What is left of its body. */
    enum sandtide_dev_framing_ framing;
    uint64_t remaining; /* of the body or of the chunk */
    uint64_t announced;
    int body_ended;
    struct sandtide_field trailers[SANDTIDE_DEV_FIELDS_];
    size_t trailer_count;
    char trailer_text[SANDTIDE_DEV_INPUT_];

    /* Its response. */
    int begun, finished, chunked, bodiless;
    int informed; /* interim responses before it */
    size_t out_length;
    char out[SANDTIDE_FIELD_MAX_BYTES + 4 * SANDTIDE_FIELD_MAX_COUNT + 512];
};

/* ---- Text -------------------------------------------------------------------------------- */

static inline int sandtide_dev_same_(const char *a, size_t length, const char *lower)
{
    size_t i = 0;
    for (; i < length && lower[i]; i++)
        if ((a[i] >= 'A' && a[i] <= 'Z' ? a[i] + 32 : a[i]) != lower[i])
            return 0;
    return i == length && !lower[i];
}

/* RFC 9110 5.6.2. */
static inline int sandtide_dev_is_token_(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')
              || (c && strchr("!#$%&'*+-.^_`|~", c))))
            return 0;
    }
    return length > 0;
}

/* RFC 9110 5.5: anything but control characters. */
static inline int sandtide_dev_is_value_(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)text[i] < 32 && text[i] != '\t') || text[i] == 127)
            return 0;
    return 1;
}

/* Whether a list such as `keep-alive, Close` has this member. */
static inline int sandtide_dev_lists_(struct sandtide_field field, const char *member)
{
    const char *at = field.value, *end = at + field.value_length;
    while (at < end) {
        const char *comma = (const char *)memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end, *last = stop;
        while (at < last && (*at == ' ' || *at == '\t'))
            at++;
        while (last > at && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        if (sandtide_dev_same_(at, (size_t)(last - at), member))
            return 1;
        at = stop + 1;
    }
    return 0;
}

/* A number that is the whole text, in base 10 or 16; -1 if it is none or too large. */
static inline int64_t sandtide_dev_number_(const char *text, size_t length, int base)
{
    int64_t value = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        int digit = c >= '0' && c <= '9' ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : 99;
        if (digit >= base || value >= INT64_MAX / 32)
            return -1;
        value = value * base + digit;
    }
    return length ? value : -1;
}

static inline void sandtide_dev_put_(struct sandtide_devserver_ *server, const void *data,
                                     size_t length)
{
    if (length > sizeof(server->out) - server->out_length)
        length = sizeof(server->out) - server->out_length;
    if (length)
        memcpy(server->out + server->out_length, data, length);
    server->out_length += length;
}

static inline void sandtide_dev_puts_(struct sandtide_devserver_ *server, const char *text)
{
    sandtide_dev_put_(server, text, strlen(text));
}

static inline void sandtide_dev_put_number_(struct sandtide_devserver_ *server, uint64_t value,
                                            unsigned base)
{
    char digits[24];
    size_t at = sizeof(digits);
    do {
        digits[--at] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    sandtide_dev_put_(server, digits + at, sizeof(digits) - at);
}

/* ---- Sockets ----------------------------------------------------------------------------- */

SANDTIDE_SHARED_ void sandtide_dev_close_(struct sandtide_devserver_ *server)
{
    if (server->connection >= 0)
        close(server->connection);
    server->connection = -1;
    server->start = server->end = 0;
}

/* Sends all of it, or closes the connection and returns -EPIPE. */
SANDTIDE_SHARED_ int sandtide_dev_send_(struct sandtide_devserver_ *server, const void *data,
                                        size_t length, int more)
{
    const char *at = (const char *)data;
    while (length && server->connection >= 0) {
        ssize_t sent = send(server->connection, at, length, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            sandtide_dev_close_(server);
            break;
        }
        at += sent;
        length -= (size_t)sent;
    }
    return server->connection < 0 ? -EPIPE : 0;
}

/* Appends to the input. 1, or 0 if there is no more to come or no room for it. */
SANDTIDE_SHARED_ int sandtide_dev_receive_(struct sandtide_devserver_ *server)
{
    struct pollfd readable = {server->connection, POLLIN, 0};
    ssize_t got;
    if (server->start == server->end) {
        server->start = server->end = 0;
    } else if (server->end == sizeof(server->input)) {
        memmove(server->input, server->input + server->start, server->end - server->start);
        server->end -= server->start;
        server->start = 0;
    }
    if (server->connection < 0 || server->end == sizeof(server->input))
        return 0;
    do {
        if (poll(&readable, 1, SANDTIDE_DEV_PATIENCE_) == 0)
            return 0;
        got = recv(server->connection, server->input + server->end,
                   sizeof(server->input) - server->end, 0);
    } while (got < 0 && errno == EINTR);
    if (got <= 0)
        return 0;
    server->end += (size_t)got;
    return 1;
}

/* Lets the client read what was sent before it sees the connection closed. */
SANDTIDE_SHARED_ void sandtide_dev_linger_(struct sandtide_devserver_ *server)
{
    size_t dropped = 0;
    if (server->connection < 0)
        return;
    shutdown(server->connection, SHUT_WR);
    while (dropped < SANDTIDE_DEV_DRAIN_) {
        struct pollfd readable = {server->connection, POLLIN, 0};
        ssize_t got;
        if (poll(&readable, 1, 500) <= 0)
            break;
        got = recv(server->connection, server->input, sizeof(server->input), 0);
        if (got <= 0)
            break;
        dropped += (size_t)got;
    }
    sandtide_dev_close_(server);
}

/* Answers in the program's place and closes the connection. Always 0. */
SANDTIDE_SHARED_ int sandtide_dev_refuse_(struct sandtide_devserver_ *server, int status,
                                          const char *why)
{
    server->out_length = 0;
    sandtide_dev_puts_(server, "HTTP/1.1 ");
    sandtide_dev_put_number_(server, (uint64_t)status, 10);
    sandtide_dev_puts_(server,
                       " \r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: ");
    sandtide_dev_put_number_(server, strlen(why) + 1, 10);
    sandtide_dev_puts_(server, "\r\n\r\n");
    sandtide_dev_puts_(server, why);
    sandtide_dev_puts_(server, "\n");
    sandtide_dev_send_(server, server->out, server->out_length, 0);
    sandtide_dev_linger_(server);
    return 0;
}

/* ---- Request heads ----------------------------------------------------------------------- */

/*
 * Parses `name: value CRLF` lines up to `end`. How many there are; -400 if they are malformed, -431
 * if they are too many. Names become lower case; a NUL takes the place of the byte behind each text.
 */
SANDTIDE_SHARED_ int sandtide_dev_fields_(char *at, char *end, struct sandtide_field *fields)
{
    int count = 0;
    while (at < end) {
        char *stop = (char *)memchr(at, '\n', (size_t)(end - at));
        char *colon, *first, *last;
        if (!stop || stop == at || stop[-1] != '\r')
            return -400;
        last = stop - 1;
        colon = (char *)memchr(at, ':', (size_t)(last - at));
        if (!colon || !sandtide_dev_is_token_(at, (size_t)(colon - at)))
            return -400;
        first = colon + 1;
        while (first < last && (*first == ' ' || *first == '\t'))
            first++;
        while (last > first && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        if (!sandtide_dev_is_value_(first, (size_t)(last - first)))
            return -400;
        if (count == SANDTIDE_DEV_FIELDS_)
            return -431;
        for (char *c = at; c < colon; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + 32);
        *colon = *last = 0;
        fields[count].name = at;
        fields[count].name_length = (uint32_t)(colon - at);
        fields[count].value = first;
        fields[count].value_length = (uint32_t)(last - first);
        count++;
        at = stop + 1;
    }
    return count;
}

/* Splits the request line. 0, or the status to refuse it with. */
SANDTIDE_SHARED_ int sandtide_dev_line_(struct sandtide_devserver_ *server, char *line, char *end)
{
    char *space = (char *)memchr(line, ' ', (size_t)(end - line)), *target, *stop;
    if (!space || !sandtide_dev_is_token_(line, (size_t)(space - line)))
        return 400;
    target = space + 1;
    stop = (char *)memchr(target, ' ', (size_t)(end - target));
    if (!stop || stop == target)
        return 400;
    if (end - stop != 9 || memcmp(stop, " HTTP/", 6) != 0 || stop[7] != '.')
        return 400;
    if (stop[6] != '1' || (stop[8] != '1' && stop[8] != '0'))
        return 505;
    server->http11 = stop[8] == '1';
    *space = *stop = 0;
    server->method.data = line;
    server->method.length = (size_t)(space - line);
    server->head_only = sandtide_equal(server->method, "HEAD");
    for (char *c = target; c < stop; c++)
        if ((unsigned char)*c <= 32 || *c == 127 || *c == '#')
            return 400;
    server->authority.data = "";
    server->authority.length = 0;
    if (sandtide_equal(server->method, "CONNECT"))
        return 501;
    if (stop - target > 7 && sandtide_dev_same_(target, 7, "http://")) {
        char *path = target + 7;
        while (path < stop && *path != '/' && *path != '?')
            path++;
        server->authority.data = target + 7;
        server->authority.length = (size_t)(path - target - 7);
        if (path == stop || *path == '?') { /* `http://host?query` has the path `/` */
            memmove(target + 6, target + 7, server->authority.length);
            server->authority.data = target + 6;
            *--path = '/';
        }
        target = path;
    } else if (*target != '/' && !(sandtide_equal(server->method, "OPTIONS") && stop == target + 1
                                   && *target == '*')) {
        return 400;
    }
    server->target.data = target;
    server->target.length = (size_t)(stop - target);
    return 0;
}

/* What the fields say about the connection and the body. 0, or the status to refuse them with. */
SANDTIDE_SHARED_ int sandtide_dev_framing_of_(struct sandtide_devserver_ *server)
{
    int64_t length = -1;
    int hosts = 0, coded = 0;
    server->keep_alive = server->http11;
    server->expects_continue = 0;
    for (size_t i = 0; i < server->field_count; i++) {
        struct sandtide_field field = server->fields[i];
        if (sandtide_dev_same_(field.name, field.name_length, "host")) {
            if (hosts++)
                return 400;
            if (!server->authority.length) {
                server->authority.data = field.value;
                server->authority.length = field.value_length;
            }
        } else if (sandtide_dev_same_(field.name, field.name_length, "connection")) {
            if (sandtide_dev_lists_(field, "close"))
                server->keep_alive = 0;
        } else if (sandtide_dev_same_(field.name, field.name_length, "expect")) {
            if (!sandtide_dev_same_(field.value, field.value_length, "100-continue"))
                return 417;
            server->expects_continue = server->http11;
        } else if (sandtide_dev_same_(field.name, field.name_length, "content-length")) {
            if (length >= 0)
                return 400;
            length = sandtide_dev_number_(field.value, field.value_length, 10);
            if (length < 0)
                return 400;
        } else if (sandtide_dev_same_(field.name, field.name_length, "transfer-encoding")) {
            if (coded++ || !server->http11)
                return 400;
            if (!sandtide_dev_same_(field.value, field.value_length, "chunked"))
                return 501;
        }
    }
    if ((server->http11 && !hosts) || (coded && length >= 0))
        return 400;
    server->framing = coded ? SANDTIDE_DEV_CHUNKED_ : SANDTIDE_DEV_LENGTH_;
    server->remaining = length > 0 ? (uint64_t)length : 0;
    server->announced = coded ? SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN : server->remaining;
    server->body_ended = !coded && server->remaining == 0;
    server->trailer_count = 0;
    return 0;
}

/* Where the first empty line of the input ends, or NULL. */
static inline unsigned char *sandtide_dev_blank_(struct sandtide_devserver_ *server)
{
    unsigned char *line = server->input + server->start, *end = server->input + server->end;
    for (;;) {
        unsigned char *stop = (unsigned char *)memchr(line, '\n', (size_t)(end - line));
        if (!stop)
            return NULL;
        if (stop == line || (stop == line + 1 && *line == '\r'))
            return stop + 1;
        line = stop + 1;
    }
}

/* Moves the input up to `stop` to `head` and parses it as a request. 1 if it is one. */
SANDTIDE_SHARED_ int sandtide_dev_parse_(struct sandtide_devserver_ *server, unsigned char *stop)
{
    size_t length = (size_t)(stop - server->input) - server->start;
    char *line_end;
    int status, count;
    memcpy(server->head, server->input + server->start, length);
    server->start += length;
    line_end = (char *)memchr(server->head, '\n', length);
    if (length < 4 || memcmp(server->head + length - 4, "\r\n\r\n", 4) != 0
        || line_end[-1] != '\r')
        return sandtide_dev_refuse_(server, 400, "lines must end with CR LF");
    status = sandtide_dev_line_(server, server->head, line_end - 1);
    if (status)
        return sandtide_dev_refuse_(server, status, "bad request line");
    count = sandtide_dev_fields_(line_end + 1, server->head + length - 2, server->fields);
    if (count < 0)
        return sandtide_dev_refuse_(server, -count, "bad header fields");
    server->field_count = (size_t)count;
    status = sandtide_dev_framing_of_(server);
    if (status)
        return sandtide_dev_refuse_(server, status, "bad Host, Expect or body length");
    server->begun = server->finished = server->informed = 0;
    server->id++;
    return 1;
}

/* Waits for a connection, or for more of the one there is. 1 if there are new bytes. */
SANDTIDE_SHARED_ int sandtide_dev_wait_(struct sandtide_devserver_ *server)
{
    int one = 1;
    if (server->connection >= 0 && server->start == server->end) {
        struct pollfd either[2] = {{server->connection, POLLIN, 0}, {server->listener, POLLIN, 0}};
        if (poll(either, 2, -1) > 0 && !either[0].revents)
            sandtide_dev_close_(server);
    }
    if (server->connection < 0) {
        server->connection = accept(server->listener, NULL, NULL);
        if (server->connection < 0) {
            if (errno != EINTR && errno != ECONNABORTED)
                poll(NULL, 0, 100); /* out of descriptors or memory: not in a busy loop */
            return 0;
        }
        setsockopt(server->connection, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return 0;
    }
    if (sandtide_dev_receive_(server))
        return 1;
    sandtide_dev_close_(server);
    return 0;
}

/* Receives a request's head; refuses what is none. */
SANDTIDE_SHARED_ void sandtide_dev_next_head_(struct sandtide_devserver_ *server)
{
    for (;;) {
        unsigned char *blank;
        /* An empty line before a request is to be ignored (RFC 9112 2.2). */
        while (server->end - server->start >= 2
               && memcmp(server->input + server->start, "\r\n", 2) == 0)
            server->start += 2;
        blank = sandtide_dev_blank_(server);
        if (blank) {
            if (sandtide_dev_parse_(server, blank))
                return;
        } else if (server->end - server->start == sizeof(server->input)) {
            sandtide_dev_refuse_(server, 431, "the request's head is too long");
        } else {
            sandtide_dev_wait_(server);
        }
    }
}

/* ---- Request bodies ---------------------------------------------------------------------- */

/* The client went away or broke the framing. */
SANDTIDE_SHARED_ long sandtide_dev_body_failed_(struct sandtide_devserver_ *server, int error)
{
    if (error == EPROTO && !server->begun)
        sandtide_dev_refuse_(server, 400, "bad chunked body");
    sandtide_dev_close_(server);
    return -error;
}

/* Reads the line with the size of the next chunk; after the last one, the trailers. */
SANDTIDE_SHARED_ long sandtide_dev_next_chunk_(struct sandtide_devserver_ *server)
{
    for (;;) {
        const char *line = (const char *)server->input + server->start;
        size_t have = server->end - server->start, length;
        const char *stop = (const char *)memchr(line, '\n', have);
        int64_t size;
        if (!stop) {
            if (have > 1024)
                return sandtide_dev_body_failed_(server, EPROTO);
            if (!sandtide_dev_receive_(server))
                return sandtide_dev_body_failed_(server, EPIPE);
            continue;
        }
        if (stop == line || stop[-1] != '\r')
            return sandtide_dev_body_failed_(server, EPROTO);
        length = (size_t)(stop - 1 - line);
        const char *extension = (const char *)memchr(line, ';', length);
        size = sandtide_dev_number_(line, extension ? (size_t)(extension - line) : length, 16);
        if (size < 0)
            return sandtide_dev_body_failed_(server, EPROTO);
        server->remaining = (uint64_t)size;
        if (size > 0) {
            server->start += length + 2;
            return 0;
        }
        /* `0 CRLF`, then trailers, then an empty line. */
        unsigned char *blank;
        server->start += length + 2;
        while (!(blank = sandtide_dev_blank_(server)))
            if (!sandtide_dev_receive_(server))
                return sandtide_dev_body_failed_(server, EPIPE);
        length = (size_t)(blank - server->input) - server->start;
        memcpy(server->trailer_text, server->input + server->start, length);
        server->start += length;
        if (length < 2 || memcmp(server->trailer_text + length - 2, "\r\n", 2) != 0)
            return sandtide_dev_body_failed_(server, EPROTO);
        int count = sandtide_dev_fields_(server->trailer_text, server->trailer_text + length - 2,
                                         server->trailers);
        if (count < 0)
            return sandtide_dev_body_failed_(server, EPROTO);
        server->trailer_count = (size_t)count;
        server->body_ended = 1;
        return 0;
    }
}

/* READ. */
SANDTIDE_SHARED_ long sandtide_dev_read_(struct sandtide_devserver_ *server, void *buffer,
                                         size_t capacity)
{
    size_t length;
    if (server->body_ended || !capacity)
        return 0;
    if (server->connection < 0)
        return -EPIPE;
    if (server->expects_continue && server->start == server->end && !server->begun) {
        const char *go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        if (sandtide_dev_send_(server, go_on, strlen(go_on), 0))
            return -EPIPE;
    }
    server->expects_continue = 0;
    if (server->framing == SANDTIDE_DEV_CHUNKED_ && server->remaining == 0) {
        long failed = sandtide_dev_next_chunk_(server);
        if (failed || server->body_ended)
            return failed;
    }
    if (server->start == server->end && !sandtide_dev_receive_(server))
        return sandtide_dev_body_failed_(server, EPIPE);
    length = server->end - server->start;
    if (length > server->remaining)
        length = (size_t)server->remaining;
    if (length > capacity)
        length = capacity;
    memcpy(buffer, server->input + server->start, length);
    server->start += length;
    server->remaining -= length;
    if (server->remaining > 0)
        return (long)length;
    if (server->framing == SANDTIDE_DEV_LENGTH_) {
        server->body_ended = 1;
        return (long)length;
    }
    while (server->end - server->start < 2) /* the CR LF behind a chunk */
        if (!sandtide_dev_receive_(server))
            return sandtide_dev_body_failed_(server, EPIPE);
    if (memcmp(server->input + server->start, "\r\n", 2) != 0)
        return sandtide_dev_body_failed_(server, EPROTO);
    server->start += 2;
    return (long)length;
}

/* ---- Request blocks ---------------------------------------------------------------------- */

static inline size_t sandtide_dev_table_size_(const struct sandtide_field *fields, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++)
        size += SANDTIDE_REQUEST_FIELD_SIZE + fields[i].name_length + fields[i].value_length + 2;
    return size;
}

static inline struct sandtide_span_ sandtide_dev_store_(char *block, uint32_t *at, const char *text,
                                                        size_t length)
{
    struct sandtide_span_ span;
    span.offset = *at;
    span.length = (uint32_t)length;
    if (length)
        memcpy(block + *at, text, length);
    block[*at + length] = 0;
    *at += span.length + 1;
    return span;
}

/* Writes the table at `table` and its texts behind it; returns where they end. */
SANDTIDE_SHARED_ uint32_t sandtide_dev_store_fields_(char *block, uint32_t table,
                                                     const struct sandtide_field *fields,
                                                     size_t count)
{
    struct sandtide_span_ *entry = (struct sandtide_span_ *)(void *)(block + table);
    uint32_t at = table + (uint32_t)(count * SANDTIDE_REQUEST_FIELD_SIZE);
    for (size_t i = 0; i < count; i++) {
        *entry++ = sandtide_dev_store_(block, &at, fields[i].name, fields[i].name_length);
        *entry++ = sandtide_dev_store_(block, &at, fields[i].value, fields[i].value_length);
    }
    return at;
}

SANDTIDE_SHARED_ int sandtide_dev_random_(unsigned char *bytes, size_t length)
{
    int source = open("/dev/urandom", O_RDONLY);
    ssize_t got = source < 0 ? -1 : read(source, bytes, length);
    if (source >= 0)
        close(source);
    return got == (ssize_t)length ? 0 : -EIO;
}

SANDTIDE_SHARED_ long sandtide_dev_store_request_(struct sandtide_devserver_ *server, void *memory,
                                                  size_t capacity)
{
    struct sandtide_block_ *block = (struct sandtide_block_ *)memory;
    struct timeval now;
    uint32_t at;
    /* As in a sandbox, the body comes with the request if all of it is here. */
    int whole = server->body_ended
                || (server->framing == SANDTIDE_DEV_LENGTH_
                    && server->remaining <= server->end - server->start);
    size_t inlined = server->body_ended ? 0 : whole ? (size_t)server->remaining : 0;
    size_t length = SANDTIDE_REQUEST_SIZE
                    + sandtide_dev_table_size_(server->fields, server->field_count)
                    + server->method.length + server->target.length + server->authority.length + 3;
    if (length > capacity)
        return (long)length;
    if (length + inlined > capacity)
        whole = 0, inlined = 0;
    if (sandtide_dev_random_(block->random, sizeof(block->random)))
        return -EIO;
    gettimeofday(&now, NULL);
    block->length = (uint32_t)(length + inlined);
    block->version = SANDTIDE_ABI_VERSION;
    block->flags = whole ? SANDTIDE_REQUEST_FLAG_BODY_COMPLETE : 0;
    block->id = server->id;
    block->time_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_usec * 1000u;
    block->body_length = server->announced;
    block->headers.offset = SANDTIDE_REQUEST_SIZE;
    block->headers.length = (uint32_t)server->field_count;
    at = sandtide_dev_store_fields_((char *)block, SANDTIDE_REQUEST_SIZE, server->fields,
                                    server->field_count);
    block->method = sandtide_dev_store_((char *)block, &at, server->method.data,
                                        server->method.length);
    block->target = sandtide_dev_store_((char *)block, &at, server->target.data,
                                        server->target.length);
    block->authority = sandtide_dev_store_((char *)block, &at, server->authority.data,
                                           server->authority.length);
    block->body.offset = at;
    block->body.length = (uint32_t)inlined;
    memcpy((char *)block + at, server->input + server->start, inlined);
    server->waiting = 0;
    return (long)block->length;
}

/* TRAILERS. */
SANDTIDE_SHARED_ long sandtide_dev_trailers_(struct sandtide_devserver_ *server, void *block,
                                             size_t capacity)
{
    size_t length = SANDTIDE_TRAILERS_SIZE
                    + sandtide_dev_table_size_(server->trailers, server->trailer_count);
    if (!server->body_ended)
        return -EBUSY;
    if (length > capacity)
        return (long)length;
    ((uint32_t *)block)[0] = (uint32_t)length;
    ((uint32_t *)block)[1] = (uint32_t)server->trailer_count;
    sandtide_dev_store_fields_((char *)block, SANDTIDE_TRAILERS_SIZE, server->trailers,
                               server->trailer_count);
    return (long)length;
}

/* ---- Responses --------------------------------------------------------------------------- */

/* Appends fields to `out`. 0 or -EINVAL. The framing is not the program's business. */
SANDTIDE_SHARED_ int sandtide_dev_put_fields_(struct sandtide_devserver_ *server,
                                              const struct sandtide_field *fields, uint64_t count)
{
    static const char *const ours[] = {"connection", "keep-alive", "transfer-encoding",
                                       "content-length", "upgrade"};
    size_t bytes = 0;
    if (count > SANDTIDE_FIELD_MAX_COUNT)
        return -EINVAL;
    for (const struct sandtide_field *field = fields; field < fields + count; field++) {
        int skip = 0;
        bytes += (size_t)field->name_length + field->value_length;
        if (bytes > SANDTIDE_FIELD_MAX_BYTES
            || !sandtide_dev_is_token_(field->name, field->name_length)
            || !sandtide_dev_is_value_(field->value, field->value_length))
            return -EINVAL;
        for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
            skip |= sandtide_dev_same_(field->name, field->name_length, ours[i]);
        if (skip)
            continue;
        sandtide_dev_put_(server, field->name, field->name_length);
        sandtide_dev_puts_(server, ": ");
        sandtide_dev_put_(server, field->value, field->value_length);
        sandtide_dev_puts_(server, "\r\n");
    }
    return 0;
}

/* INFORM. HTTP/1.0 has no interim responses. */
SANDTIDE_SHARED_ int sandtide_dev_inform_(struct sandtide_devserver_ *server,
                                          const struct sandtide_response *response)
{
    int error;
    if (server->begun)
        return -EALREADY;
    if (response->status < 102 || response->status > 199
        || server->informed++ == SANDTIDE_RESPONSE_MAX_INTERIM)
        return -EINVAL;
    server->out_length = 0;
    sandtide_dev_puts_(server, "HTTP/1.1 ");
    sandtide_dev_put_number_(server, response->status, 10);
    sandtide_dev_puts_(server, " \r\n");
    error = sandtide_dev_put_fields_(server, response->headers, response->header_count);
    if (error || !server->http11)
        return error;
    sandtide_dev_puts_(server, "\r\n");
    return sandtide_dev_send_(server, server->out, server->out_length, 0);
}

/* Puts the head into `out`; `length` as in announced. 0, or a negated errno. */
SANDTIDE_SHARED_ int sandtide_dev_head_(struct sandtide_devserver_ *server,
                                        const struct sandtide_response *response, uint64_t length)
{
    int error, streamed = length == SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN;
    if (server->begun)
        return -EALREADY;
    if (response->status < 200 || response->status > 599)
        return -EINVAL;
    server->out_length = 0;
    sandtide_dev_puts_(server, "HTTP/1.1 ");
    sandtide_dev_put_number_(server, response->status, 10);
    sandtide_dev_puts_(server, " \r\n");
    error = sandtide_dev_put_fields_(server, response->headers, response->header_count);
    if (error)
        return error;
    server->begun = 1;
    server->bodiless = server->head_only || response->status == 204 || response->status == 304;
    server->chunked = streamed && server->http11;
    if (streamed && !server->http11)
        server->keep_alive = 0;
    if (response->status == 204 || (response->status == 304 && streamed))
        server->chunked = 0;
    else if (server->chunked)
        sandtide_dev_puts_(server, "transfer-encoding: chunked\r\n");
    else if (!streamed) {
        sandtide_dev_puts_(server, "content-length: ");
        sandtide_dev_put_number_(server, length, 10);
        sandtide_dev_puts_(server, "\r\n");
    }
    /* A client that waits for 100 Continue may send the body or leave it: no telling. */
    if (server->expects_continue && !server->body_ended)
        server->keep_alive = 0;
    if (!server->keep_alive)
        sandtide_dev_puts_(server, "connection: close\r\n");
    sandtide_dev_puts_(server, "\r\n");
    return 0;
}

/* WRITE. */
SANDTIDE_SHARED_ int sandtide_dev_write_(struct sandtide_devserver_ *server, const void *data,
                                         size_t length)
{
    if (!server->begun || server->finished)
        return -EALREADY;
    if (!length || server->bodiless)
        return 0;
    if (!server->chunked)
        return sandtide_dev_send_(server, data, length, 0);
    server->out_length = 0;
    sandtide_dev_put_number_(server, length, 16);
    sandtide_dev_puts_(server, "\r\n");
    sandtide_dev_send_(server, server->out, server->out_length, 1);
    sandtide_dev_send_(server, data, length, 1);
    return sandtide_dev_send_(server, "\r\n", 2, 0);
}

/* FINISH. */
SANDTIDE_SHARED_ int sandtide_dev_finish_(struct sandtide_devserver_ *server,
                                          const struct sandtide_field *trailers, uint64_t count)
{
    if (!server->begun || server->finished)
        return -EALREADY;
    server->out_length = 0;
    sandtide_dev_puts_(server, "0\r\n");
    if (sandtide_dev_put_fields_(server, trailers, count))
        return -EINVAL;
    sandtide_dev_puts_(server, "\r\n");
    server->finished = 1;
    if (!server->chunked || server->bodiless)
        return server->connection < 0 ? -EPIPE : 0;
    return sandtide_dev_send_(server, server->out, server->out_length, 0);
}

/* RESPOND and BEGIN. A response with trailers goes out in chunks, to have a place for them. */
SANDTIDE_SHARED_ int sandtide_dev_respond_(struct sandtide_devserver_ *server,
                                           const struct sandtide_response *response, int begin_only)
{
    int streamed = begin_only || response->trailer_count;
    int error = sandtide_dev_head_(
        server, response,
        streamed ? SANDTIDE_REQUEST_BODY_LENGTH_UNKNOWN : response->body_length);
    if (error)
        return error;
    error = sandtide_dev_send_(server, server->out, server->out_length,
                               !begin_only && !server->bodiless && response->body_length);
    if (begin_only || error) {
        server->finished |= error != 0;
        return error;
    }
    sandtide_dev_write_(server, response->body, (size_t)response->body_length);
    return sandtide_dev_finish_(server, response->trailers, response->trailer_count);
}

/* Brings the connection to where the next request begins, or closes it. */
SANDTIDE_SHARED_ void sandtide_dev_end_exchange_(struct sandtide_devserver_ *server)
{
    size_t dropped = 0;
    char sink[4096];
    if (server->id == 0 || server->connection < 0)
        return;
    if (!server->begun) {
        sandtide_dev_refuse_(server, 500, "the program has not answered this request");
        return;
    }
    if (!server->finished) {
        sandtide_dev_close_(server);
        return;
    }
    while (server->keep_alive && !server->body_ended) {
        long piece = sandtide_dev_read_(server, sink, sizeof(sink));
        if (piece < 0)
            return;
        dropped += (size_t)piece;
        if (dropped > SANDTIDE_DEV_DRAIN_)
            server->keep_alive = 0;
    }
    if (!server->keep_alive)
        sandtide_dev_linger_(server);
}

/* ---- What sandtide.h calls --------------------------------------------------------------- */

/* Carries out a guest call, as crates/abi describes it. */
SANDTIDE_SHARED_ long sandtide_devserver_call_(void *memory, long number, long first, long second)
{
    struct sandtide_devserver_ *server = (struct sandtide_devserver_ *)memory;
    switch (number) {
    case SANDTIDE_CALL_NEXT_REQUEST:
        if (!server->waiting) {
            sandtide_dev_end_exchange_(server);
            sandtide_dev_next_head_(server);
            server->waiting = 1;
        }
        return sandtide_dev_store_request_(server, (void *)first, (size_t)second);
    case SANDTIDE_CALL_RESPOND:
    case SANDTIDE_CALL_BEGIN:
        return sandtide_dev_respond_(server, (const struct sandtide_response *)first,
                                     number == SANDTIDE_CALL_BEGIN);
    case SANDTIDE_CALL_INFORM:
        return sandtide_dev_inform_(server, (const struct sandtide_response *)first);
    case SANDTIDE_CALL_WRITE:
        return sandtide_dev_write_(server, (const void *)first, (size_t)second);
    case SANDTIDE_CALL_FINISH:
        return sandtide_dev_finish_(server, (const struct sandtide_field *)first,
                                    (uint64_t)second);
    case SANDTIDE_CALL_READ:
        return sandtide_dev_read_(server, (void *)first, (size_t)second);
    case SANDTIDE_CALL_TRAILERS:
        return sandtide_dev_trailers_(server, (void *)first, (size_t)second);
    default:
        return -ENOSYS;
    }
}

/* Says something on standard error. */
SANDTIDE_SHARED_ void sandtide_dev_say_(struct sandtide_devserver_ *server, const char *text,
                                        uint64_t number, const char *rest)
{
    server->out_length = 0;
    sandtide_dev_puts_(server, text);
    sandtide_dev_put_number_(server, number, 10);
    sandtide_dev_puts_(server, rest);
    if (write(2, server->out, server->out_length) < 0)
        return;
}

/* Listens on 127.0.0.1:$PORT; 0 takes a free port. 0, or a negated errno. */
SANDTIDE_SHARED_ int sandtide_devserver_start_(void **result)
{
    struct sandtide_devserver_ *server =
        (struct sandtide_devserver_ *)calloc(1, sizeof(struct sandtide_devserver_));
    const char *text = getenv("PORT");
    int64_t port = text && *text ? sandtide_dev_number_(text, strlen(text), 10) : 8000;
    struct sockaddr_in address;
    socklen_t size = sizeof(address);
    int one = 1, error;
    if (!server)
        return -ENOMEM;
    server->connection = -1;
    server->listener = -1;
    memset(&address, 0, sizeof(address));
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    errno = EINVAL;
    if (port < 0 || port > 65535 || (server->listener = socket(AF_INET, SOCK_STREAM, 0)) < 0
        || setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0
        || bind(server->listener, (struct sockaddr *)&address, size) < 0
        || listen(server->listener, 64) < 0
        || getsockname(server->listener, (struct sockaddr *)&address, &size) < 0) {
        error = -errno;
        if (port < 0 || port > 65535)
            sandtide_dev_say_(server, "sandtide: PORT must be a number up to ", 65535, "\n");
        else
            sandtide_dev_say_(server, "sandtide: cannot listen on 127.0.0.1:", (uint64_t)port,
                              error == -EADDRINUSE ? ": the port is taken\nhint: set PORT\n"
                                                   : "\n");
        if (server->listener >= 0)
            close(server->listener);
        free(server);
        return error;
    }
    sandtide_dev_say_(server, "sandtide: not in a sandbox; serving http://127.0.0.1:",
                      ntohs(address.sin_port), "\n");
    *result = server;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
