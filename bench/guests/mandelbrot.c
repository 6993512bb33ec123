// The Mandelbrot set in double precision.
#include <stdio.h>

int main(void) {
    enum { SIZE = 600, MOST = 300 };
    unsigned long inside = 0;
    for (int row = 0; row < SIZE; row++) {
        for (int column = 0; column < SIZE; column++) {
            double cr = 3.0 * column / SIZE - 2.0, ci = 2.0 * row / SIZE - 1.0, r = 0, i = 0;
            int n = 0;
            for (; n < MOST && r * r + i * i <= 4.0; n++) {
                double next = r * r - i * i + cr;
                i = 2 * r * i + ci;
                r = next;
            }
            inside += n;
        }
    }
    printf("%lu\n", inside);
    return 0;
}
