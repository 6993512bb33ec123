/*
 * Leaves secrets in every place that a request can leave something in, and looks for them.
 *
 *     /plant/<place>/<ending>    with header x-secret: leaves the secret, then ends so
 *     /probe/<place>             with header x-masked: `clean`, or what was found
 *     /random                    random numbers from every source
 *     /line?<text>               writes a line without an end to the console
 *
 * A probe gets the secret XORed with MASK, so that looking for it does not plant it. The suite is
 * tests/tests/isolation.rs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "sandtide.h"

#define MASK 0x5aa5c33c0ff01e2dull
#define PAGE 4096
#define CLEAN "clean"

static const char *dirty(const char *what)
{
    return what;
}

/* ---- Waiting for a request, with every register under control ------------------------------ */

#define CAPACITY 65536
static unsigned char block[CAPACITY] __attribute__((aligned(PAGE), used));
static struct sandtide_response answer __attribute__((used));

/*
 * The registers as they were right behind the call that got the request.
 *
 * riscv: x0 to x31, f0 to f31, fcsr.
 * x86-64: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15; the lower and then the upper halves of
 * xmm0 to xmm15; mxcsr and, above it, the x87 control word.
 */
struct registers {
    uint64_t x[32];
    uint64_t f[32];
    uint64_t fcsr;
};
static struct registers saw __attribute__((used));
static uint64_t kept[32] __attribute__((used));

/* What every register holds while the program waits, so that whatever else is there is left over. */
#define PATTERN(n) (0x7000 + (n))

long wait_for_request(void);
long answer_with_registers(uint64_t secret);
void end_with_registers(uint64_t secret, void (*ending)(void)) __attribute__((noreturn));

#ifdef __x86_64__
__asm__(
    ".text\n"
    ".macro each do\n"
    "    \\do rcx, 1\n"
    "    \\do rdx, 2\n"
    "    \\do rbx, 3\n"
    "    \\do rbp, 5\n"
    "    \\do r8, 8\n"
    "    \\do r9, 9\n"
    "    \\do r10, 10\n"
    "    \\do r11, 11\n"
    "    \\do r12, 12\n"
    "    \\do r13, 13\n"
    "    \\do r14, 14\n"
    "    \\do r15, 15\n"
    ".endm\n"
    ".macro pattern register, n\n"
    "    movq $(0x7000 + \\n), %\\register\n"
    ".endm\n"
    ".macro see register, n\n"
    "    movq %\\register, saw + 8 * \\n(%rip)\n"
    ".endm\n"
    ".macro plant register, n\n"
    "    movq %rdi, %\\register\n"
    ".endm\n"
    ".macro callee_saved do\n"
    "    \\do rbx, 3\n"
    "    \\do rsp, 4\n"
    "    \\do rbp, 5\n"
    "    \\do r12, 12\n"
    "    \\do r13, 13\n"
    "    \\do r14, 14\n"
    "    \\do r15, 15\n"
    ".endm\n"
    ".macro keep register, n\n"
    "    movq %\\register, kept + 8 * \\n(%rip)\n"
    ".endm\n"
    ".macro give_back register, n\n"
    "    movq kept + 8 * \\n(%rip), %\\register\n"
    ".endm\n"
    ".macro plant_float\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "    movq %rdi, %xmm\\n\n"
    "    punpcklqdq %xmm\\n, %xmm\\n\n"
    ".endr\n"
    "    ldmxcsr odd_control(%rip)\n"
    "    fldcw odd_x87(%rip)\n"
    ".endm\n"
    ".section .rodata\n"
    ".balign 4\n"
    "usual_control: .long 0x1f80\n"
    "odd_control: .long 0x7fbf\n"
    "odd_x87: .short 0x0f7f\n"
    ".text\n"

    ".globl wait_for_request\n"
    "wait_for_request:\n"
    "    callee_saved keep\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "    movl $(0x7000 + \\n), %eax\n"
    "    movq %rax, %xmm\\n\n"
    ".endr\n"
    "    each pattern\n"
    "next_request:\n"
    "    leaq block(%rip), %rdi\n"
    "    movl $65536, %esi\n"
    "    movl $0x535401, %eax\n"
    "    syscall\n"
    ".globl behind_the_call\n"
    "behind_the_call:\n"
    "    see rax, 0\n"
    "    see rsp, 4\n"
    "    see rsi, 6\n"
    "    see rdi, 7\n"
    "    each see\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
    "    movq %xmm\\n, saw + 256 + 8 * \\n(%rip)\n"
    "    movhps %xmm\\n, saw + 384 + 8 * \\n(%rip)\n"
    ".endr\n"
    "    stmxcsr saw + 512(%rip)\n"
    "    fnstcw saw + 516(%rip)\n"
    /* Ordinary code follows: ordinary rounding. */
    "    ldmxcsr usual_control(%rip)\n"
    "    fninit\n"
    "    callee_saved give_back\n"
    "    ret\n"

    /* Answers with the registers full; returns with the next request, if state is kept. */
    ".globl answer_with_registers\n"
    "answer_with_registers:\n"
    "    callee_saved keep\n"
    "    plant_float\n"
    "    each plant\n"
    "    leaq answer(%rip), %rdi\n"
    "    movl $0x535402, %eax\n"
    "    syscall\n"
    "    jmp next_request\n"

    /* The secret stays where the ending does not overwrite it. */
    ".globl end_with_registers\n"
    "end_with_registers:\n"
    "    plant_float\n"
    "    each plant\n"
    "    jmp *%rsi\n");
