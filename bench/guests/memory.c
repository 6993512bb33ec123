// Chasing pointers through 4 MiB, a histogram, and sums over arrays: bound by memory.
#include "measure.h"

#include <stdint.h>
#include <stdio.h>

enum { COUNT = 1 << 20 };
static unsigned next[COUNT], histogram[COUNT];
static uint64_t first[COUNT], second[COUNT];

int main(void) {
    // A permutation with one cycle (Sattolo).
    uint64_t seed = 1;
    for (unsigned i = 0; i < COUNT; i++) next[i] = i;
    for (unsigned i = COUNT - 1; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        unsigned j = (seed >> 33) % i, t = next[i];
        next[i] = next[j];
        next[j] = t;
        first[i] = seed >> 7, second[i] = seed >> 11;
    }
    begin();
    unsigned at = 0;
    long steps = unknown(1000000);
    uint64_t sum = 0;
    for (long step = 0; step < steps; step++) at = next[at], sum += at;
    for (unsigned i = 0; i < 2 * COUNT; i++) histogram[(first[i % COUNT] + i) % COUNT]++;
    for (int round = 0; round < 8; round++) {
        for (unsigned i = 0; i < COUNT; i++) first[i] += 3 * second[i] + round;
        for (unsigned i = 0; i < COUNT; i += 8) sum += first[i] ^ i;
    }
    for (unsigned i = 0; i < COUNT; i++) sum += (uint64_t)histogram[i] * i;
    keep(sum);
    end();
    printf("%u %lu\n", at, (unsigned long)sum);
    return 0;
}
