// Memory as runtimes take it: large reservations, made accessible bit by bit, given back, moved.

#include "report.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)

static int is_error(void *address) { return address == MAP_FAILED ? errno : 0; }
#define MAP(...) is_error(mmap(__VA_ARGS__))

int main(void) {
    const int reserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, plain = MAP_PRIVATE | MAP_ANONYMOUS;
    // As Go, V8 and JavaScriptCore: much more than there is, and only a bit of it used.
    char *heap = mmap(NULL, 512 * MIB, PROT_NONE, reserve, -1, 0);
    SHOW(is_error(heap));
    SHOW(mprotect(heap + 64 * MIB, 4 * MIB, PROT_READ | PROT_WRITE));
    heap[64 * MIB] = 1;
    heap[68 * MIB - 1] = 2;
    SHOW(heap[64 * MIB] + heap[68 * MIB - 1] + heap[65 * MIB]);
    SHOW(madvise(heap + 64 * MIB, 4 * MIB, MADV_DONTNEED));
    SHOW(heap[64 * MIB] + heap[68 * MIB - 1]);
    heap[64 * MIB] = 3;
    SHOW(MAP(heap + 64 * MIB, 4 * MIB, PROT_NONE, plain | MAP_FIXED, -1, 0));
    SHOW(MAP(heap + 64 * MIB, 4 * MIB, PROT_READ | PROT_WRITE, plain | MAP_FIXED, -1, 0));
    SHOW(heap[64 * MIB]);
    SHOW(MAP(heap + 64 * MIB, PAGE, PROT_READ, plain | MAP_FIXED_NOREPLACE, -1, 0));
    // Aligned by asking for more and giving the rest back.
    uintptr_t start = ((uintptr_t)heap + 128 * MIB) & ~(128 * MIB - 1);
    SHOW(munmap(heap, start - (uintptr_t)heap));
    SHOW(mprotect((void *)start, PAGE, PROT_READ | PROT_WRITE));
    *(char *)start = 1;
    SHOW(munmap((void *)start, 256 * MIB));
    SHOW(mprotect((void *)start, PAGE, PROT_READ));
    static const int advice[] = {MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_WILLNEED, 1234};
    char *pages = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, plain, -1, 0);
    for (int which = 0; which < 5; which++) {
        int result = madvise(pages, 16 * PAGE, advice[which]);
        printf("%d: %d\n", advice[which], which < 1 || which > 2 ? result : 0);
    }
    strcpy(pages, "moved along");
    char *grown = mremap(pages, 16 * PAGE, 4096 * PAGE, MREMAP_MAYMOVE);
    SHOW(is_error(grown));
    puts(grown);
    SHOW(grown[4096 * PAGE - 1]);
    SHOW(mremap(grown, 4096 * PAGE, PAGE, 0) == grown);
    puts(grown);
    SHOW(is_error(mremap(grown, PAGE, 2 * PAGE, 1234)));
    SHOW(is_error(mremap((void *)PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE)));
    SHOW(MAP(NULL, 0, PROT_READ, plain, -1, 0));
    SHOW(MAP(NULL, PAGE, PROT_READ, 0, -1, 0));
    SHOW(MAP(NULL, PAGE, PROT_READ, MAP_PRIVATE, 99, 0));
    SHOW(munmap((void *)1, PAGE));

    int file = memfd_create("a name", MFD_CLOEXEC);
    SHOW(fcntl(file, F_GETFD));
    SHOW(ftruncate(file, 3 * PAGE));
    SHOW(pwrite(file, "in a file", 9, PAGE));
    struct stat status;
    SHOW(fstat(file, &status));
    SHOW(status.st_size);
    SHOW(status.st_nlink);
    char *view = mmap(NULL, 3 * PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    puts(view + PAGE);
    SHOW(lseek(file, 0, SEEK_END));
    SHOW(close(file));
    puts(view + PAGE);
    SHOW(memfd_create("a name", 0x100));
    return 0;
}
