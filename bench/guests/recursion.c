// Doubly recursive Fibonacci, and Ackermann: calls and returns.
#include <stdio.h>

static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static int ackermann(int m, int n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}

int main(void) {
    printf("%d %d\n", fibonacci(38), ackermann(3, 9));
    return 0;
}
