// Products of matrices of doubles.
#include "measure.h"

#include <stdio.h>

enum { N = 256 };
static double a[N][N], b[N][N], c[N][N];

int main(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = i + j * 0.5, b[i][j] = i * 0.25 - j;
    begin();
    int rounds = (int)unknown(16);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++) c[i][j] = 0;
            for (int k = 0; k < N; k++) {
                double factor = a[i][k];
                for (int j = 0; j < N; j++) c[i][j] += factor * b[k][j];
            }
        }
        a[round][round] += 1e-3 * c[round][round];
    }
    keep((unsigned long)c[200][100]);
    end();
    printf("%.6f %.6f\n", c[3][5], c[200][100]);
    return 0;
}
