/*
 * Answers with the version that stands in its file, where a test can write another one:
 *
 *     /        the version
 *     /body    the same, after it has read the request's body
 *
 * Behind the version stands how it fares: `good`, `trap` (on every request), `exit` (before the
 * first request), or `sick` (answers every request with status 500).
 */
#include "sandtide.h"

static const volatile char mark[] = "@version:0000:good@";

static char version[5];
static char how[5];

static void take(char *to, size_t from)
{
    for (size_t i = 0; i < 4; i++)
        to[i] = mark[from + i];
}

int main(void)
{
    static char body[4096];
    struct sandtide_request request;
    take(version, 9);
    take(how, 14);
    if (strcmp(how, "exit") == 0)
        return 3;
    while (sandtide_next_request(&request) == 0) {
        if (strcmp(how, "trap") == 0)
            __builtin_trap();
        while (sandtide_read(body, sizeof(body)) > 0)
            ;
        sandtide_respond_text(strcmp(how, "sick") == 0 ? 500 : 200, version);
    }
    return 1;
}
