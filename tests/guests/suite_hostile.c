/*
 * Attacks, on request:
 *
 *     /jump?<seed>         jumps to a wild address, many times (a handler catches what traps)
 *     /data                executes data
 *     /code                writes to code
 *     /calls?<seed>        guest calls with wild arguments
 *     /syscalls?<seed>     system calls with wild arguments
 *     /recurse             recurses for ever
 *     /threads             starts threads that start threads
 *     /storm               timers that ring all the time, and sets of sets that watch them
 *     /fork                fork, vfork, clone, execve
 *     /read?<path>         a file's content, or `error <errno>`
 *     /write?<path>        writes to a file, or `error <errno>`
 *     /header?<n>          a response with a malformed header
 *     /illegal, /stack     bytes that are no instruction; a wild stack pointer
 *     /ok                  nothing bad
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandtide.h"

static uint64_t state;

/* xorshift64* */
static uint64_t random_number(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
}

static unsigned char victim[8192] __attribute__((aligned(4096)));

/* Numbers that break things. */
static uint64_t wild(void)
{
    uint64_t r = random_number();
    switch (r >> 60) {
    case 0: return 0;
    case 1: return (r >> 8) & 0xff;
    case 2: return (uint64_t)-1 - ((r >> 8) & 0xfff);
    case 3: return (uint64_t)(uintptr_t)victim + ((r >> 8) & 0x1fff);
    case 4: return (uint64_t)(uintptr_t)victim;
    case 5: return 0xffffffffull - ((r >> 8) & 0xfff);
#ifdef __x86_64__
    /* Stubs and page tables. */
    case 6: return 0x1000000000ull + ((r >> 8) & 0x1fffff);
#else
    case 6: return 0x100000000ull + ((r >> 8) & 0xffff);
#endif
    case 7: return 1ull << ((r >> 8) & 63);
    case 8: return (1ull << 63) - ((r >> 8) & 0xf);
    case 9: return 4096 * ((r >> 8) & 0xffff);
    case 10: return (uint64_t)AT_FDCWD;
    case 11: return (r >> 8) & 0xffffffff;
    default: return r;
    }
}

static sigjmp_buf back;

static void on_signal(int signal)
{
    siglongjmp(back, signal);
}

static void catch_all(void)
{
    static const int signals[] = {SIGSEGV, SIGILL, SIGBUS, SIGTRAP, SIGFPE};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        sigaction(signals[i], &action, NULL);
}

static void report(volatile uint64_t *done)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)*done);
    sandtide_respond_text(200, text);
}

/* Only to where nothing is mapped, or no code: what is there would run, and need not come back. */
static void jump(void)
{
    static volatile uint64_t done;
    catch_all();
    for (done = 0; done < 2000; done++) {
        uint64_t to = wild();
        if ((to & 0xffffffff) < 0x8000000)
            to |= 0x80000000;
        if (sigsetjmp(back, 0) == 0)
            ((void (*)(void))(uintptr_t)to)();
    }
    report(&done);
}

static void execute_data(void)
{
    static uint32_t code[] = {0x06300513 /* li a0, 99 */, 0x00008067 /* ret */};
    int (*volatile function)(void) = (int (*)(void))(uintptr_t)code;
    sandtide_respond_text(200, function() == 99 ? "executed" : "?");
}

static void write_code(void)
{
    volatile uint32_t *code = (volatile uint32_t *)(uintptr_t)wild;
    *code = 0x00008067;
    sandtide_respond_text(200, "written");
}

static void guest_calls(void)
{
    uint64_t done;
    for (done = 0; done < 3000; done++) {
        uint64_t number = SANDTIDE_CALL_VERSION + random_number() % 12;
        if (random_number() % 64 == 0)
            number = SANDTIDE_CALL_VERSION + random_number() % 300;
        /* A struct of wild members, as often as a wild pointer to one. */
        for (size_t i = 0; i < 16; i++)
            ((uint64_t *)(void *)victim)[i] = wild();
        if (number != SANDTIDE_CALL_NEXT_REQUEST)
            syscall((long)number, wild(), wild(), wild(), wild(), wild(), wild());
    }
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)done);
    sandtide_respond_text(200, text);
}

