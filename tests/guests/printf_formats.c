/* printf and scanf: widths, precisions, bases, edge values. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

int main(void)
{
    static const double values[] = {
        0.0, -0.0, 1.0, -1.5, 0.1, 1e21, 1e-5, 123456789.125, DBL_MAX, DBL_MIN, DBL_EPSILON,
        4.9406564584124654e-324, INFINITY, -INFINITY, 2.5, 3.5, 1e15, 1e16, 0.3, 1.0 / 3.0,
    };
    int count;
    for (unsigned i = 0; i < sizeof(values) / sizeof(*values); i++)
        printf("%g|%.17g|%e|%.3f|%a|%+.0f|%#.0e\n", values[i], values[i], values[i], values[i],
               values[i], values[i], values[i]);
    printf("%d|%5d|%-5d|%05d|%+d|% d|%i\n", INT_MIN, 42, 42, 42, 42, 42, INT_MAX);
    printf("%u|%x|%X|%#x|%o|%#o|%08x\n", UINT_MAX, 48879, 48879, 48879, 8, 8, 255);
    printf("%ld|%lu|%lld|%llx|%hd|%hhd|%zu|%jd\n", LONG_MIN, ULONG_MAX, LLONG_MAX, ULLONG_MAX,
           (short)-3, (signed char)-4, sizeof(void *), (intmax_t)-5);
    printf("%s|%10s|%-10s|%.2s|%c|%%|%*d|%-*d|\n", "text", "right", "left", "cut", 'c', 6, 7, 6, 7);
    printf("%n%Lg %.30Lf\n", &count, 1.0L / 3.0L, 0.1L);
    printf("%d\n", count);

    int a;
    unsigned b;
    double d;
    char word[16];
    int got = sscanf("  -17 beef 2.5e3 word,rest", "%d %x %lf %15[a-z]", &a, &b, &d, word);
    printf("%d: %d %u %g %s\n", got, a, b, d, word);
    printf("%d\n", sscanf("nothing", "%d", &a));
    return 0;
}
