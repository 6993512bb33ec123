// The sieve of Eratosthenes, again and again: stores with a stride.
#include <stdio.h>
#include <string.h>

static unsigned char composite[1 << 20];

int main(void) {
    unsigned count = 0;
    for (int round = 0; round < 250; round++) {
        memset(composite, 0, sizeof composite);
        count = 0;
        for (unsigned i = 2; i < sizeof composite; i++) {
            if (composite[i]) continue;
            count++;
            for (unsigned long j = (unsigned long)i * i; j < sizeof composite; j += i) composite[j] = 1;
        }
    }
    printf("%u\n", count);
    return 0;
}
