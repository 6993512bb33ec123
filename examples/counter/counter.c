/* Counts its requests. With `ephemeral = false` the count is kept; else every answer is 1. */
#include "sandtide.h"

int main(void)
{
    struct sandtide_request request;
    uint64_t count = 0;
    while (sandtide_next_request(&request) == 0) {
        char digits[24];
        size_t at = sizeof(digits);
        uint64_t rest = ++count;
        digits[--at] = 0;
        digits[--at] = '\n';
        do
            digits[--at] = (char)('0' + rest % 10);
        while (rest /= 10);
        sandtide_respond_text(200, digits + at);
    }
    return 1;
}
