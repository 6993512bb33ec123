// Where the part of a program that is measured begins and ends: `begin` and `end` stand around the
// computation, and what is written to standard error tells the benchmark:
//
//     loaded SECONDS             CPU time of the process until the program's first instructions
//     begin
//     end SECONDS INSTRUCTIONS   CPU time since `begin`; guest instructions, 0 if not counted
//
// A sandbox has no clock of CPU time: its runner looks at the host's when it sees the lines.
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double began;
static unsigned long began_at;

// A value of which the compiler knows nothing, from here on.
static inline long unknown(long value) {
    volatile long hidden = value;
    return hidden;
}

// Makes sure that a result has been computed here.
static inline void keep(unsigned long value) {
    volatile unsigned long kept = value;
    (void)kept;
}

static double cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static unsigned long instructions(void) {
    unsigned long count = 0;
#ifdef __riscv
    __asm__ volatile("rdinstret %0" : "=r"(count));
#endif
    return count;
}

static void say(const char *line, int length) {
    if (write(2, line, (size_t)length) != length) _exit(2);
}

__attribute__((constructor)) static void loaded(void) {
    char line[64];
    say(line, snprintf(line, sizeof line, "loaded %.6f\n", cpu_time()));
}

static void begin(void) {
    say("begin\n", 6);
    began = cpu_time();
    began_at = instructions();
}

static void end(void) {
    unsigned long count = instructions() - began_at;
    double seconds = cpu_time() - began;
    char line[64];
    say(line, snprintf(line, sizeof line, "end %.6f %lu\n", seconds, count));
}
