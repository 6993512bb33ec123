/* Integer arithmetic: division, 128 bits, shifts, bit counting, overflow, byte order. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

static const int64_t values[] = {0, 1, -1, 2, 7, -7, 255, INT32_MAX, INT32_MIN, INT64_MAX,
                                 INT64_MIN, 0x123456789abcdef0, -0x123456789abcdef};
enum { COUNT = sizeof(values) / sizeof(*values) };

int main(void)
{
    for (int i = 0; i < COUNT; i++) {
        volatile int64_t a = values[i];
        volatile uint64_t u = (uint64_t)a;
        for (int j = 0; j < COUNT; j++) {
            volatile int64_t b = values[j];
            volatile uint64_t v = (uint64_t)b;
            i128 wide = (i128)a * b;
            u128 wide_u = (u128)u * v;
            int64_t sum;
            printf("%" PRIx64 " %" PRIx64 " %d ", (uint64_t)(wide >> 64),
                   (uint64_t)(wide_u >> 64) ^ (uint64_t)wide_u, __builtin_add_overflow(a, b, &sum));
            if (b && !(a == INT64_MIN && b == -1))
                printf("%" PRId64 " %" PRId64 " ", a / b, a % b);
            if (v)
                printf("%" PRIu64 " %" PRIu64 " ", u / v, u % v);
            if ((int32_t)b && !((int32_t)a == INT32_MIN && (int32_t)b == -1))
                printf("%d %d ", (int32_t)a / (int32_t)b, (int32_t)a % (int32_t)b);
            if ((uint32_t)v)
                printf("%u", (uint32_t)u % (uint32_t)v);
            if (v)
                printf(" %" PRIx64, (uint64_t)(wide_u % v));
            printf("\n");
        }
        int shift = (int)(u & 63);
        printf("%" PRIx64 " %" PRIx64 " %" PRId64 " %x %d %d %d %" PRIx64 "\n", u << shift,
               u >> shift, a >> shift, (uint32_t)u >> (shift & 31), __builtin_popcountll(u),
               u ? __builtin_clzll(u) : 64, u ? __builtin_ctzll(u) : 64, __builtin_bswap64(u));
        printf("%" PRIx64 " %x\n", u << 13 | u >> 51, (uint32_t)u << 7 | (uint32_t)u >> 25);
    }
    return 0;
}