/* What would end the attack by itself, wait for ever, or take this code away. */
static int is_left_out(uint64_t number)
{
    switch (number) {
    case SYS_exit:
    case SYS_exit_group:
    case SYS_rt_sigreturn:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_rt_sigaction:
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_setitimer:
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill:
    case SYS_clone:
    case SYS_clone3:
    case SYS_epoll_pwait2:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_accept4:
    case SYS_read:
    case SYS_readv:
#ifdef __x86_64__
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
    case SYS_accept:
    case SYS_pause:
    case SYS_alarm:
    case SYS_fork:
    case SYS_vfork:
    case SYS_arch_prctl:
#endif
        return 1;
    default:
        return 0;
    }
}

static void system_calls(int all)
{
    static volatile uint64_t done;
    catch_all();
    for (done = 0; done < 5000; done++) {
        uint64_t number = random_number() % 460;
        if (!all && is_left_out(number))
            continue;
        uint64_t first = wild(), second = wild();
        /* munmap, mmap, … of what the attack needs would end it early. */
        if (number == SYS_munmap || number == SYS_mprotect || number == SYS_mremap ||
            number == SYS_madvise || number == SYS_brk || number == SYS_mmap)
            first = 0x90000000 + (first & 0xffff000);
        if (sigsetjmp(back, 0) == 0)
            syscall((long)number, first, second, wild(), wild(), wild(), wild());
    }
    report(&done);
}

static __attribute__((noinline)) int recurse(volatile int *above)
{
    volatile int frame[64];
    frame[0] = *above + 1;
    return *above ? recurse(frame) + frame[0] : 0;
}

static void illegal(void)
{
#ifdef __x86_64__
    __asm__ volatile("ud2");
#else
    __asm__ volatile("unimp");
#endif
}

static void wild_stack(void)
{
#ifdef __x86_64__
    __asm__ volatile("mov $-8, %rsp; push %rax; ud2");
#else
    __asm__ volatile("li sp, -8\n"
                     "sd ra, 0(sp)\n"
                     "unimp");
#endif
}

static void *starts_threads(void *nothing)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (;;)
        pthread_create(&thread, &attributes, starts_threads, NULL);
    return nothing;
}

static void on_alarm(int signal)
{
    (void)signal;
}

/* Sets in sets, each with all that there is, a timer of a nanosecond and an alarm of a microsecond. */
static void storm(void)
{
    int fds[64], count = 0;
    struct itimerspec now = {.it_value.tv_nsec = 1, .it_interval.tv_nsec = 1};
    struct itimerval soon = {.it_value.tv_usec = 1, .it_interval.tv_usec = 1};
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    signal(SIGALRM, on_alarm);
    fds[count++] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    timerfd_settime(fds[0], 0, &now, NULL);
    for (int fd; count < 32 && (fd = eventfd(0, EFD_NONBLOCK)) >= 0;)
        fds[count++] = fd;
    for (int fd; count < 64 && (fd = epoll_create1(0)) >= 0;)
        fds[count++] = fd;
    for (int set = 0; set < count; set++)
        for (int fd = 0; fd < count; fd++)
            epoll_ctl(fds[set], EPOLL_CTL_ADD, fds[fd], &event);
    setitimer(ITIMER_REAL, &soon, NULL);
    for (uint64_t one = 1;;) {
        for (int at = 0; at < count; at++) {
            struct epoll_event events[64];
            if (write(fds[at], &one, sizeof(one)) < 0)
                epoll_wait(fds[at], events, 64, at % 2);
        }
    }
}

