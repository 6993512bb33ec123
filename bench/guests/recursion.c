// Fibonacci, Ackermann, Takeuchi and queens: calls and returns.
#include "measure.h"

#include <stdio.h>

static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

static int takeuchi(int x, int y, int z) {
    return y >= x ? z : takeuchi(takeuchi(x - 1, y, z), takeuchi(y - 1, z, x), takeuchi(z - 1, x, y));
}

static int queens(unsigned all, unsigned columns, unsigned left, unsigned right) {
    int found = 0;
    if (columns == all) return 1;
    for (unsigned free = all & ~(columns | left | right); free; free &= free - 1) {
        unsigned bit = free & -free;
        found += queens(all, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return found;
}

int main(void) {
    begin();
    int f = fibonacci((int)unknown(37)), a = ackermann(3, (int)unknown(9)), t = takeuchi((int)unknown(18), 12, 6);
    int q = queens((unsigned)unknown((1 << 10) - 1), 0, 0, 0);
    keep((unsigned long)(f + a + t + q));
    end();
    printf("%d %d %d %d\n", f, a, t, q);
    return 0;
}
