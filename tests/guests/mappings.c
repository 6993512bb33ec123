/* mmap, mprotect, munmap, mremap, fixed mappings; memory is zero and protection is honest. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static sigjmp_buf recover;

static void segv(int number)
{
    (void)number;
    siglongjmp(recover, 1);
}

static int can_write(volatile char *at)
{
    if (sigsetjmp(recover, 1))
        return 0;
    *at = *at;
    return 1;
}

static int can_read(volatile char *at)
{
    if (sigsetjmp(recover, 1))
        return 0;
    (void)*at;
    return 1;
}

static char *map(void *at, size_t pages, int protection, int flags)
{
    return mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

int main(void)
{
    signal(SIGSEGV, segv);
    char *area = map(NULL, 16, PROT_READ | PROT_WRITE, 0);
    long sum = 0;
    for (int i = 0; i < 16 * PAGE; i++)
        sum += area[i];
    memset(area, 7, 16 * PAGE);
    printf("zero %ld\n", sum);

    mprotect(area + 4 * PAGE, 4 * PAGE, PROT_READ);
    mprotect(area + 8 * PAGE, PAGE, PROT_NONE);
    for (int page = 3; page < 10; page++)
        printf("%d:%d%d ", page, can_read(area + page * PAGE), can_write(area + page * PAGE));
    printf("\n");
    mprotect(area + 4 * PAGE, 5 * PAGE, PROT_READ | PROT_WRITE);
    printf("kept %d %d\n", area[5 * PAGE], area[8 * PAGE + 100]);

    munmap(area + 2 * PAGE, 3 * PAGE);
    printf("unmapped %d %d %d\n", can_read(area + PAGE), can_read(area + 2 * PAGE),
           can_read(area + 5 * PAGE));
    char *fixed = map(area + 2 * PAGE, 3, PROT_READ | PROT_WRITE, MAP_FIXED);
    printf("fixed %d, fresh %d, beside %d\n", fixed == area + 2 * PAGE, fixed[PAGE],
           area[5 * PAGE]);
    map(area + 6 * PAGE, 1, PROT_READ | PROT_WRITE, MAP_FIXED);
    printf("replaced %d %d %d\n", area[6 * PAGE - 1], area[6 * PAGE], area[7 * PAGE]);

    char *grows = map(NULL, 2, PROT_READ | PROT_WRITE, 0);
    strcpy(grows, "moved along");
    grows = mremap(grows, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    printf("%s, %d\n", grows, grows[63 * PAGE]);
    printf("misaligned %d\n", munmap(area + 1, PAGE) < 0 && errno == EINVAL);
    printf("empty %d\n", map(NULL, 0, PROT_READ, 0) == MAP_FAILED && errno == EINVAL);
    return 0;
}
