/*
 * Goes over each limit, on request:
 *
 *     /spin        computes for ever
 *     /log-and-spin  writes a line, then computes for ever
 *     /log-and-map   writes a line, then makes the kernel work on large mappings for ever
 *     /sleep       waits for ever
 *     /memory      writes memory that was mapped
 *     /heap        writes memory from malloc
 *     /response    answers with 1 MiB at once
 *     /stream      answers with pieces, without an end
 *     /body        reads the request's body, and answers with its length
 *     /descriptors, /threads, /scratch     take as many as they get, and answer with how many
 *     /log/<n>     writes n lines of 100 bytes
 *     /id          answers with the request's id
 *
 * With an argument it goes over a limit before its first request: `spin`, `sleep`, `memory`, `exit`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sandtide.h"

static void map_for_ever(void)
{
    const size_t length = (size_t)1 << 30;
    for (;;) {
        void *area = mmap(NULL, length, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        munmap(area, length);
    }
}

static __attribute__((noinline)) void spin_for_ever(void)
{
    for (volatile uint64_t i = 0;; i++)
        ;
}

static __attribute__((noinline)) void sleep_for_ever(void)
{
    struct timespec hour = {3600, 0};
    for (;;)
        nanosleep(&hour, NULL);
}

static __attribute__((noinline)) void write_memory(void)
{
    for (;;) {
        char *taken = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (taken == MAP_FAILED)
            abort();
        memset(taken, 1, 1 << 20);
    }
}

/* Answers with how far it came: malloc may say no. */
static void write_heap(void)
{
    char text[64];
    size_t taken = 0;
    char *volatile chunk; /* or the compiler does without malloc */
    while ((chunk = malloc(64 << 10))) {
        memset(chunk, 1, 64 << 10);
        taken += 64 << 10;
    }
    snprintf(text, sizeof(text), "%zu bytes, then %d", taken, errno == ENOMEM);
    sandtide_respond_text(200, text);
}

static char much[1 << 20];

static void whole_response(void)
{
    sandtide_respond(200, NULL, 0, much, sizeof(much));
    abort();
}

static void stream(void)
{
    sandtide_begin(200, NULL, 0);
    while (sandtide_write(much, 1000) == 0)
        ;
    abort();
}

static void read_body(void)
{
    char text[64];
    size_t total = 0;
    long length;
    while ((length = sandtide_read(much, sizeof(much))) > 0)
        total += (size_t)length;
    snprintf(text, sizeof(text), "%zu", total);
    /* A body that broke off is no body. */
    sandtide_respond_text(length < 0 ? 400 : 200, text);
}

static void open_files(void)
{
    char text[64];
    int count = 0;
    while (open("/dev/null", O_RDONLY) >= 0)
        count++;
    snprintf(text, sizeof(text), "%d more, then %d", count, errno == EMFILE);
    sandtide_respond_text(200, text);
}

static void *wait_for_ever(void *nothing)
{
    sleep_for_ever();
    return nothing;
}

static void start_threads(void)
{
    char text[64];
    int count = 0, error;
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    while ((error = pthread_create(&thread, &attributes, wait_for_ever, NULL)) == 0)
        count++;
    snprintf(text, sizeof(text), "%d more, then %d", count, error == EAGAIN);
    sandtide_respond_text(200, text);
}

static void write_files(void)
{
    char text[64];
    size_t written = 0;
    int file = open("/tmp/much", O_WRONLY | O_CREAT, 0600);
    for (ssize_t length; file >= 0 && (length = write(file, much, 4096)) > 0;)
        written += (size_t)length;
    int no_space = errno == ENOSPC;
    snprintf(text, sizeof(text), "%zu bytes, then %d", written, no_space);
    sandtide_respond_text(200, text);
}

static void write_log(const char *count)
{
    static const char filling[] = "0123456789012345678901234567890123456789012345678901234567890123456789";
    int lines = atoi(count);
    for (int i = 0; i < lines; i++)
        printf("line %06d of the flood %s\n", i, filling);
    fflush(stdout);
    sandtide_respond_text(200, "written");
}

static void handle(const struct sandtide_request *request)
{
    char path[128], text[32];
    struct sandtide_string target = sandtide_path(request);
    snprintf(path, sizeof(path), "%.*s", (int)target.length, target.data);
    if (strcmp(path, "/spin") == 0)
        spin_for_ever();
    else if (strcmp(path, "/log-and-spin") == 0) {
        puts("spinning");
        fflush(stdout);
        spin_for_ever();
    }
    else if (strcmp(path, "/log-and-map") == 0) {
        puts("spinning");
        fflush(stdout);
        map_for_ever();
    }
    else if (strcmp(path, "/sleep") == 0)
        sleep_for_ever();
    else if (strcmp(path, "/memory") == 0)
        write_memory();
    else if (strcmp(path, "/heap") == 0)
        write_heap();
    else if (strcmp(path, "/response") == 0)
        whole_response();
    else if (strcmp(path, "/stream") == 0)
        stream();
    else if (strcmp(path, "/body") == 0)
        read_body();
    else if (strcmp(path, "/descriptors") == 0)
        open_files();
    else if (strcmp(path, "/threads") == 0)
        start_threads();
    else if (strcmp(path, "/scratch") == 0)
        write_files();
    else if (strncmp(path, "/log/", 5) == 0)
        write_log(path + 5);
    else if (strcmp(path, "/id") == 0) {
        snprintf(text, sizeof(text), "%016llx", (unsigned long long)sandtide_id(request));
        sandtide_respond_text(200, text);
    } else
        sandtide_respond_text(200, "ok");
}

int main(int count, char **arguments)
{
    struct sandtide_request request;
    const char *boot = count > 1 ? arguments[1] : "";
    if (strcmp(boot, "spin") == 0)
        spin_for_ever();
    if (strcmp(boot, "sleep") == 0)
        sleep_for_ever();
    if (strcmp(boot, "memory") == 0)
        write_memory();
    if (strcmp(boot, "exit") == 0)
        return 3;
    while (sandtide_next_request(&request) == 0)
        handle(&request);
    return 1;
}
