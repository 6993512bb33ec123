// Quicksort of integers by hand and through qsort: branches that nobody predicts, indirect calls.
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1 << 20 };
static unsigned values[COUNT], copy[COUNT];

static void sort(unsigned *first, unsigned *last) {
    while (last - first > 16) {
        unsigned pivot = first[(last - first) / 2], *low = first, *high = last - 1;
        for (;;) {
            while (*low < pivot) low++;
            while (*high > pivot) high--;
            if (low >= high) break;
            unsigned t = *low;
            *low++ = *high;
            *high-- = t;
        }
        if (low - first < last - low) { sort(first, low); first = low; }
        else { sort(low, last); last = low; }
    }
    for (unsigned *i = first + (first < last); i < last; i++) {
        unsigned value = *i, *j = i;
        for (; j > first && j[-1] > value; j--) *j = j[-1];
        *j = value;
    }
}

static int compare(const void *a, const void *b) {
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

static void fill(unsigned seed) {
    for (int i = 0; i < COUNT; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        values[i] = copy[i] = seed;
    }
}

int main(void) {
    unsigned long sum = 0;
    for (unsigned round = 1; round <= 8; round++) {
        fill(round);
        sort(values, values + COUNT);
        if (round <= 2) qsort(copy, COUNT, sizeof *copy, compare);
        for (int i = 1; i < COUNT; i++) sum += values[i - 1] <= values[i];
        sum += values[COUNT / 2] + copy[COUNT / 2];
    }
    printf("%lu\n", sum);
    return 0;
}
