/* malloc, calloc, realloc, aligned_alloc, free in a pseudo-random order; contents are checked. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 512, STEPS = 60000 };

static uint32_t next(void)
{
    static uint32_t state = 2463534242u;
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

static unsigned char *blocks[SLOTS];
static size_t sizes[SLOTS];
static unsigned char marks[SLOTS];

static void check(int slot)
{
    for (size_t i = 0; i < sizes[slot]; i++)
        if (blocks[slot][i] != marks[slot]) {
            printf("slot %d is broken at %zu\n", slot, i);
            exit(1);
        }
}

int main(void)
{
    unsigned long bytes = 0, moved = 0;
    for (int step = 0; step < STEPS; step++) {
        int slot = (int)(next() % SLOTS);
        size_t size = next() % 16 ? next() % 600 : next() % 200000;
        switch (blocks[slot] ? next() % 3 : 3) {
        case 0:
        case 1:
            check(slot);
            free(blocks[slot]);
            blocks[slot] = NULL;
            sizes[slot] = 0;
            break;
        case 2: {
            size_t keep = size < sizes[slot] ? size : sizes[slot];
            check(slot);
            blocks[slot] = realloc(blocks[slot], size + 1);
            for (size_t i = 0; i < keep; i++)
                moved += blocks[slot][i] == marks[slot];
            memset(blocks[slot], marks[slot], size);
            sizes[slot] = size;
            break;
        }
        default:
            marks[slot] = (unsigned char)next();
            if (next() % 4 == 0) {
                blocks[slot] = calloc(size + 1, 1);
                for (size_t i = 0; i < size; i++)
                    if (blocks[slot][i])
                        return 2;
            } else if (next() % 4 == 0) {
                blocks[slot] = aligned_alloc(256, (size + 256) / 256 * 256);
                if ((uintptr_t)blocks[slot] % 256)
                    return 3;
            } else {
                blocks[slot] = malloc(size + 1);
            }
            memset(blocks[slot], marks[slot], size);
            sizes[slot] = size;
            bytes += size;
        }
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        check(slot);
        free(blocks[slot]);
    }
    printf("%lu bytes, %lu kept\n", bytes, moved);
    return 0;
}
