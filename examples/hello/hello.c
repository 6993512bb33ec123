/* The smallest tenant: one constant answer. */
#include "sandtide.h"

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0)
        sandtide_respond_text(200, "Hello, World!\n");
    return 1;
}
