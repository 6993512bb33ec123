// The sieve of Eratosthenes, again and again: stores with a stride.
#include "measure.h"

#include <stdio.h>

// The round in which a number was last found to be composite.
static unsigned char composite[1 << 20];

int main(void) {
    unsigned count = 0;
    begin();
    int rounds = (int)unknown(60);
    for (unsigned char round = 1; round <= rounds; round++) {
        count = 0;
        for (unsigned i = 2; i < sizeof composite; i++) {
            if (composite[i] == round) continue;
            count++;
            for (unsigned long j = (unsigned long)i * i; j < sizeof composite; j += i) composite[j] = round;
        }
    }
    keep(count);
    end();
    printf("%u\n", count);
    return 0;
}
