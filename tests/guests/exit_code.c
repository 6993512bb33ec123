/* The exit code of main goes through atexit handlers and buffered output. */
#include <stdio.h>
#include <stdlib.h>

static void last(void)
{
    printf("last\n");
}

static void first(void)
{
    printf("first\n");
}

int main(void)
{
    atexit(last);
    atexit(first);
    printf("main");
    printf(" ends\n");
    return 37;
}