#else
__asm__(
    ".text\n"
    ".macro each_temporary do\n"
    ".irp n,1,5,6,7,8,9,12,13,14,15,16,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "    \\do \\n\n"
    ".endr\n"
    ".endm\n"
    ".macro pattern n\n"
    "    li x\\n, 0x7000 + \\n\n"
    ".endm\n"
    ".macro keep_callee_saved\n"
    "    lla t0, kept\n"
    ".irp n,1,2,8,9,18,19,20,21,22,23,24,25,26,27\n"
    "    sd x\\n, 8 * \\n(t0)\n"
    ".endr\n"
    "    lla t0, kept_float\n"
    ".irp n,8,9,18,19,20,21,22,23,24,25,26,27\n"
    "    fsd f\\n, 8 * \\n(t0)\n"
    ".endr\n"
    "    addi sp, sp, -544\n"
    ".endm\n"
    ".bss\n"
    ".balign 8\n"
    "kept_float: .skip 256\n"
    ".text\n"

    ".globl wait_for_request\n"
    "wait_for_request:\n"
    "    keep_callee_saved\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "    li t0, 0x7000 + \\n\n"
    "    fmv.d.x f\\n, t0\n"
    ".endr\n"
    "    each_temporary pattern\n"
    "next_request:\n"
    "    lla a0, block\n"
    "    li a1, 65536\n"
    "    li a7, 0x535401\n"
    "    ecall\n"
    /* Everything into the frame, by way of sp alone. */
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "    sd x\\n, 8 * \\n(sp)\n"
    "    fsd f\\n, 256 + 8 * \\n(sp)\n"
    ".endr\n"
    "    frcsr t0\n"
    "    sd t0, 512(sp)\n"
    /* Ordinary code follows: ordinary rounding. */
    "    fscsr zero\n"
    "    lla t1, saw\n"
    "    mv t2, sp\n"
    "    addi t3, sp, 520\n"
    "1:  ld t0, 0(t2)\n"
    "    sd t0, 0(t1)\n"
    "    addi t1, t1, 8\n"
    "    addi t2, t2, 8\n"
    "    bltu t2, t3, 1b\n"
    "    lla t0, kept_float\n"
    ".irp n,8,9,18,19,20,21,22,23,24,25,26,27\n"
    "    fld f\\n, 8 * \\n(t0)\n"
    ".endr\n"
    "    lla t0, kept\n"
    ".irp n,1,2,8,9,18,19,20,21,22,23,24,25,26,27\n"
    "    ld x\\n, 8 * \\n(t0)\n"
    ".endr\n"
    "    ret\n"

    /* Every register but those that the call needs, floating point and its state. */
    ".macro plant n\n"
    "    mv x\\n, a0\n"
    ".endm\n"
    ".macro plant_float\n"
    ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
    "    fmv.d.x f\\n, a0\n"
    ".endr\n"
    "    li t0, 0x7f\n"
    "    fscsr t0\n"
    ".endm\n"

    /* Answers with the registers full; returns with the next request, if state is kept. */
    ".globl answer_with_registers\n"
    "answer_with_registers:\n"
    "    keep_callee_saved\n"
    "    plant_float\n"
    "    each_temporary plant\n"
    "    lla a0, answer\n"
    "    li a7, 0x535402\n"
    "    ecall\n"
    "    j next_request\n"

    /* The secret stays where the ending does not overwrite it. */
    ".globl end_with_registers\n"
    "end_with_registers:\n"
    "    mv a1, a1\n"
    "    plant_float\n"
    "    each_temporary plant\n"
    "    jr a1\n");
#endif

/* ---- What there is when the program waits for its first request ----------------------------- */

static uint64_t data[2048] = {[0 ... 2047] = 0x0123456789abcdefull};
static uint64_t bss[2048];
static __thread uint64_t tls[64] = {[0 ... 63] = 77};
static pthread_key_t key;
static char stdout_buffer[4096];

/* What Linux keeps for a process beside all this. */
struct own {
    struct rlimit files;
    uint64_t robust, gs;
};

static struct {
    char *brk;
    char *next_map;
    char cwd[64];
    mode_t mask;
    int scratch_file, granted_file, counter, set, timer, pipe[2], pair[2], end;
    uint64_t *writable, *readonly;
    char *hole;
    char *argument;
    char name[16];
    struct own own;
} boot;

static struct own what_is_own(void);

