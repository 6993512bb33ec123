/*
 * Answers with headers and trailers that would end a head, begin another response or frame the body:
 *
 *     /whole?<n>       in one call
 *     /stream?<n>      before a streamed body
 *     /trailers?<n>    behind a streamed body
 *     /count           how many there are
 *     /fields?<n>      with n harmless headers
 *     /long-field?<n>  with a header of n bytes
 *     else             the last part of the path
 */
#include <stdio.h>

#include "sandtide.h"

static const struct sandtide_field fields[] = {
    SANDTIDE_FIELD("x-note", "a\r\nx-injected: yes"),
    SANDTIDE_FIELD("x-note", "a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad"),
    SANDTIDE_FIELD("x-note", "a\nx-injected: yes"),
    SANDTIDE_FIELD("x-note", "a\rx-injected: yes"),
    SANDTIDE_FIELD("x-note", "a\0b"),
    SANDTIDE_FIELD("x-note", "\r\n"),
    SANDTIDE_FIELD("x-note", "a\x7f"),
    SANDTIDE_FIELD("x-note\r\nx-injected", "yes"),
    SANDTIDE_FIELD("x-note\nx-injected", "yes"),
    SANDTIDE_FIELD("x-note: a\r\nx", "b"),
    SANDTIDE_FIELD("x note", "a"),
    SANDTIDE_FIELD("x-note:", "a"),
    SANDTIDE_FIELD("x-note\0", "a"),
    SANDTIDE_FIELD("", "a"),
    SANDTIDE_FIELD(":status", "404"),
    SANDTIDE_FIELD("content-length", "0"),
    SANDTIDE_FIELD("content-length", "1"),
    SANDTIDE_FIELD("content-length", "100000"),
    SANDTIDE_FIELD("content-length", "4, 4"),
    SANDTIDE_FIELD("content-length", "-1"),
    SANDTIDE_FIELD("Content-Length", "3"),
    SANDTIDE_FIELD("transfer-encoding", "chunked"),
    SANDTIDE_FIELD("transfer-encoding", "gzip"),
    SANDTIDE_FIELD("Transfer-Encoding", "identity"),
    SANDTIDE_FIELD("connection", "upgrade"),
    SANDTIDE_FIELD("connection", "keep-alive, content-type"),
    SANDTIDE_FIELD("upgrade", "h2c"),
    SANDTIDE_FIELD("keep-alive", "timeout=1000"),
    SANDTIDE_FIELD("proxy-connection", "keep-alive"),
    SANDTIDE_FIELD("te", "trailers"),
};
static const size_t count = sizeof(fields) / sizeof(*fields);

static void answer(struct sandtide_string path, struct sandtide_string query)
{
    char text[32];
    snprintf(text, sizeof(text), "%.*s", (int)query.length, query.data);
    const struct sandtide_field *field = &fields[strtoul(text, NULL, 10) % count];
    if (sandtide_equal(path, "/whole")) {
        sandtide_respond(200, field, 1, "body", 4);
    } else if (sandtide_equal(path, "/stream")) {
        sandtide_begin(200, field, 1);
        sandtide_write("bo", 2);
        sandtide_write("dy", 2);
        sandtide_finish(NULL, 0);
    } else if (sandtide_equal(path, "/trailers")) {
        sandtide_begin(200, NULL, 0);
        sandtide_write("body", 4);
        sandtide_finish(field, 1);
    } else if (sandtide_equal(path, "/fields")) {
        size_t many = strtoul(text, NULL, 10);
        struct sandtide_field *all = calloc(many, sizeof(*all));
        for (size_t i = 0; i < many; i++)
            all[i] = (struct sandtide_field)SANDTIDE_FIELD("x-many", "a");
        sandtide_respond(200, all, many, "body", 4);
        free(all);
    } else if (sandtide_equal(path, "/long-field")) {
        struct sandtide_field one = SANDTIDE_FIELD("x-long", "");
        size_t length = strtoul(text, NULL, 10);
        char *value = malloc(length);
        memset(value, 'x', length);
        one.value = value;
        one.value_length = (uint32_t)length;
        sandtide_respond(200, &one, 1, "body", 4);
        free(value);
    } else if (sandtide_equal(path, "/count")) {
        snprintf(text, sizeof(text), "%zu", count);
        sandtide_respond_text(200, text);
    } else {
        sandtide_respond(200, NULL, 0, path.data + 1, path.length - 1);
    }
}

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0)
        answer(sandtide_path(&request), sandtide_query(&request));
    return 1;
}
