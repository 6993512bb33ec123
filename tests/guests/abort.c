/* Ends by SIGABRT, after a handler has seen it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void handler(int number)
{
    (void)number;
    if (write(1, "handled\n", 8) < 0)
        _exit(9);
}

int main(void)
{
    signal(SIGABRT, handler);
    puts("aborting");
    fflush(stdout);
    abort();
}