static uint64_t *map(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* musl's sbrk moves nothing. */
static char *brk_at(char *wanted)
{
    return (char *)syscall(SYS_brk, wanted);
}

static void need(int condition, const char *what)
{
    if (!condition) {
        perror(what);
        exit(9);
    }
}

static void set_up(char **arguments)
{
    boot.scratch_file = open("/tmp/boot", O_RDWR | O_CREAT, 0600);
    need(boot.scratch_file >= 0, "/tmp/boot");
    need(write(boot.scratch_file, "original", 8) == 8, "write");
    boot.granted_file = open("/data/file", O_RDONLY);
    need(boot.granted_file >= 0, "/data/file");
    boot.counter = eventfd(7, EFD_NONBLOCK);
    boot.set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.u64 = 42};
    need(epoll_ctl(boot.set, EPOLL_CTL_ADD, boot.counter, &event) == 0, "epoll_ctl");
    boot.timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    need(pipe2(boot.pipe, O_NONBLOCK) == 0, "pipe2");
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, boot.pair) == 0, "socketpair");
    boot.end = boot.pair[1] + 1;
    boot.writable = map(PAGE);
    boot.readonly = map(PAGE);
    boot.hole = (char *)map(PAGE);
    need(boot.writable && boot.readonly && boot.hole, "mmap");
    boot.writable[0] = boot.readonly[0] = 42;
    need(mprotect(boot.readonly, PAGE, PROT_READ) == 0, "mprotect");
    need(munmap(boot.hole, PAGE) == 0, "munmap");
    need(pthread_key_create(&key, NULL) == 0, "pthread_key_create");
    setvbuf(stdout, stdout_buffer, _IOFBF, sizeof(stdout_buffer));
    need(getcwd(boot.cwd, sizeof(boot.cwd)) != NULL, "getcwd");
    boot.own = what_is_own();
    boot.mask = umask(022);
    umask(boot.mask);
    boot.argument = arguments[0];
    need(prctl(PR_GET_NAME, boot.name) == 0, "prctl");
    boot.brk = brk_at(NULL);
    boot.next_map = (char *)map(64 * PAGE);
    need(boot.next_map != NULL, "mmap");
    need(munmap(boot.next_map, 64 * PAGE) == 0, "munmap");
}

/* ---- Places ---------------------------------------------------------------------------------- */

/* Where the secret lies in a range of memory. */
static int holds(const volatile void *from, size_t size, uint64_t masked)
{
    const volatile uint64_t *word = from;
    for (size_t i = 0; i < size / 8; i++)
        if ((word[i] ^ MASK) == masked)
            return 1;
    return 0;
}

static void fill(void *to, size_t size, uint64_t secret)
{
    volatile uint64_t *word = to;
    for (size_t i = 0; i < size / 8; i++)
        word[i] = secret;
}

static void plant_data(uint64_t secret)
{
    fill(data, sizeof(data), secret);
}

static const char *probe_data(uint64_t masked)
{
    (void)masked;
    for (size_t i = 0; i < 2048; i++)
        if (((volatile uint64_t *)data)[i] != 0x0123456789abcdefull)
            return dirty(".data has changed");
    return CLEAN;
}

static void plant_bss(uint64_t secret)
{
    fill(bss, sizeof(bss), secret);
}

static const char *probe_bss(uint64_t masked)
{
    (void)masked;
    for (size_t i = 0; i < 2048; i++)
        if (((volatile uint64_t *)bss)[i])
            return dirty(".bss is not zero");
    return CLEAN;
}

static const size_t SIZES[] = {16, 64, 256, 1024, 8192, 65536, 300000};

static void plant_malloc(uint64_t secret)
{
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof(SIZES) / sizeof(*SIZES); i++) {
            char *volatile chunk = malloc(SIZES[i]);
            if (chunk)
                fill(chunk, SIZES[i], secret);
            if (round % 2)
                free(chunk);
        }
}

static const char *probe_malloc(uint64_t masked)
{
    for (int round = 0; round < 4; round++)
        for (size_t i = 0; i < sizeof(SIZES) / sizeof(*SIZES); i++) {
            char *chunk = malloc(SIZES[i]);
            if (!chunk)
                return dirty("malloc fails");
            if (holds(chunk, SIZES[i], masked))
                return dirty("the secret lies in a fresh chunk");
        }
    return CLEAN;
}

static void plant_brk(uint64_t secret)
{
    char *from = brk_at(NULL);
    if (brk_at(from + 16 * PAGE) == from + 16 * PAGE)
        fill(from, 16 * PAGE, secret);
}

static const char *probe_brk(uint64_t masked)
{
    (void)masked;
    volatile uint64_t *from = (uint64_t *)(void *)boot.brk;
    if (brk_at(NULL) != boot.brk)
        return dirty("the break has moved");
    if (brk_at(boot.brk + 16 * PAGE) != boot.brk + 16 * PAGE)
        return dirty("the break cannot be moved");
    for (size_t i = 0; i < 16 * PAGE / 8; i++)
        if (from[i])
            return dirty("fresh heap is not zero");
    return CLEAN;
}

static void plant_mmap(uint64_t secret)
{
    uint64_t *stays = map(64 * PAGE), *gone = map(64 * PAGE);
    fill(gone, 64 * PAGE, secret);
    fill(stays, 64 * PAGE, secret);
    munmap(gone, 64 * PAGE);
}

