/*
 * Misbehaves on request, to show what a sandbox and its limits are for. The server answers for it
 * (502, 503, 504), says why in this tenant's log, and serves the next request as if nothing had
 * happened. `/` lists the ways.
 */
#include <stdio.h>
#include <unistd.h>

#include "sandtide.h"

static void ok(void)
{
    sandtide_respond_text(200, "ok\n");
}

/* Computes for ever. */
static void spin(void)
{
    for (volatile uint64_t i = 0;; i++)
        ;
}

/* Takes memory, and writes to it, until there is none left. */
static void take_memory(void)
{
    static char *volatile last; /* keeps the compiler from leaving all of this out */
    for (;;) {
        last = malloc(1 << 20);
        if (!last)
            abort();
        memset(last, 1, 1 << 20);
    }
}

/* Overflows its stack. */
static int recurse(volatile char *above)
{
    volatile char frame[1024];
    frame[0] = *above;
    return *above ? recurse(frame) + frame[0] : 0;
}

static void overflow_stack(void)
{
    volatile char bottom = 1;
    recurse(&bottom);
}

/* Reads where nothing is. */
static void trap(void)
{
    const int *volatile nowhere = (const int *)16;
    if (*nowhere)
        ok();
}

/* Exits with a code in place of an answer. */
static void leave(void)
{
    exit(3);
}

/* Never answers, and uses no CPU meanwhile. */
static void silent(void)
{
    for (;;)
        pause();
}

/* Floods its log, then answers. */
static void flood_log(void)
{
    for (int line = 0; line < 100000; line++)
        printf("line %d of far too many\n", line);
    fflush(stdout);
    ok();
}

/* Answers without an end. */
static void big(void)
{
    static char piece[65536];
    sandtide_begin(200, NULL, 0);
    while (sandtide_write(piece, sizeof(piece)) == 0)
        ;
}

/* Breaks down halfway through its answer. */
static void fault_after_head(void)
{
    sandtide_begin(200, NULL, 0);
    sandtide_write("half of ", 8);
    trap();
}

/* Guest calls with pointers and lengths that are not its own. */
static void wild(void)
{
    static const uintptr_t pointers[] = {0, 1, 0x7ffffffffffff000, UINTPTR_MAX - 7, UINTPTR_MAX};
    static const size_t lengths[] = {1, 4096, (size_t)1 << 40, SIZE_MAX};
    char report[64];
    int refused = 0, accepted = 0;
    for (size_t p = 0; p < sizeof(pointers) / sizeof(*pointers); p++)
        for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); l++) {
            struct sandtide_field field = {(const char *)pointers[p], "v", 1, 1};
            struct sandtide_response response = {200, 1, &field, "", 0, NULL, 0};
            int error = sandtide_send((const struct sandtide_response *)pointers[p]);
            *(error == -EFAULT ? &refused : &accepted) += 1;
            error = sandtide_send(&response);
            *(error == -EFAULT ? &refused : &accepted) += 1;
            response.header_count = 0;
            response.body = (const void *)pointers[p];
            response.body_length = lengths[l];
            error = sandtide_send(&response);
            *(error == -EFAULT ? &refused : &accepted) += 1;
        }
    snprintf(report, sizeof(report), "%d refused, %d accepted\n", refused, accepted);
    sandtide_respond_text(200, report);
}

/* A header that would end the head and begin another response. */
static void bad_header(void)
{
    static const struct sandtide_field header =
        SANDTIDE_FIELD("x-note", "hi\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK");
    sandtide_respond(200, &header, 1, NULL, 0);
}

static const struct {
    const char *path;
    void (*run)(void);
} ways[] = {
    {"/ok", ok},
    {"/spin", spin},
    {"/memory", take_memory},
    {"/recurse", overflow_stack},
    {"/trap", trap},
    {"/abort", abort},
    {"/exit", leave},
    {"/silent", silent},
    {"/log", flood_log},
    {"/big", big},
    {"/fault-after-head", fault_after_head},
    {"/wild", wild},
    {"/bad-header", bad_header},
};

static void answer(struct sandtide_string path)
{
    char list[512];
    size_t length = 0;
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        if (sandtide_equal(path, ways[i].path)) {
            ways[i].run();
            return;
        }
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s\n", ways[i].path);
    }
    sandtide_respond_text(sandtide_equal(path, "/") ? 200 : 404, list);
}

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0)
        answer(sandtide_path(&request));
    return 1;
}
