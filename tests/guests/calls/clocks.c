// Clocks, by functions of the C library, which make no call where there is a vDSO, and by calls: both
// tell one time, which never goes back.

#include "report.h"

#include <stdint.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 20000

static long long nanoseconds(struct timespec at) { return at.tv_sec * 1000000000LL + at.tv_nsec; }

static long long by_function(clockid_t clock) {
    struct timespec at = {-1, -1};
    return clock_gettime(clock, &at) == 0 && at.tv_nsec >= 0 && at.tv_nsec < 1000000000 ? nanoseconds(at) : -1;
}

static long long by_call(clockid_t clock) {
    struct timespec at = {-1, -1};
    return syscall(SYS_clock_gettime, clock, &at) == 0 && at.tv_nsec >= 0 ? nanoseconds(at) : -1;
}

// Not every instruction set has that call.
static time_t time_by_call(time_t *to) {
#ifdef SYS_time
    return syscall(SYS_time, to);
#else
    return time(to);
#endif
}

// How often a clock goes back, read in both ways by turns.
static long goes_back(clockid_t clock, int rounds) {
    long times = 0;
    long long last = by_function(clock);
    for (int round = 0; round < rounds; round++) {
        long long now = round % 2 ? by_function(clock) : by_call(clock);
        times += now < last || now == -1;
        last = now;
    }
    return times;
}

// Whether two clocks show what two others do, a second more or less.
static int is_near(long long one, long long other) {
    return one - other < 1000000000LL && other - one < 1000000000LL;
}

int main(void) {
    SHOW(goes_back(CLOCK_MONOTONIC, ROUNDS));
    SHOW(goes_back(CLOCK_MONOTONIC_RAW, ROUNDS));
    SHOW(goes_back(CLOCK_BOOTTIME, ROUNDS));
    SHOW(goes_back(CLOCK_REALTIME, ROUNDS));
    SHOW(goes_back(CLOCK_PROCESS_CPUTIME_ID, 100));
    SHOW(goes_back(CLOCK_MONOTONIC_COARSE, 100));
    SHOW(goes_back(CLOCK_REALTIME_COARSE, 100));

    // Over several renewals of what the clock is made from, and over sleeps.
    long long start = by_call(CLOCK_MONOTONIC), back = 0, last = start;
    while (last - start < 150000000) {
        long long now = by_function(CLOCK_MONOTONIC);
        back += now < last;
        last = now;
    }
    SHOW(back);
    for (int round = 0; round < 5; round++) {
        struct timespec pause = {0, 1000000};
        long long before = by_function(CLOCK_MONOTONIC);
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        back += by_function(CLOCK_MONOTONIC) - before < 1000000;
        long long until = by_function(CLOCK_MONOTONIC) + 2000000;
        struct timespec at = {until / 1000000000, until % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        back += by_function(CLOCK_MONOTONIC) < until || by_call(CLOCK_MONOTONIC) < until;
    }
    SHOW(back);

    struct timeval day;
    struct timezone zone = {7, 7};
    SHOW(gettimeofday(&day, NULL));
    SHOW(day.tv_usec >= 0 && day.tv_usec < 1000000);
    SHOW(is_near(day.tv_sec * 1000000000LL, by_call(CLOCK_REALTIME)));
    SHOW(gettimeofday(&day, &zone));
    SHOW(zone.tz_minuteswest + zone.tz_dsttime);
    time_t seconds = 0;
    SHOW(time(&seconds) - seconds);
    SHOW(is_near(seconds * 1000000000LL, by_function(CLOCK_REALTIME)));
    SHOW(is_near(by_function(CLOCK_MONOTONIC), by_function(CLOCK_MONOTONIC_COARSE)));
    struct timespec at;
    SHOW(clock_getres(CLOCK_MONOTONIC, &at));
    SHOW(at.tv_sec * 1000000000 + at.tv_nsec);
    SHOW(clock_gettime(12345, &at));
    SHOW(syscall(SYS_clock_gettime, 12, &at));

    // Pointers that lead nowhere, for the call.
    long bad[] = {0, 8, 1L << 34, 0x0fffffffffL, 0x1000000000L, 0x1000009000L, 1L << 46, (1L << 47) - 8,
        INT64_MIN, -4096, -16, -1};
    for (size_t index = 0; index < sizeof bad / sizeof *bad; index++) {
        printf("%zu ", index);
        SHOW(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, bad[index]));
    }
    SHOW(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, main));
    SHOW(time_by_call(NULL) <= time(NULL));
    SHOW(time_by_call(&seconds) == seconds);
    SHOW(syscall(SYS_gettimeofday, &day, NULL));
    SHOW(is_near(day.tv_sec * 1000000000LL, by_call(CLOCK_REALTIME)));
    SHOW(syscall(SYS_gettimeofday, 8, NULL));
    return 0;
}