static const char *probe_mmap(uint64_t masked)
{
    (void)masked;
    for (int i = 0; i < 2; i++) {
        volatile uint64_t *fresh = map(64 * PAGE);
        if (!fresh)
            return dirty("mmap fails");
        if (i == 0 && (char *)fresh != boot.next_map)
            return dirty("the layout of mappings has changed");
        for (size_t at = 0; at < 64 * PAGE / 8; at++)
            if (fresh[at])
                return dirty("a fresh mapping is not zero");
    }
    return CLEAN;
}

static __attribute__((noinline)) int deep(int depth, uint64_t secret)
{
    volatile uint64_t frame[128];
    for (int i = 0; i < 128; i++)
        frame[i] = secret;
    return depth ? deep(depth - 1, secret) + (int)frame[depth % 128] : (int)frame[0];
}

static void plant_stack(uint64_t secret)
{
    if (deep(80, secret) == 1)
        abort(); /* the sum is used, so that it is computed */
}

static const char *probe_stack(uint64_t masked)
{
    const char *top = __builtin_frame_address(0);
    return holds(top - 80 * 1024, 79 * 1024, masked) ? dirty("the secret lies on the stack") : CLEAN;
}

static void plant_tls(uint64_t secret)
{
    fill(tls, sizeof(tls), secret);
    pthread_setspecific(key, (void *)(uintptr_t)secret);
}

static const char *probe_tls(uint64_t masked)
{
    (void)masked;
    for (int i = 0; i < 64; i++)
        if (((volatile uint64_t *)tls)[i] != 77)
            return dirty("thread-local storage has changed");
    return pthread_getspecific(key) ? dirty("a thread-specific value is there") : CLEAN;
}

/* Planted together with the ending. */
static int with_registers;

static void plant_registers(uint64_t secret)
{
    (void)secret;
    with_registers = 1;
}

#ifdef __x86_64__
extern const char behind_the_call[];

/* What a register holds behind the call. */
static uint64_t expected_register(int n)
{
    switch (n) {
    case 0:
        return *(uint32_t *)(void *)block;
    case 1:
        return (uintptr_t)behind_the_call;
    case 4:
        return kept[4];
    case 6:
        return CAPACITY;
    case 7:
        return (uintptr_t)block;
    case 11:
        return saw.x[11] < 0x1000 ? saw.x[11] : 0; /* flags */
    default:
        return n < 16 ? PATTERN((uint64_t)n) : 0;
    }
}

static uint64_t expected_float(unsigned n)
{
    return n < 16 ? PATTERN(n) : 0;
}

#define USUAL_CONTROL 0x037f00001f80ull
#else
static uint64_t expected_register(int n)
{
    switch (n) {
    case 0:
    case 3:
    case 4:
        return saw.x[n]; /* zero, gp and tp: the program would not have come here */
    case 2:
        return kept[2] - 544;
    case 10:
        return *(uint32_t *)(void *)block;
    case 11:
        return CAPACITY;
    case 17:
        return SANDTIDE_CALL_NEXT_REQUEST;
    default:
        return PATTERN((uint64_t)n);
    }
}

static uint64_t expected_float(unsigned n)
{
    return PATTERN(n);
}

#define USUAL_CONTROL 0
#endif

static const char *probe_registers(uint64_t masked)
{
    static char text[64];
    for (int n = 0; n < 32; n++) {
        if (saw.x[n] == expected_register(n))
            continue;
        snprintf(text, sizeof(text), "x%d holds %s", n,
                 (saw.x[n] ^ MASK) == masked ? "the secret" : "something");
        return dirty(text);
    }
    return CLEAN;
}

static const char *probe_float(uint64_t masked)
{
    static char text[64];
    (void)masked;
    for (unsigned n = 0; n < 32; n++)
        if (saw.f[n] != expected_float(n)) {
            snprintf(text, sizeof(text), "f%u holds something", n);
            return dirty(text);
        }
    return saw.fcsr == USUAL_CONTROL ? CLEAN : dirty("the control register holds something");
}

static void plant_descriptors(uint64_t secret)
{
    int ends[2];
    int file = open("/tmp/left", O_RDWR | O_CREAT, 0600);
    if (write(file, &secret, 8) != 8)
        perror("write");
    dup2(file, 30);
    if (pipe(ends) == 0 && write(ends[1], &secret, 8) != 8)
        perror("write");
    close(boot.scratch_file);
}

static const char *probe_descriptors(uint64_t masked)
{
    (void)masked;
    for (int fd = 0; fd < 32; fd++) {
        int expected = fd < boot.end;
        if ((fcntl(fd, F_GETFD) >= 0) != expected)
            return dirty(expected ? "a descriptor was closed" : "a descriptor was left open");
    }
    return CLEAN;
}

static void plant_offsets(uint64_t secret)
{
    lseek(boot.scratch_file, (off_t)(secret % 1000) + 1, SEEK_SET);
    lseek(boot.granted_file, 3, SEEK_SET);
    fcntl(boot.scratch_file, F_SETFL, O_APPEND);
}

