/* The C library's mathematics, to the digits on which implementations must agree. */
#include <complex.h>
#include <math.h>
#include <stdio.h>

int main(void)
{
    for (int i = -3; i <= 3; i++) {
        double x = i * 0.7 + 0.05;
        printf("%.12g %.12g %.12g %.12g %.12g\n", sin(x), cos(x), tan(x), exp(x), atan(x));
        printf("%.12g %.12g %.12g %.12g\n", log(fabs(x)), pow(fabs(x), x), cbrt(x), hypot(x, 2));
        printf("%.12g %.12g %.12g %ld %.12g\n", floor(x), ceil(x), trunc(x), lround(x), erf(x));
    }
    int exponent;
    double whole, fraction = frexp(1234.5, &exponent);
    printf("%g %d ", fraction, exponent);
    fraction = modf(-3.75, &whole);
    printf("%g %g\n", fraction, whole);
    double complex z = cexp(I * 1.0);
    printf("%.10f %.10f %.10f\n", creal(z), cimag(z), cabs(3 + 4 * I));
    long double sum = 0;
    for (int i = 1; i <= 1000; i++)
        sum += 1.0L / i;
    printf("%.30Lf\n", sum);
    return 0;
}
