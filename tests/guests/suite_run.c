/* Does what its first argument says, to its end: for `sandtide run`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int copy(int from, int to)
{
    static char buffer[5000];
    ssize_t length;
    while ((length = read(from, buffer, sizeof(buffer))) > 0)
        for (ssize_t done = 0, now; done < length; done += now)
            if ((now = write(to, buffer + done, (size_t)(length - done))) <= 0)
                return 1;
    return length < 0;
}

__attribute__((noinline)) static void compute(int rounds)
{
    for (volatile int i = 0; i < rounds; i++)
        ;
}

__attribute__((noinline)) static void hot(void)
{
    compute(900000);
    __asm__ volatile("");
}

__attribute__((noinline)) static void cold(void)
{
    compute(100000);
    __asm__ volatile("");
}

int main(int count, char **arguments)
{
    const char *way = count > 1 ? arguments[1] : "";
    if (strcmp(way, "exit") == 0)
        return atoi(arguments[2]);
    if (strcmp(way, "arguments") == 0)
        for (int i = 1; i < count; i++)
            puts(arguments[i]);
    else if (strcmp(way, "environment") == 0)
        for (char **variable = environ; *variable; variable++)
            puts(*variable);
    else if (strcmp(way, "copy") == 0)
        return copy(0, 1);
    else if (strcmp(way, "both") == 0) {
        fputs("to stdout", stdout);
        fputs("to stderr", stderr);
    } else if (strcmp(way, "show") == 0) {
        int file = open(arguments[2], O_RDONLY);
        return file < 0 ? 2 : copy(file, 1);
    } else if (strcmp(way, "trap") == 0)
        *(volatile int *)16 = 1;
    else if (strcmp(way, "illegal") == 0)
        __asm__ volatile("unimp");
    else if (strcmp(way, "abort") == 0)
        abort();
    else if (strcmp(way, "spin") == 0)
        for (volatile int i = 0;; i++)
            ;
    else if (strcmp(way, "compute") == 0)
        for (int i = 0; i < 10; i++) {
            hot();
            cold();
        }
    else if (strcmp(way, "sleep") == 0) {
        struct timespec hour = {3600, 0};
        nanosleep(&hour, NULL);
    } else if (strcmp(way, "memory") == 0)
        for (;;) {
            char *taken = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (taken == MAP_FAILED)
                return 3;
            memset(taken, 1, 1 << 20);
        }
    return 0;
}
