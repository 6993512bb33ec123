// Text: words are split, counted in a table, compared, turned around and searched for, by hand.
#include "measure.h"

#include <stdio.h>

static char text[1 << 18], line[1 << 18];
static struct word { char name[16]; unsigned length, count; } table[4096];

static int is_equal(const char *a, const char *b, unsigned length) {
    for (unsigned i = 0; i < length; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}

static struct word *find(const char *name, unsigned length) {
    unsigned hash = 5381;
    for (unsigned i = 0; i < length; i++) hash = hash * 33 + (unsigned char)name[i];
    for (unsigned i = hash % 4096;; i = (i + 1) % 4096) {
        struct word *word = &table[i];
        if (word->length == 0) {
            for (unsigned k = 0; k < length; k++) word->name[k] = name[k];
            word->length = length;
        }
        if (word->length == length && is_equal(word->name, name, length)) return word;
    }
}

// How often a needle is in a text (Horspool).
static unsigned occurrences(const char *hay, unsigned size, const char *needle, unsigned length) {
    unsigned skip[256], count = 0;
    for (int i = 0; i < 256; i++) skip[i] = length;
    for (unsigned i = 0; i + 1 < length; i++) skip[(unsigned char)needle[i]] = length - 1 - i;
    for (unsigned at = 0; at + length <= size; at += skip[(unsigned char)hay[at + length - 1]])
        count += is_equal(hay + at, needle, length);
    return count;
}

int main(void) {
    unsigned seed = 7, size = 0;
    while (size + 16 < sizeof text) {
        seed = seed * 1103515245 + 12345;
        unsigned number = (seed >> 16) % 1500;
        size += (unsigned)sprintf(text + size, "w%xq%u ", number, number % 10);
    }
    begin();
    unsigned long total = 0;
    int rounds = (int)unknown(80);
    for (int round = 0; round < rounds; round++) {
        unsigned start = 0;
        for (unsigned i = 0; i < size; i++) {
            char c = text[i];
            if (c == ' ') {
                find(text + start, i - start)->count++;
                total += i - start;
                // The word in capitals, and from its end.
                for (unsigned k = start; k < i; k++) {
                    char from = text[start + i - 1 - k];
                    line[k] = from >= 'a' && from <= 'z' ? (char)(from - 'a' + 'A') : from;
                }
                line[i] = c;
                start = i + 1;
            }
        }
        total += occurrences(line, size, "Q3", 2) + occurrences(text, size, "w1f4q0", 6) + (unsigned char)line[round * 97];
    }
    keep(total);
    end();
    printf("%lu %u\n", total, find("w1q1", 4)->count);
    return 0;
}
