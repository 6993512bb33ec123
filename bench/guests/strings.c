// Text: words are split, counted in a table, compared and joined.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 18];
static struct word { char name[16]; unsigned count; } table[4096];

static struct word *find(const char *name) {
    unsigned hash = 5381;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    for (unsigned i = hash % 4096;; i = (i + 1) % 4096) {
        if (!table[i].name[0]) strcpy(table[i].name, name);
        if (strcmp(table[i].name, name) == 0) return &table[i];
    }
}

int main(void) {
    unsigned seed = 7, at = 0;
    while (at + 16 < sizeof text) {
        seed = seed * 1103515245 + 12345;
        unsigned number = (seed >> 16) % 1500;
        at += (unsigned)sprintf(text + at, "w%xq%u ", number, number % 10);
    }
    unsigned long total = 0;
    static char line[1 << 18];
    for (int round = 0; round < 120; round++) {
        memcpy(line, text, sizeof line);
        for (char *word = line, *end; (end = strchr(word, ' ')); word = end + 1) {
            *end = 0;
            find(word)->count++;
            total += strlen(word);
        }
        for (const char *hit = text; (hit = strstr(hit, "w3")); hit++) total++;
        for (const char *hit = text; (hit = strchr(hit, '9')); hit++) total++;
    }
    printf("%lu %u\n", total, find("w1q1")->count);
    return 0;
}
