/*
 * Counts its requests. With `isolation = "none"` the count is kept from one request to the next, and
 * from one version of the program to the next; else every answer is 1.
 */
#include "sandtide.h"

static uint64_t count;

/* The count in digits and a line break, until it is called again. */
static const char *text(void)
{
    static char digits[24];
    size_t at = sizeof(digits) - 1;
    uint64_t rest = count;
    digits[--at] = '\n';
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    return digits + at;
}

/* Another version gets text: it may have been compiled from other sources. */
static int save(struct sandtide_string *state)
{
    state->data = text();
    state->length = strlen(state->data);
    return 0;
}

static int restore(struct sandtide_string state)
{
    uint64_t value = 0;
    for (size_t i = 0; i < state.length && state.data[i] != '\n'; i++) {
        if (state.data[i] < '0' || state.data[i] > '9')
            return 1;
        value = value * 10 + (uint64_t)(state.data[i] - '0');
    }
    count = value;
    return 0;
}

int main(void)
{
    struct sandtide_request request;
    sandtide_on_save(save);
    sandtide_on_restore(restore);
    while (sandtide_next_request(&request) == 0) {
        count++;
        sandtide_respond_text(200, text());
    }
    return 1;
}
