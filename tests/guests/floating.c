/* IEEE 754: rounding modes, exception flags, conversions, edge values, square roots, fma. */
#include <fenv.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const double values[] = {
    0.0, -0.0, 1.0, -1.0, 0.1, 1.5, 2.5, -2.5, 1e308, -1e308, 4.9406564584124654e-324,
    2.2250738585072014e-308, 9007199254740993.0, 4294967296.5, -9223372036854775808.0,
    18446744073709551615.0, INFINITY, -INFINITY, NAN,
};
enum { COUNT = sizeof(values) / sizeof(*values) };

static uint64_t hash = 14695981039346656037u;

static void mix(uint64_t bits)
{
    for (int i = 0; i < 8; i++, bits >>= 8)
        hash = (hash ^ (bits & 255)) * 1099511628211u;
}

/* NaN payloads and signs of C operations are not defined: only that it is one. */
static void mix_double(volatile double value)
{
    uint64_t bits;
    double copy = value;
    memcpy(&bits, &copy, 8);
    mix(isnan(copy) ? UINT64_MAX : bits);
}

static void mix_float(volatile float value)
{
    uint32_t bits;
    float copy = value;
    memcpy(&bits, &copy, 4);
    mix(isnan(copy) ? UINT32_MAX : bits);
}

static void report(const char *what)
{
    int flags = fetestexcept(FE_ALL_EXCEPT);
    printf("%s %016" PRIx64 " %s%s%s%s%s\n", what, hash, flags & FE_INVALID ? "V" : "-",
           flags & FE_DIVBYZERO ? "Z" : "-", flags & FE_OVERFLOW ? "O" : "-",
           flags & FE_UNDERFLOW ? "U" : "-", flags & FE_INEXACT ? "X" : "-");
    feclearexcept(FE_ALL_EXCEPT);
}

static void all_operations(const char *mode)
{
    printf("%s\n", mode);
    for (int i = 0; i < COUNT; i++) {
        volatile double a = values[i];
        volatile float f = (float)a;
        mix_float(f);
        mix_double(sqrt(a));
        mix_float(sqrtf(f));
        mix_double(rint(a));
        if (fabs(a) < 9e18)
            mix((uint64_t)llrint(a));
        for (int j = 0; j < COUNT; j++) {
            volatile double b = values[j];
            volatile float g = (float)b;
            mix_double(a + b);
            mix_double(a - b);
            mix_double(a * b);
            mix_double(a / b);
            mix_double(fma(a, b, 1.0));
            mix_double(fmin(a, b));
            mix_double(fmax(a, b));
            mix_float(f + g);
            mix_float(f * g);
            mix_float(f / g);
            mix_float(fmaf(f, g, -1.0f));
            mix((uint64_t)((a < b) + 2 * (a <= b) + 4 * (a == b)));
        }
        char label[8];
        snprintf(label, sizeof(label), "%2d", i);
        report(label);
    }
}

int main(void)
{
    static const struct {
        int mode;
        const char *name;
    } modes[] = {
        {FE_TONEAREST, "nearest"}, {FE_TOWARDZERO, "zero"}, {FE_DOWNWARD, "down"}, {FE_UPWARD, "up"},
    };
    for (int i = 0; i < 4; i++) {
        fesetround(modes[i].mode);
        feclearexcept(FE_ALL_EXCEPT);
        all_operations(modes[i].name);
        volatile double third = 1.0, tenth = 0.1;
        third /= 3.0;
        printf("%.20f %.20f %.1f %.0f\n", third, tenth + 0.2, 0.25, 2.5);
    }
    fesetround(FE_TONEAREST);
    volatile int32_t narrow = (int32_t)2147483647.0;
    volatile uint64_t wide = (uint64_t)1.8446744073709550e19;
    printf("%" PRId32 " %" PRIu64 " %d %d\n", narrow, wide, fpclassify(4e-320) == FP_SUBNORMAL,
           signbit(-0.0) != 0);
    printf("%.17g %.17g %.17g %.17g\n", nextafter(1, 2), ldexp(0.75, -1070), fmod(1e300, 7),
           remainder(10, 4));
    printf("%a %a\n", DBL_TRUE_MIN, (double)FLT_MAX);
    return 0;
}
