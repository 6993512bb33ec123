// Signals without handlers: signalfd, sigtimedwait, sigwait; and with: preemption by tgkill.

#include "report.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static sigset_t of(int first, int second) {
    sigset_t set;
    sigemptyset(&set);
    if (first) sigaddset(&set, first);
    if (second) sigaddset(&set, second);
    return set;
}

static atomic_int stage, interrupted;

static void on_urgent(int number) { atomic_fetch_add(&interrupted, number == SIGURG); }

static void *spin(void *unused) {
    (void)unused;
    atomic_store(&stage, 1);
    double sum = 0;
    for (long round = 0; atomic_load(&interrupted) < 3; round++) sum += (double)round * 0.5;
    return sum > 0 ? "computed" : "not";
}

static void *wait_one(void *unused) {
    (void)unused;
    sigset_t set = of(SIGUSR2, 0);
    int number = 0;
    atomic_store(&stage, 2);
    sigwait(&set, &number);
    return (void *)(long)number;
}

int main(void) {
    sigset_t both = of(SIGUSR1, SIGUSR2), one = of(SIGUSR1, 0);
    SHOW(sigprocmask(SIG_BLOCK, &both, NULL));
    int fd = signalfd(-1, &one, SFD_NONBLOCK);
    struct signalfd_siginfo info[3];
    SHOW(read(fd, info, sizeof info));
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(kill(getpid(), SIGUSR2));
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    SHOW(poll(&entry, 1, 0));
    SHOW(read(fd, info, sizeof info) / (ssize_t)sizeof info[0]);
    SHOW(info[0].ssi_signo);
    SHOW(info[0].ssi_code);
    SHOW(info[0].ssi_pid == (unsigned)getpid());
    SHOW(read(fd, info, sizeof info));
    SHOW(signalfd(fd, &both, 0) == fd);
    SHOW(read(fd, info, sizeof info) / (ssize_t)sizeof info[0]);
    SHOW(info[0].ssi_signo);
    SHOW(read(fd, info, 100));
    SHOW(signalfd(0, &both, 0));
    SHOW(signalfd(-1, &both, 64));

    siginfo_t got;
    struct timespec moment = {.tv_nsec = 2000000};
    SHOW(sigtimedwait(&one, &got, &moment));
    SHOW(kill(getpid(), SIGUSR1));
    SHOW(sigtimedwait(&one, &got, &moment));
    SHOW(got.si_code);
    SHOW(raise(SIGUSR2));
    SHOW(sigwaitinfo(&both, NULL));

    pthread_t thread;
    SHOW(pthread_create(&thread, NULL, wait_one, NULL));
    while (atomic_load(&stage) != 2) sched_yield();
    SHOW(pthread_kill(thread, SIGUSR2));
    void *result;
    SHOW(pthread_join(thread, &result));
    SHOW(result);

    struct sigaction action = {.sa_handler = on_urgent, .sa_flags = SA_RESTART | SA_ONSTACK};
    SHOW(sigaction(SIGURG, &action, NULL));
    SHOW(pthread_create(&thread, NULL, spin, NULL));
    while (atomic_load(&stage) != 1) sched_yield();
    for (int round = 1; round <= 3; round++) {
        pthread_kill(thread, SIGURG);
        while (atomic_load(&interrupted) < round) sched_yield();
    }
    SHOW(pthread_join(thread, &result));
    puts(result);
    return 0;
}
