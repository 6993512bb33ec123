/*
 * Uses the CPU for some milliseconds if the path is `/work`. Answers with the request's id.
 */
#include <stdio.h>

#include "sandtide.h"

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0) {
        struct sandtide_string path = sandtide_path(&request);
        char id[17];
        if (path.length > 1)
            for (volatile uint64_t i = 0; i < 500000; i++)
                ;
        snprintf(id, sizeof(id), "%016llx", (unsigned long long)sandtide_id(&request));
        sandtide_respond_text(200, id);
    }
    return 1;
}
