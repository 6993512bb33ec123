/* Computes about a million instructions for each request, which takes the interpreter 2 ms. */
#include "sandtide.h"

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0) {
        for (volatile int i = 0; i < 150000; i++)
            ;
        sandtide_respond_text(200, "done\n");
    }
    return 1;
}