static const char *probe_offsets(uint64_t masked)
{
    (void)masked;
    if (lseek(boot.scratch_file, 0, SEEK_CUR) != 8)
        return dirty("the offset of a scratch file has moved");
    if (lseek(boot.granted_file, 0, SEEK_CUR) != 0)
        return dirty("the offset of a granted file has moved");
    if (fcntl(boot.scratch_file, F_GETFL) & O_APPEND)
        return dirty("the flags of a descriptor have changed");
    return CLEAN;
}

static void plant_counters(uint64_t secret)
{
    uint64_t added = secret % 1000 + 1;
    if (write(boot.counter, &added, 8) != 8)
        perror("write");
}

static const char *probe_counters(uint64_t masked)
{
    uint64_t there;
    (void)masked;
    if (read(boot.counter, &there, 8) != 8 || there != 7)
        return dirty("a counter has changed");
    return CLEAN;
}

/* The edge of one watch is taken, and there is another. */
static void plant_watches(uint64_t secret)
{
    struct epoll_event event = {.events = EPOLLOUT, .data.u64 = secret}, events[4];
    epoll_ctl(boot.set, EPOLL_CTL_ADD, boot.pair[0], &event);
    epoll_wait(boot.set, events, 4, 0);
    epoll_ctl(boot.set, EPOLL_CTL_MOD, boot.counter, &event);
}

static const char *probe_watches(uint64_t masked)
{
    struct epoll_event events[4];
    (void)masked;
    int count = epoll_wait(boot.set, events, 4, 0);
    if (count == 0)
        return dirty("an edge was taken");
    if (count != 1)
        return dirty("a watch was left");
    return events[0].data.u64 == 42 ? CLEAN : dirty("a watch has changed");
}

static void plant_timers(uint64_t secret)
{
    struct itimerspec times = {.it_value.tv_sec = 1000 + (time_t)(secret % 1000)};
    struct itimerval alarm = {.it_value.tv_sec = times.it_value.tv_sec};
    timerfd_settime(boot.timer, 0, &times, NULL);
    setitimer(ITIMER_REAL, &alarm, NULL);
}

static const char *probe_timers(uint64_t masked)
{
    struct itimerspec times;
    struct itimerval alarm;
    (void)masked;
    if (timerfd_gettime(boot.timer, &times) || times.it_value.tv_sec)
        return dirty("a timer is armed");
    if (getitimer(ITIMER_REAL, &alarm) || alarm.it_value.tv_sec)
        return dirty("an alarm is armed");
    return CLEAN;
}

static void plant_pipes(uint64_t secret)
{
    if (write(boot.pipe[1], &secret, 8) != 8 || write(boot.pair[0], &secret, 8) != 8)
        perror("write");
    shutdown(boot.pair[0], SHUT_WR);
}

static const char *probe_pipes(uint64_t masked)
{
    uint64_t there;
    (void)masked;
    if (read(boot.pipe[0], &there, 8) != -1)
        return dirty("a pipe is not empty");
    if (read(boot.pair[1], &there, 8) > 0)
        return dirty("a socket is not empty");
    return write(boot.pair[0], "x", 1) == 1 ? CLEAN : dirty("a socket is shut down");
}

static void plant_scratch(uint64_t secret)
{
    mkdir("/tmp/directory", 0700);
    int file = open("/tmp/directory/secret", O_RDWR | O_CREAT, 0600);
    for (int i = 0; i < 1000; i++)
        if (write(file, &secret, 8) != 8)
            perror("write");
    close(file);
    if (pwrite(boot.scratch_file, &secret, 8, 0) != 8)
        perror("pwrite");
    if (pwrite(boot.scratch_file, &secret, 8, 5000) != 8)
        perror("pwrite");
}

static const char *probe_scratch(uint64_t masked)
{
    char bytes[16] = {0};
    struct stat status;
    (void)masked;
    if (stat("/tmp/directory", &status) == 0 || stat("/tmp/directory/secret", &status) == 0)
        return dirty("a file was left in the scratch area");
    if (pread(boot.scratch_file, bytes, 16, 0) != 8 || memcmp(bytes, "original", 8))
        return dirty("a file from before has changed");
    int file = open("/tmp/fresh", O_RDWR | O_CREAT, 0600);
    uint64_t words[64];
    if (ftruncate(file, 8192) || pread(file, words, sizeof(words), 0) != sizeof(words))
        return dirty("a fresh file cannot be read");
    for (int i = 0; i < 64; i++)
        if (words[i])
            return dirty("a fresh file is not zero");
    return CLEAN;
}

static void plant_protection(uint64_t secret)
{
    mprotect(boot.readonly, PAGE, PROT_READ | PROT_WRITE);
    boot.readonly[0] = secret;
    mprotect(boot.writable, PAGE, PROT_NONE);
}

static const char *probe_protection(uint64_t masked)
{
    (void)masked;
    /* The kernel tells without a trap. */
    if (pread(boot.scratch_file, boot.readonly + 1, 1, 0) >= 0)
        return dirty("a read-only page can be written");
    if (pread(boot.scratch_file, boot.writable + 1, 1, 0) != 1)
        return dirty("a writable page cannot be written");
    if (boot.readonly[0] != 42 || boot.writable[0] != 42)
        return dirty("a page has changed");
    return CLEAN;
}

