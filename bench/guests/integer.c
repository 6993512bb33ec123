// Integer arithmetic: modular powers, greatest common divisors, bits.
#include "measure.h"

#include <stdint.h>
#include <stdio.h>

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
    uint64_t result = 1;
    for (base %= modulus; exponent; exponent >>= 1) {
        if (exponent & 1) result = result * base % modulus;
        base = base * base % modulus;
    }
    return result;
}

static uint64_t gcd(uint64_t a, uint64_t b) {
    while (b) {
        uint64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

int main(void) {
    uint64_t sum = 0, x = 88172645463325252u;
    begin();
    int most = (int)unknown(400000);
    for (int i = 1; i < most; i++) {
        sum += power(i, 1000003, 2147483647);
        sum ^= gcd(i * 7919ul, 999983ul + i);
        for (int k = 0; k < 40; k++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            sum += (x & 0xff) * (x >> 56) - (uint64_t)__builtin_popcountll(x);
        }
    }
    keep(sum);
    end();
    printf("%lu\n", (unsigned long)sum);
    return 0;
}
