/* Random bytes from every source: long enough, and never the same twice. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { DRAWS = 64, LENGTH = 16 };

int main(void)
{
    unsigned char draws[3][DRAWS][LENGTH];
    int device = open("/dev/urandom", O_RDONLY), repeated = 0, bits = 0;
    for (int i = 0; i < DRAWS; i++)
        if (getrandom(draws[0][i], LENGTH, 0) != LENGTH || getentropy(draws[1][i], LENGTH)
            || read(device, draws[2][i], LENGTH) != LENGTH)
            return 1;
    unsigned char *all = draws[0][0];
    for (int i = 0; i < 3 * DRAWS; i++) {
        for (int j = 0; j < i; j++)
            repeated += memcmp(all + i * LENGTH, all + j * LENGTH, LENGTH) == 0;
        for (int n = 0; n < LENGTH; n++)
            bits += __builtin_popcount(all[i * LENGTH + n]);
    }
    int total = 3 * DRAWS * LENGTH * 8;
    printf("repeated %d, balanced %d\n", repeated, bits > total * 45 / 100 && bits < total * 55 / 100);
    static unsigned char large[100000];
    printf("large %d\n", getrandom(large, sizeof(large), 0) == (ssize_t)sizeof(large));
    printf("too much %d\n", getentropy(large, 257));
    return 0;
}