static void plant_mappings(uint64_t secret)
{
    munmap(boot.readonly, PAGE);
    uint64_t *at = mmap(boot.hole, PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (at != MAP_FAILED)
        *at = secret;
}

static const char *probe_mappings(uint64_t masked)
{
    (void)masked;
    if (pread(boot.scratch_file, boot.hole, 1, 0) >= 0)
        return dirty("a mapping was left");
    if (pwrite(boot.scratch_file, boot.readonly, 1, 8) != 1)
        return dirty("a mapping is gone");
    return boot.readonly[0] == 42 ? CLEAN : dirty("a mapping has changed");
}

static __attribute__((noinline, aligned(PAGE))) int overwritten(void)
{
    int one = 1;
    __asm__ volatile("nop\nnop\nnop\nnop" : "+r"(one));
    return one;
}

static void plant_code(uint64_t secret)
{
#ifdef __x86_64__
    static const unsigned char code[] = {0xb8, 99, 0, 0, 0 /* mov eax, 99 */, 0xc3 /* ret */};
#else
    static const uint32_t code[] = {0x06300513 /* li a0, 99 */, 0x00008067 /* ret */};
#endif
    void *page = (void *)((uintptr_t)overwritten & ~(uintptr_t)(PAGE - 1));
    (void)secret;
    if (mprotect(page, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC))
        return;
    memcpy((void *)(uintptr_t)overwritten, code, sizeof(code));
#ifndef __x86_64__
    __asm__ volatile("fence.i" ::: "memory");
#endif
    int (*volatile function)(void) = overwritten;
    if (function() != 99)
        abort(); /* the plant must work, or the probe proves nothing */
}

static const char *probe_code(uint64_t masked)
{
    int (*volatile function)(void) = overwritten;
    (void)masked;
    if (function() != 1)
        return dirty("code was overwritten");
    if (pread(boot.scratch_file, (void *)(uintptr_t)overwritten, 1, 0) >= 0)
        return dirty("code can be written");
    return CLEAN;
}

#define THREADS 6
static volatile uint64_t thread_turns;

static void *left_running(void *nothing)
{
    for (;;) {
        thread_turns++;
        sched_yield();
    }
    return nothing;
}

static void *comes_to_an_end(void *nothing)
{
    return nothing;
}

/* With a small stack, so that memory is not what limits them. */
static int start(pthread_t *thread, void *(*work)(void *))
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    return pthread_create(thread, &attributes, work, NULL);
}

static void plant_threads(uint64_t secret)
{
    (void)secret;
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (start(&thread, left_running))
            abort();
    }
    while (thread_turns < THREADS)
        sched_yield();
}

static const char *probe_threads(uint64_t masked)
{
    pthread_t threads[THREADS];
    (void)masked;
    if (thread_turns)
        return dirty("a thread has left its count");
    for (int i = 0; i < THREADS; i++)
        if (start(&threads[i], comes_to_an_end))
            return dirty("threads take up the limit");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 100; i++)
        sched_yield();
    return thread_turns ? dirty("a thread still runs") : CLEAN;
}

static void handler(int signal)
{
    (void)signal;
}

static void plant_signals(uint64_t secret)
{
    static char alternate[16384];
    struct sigaction action = {.sa_handler = handler};
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    sigset_t set;
    (void)secret;
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    sigaltstack(&stack, NULL);
}

static const char *probe_signals(uint64_t masked)
{
    sigset_t set;
    stack_t stack;
    (void)masked;
    for (int signal = 1; signal < 32; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
            return dirty("a signal has an action");
    }
    sigprocmask(SIG_BLOCK, NULL, &set);
    for (int signal = 1; signal < 32; signal++)
        if (sigismember(&set, signal))
            return dirty("a signal is blocked");
    if (sigpending(&set) == 0)
        for (int signal = 1; signal < 32; signal++)
            if (sigismember(&set, signal))
                return dirty("a signal is pending");
    if (sigaltstack(NULL, &stack) == 0 && !(stack.ss_flags & SS_DISABLE))
        return dirty("there is an alternate stack");
    return CLEAN;
}

static void plant_directory(uint64_t secret)
{
    (void)secret;
    if (chdir("/tmp"))
        perror("chdir");
    umask(0);
}

static const char *probe_directory(uint64_t masked)
{
    char cwd[64];
    (void)masked;
    if (!getcwd(cwd, sizeof(cwd)) || strcmp(cwd, boot.cwd))
        return dirty("the working directory has changed");
    return umask(0) == boot.mask ? CLEAN : dirty("the umask has changed");
}

/* Of x86-64; elsewhere there is none. */
static void set_gs(uint64_t base)
{
#ifdef __x86_64__
    syscall(SYS_arch_prctl, 0x1001, base);
#else
    (void)base;
#endif
}

static struct own what_is_own(void)
{
    struct own own = {0};
    size_t length;
    getrlimit(RLIMIT_NOFILE, &own.files);
    syscall(SYS_get_robust_list, 0, &own.robust, &length);
#ifdef __x86_64__
    syscall(SYS_arch_prctl, 0x1004, &own.gs);
#endif
    return own;
}

