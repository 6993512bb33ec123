/*
 * Sends interim responses, and answers with or without reading the request's body.
 *
 *     /hints?N       N early hints, then `done`
 *     /read          early hints, then reads the body and answers with its length
 *     /ignore        answers without a look at the body
 *     /stream        early hints; the first piece of the response; reads the body; the rest
 *     /compute       early hints, computes for longer than a slice, early hints, then `done`
 *     /status?N      an interim response with status N, then `done`
 *     /framing       hints that claim a body and the end of the connection, then `done`
 *     /inject        hints with a line break in a value
 *     /late          begins its response, then sends hints
 *     /fault         hints, then reads the body and faults
 *
 * The suite is tests/tests/interim.rs.
 */
#include <stdio.h>

#include "sandtide.h"

static void hint(void)
{
    sandtide_early_hints("</style.css>; rel=preload");
}

static uint64_t read_all(void)
{
    static char piece[4096];
    uint64_t total = 0;
    long length;
    while ((length = sandtide_read(piece, sizeof(piece))) > 0)
        total += (uint64_t)length;
    return total;
}

static void answer_length(uint64_t length)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)length);
    sandtide_respond_text(200, text);
}

static void framing(void)
{
    static const struct sandtide_field fields[] = {
        SANDTIDE_FIELD("content-length", "5"),
        SANDTIDE_FIELD("transfer-encoding", "chunked"),
        SANDTIDE_FIELD("connection", "close, x-hop"),
        SANDTIDE_FIELD("x-hop", "1"),
        SANDTIDE_FIELD("trailer", "x-sum"),
        SANDTIDE_FIELD("upgrade", "h2c"),
        SANDTIDE_FIELD("keep-alive", "timeout=1"),
        SANDTIDE_FIELD("x-stays", "yes"),
    };
    sandtide_inform(103, fields, sizeof(fields) / sizeof(*fields));
    sandtide_respond_text(200, "done");
}

static void compute(void)
{
    hint();
    for (volatile uint32_t i = 0; i < 3000000; i++)
        ;
    hint();
    sandtide_respond_text(200, "done");
}

static void serve(const struct sandtide_request *request)
{
    struct sandtide_string path = sandtide_path(request);
    long number = strtol(sandtide_query(request).data, NULL, 10);
    if (sandtide_equal(path, "/hints")) {
        for (long i = 0; i < number; i++)
            hint();
        sandtide_respond_text(200, "done");
    } else if (sandtide_equal(path, "/read")) {
        hint();
        answer_length(read_all());
    } else if (sandtide_equal(path, "/ignore")) {
        sandtide_respond_text(200, "ignored");
    } else if (sandtide_equal(path, "/stream")) {
        hint();
        sandtide_begin(200, NULL, 0);
        sandtide_write("first ", 6);
        read_all();
        sandtide_write("last", 4);
        sandtide_finish(NULL, 0);
    } else if (sandtide_equal(path, "/compute")) {
        compute();
    } else if (sandtide_equal(path, "/status")) {
        sandtide_inform((int)number, NULL, 0);
        sandtide_respond_text(200, "done");
    } else if (sandtide_equal(path, "/framing")) {
        framing();
    } else if (sandtide_equal(path, "/inject")) {
        sandtide_early_hints("</a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0");
        sandtide_respond_text(200, "done");
    } else if (sandtide_equal(path, "/late")) {
        sandtide_begin(200, NULL, 0);
        sandtide_write("first ", 6);
        hint();
    } else if (sandtide_equal(path, "/fault")) {
        hint();
        read_all();
        abort();
    } else {
        sandtide_respond_text(404, "no such path");
    }
}

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0)
        serve(&request);
    return 1;
}
