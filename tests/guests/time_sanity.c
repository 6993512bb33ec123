/* Clocks: monotonic never goes back, sleeping takes time, real time is plausible, dates convert. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t now(clockid_t clock)
{
    struct timespec time;
    if (clock_gettime(clock, &time) || time.tv_nsec < 0 || time.tv_nsec > 999999999)
        return -1;
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(void)
{
    int64_t last = now(CLOCK_MONOTONIC), backwards = 0;
    for (int i = 0; i < 2000; i++) {
        int64_t next = now(CLOCK_MONOTONIC);
        backwards += next < last;
        last = next;
    }
    printf("backwards %ld\n", (long)backwards);

    int64_t before = now(CLOCK_MONOTONIC);
    struct timespec nap = {0, 20000000};
    nanosleep(&nap, NULL);
    usleep(5000);
    int64_t slept = now(CLOCK_MONOTONIC) - before;
    printf("slept enough %d, not for ever %d\n", slept >= 25000000, slept < 20000000000);

    struct timeval day;
    gettimeofday(&day, NULL);
    int64_t real = now(CLOCK_REALTIME) / 1000000000;
    printf("this century %d, agree %d %d\n", real > 1700000000 && real < 4102444800,
           llabs(real - day.tv_sec) <= 2, llabs(real - time(NULL)) <= 2);
    printf("cpu %d, resolution %d\n", now(CLOCK_PROCESS_CPUTIME_ID) > 0 && clock() != (clock_t)-1,
           clock_getres(CLOCK_MONOTONIC, &nap) == 0 && nap.tv_nsec > 0);

    time_t moment = 1234567890;
    struct tm parts;
    char text[64];
    gmtime_r(&moment, &parts);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S %a %j", &parts);
    printf("%s %d\n", text, timegm(&parts) == moment);
    printf("bad clock %d\n", clock_gettime((clockid_t)99, &nap));
    return 0;
}