static void plant_process(uint64_t secret)
{
    char name[16];
    snprintf(name, sizeof(name), "%08x", (unsigned)secret);
    prctl(PR_SET_NAME, name);
    struct rlimit files = {.rlim_cur = 50, .rlim_max = 50};
    setrlimit(RLIMIT_NOFILE, &files);
    syscall(SYS_set_robust_list, &secret, 24);
    int memory = (int)syscall(SYS_memfd_create, "secret", 0);
    if (memory >= 0 && write(memory, &secret, 8) == 8)
        dup2(memory, 41);
    set_gs(secret & 0xffffffff);
}

static const char *probe_process(uint64_t masked)
{
    char name[16];
    (void)masked;
    if (prctl(PR_GET_NAME, name) || strcmp(name, boot.name))
        return dirty("the name of the thread has changed");
    struct own now = what_is_own();
    if (now.files.rlim_cur != boot.own.files.rlim_cur || now.files.rlim_max != boot.own.files.rlim_max)
        return dirty("a limit has changed");
    if (now.robust != boot.own.robust)
        return dirty("the list of robust futexes has changed");
    if (now.gs != boot.own.gs)
        return dirty("the base of a segment has changed");
    return fcntl(41, F_GETFD) == -1 ? CLEAN : dirty("memory has a descriptor");
}

static void plant_environment(uint64_t secret)
{
    char text[32];
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)secret);
    memcpy(getenv("ORIGINAL"), "no", 2);
    setenv("SECRET", text, 1);
    boot.argument[0] ^= 1;
}

static const char *probe_environment(uint64_t masked)
{
    (void)masked;
    if (getenv("SECRET"))
        return dirty("a variable was left");
    const char *original = getenv("ORIGINAL");
    if (!original || strcmp(original, "yes"))
        return dirty("a variable was overwritten");
    return strcmp(boot.argument, "isolation") ? dirty("an argument was overwritten") : CLEAN;
}

static void plant_stdio(uint64_t secret)
{
    printf("%016llx", (unsigned long long)secret);
}

static const char *probe_stdio(uint64_t masked)
{
    (void)masked;
    if (__fpending(stdout))
        return dirty("unwritten output was left");
    for (size_t i = 0; i < sizeof(stdout_buffer); i++)
        if (((volatile char *)stdout_buffer)[i])
            return dirty("output was left in the buffer");
    return CLEAN;
}

/* Several of the above, and then a look at every page that there is. */
static void plant_anywhere(uint64_t secret)
{
    plant_data(secret);
    plant_bss(secret);
    plant_malloc(secret);
    plant_brk(secret);
    plant_mmap(secret);
    plant_stack(secret);
    plant_tls(secret);
    plant_scratch(secret);
    plant_environment(secret);
}

extern const char __executable_start[];
static sigjmp_buf unreadable;

static void on_bad_read(int signal)
{
    (void)signal;
    siglongjmp(unreadable, 1);
}

static const char *probe_anywhere(uint64_t masked)
{
    static char text[64];
    struct sigaction action = {.sa_handler = on_bad_read, .sa_flags = SA_NODEFER};
    volatile size_t readable = 0;
    sigaction(SIGSEGV, &action, NULL);
    /* Everything lies behind the image: stack, heap, mappings. */
    uintptr_t from = (uintptr_t)__executable_start & ~(uintptr_t)(PAGE - 1);
    for (volatile uintptr_t page = from; page < from + (40u << 20); page += PAGE) {
        if (sigsetjmp(unreadable, 0))
            continue;
        int found = holds((void *)page, PAGE, masked);
        readable += 1;
        if (found) {
            snprintf(text, sizeof(text), "the secret lies at %#zx", (size_t)page);
            return dirty(text);
        }
    }
    return readable > 30 ? CLEAN : dirty("the sweep saw too little");
}

/* ---- Endings --------------------------------------------------------------------------------- */

static void end_well(void)
{
    sandtide_respond_text(200, "planted");
}

static void end_in_a_trap(void)
{
    *(volatile int *)16 = 1;
}

static void end_by_abort(void)
{
    abort();
}

static void end_by_exit(void)
{
    _exit(3);
}

static void end_by_spinning(void)
{
    for (volatile uint64_t i = 0;; i++)
        ;
}

static void end_by_memory(void)
{
    for (;;) {
        uint64_t *taken = map(64 * PAGE);
        if (!taken)
            abort();
        for (int i = 0; i < 64; i++)
            ((volatile uint64_t *)taken)[i * PAGE / 8] = 1;
    }
}

static void end_by_response(void)
{
    static char much[256 << 10];
    sandtide_respond(200, NULL, 0, much, sizeof(much));
    abort(); /* the limit should have ended it */
}

/* Waits for a body that does not end. */
static void end_in_the_request(void)
{
    static char piece[1024];
    if (write(2, "planted\n", 8) != 8)
        abort();
    while (sandtide_read(piece, sizeof(piece)) > 0)
        ;
}