static void fork_attempts(void)
{
    char text[256];
    char *const arguments[] = {(char *)"/bin/sh", NULL};
    size_t length = 0;
    for (int i = 0; i < 1000; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child > 0) {
            sandtide_respond_text(200, "forked");
            return;
        }
    }
    length += (size_t)snprintf(text, sizeof(text), "fork %d", errno);
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    length += (size_t)snprintf(text + length, sizeof(text) - length, " clone %d",
                               child < 0 ? errno : 0);
    execve("/bin/sh", arguments, NULL);
    snprintf(text + length, sizeof(text) - length, " execve %d", errno);
    sandtide_respond_text(200, text);
}

static void respond_errno(void)
{
    char text[32];
    snprintf(text, sizeof(text), "error %d", errno);
    sandtide_respond_text(200, text);
}

static void read_file(const char *path)
{
    static char content[65536];
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, content, sizeof(content) - 1);
    if (length < 0)
        respond_errno();
    else
        sandtide_respond(200, NULL, 0, content, (size_t)length);
}

static void write_file(const char *path)
{
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, "x", 1) != 1)
        respond_errno();
    else
        sandtide_respond_text(200, "written");
}

static char long_name[60001];

static void bad_header(int which)
{
    memset(long_name, '\033', sizeof(long_name) - 1);
    static const struct sandtide_field headers[] = {
        SANDTIDE_FIELD("x-note", "a\r\nx-injected: yes"),
        SANDTIDE_FIELD("x-note", "a\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nbad"),
        SANDTIDE_FIELD("x-note\r\nx-injected", "yes"),
        SANDTIDE_FIELD("x-note: a\r\nx", "b"),
        SANDTIDE_FIELD("x note", "a"),
        SANDTIDE_FIELD("", "a"),
        SANDTIDE_FIELD("x-note", "a\nx-injected: yes"),
        SANDTIDE_FIELD("x-note", "a\rx-injected: yes"),
        SANDTIDE_FIELD("x-note", "a\0b"),
        SANDTIDE_FIELD("content-length", "1"),
        SANDTIDE_FIELD("content-length", "100000"),
        SANDTIDE_FIELD("transfer-encoding", "chunked"),
        SANDTIDE_FIELD("connection", "upgrade"),
        {long_name, "a", sizeof(long_name) - 1, 1},
    };
    size_t count = sizeof(headers) / sizeof(*headers);
    sandtide_respond(200, &headers[(size_t)which % count], 1, "body", 4);
}

static void handle(const char *path, const char *query)
{
    state = strtoull(query, NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
    if (strcmp(path, "/jump") == 0)
        jump();
    else if (strcmp(path, "/data") == 0)
        execute_data();
    else if (strcmp(path, "/code") == 0)
        write_code();
    else if (strcmp(path, "/calls") == 0)
        guest_calls();
    else if (strcmp(path, "/syscalls") == 0)
        system_calls(0);
    else if (strcmp(path, "/all-syscalls") == 0)
        system_calls(1);
    else if (strcmp(path, "/recurse") == 0)
        recurse(&(volatile int){1});
    else if (strcmp(path, "/threads") == 0)
        starts_threads(NULL);
    else if (strcmp(path, "/storm") == 0)
        storm();
    else if (strcmp(path, "/fork") == 0)
        fork_attempts();
    else if (strcmp(path, "/read") == 0)
        read_file(query);
    else if (strcmp(path, "/write") == 0)
        write_file(query);
    else if (strcmp(path, "/header") == 0)
        bad_header(atoi(query));
    else if (strcmp(path, "/illegal") == 0)
        illegal();
    else if (strcmp(path, "/stack") == 0)
        wild_stack();
    else
        sandtide_respond_text(200, "ok");
}

int main(void)
{
    struct sandtide_request request;
    while (sandtide_next_request(&request) == 0) {
        char path[64], query[512];
        struct sandtide_string part = sandtide_path(&request);
        snprintf(path, sizeof(path), "%.*s", (int)part.length, part.data);
        part = sandtide_query(&request);
        snprintf(query, sizeof(query), "%.*s", (int)part.length, part.data);
        handle(path, query);
    }
    return 1;
}
