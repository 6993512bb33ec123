// The Mandelbrot set in double precision.
#include "measure.h"

#include <stdio.h>

int main(void) {
    begin();
    const int size = (int)unknown(700), most = (int)unknown(300);
    unsigned long inside = 0;
    for (int row = 0; row < size; row++) {
        for (int column = 0; column < size; column++) {
            double cr = 3.0 * column / size - 2.0, ci = 2.0 * row / size - 1.0, r = 0, i = 0;
            int n = 0;
            for (; n < most && r * r + i * i <= 4.0; n++) {
                double next = r * r - i * i + cr;
                i = 2 * r * i + ci;
                r = next;
            }
            inside += n;
        }
    }
    keep(inside);
    end();
    printf("%lu\n", inside);
    return 0;
}