/* Writes a body that does not end. */
static void end_in_the_response(void)
{
    static char piece[32 << 10];
    sandtide_begin(200, NULL, 0);
    sandtide_write("planted", 7);
    while (sandtide_write(piece, sizeof(piece)) == 0)
        ;
}

/* ---- Requests -------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*plant)(uint64_t secret);
    const char *(*probe)(uint64_t masked);
} places[] = {
    {"data", plant_data, probe_data},
    {"bss", plant_bss, probe_bss},
    {"malloc", plant_malloc, probe_malloc},
    {"brk", plant_brk, probe_brk},
    {"mmap", plant_mmap, probe_mmap},
    {"stack", plant_stack, probe_stack},
    {"tls", plant_tls, probe_tls},
    {"registers", plant_registers, probe_registers},
    {"float", plant_registers, probe_float},
    {"descriptors", plant_descriptors, probe_descriptors},
    {"offsets", plant_offsets, probe_offsets},
    {"counters", plant_counters, probe_counters},
    {"watches", plant_watches, probe_watches},
    {"timers", plant_timers, probe_timers},
    {"pipes", plant_pipes, probe_pipes},
    {"scratch", plant_scratch, probe_scratch},
    {"protection", plant_protection, probe_protection},
    {"mappings", plant_mappings, probe_mappings},
    {"code", plant_code, probe_code},
    {"threads", plant_threads, probe_threads},
    {"signals", plant_signals, probe_signals},
    {"directory", plant_directory, probe_directory},
    {"process", plant_process, probe_process},
    {"environment", plant_environment, probe_environment},
    {"stdio", plant_stdio, probe_stdio},
    {"anywhere", plant_anywhere, probe_anywhere},
};

static const struct {
    const char *name;
    void (*end)(void);
} endings[] = {
    {"success", end_well},
    {"trap", end_in_a_trap},
    {"abort", end_by_abort},
    {"exit", end_by_exit},
    {"deadline", end_by_spinning},
    {"instructions", end_by_spinning},
    {"memory", end_by_memory},
    {"response", end_by_response},
    {"client-in-request", end_in_the_request},
    {"client-in-response", end_in_the_response},
};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static uint64_t number(const struct sandtide_request *request, const char *header)
{
    struct sandtide_string text = sandtide_header(request, header);
    return text.data ? strtoull(text.data, NULL, 16) : 0;
}

/* Returns whether the next request is here already. */
static int plant(size_t place, size_t ending, uint64_t secret)
{
    places[place].plant(secret);
    if (!with_registers) {
        endings[ending].end();
        return 0;
    }
    with_registers = 0;
    if (endings[ending].end != end_well)
        end_with_registers(secret, endings[ending].end);
    answer.status = 200;
    answer.body = "planted";
    answer.body_length = 7;
    answer_with_registers(secret);
    return 1;
}

static void random_numbers(const struct sandtide_request *request)
{
    unsigned char bytes[3][16];
    char text[128];
    size_t length = 0;
    memcpy(bytes[0], sandtide_random(request), 16);
    if (getrandom(bytes[1], 16, 0) != 16)
        memset(bytes[1], 0, 16);
    int file = open("/dev/urandom", O_RDONLY);
    if (file < 0 || read(file, bytes[2], 16) != 16)
        memset(bytes[2], 0, 16);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 16; j++)
            length += (size_t)snprintf(text + length, 3, "%02x", bytes[i][j]);
        text[length++] = i < 2 ? ' ' : 0;
    }
    sandtide_respond_text(200, text);
}

static int handle(const struct sandtide_request *request)
{
    char path[256];
    struct sandtide_string target = sandtide_target(request);
    char *part[3] = {NULL, NULL, NULL};
    snprintf(path, sizeof(path), "%.*s", (int)target.length, target.data);
    if (strcmp(path, "/random") == 0) {
        random_numbers(request);
        return 0;
    }
    if (strncmp(path, "/line?", 6) == 0) {
        if (write(1, path + 6, strlen(path + 6)) < 0)
            abort();
        end_well();
        return 0;
    }
    for (char *at = path, **next = part; next < part + 3 && (at = strchr(at, '/')); next++) {
        *at++ = 0;
        *next = at;
    }
    for (size_t place = 0; part[1] && place < COUNT(places); place++) {
        if (strcmp(part[1], places[place].name))
            continue;
        if (strcmp(part[0], "probe") == 0) {
            sandtide_respond_text(200, places[place].probe(number(request, "x-masked")));
            return 0;
        }
        for (size_t ending = 0; part[2] && ending < COUNT(endings); ending++)
            if (strcmp(part[2], endings[ending].name) == 0)
                return plant(place, ending, number(request, "x-secret"));
    }
    sandtide_respond_text(404, "no such place");
    return 0;
}

int main(int count, char **arguments)
{
    struct sandtide_request request = {(const struct sandtide_block_ *)(void *)block};
    int is_here = 0;
    (void)count;
    set_up(arguments + 1);
    for (;;) {
        if (!is_here)
            wait_for_request();
        is_here = handle(&request);
    }
}
