/* Signals: handlers, masks, siginfo, alternate stack, nesting, and SIGSEGV caught and left. */
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile sig_atomic_t count, on_alternate;
static char alternate[65536];
static sigjmp_buf recover;
static void *volatile fault_address;

static void plain(int number)
{
    (void)number;
    count++;
}

static void with_info(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (number == SIGUSR2)
        count += info->si_code == SI_TKILL || info->si_code == SI_USER ? 10 : 1000;
}

static void segv(int number, siginfo_t *info, void *context)
{
    char here;
    (void)number, (void)context;
    on_alternate = (uintptr_t)&here - (uintptr_t)alternate < sizeof(alternate);
    fault_address = info->si_addr;
    siglongjmp(recover, info->si_code == SEGV_ACCERR ? 2 : 1);
}

static void try_read(const char *what, volatile char *address, int write)
{
    int how = sigsetjmp(recover, 1);
    if (how == 0) {
        if (write)
            *address = 1;
        else
            (void)*address;
        printf("%s: fine\n", what);
    } else {
        printf("%s: %s, address %s, alternate stack %d\n", what, how == 2 ? "protected" : "unmapped",
               fault_address == (void *)address ? "right" : "wrong", (int)on_alternate);
    }
}

int main(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = plain;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_sigaction = with_info;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR1);
    raise(SIGUSR2);
    kill(getpid(), SIGUSR1);
    printf("%d\n", (int)count);

    sigset_t set, old, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    raise(SIGUSR1);
    sigpending(&pending);
    printf("blocked: %d %d\n", (int)count, sigismember(&pending, SIGUSR1));
    sigprocmask(SIG_SETMASK, &old, NULL);
    printf("delivered: %d\n", (int)count);
    signal(SIGUSR1, SIG_IGN);
    raise(SIGUSR1);
    printf("ignored: %d\n", (int)count);

    stack_t stack;
    memset(&stack, 0, sizeof(stack));
    stack.ss_sp = alternate;
    stack.ss_size = sizeof(alternate);
    sigaltstack(&stack, NULL);
    action.sa_sigaction = segv;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, NULL);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    try_read("read", page, 0);
    try_read("write", page, 1);
    try_read("null", (volatile char *)8, 0);
    munmap(page, 4096);
    try_read("gone", page, 0);
    return 0;
}
