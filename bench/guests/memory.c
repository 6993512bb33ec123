// Chasing pointers through 8 MiB, and copying it: bound by memory.
#include <stdio.h>
#include <string.h>

enum { COUNT = 1 << 20 };
static unsigned next[COUNT], other[COUNT];

int main(void) {
    // A permutation with one cycle (Sattolo).
    unsigned long seed = 1;
    for (unsigned i = 0; i < COUNT; i++) next[i] = i;
    for (unsigned i = COUNT - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned j = (seed >> 33) % i, t = next[i];
        next[i] = next[j];
        next[j] = t;
    }
    unsigned at = 0;
    unsigned long sum = 0;
    for (long step = 0; step < 20000000; step++) at = next[at], sum += at;
    for (int round = 0; round < 200; round++) {
        memcpy(other, next, sizeof other);
        for (unsigned i = 0; i < COUNT; i += 8) sum += other[i] ^ i;
        next[round]++;
    }
    printf("%u %lu\n", at, sum);
    return 0;
}
