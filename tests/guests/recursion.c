/* Calls: deep and wide, through pointers, with many and large arguments. */
#include <stdarg.h>
#include <stdio.h>

struct large {
    long values[9];
    double scale;
};

__attribute__((noinline)) static long ackermann(long m, long n)
{
    return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

__attribute__((noinline)) static long depth(long n)
{
    volatile long frame[8] = {n};
    return n == 0 ? 0 : 1 + depth(frame[0] - 1);
}

__attribute__((noinline)) static struct large turn(struct large in, int a, long b, char c, short d,
                                                   float e, double f, long g, long h, long i, long j)
{
    for (int n = 0; n < 9; n++)
        in.values[n] = in.values[n] * a + b + c + d + (long)e + (long)f + g * h - i * j;
    in.scale *= 0.5;
    return in;
}

__attribute__((noinline)) static double sum(int count, ...)
{
    va_list list;
    double total = 0;
    va_start(list, count);
    for (int i = 0; i < count; i++)
        total += i % 2 ? va_arg(list, double) : (double)va_arg(list, int);
    va_end(list);
    return total;
}

static long add(long a, long b)
{
    return a + b;
}

static long subtract(long a, long b)
{
    return a - b;
}

static int hanoi(int n, int from, int to, int by)
{
    return n == 0 ? 0 : hanoi(n - 1, from, by, to) + 1 + hanoi(n - 1, by, to, from);
}

int main(void)
{
    long (*const operations[])(long, long) = {add, subtract};
    struct large in = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, 8};
    long value = 1000;
    printf("%ld %ld %d\n", ackermann(2, 300), depth(20000), hanoi(14, 1, 2, 3));
    for (int i = 0; i < 4; i++)
        in = turn(in, 3, -4, 'c', -6, 1.5f, 2.5, 7, 8, 9, 10);
    printf("%ld %ld %g\n", in.values[0], in.values[8], in.scale);
    printf("%g\n", sum(10, 1, 0.5, 2, 0.25, 3, 0.125, 4, 1e3, 5, -1e3));
    for (int i = 0; i < 9; i++)
        value = operations[i % 2](value, i);
    printf("%ld\n", value);
    return 0;
}
