/*
 * Uses the CPU, on request:
 *
 *     /spin   computes for ever
 *     /work   computes for some milliseconds
 */
#include "sandtide.h"

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0) {
        struct sandtide_string path = sandtide_path(&request);
        char kind = path.length > 1 ? path.data[1] : 0;
        if (kind == 's')
            for (volatile uint64_t i = 0;; i++)
                ;
        if (kind == 'w')
            for (volatile uint64_t i = 0; i < 1000000; i++)
                ;
        sandtide_respond_text(200, "ok");
    }
    return 1;
}
