// Quicksort of integers, and heapsort of records through a function: branches that nobody
// predicts, indirect calls.
#include "measure.h"

#include <stdio.h>

enum { COUNT = 1 << 19, RECORDS = 1 << 16 };
static unsigned values[COUNT];
static struct record { unsigned key, number; double weight; } records[RECORDS];

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

typedef int order(const struct record *, const struct record *);

static int by_key(const struct record *a, const struct record *b) { return (a->key > b->key) - (a->key < b->key); }
static int by_weight(const struct record *a, const struct record *b) { return (a->weight > b->weight) - (a->weight < b->weight); }

// Which order is meant is known at run time only.
static order *volatile orders[] = {by_key, by_weight};

static void sift(struct record *heap, unsigned root, unsigned count, order *compare) {
    for (unsigned child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare(&heap[child], &heap[child + 1]) < 0) child++;
        if (compare(&heap[root], &heap[child]) >= 0) return;
        struct record t = heap[root];
        heap[root] = heap[child];
        heap[child] = t;
    }
}

static void heapsort_records(order *compare) {
    for (unsigned i = RECORDS / 2; i-- > 0;) sift(records, i, RECORDS, compare);
    for (unsigned i = RECORDS; --i > 0;) {
        struct record t = records[0];
        records[0] = records[i];
        records[i] = t;
        sift(records, 0, i, compare);
    }
}

static unsigned step(unsigned seed) {
    seed ^= seed << 13;
    seed ^= seed >> 17;
    return seed ^ seed << 5;
}

int main(void) {
    unsigned long sum = 0;
    begin();
    unsigned rounds = (unsigned)unknown(3);
    for (unsigned round = 1; round <= rounds; round++) {
        unsigned seed = round;
        for (int i = 0; i < COUNT; i++) values[i] = seed = step(seed);
        sort(values, values + COUNT);
        for (int i = 1; i < COUNT; i++) sum += values[i - 1] <= values[i];
        for (int i = 0; i < RECORDS; i++) {
            seed = step(seed);
            records[i] = (struct record){seed, i, (seed >> 8) * 0.25};
        }
        for (int by = 0; by < 2; by++) {
            heapsort_records(orders[by]);
            for (int i = 0; i < RECORDS; i += 64) sum += records[i].number ^ i;
        }
    }
    keep(sum);
    end();
    printf("%lu\n", sum);
    return 0;
}
