/*
 * A program with so much code that it is not translated before it runs: 2048 functions that do
 * sums of their own.
 *
 *     /    what comes out when all of them have been called in turn
 */
#include <stdio.h>

#include "sandtide.h"

#define FUNCTION(n)                                                                                \
    __attribute__((noinline)) static unsigned long f##n(unsigned long x)                           \
    {                                                                                              \
        for (unsigned i = 0; i < (0x##n & 3); i++) {                                               \
            x = (x ^ (x >> 29)) * 0x9e3779b9##n##ul;                                               \
            if (x & 0x##n)                                                                         \
                x += (x << 7) | 0x##n;                                                             \
            else                                                                                   \
                x -= (x >> 3) + i;                                                                 \
        }                                                                                          \
        return x * 5 + 0x##n;                                                                      \
    }
#define NAME(n) f##n,

#define EACH_1(m, p)                                                                               \
    m(p##0) m(p##1) m(p##2) m(p##3) m(p##4) m(p##5) m(p##6) m(p##7)                                \
    m(p##8) m(p##9) m(p##a) m(p##b) m(p##c) m(p##d) m(p##e) m(p##f)
#define EACH_2(m, p)                                                                               \
    EACH_1(m, p##0) EACH_1(m, p##1) EACH_1(m, p##2) EACH_1(m, p##3)                                \
    EACH_1(m, p##4) EACH_1(m, p##5) EACH_1(m, p##6) EACH_1(m, p##7)                                \
    EACH_1(m, p##8) EACH_1(m, p##9) EACH_1(m, p##a) EACH_1(m, p##b)                                \
    EACH_1(m, p##c) EACH_1(m, p##d) EACH_1(m, p##e) EACH_1(m, p##f)
#define EACH(m)                                                                                    \
    EACH_2(m, 0) EACH_2(m, 1) EACH_2(m, 2) EACH_2(m, 3) EACH_2(m, 4) EACH_2(m, 5) EACH_2(m, 6)     \
    EACH_2(m, 7)

EACH(FUNCTION)

static unsigned long (*const functions[])(unsigned long) = {EACH(NAME)};

int main(void)
{
    struct sandtide_request request;
    char text[32];
    while (sandtide_next_request(&request) == 0) {
        unsigned long x = 1;
        for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
            x = functions[i](x);
        snprintf(text, sizeof(text), "%lx", x);
        sandtide_respond_text(200, text);
    }
    return 1;
}
