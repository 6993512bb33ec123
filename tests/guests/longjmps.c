/* setjmp and longjmp: depth, values, registers that survive, floating point. */
#include <setjmp.h>
#include <stdio.h>

static jmp_buf outer, inner;

__attribute__((noinline)) static void dive(int depth, jmp_buf *where, int value)
{
    volatile char frame[128];
    frame[depth] = (char)depth;
    if (frame[depth] == 0)
        longjmp(*where, value);
    else if (depth > 0)
        dive(depth - 1, where, value);
}

int main(void)
{
    volatile int rounds = 0;
    volatile double kept = 1.25;
    int how = setjmp(outer);
    printf("%d %d %g\n", how, rounds, kept);
    if (rounds < 5) {
        rounds++;
        kept *= 3;
        int nested = setjmp(inner);
        if (nested == 0)
            dive(50, &inner, rounds + 100);
        printf("inner %d\n", nested);
        dive(10, &outer, rounds == 3 ? 0 : rounds);
    }
    puts("done");
    return 0;
}
