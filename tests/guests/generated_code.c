/* Code that is written while the program runs: in memory of its own, over the program's own code, in data, by a
   program that runs other code meanwhile; and what happens where it is wrong. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
typedef long function(long);

static sigjmp_buf recover;
static volatile uintptr_t fault_address;

static void caught(int number, siginfo_t *info, void *context)
{
    (void)context;
    fault_address = (uintptr_t)info->si_addr;
    siglongjmp(recover, number);
}

/* What instruction memory holds is what was stored (fence.i). */
static void synchronise(void)
{
    __asm__ volatile(".word 0x0000100f" ::: "memory");
}

static uint32_t addi(int to, int from, int value)
{
    return (uint32_t)value << 20 | from << 15 | to << 7 | 0x13;
}

static const uint32_t ret = 0x00008067;

/* a0 + value */
static void write_adder(uint32_t *at, int value)
{
    at[0] = addi(10, 10, value);
    at[1] = ret;
    synchronise();
}

static uint32_t *map(int protection)
{
    return mmap(NULL, 2 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Whole pages of code of the program's own, which it changes. */
__attribute__((noinline, aligned(4096))) long patched(long value)
{
    __asm__ volatile("" ::: "memory");
    return value * 3;
}

__attribute__((noinline, aligned(4096))) long behind(long value)
{
    return value * 5 + 1;
}

/* Ordinary code, to come back to. */
__attribute__((noinline)) static long work(long rounds, function *call)
{
    long sum = 0;
    for (long round = 0; round < rounds; round++)
        sum = call(sum ^ round) + (sum >> 3);
    return sum;
}

static long twice(long value)
{
    return 2 * value;
}

static void written_then_protected(void)
{
    uint32_t *code = map(PROT_READ | PROT_WRITE);
    write_adder(code, 11);
    mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC);
    printf("protected %ld\n", work(1000, (function *)code));
    mprotect(code, 2 * PAGE, PROT_READ | PROT_WRITE);
    write_adder(code, -5);
    mprotect(code, 2 * PAGE, PROT_READ | PROT_EXEC);
    printf("again %ld\n", work(1000, (function *)code));
    munmap(code, 2 * PAGE);
}

static void written_all_the_time(void)
{
    uint32_t *code = map(PROT_READ | PROT_WRITE | PROT_EXEC);
    long sum = 0;
    for (int round = 0; round < 300; round++) {
        write_adder(code + round, round);
        sum = 3 * sum + ((function *)(code + round))(round);
        write_adder(code + round, 2 * round);
        sum ^= ((function *)(code + round))(sum);
    }
    printf("all the time %ld\n", sum);
    /* Over the edge of a page, in halfwords. */
    uint32_t *edge = (uint32_t *)((char *)code + PAGE - 2);
    write_adder(edge, 77);
    printf("edge %ld\n", ((function *)edge)(1));
    munmap(code, 2 * PAGE);
}

static void calls_the_program(void)
{
    uint32_t *code = map(PROT_READ | PROT_WRITE | PROT_EXEC);
    /* addi sp, -16; sd ra, 8(sp); addi a0, 7; jalr a1; ld ra, 8(sp); addi sp, 16; ret */
    uint32_t words[] = { addi(2, 2, -16), 0x00113423, addi(10, 10, 7), 0x000580e7,
                         0x00813083,      addi(2, 2, 16), ret };
    memcpy(code, words, sizeof words);
    synchronise();
    long sum = 0;
    for (int round = 0; round < 100; round++)
        sum += ((long (*)(long, function *))code)(sum ^ round, round & 1 ? twice : patched);
    printf("calls %ld\n", sum);
}

static void over_own_code(void)
{
    uint32_t kept[2];
    void *page = (void *)((uintptr_t)patched & ~(uintptr_t)(PAGE - 1));
    printf("own %ld %ld\n", patched(14), work(100, patched));
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
        printf("refused\n");
    memcpy(kept, (void *)patched, sizeof kept);
    write_adder((uint32_t *)patched, 100);
    printf("changed %ld %ld %ld\n", patched(14), work(100, patched), behind(1));
    memcpy((void *)patched, kept, sizeof kept);
    synchronise();
    mprotect(page, PAGE, PROT_READ | PROT_EXEC);
    printf("as before %ld %ld\n", patched(14), work(100, patched));
}

static void wrong(const char *name, function *call)
{
    fault_address = 0;
    int number = sigsetjmp(recover, 1);
    if (number == 0)
        printf("%s: %ld\n", name, call(1));
    else
        printf("%s: signal %d at %d\n", name, number, fault_address == (uintptr_t)call);
}

static void goes_wrong(void)
{
    uint32_t *code = map(PROT_READ | PROT_WRITE | PROT_EXEC);
    struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
    code[0] = 0;
    code[1] = 0x00100073;
    synchronise();
    wrong("illegal", (function *)code);
    wrong("breakpoint", (function *)(code + 1));
    mprotect(code, PAGE, PROT_READ | PROT_WRITE);
    wrong("not executable", (function *)code);
    munmap(code, 2 * PAGE);
    wrong("gone", (function *)code);
    volatile uint32_t *own = (volatile uint32_t *)(uintptr_t)behind;
    int number = sigsetjmp(recover, 1);
    if (number == 0) {
        *own = 0;
        printf("own code can be written\n");
    } else {
        printf("own code: signal %d at %d\n", number, fault_address == (uintptr_t)own);
    }
    printf("whole %ld\n", behind(2));
}

int main(void)
{
    written_then_protected();
    written_all_the_time();
    calls_the_program();
    over_own_code();
    goes_wrong();
    printf("after all %ld %ld\n", work(1000, behind), work(1000, twice));
    return 0;
}
