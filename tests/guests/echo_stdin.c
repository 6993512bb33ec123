/* Copies standard input to standard output and counts; the exit code is the number of lines. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
    long bytes = 0;
    int lines = 0;
    for (int c; (c = getchar()) != EOF; bytes++) {
        lines += c == '\n';
        putchar(c);
    }
    printf("%ld bytes, %d lines, %ld after the end\n", bytes, lines,
           (long)read(0, &bytes, sizeof(bytes)));
    fflush(stdout);
    if (write(2, "to stderr\n", 10) != 10)
        return 255;
    return lines & 0x7f;
}
