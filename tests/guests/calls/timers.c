// timerfd and setitimer: once, again and again, absolute, and together with poll and epoll.

#include "report.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static uint64_t number;
#define TAKE(fd) (number = 0, read(fd, &number, sizeof number))

static struct itimerspec times(long first, long interval) {
    return (struct itimerspec){
        .it_value = {first / 1000, first % 1000 * 1000000},
        .it_interval = {interval / 1000, interval % 1000 * 1000000},
    };
}

static long since(const struct timespec *start) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - start->tv_sec) * 1000 + (now.tv_nsec - start->tv_nsec) / 1000000;
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal) { alarms += signal == SIGALRM; }

int main(void) {
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    SHOW(TAKE(timer));
    struct itimerspec spec = times(5, 0), left;
    SHOW(timerfd_settime(timer, 0, &spec, NULL));
    SHOW(timerfd_gettime(timer, &left));
    SHOW(left.it_value.tv_sec == 0 && left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 5000000);
    SHOW(TAKE(timer));
    struct pollfd entry = {.fd = timer, .events = POLLIN};
    SHOW(poll(&entry, 1, -1));
    SHOW(since(&start) >= 5);
    SHOW(TAKE(timer));
    SHOW(number);
    SHOW(TAKE(timer));
    SHOW(timerfd_gettime(timer, &left));
    SHOW(left.it_value.tv_sec + left.it_value.tv_nsec);

    spec = times(1, 2);
    SHOW(timerfd_settime(timer, 0, &spec, &left));
    usleep(12000);
    SHOW(TAKE(timer));
    SHOW(number >= 6 && number < 1000);
    spec = times(0, 0);
    SHOW(timerfd_settime(timer, 0, &spec, &left));
    SHOW(left.it_interval.tv_nsec);
    SHOW(poll(&entry, 1, 3));

    clock_gettime(CLOCK_MONOTONIC, &spec.it_value);
    spec.it_value.tv_nsec = 0;
    SHOW(timerfd_settime(timer, TFD_TIMER_ABSTIME, &spec, NULL));
    SHOW(TAKE(timer));
    SHOW(number);
    int real = timerfd_create(CLOCK_REALTIME, 0);
    clock_gettime(CLOCK_REALTIME, &spec.it_value);
    spec.it_value.tv_nsec += 3000000;
    if (spec.it_value.tv_nsec >= 1000000000) {
        spec.it_value.tv_nsec -= 1000000000;
        spec.it_value.tv_sec += 1;
    }
    SHOW(timerfd_settime(real, TFD_TIMER_ABSTIME, &spec, NULL));
    SHOW(TAKE(real));
    SHOW(number);

    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 1};
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, timer, &event));
    spec = times(2, 2);
    SHOW(timerfd_settime(timer, 0, &spec, NULL));
    for (int round = 0; round < 3; round++) {
        SHOW(epoll_wait(set, &event, 1, -1));
        SHOW(TAKE(timer));
    }
    spec = times(1, 0);
    SHOW(timerfd_settime(timer, 0, &spec, NULL));
    SHOW(epoll_wait(set, &event, 1, -1));
    SHOW(epoll_wait(set, &event, 1, 4));

    char small[4];
    SHOW(read(timer, small, sizeof small));
    SHOW(write(timer, &number, sizeof number));
    spec.it_value.tv_nsec = 1000000000;
    SHOW(timerfd_settime(timer, 0, &spec, NULL));
    SHOW(timerfd_settime(timer, 64, &spec, NULL));
    SHOW(timerfd_settime(timer, 0, (void *)16, NULL));
    SHOW(timerfd_settime(0, 0, &left, NULL));
    SHOW(timerfd_create(99, 0));
    SHOW(timerfd_create(CLOCK_MONOTONIC, 64));

    struct sigaction action = {.sa_handler = on_alarm};
    SHOW(sigaction(SIGALRM, &action, NULL));
    struct itimerval interval = {.it_value.tv_usec = 2000, .it_interval.tv_usec = 1000}, old;
    SHOW(setitimer(ITIMER_REAL, &interval, NULL));
    while (alarms < 3) pause();
    SHOW(getitimer(ITIMER_REAL, &old));
    SHOW(old.it_interval.tv_usec);
    interval = (struct itimerval){0};
    SHOW(setitimer(ITIMER_REAL, &interval, &old));
    alarms = 0;
    interval.it_value.tv_usec = 1000;
    SHOW(setitimer(ITIMER_REAL, &interval, NULL));
    // Nothing but computing, which is interrupted all the same.
    for (volatile long round = 0; alarms == 0; round++) {
    }
    SHOW(alarms);
    SHOW(setitimer(ITIMER_REAL, &interval, NULL));
    SHOW(nanosleep(&(struct timespec){.tv_sec = 5}, NULL));
    SHOW(alarm(100));
    SHOW(alarm(0));
    SHOW(alarm(0));
    return 0;
}
