/*
 * Shows a request to its sender.
 *
 *     /stream     sends the body back while it arrives
 *     /trailers   reads the body, and answers with the request's trailers as trailers
 *     /hints      sends early hints (103), then as below
 *     all else    method, target, authority, headers and body, as text
 */
#include <stdio.h>

#include "sandtide.h"

static const struct sandtide_field plain[] = {
    SANDTIDE_FIELD("content-type", "text/plain; charset=utf-8"),
};

static void stream(void)
{
    char piece[16384];
    long length;
    sandtide_begin(200, plain, 1);
    while ((length = sandtide_read(piece, sizeof(piece))) > 0)
        if (sandtide_write(piece, (size_t)length) < 0)
            return;
    if (length == 0)
        sandtide_finish(NULL, 0);
}

static void trailers(void)
{
    char piece[16384];
    const struct sandtide_field *fields;
    long length, count;
    uint64_t total = 0;
    while ((length = sandtide_read(piece, sizeof(piece))) > 0)
        total += (uint64_t)length;
    if (length < 0 || (count = sandtide_trailers(&fields)) < 0)
        return;
    length = snprintf(piece, sizeof(piece), "%llu bytes of body, %ld trailers\n",
                      (unsigned long long)total, count);
    sandtide_begin(200, plain, 1);
    sandtide_write(piece, (size_t)length);
    sandtide_finish(fields, (size_t)count);
}

static void write_text(struct sandtide_string text, const char *end)
{
    sandtide_write(text.data, text.length);
    sandtide_write(end, strlen(end));
}

static void echo(const struct sandtide_request *request)
{
    struct sandtide_string body;
    int error = sandtide_read_body(request, 1 << 20, &body);
    if (error == -EFBIG) {
        sandtide_respond_text(413, "At most 1 MiB; use /stream for more.\n");
        return;
    }
    if (error)
        return;
    sandtide_begin(200, plain, 1);
    write_text(sandtide_method(request), " ");
    write_text(sandtide_target(request), "\n");
    write_text(sandtide_authority(request), "\n");
    for (size_t i = 0; i < sandtide_header_count(request); i++) {
        struct sandtide_field header = sandtide_header_at(request, i);
        sandtide_write(header.name, header.name_length);
        sandtide_write(": ", 2);
        sandtide_write(header.value, header.value_length);
        sandtide_write("\n", 1);
    }
    write_text(body, "");
    sandtide_finish(NULL, 0);
}

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0) {
        struct sandtide_string path = sandtide_path(&request);
        if (sandtide_equal(path, "/stream"))
            stream();
        else if (sandtide_equal(path, "/trailers"))
            trailers();
        else {
            if (sandtide_equal(path, "/hints"))
                sandtide_early_hints("</style.css>; rel=preload; as=style");
            echo(&request);
        }
    }
    return 1;
}
