// Threads: locks whose holder dies, conditions with time-outs, names, many at once.

#include "report.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t robust;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready;
static int turn;

static void *dies(void *unused) {
    (void)unused;
    return (void *)(long)pthread_mutex_lock(&robust);
}

static void *takes_turns(void *which) {
    for (int round = 0; round < 50; round++) {
        pthread_mutex_lock(&lock);
        while (turn % 4 != (int)(long)which) pthread_cond_wait(&ready, &lock);
        turn++;
        pthread_cond_broadcast(&ready);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static pthread_barrier_t barrier;
static sem_t semaphore;

static void *meets(void *unused) {
    (void)unused;
    sem_wait(&semaphore);
    return (void *)(long)(pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *sleeps(void *unused) {
    (void)unused;
    for (;;) pause();
    return NULL;
}

static __thread int own = 5;
static void *keeps_own(void *value) {
    own += (int)(long)value;
    sched_yield();
    return (void *)(long)own;
}

int main(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&robust, &attributes);
    pthread_t thread, threads[8];
    SHOW(pthread_create(&thread, NULL, dies, NULL));
    SHOW(pthread_join(thread, NULL));
    SHOW(pthread_mutex_lock(&robust) == EOWNERDEAD);
    SHOW(pthread_mutex_consistent(&robust));
    SHOW(pthread_mutex_unlock(&robust));

    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&ready, &clock);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += until.tv_nsec > 995000000;
    until.tv_nsec = (until.tv_nsec + 5000000) % 1000000000;
    pthread_mutex_lock(&lock);
    SHOW(pthread_cond_timedwait(&ready, &lock, &until) == ETIMEDOUT);
    pthread_mutex_unlock(&lock);
    for (long which = 0; which < 4; which++)
        pthread_create(&threads[which], NULL, takes_turns, (void *)which);
    for (int which = 0; which < 4; which++) pthread_join(threads[which], NULL);
    SHOW(turn);

    SHOW(sem_init(&semaphore, 0, 0));
    SHOW(pthread_barrier_init(&barrier, NULL, 8));
    for (int which = 0; which < 8; which++) pthread_create(&threads[which], NULL, meets, NULL);
    for (int which = 0; which < 8; which++) sem_post(&semaphore);
    long serial = 0;
    for (int which = 0; which < 8; which++) {
        void *result;
        pthread_join(threads[which], &result);
        serial += (long)result;
    }
    SHOW(serial);
    clock_gettime(CLOCK_REALTIME, &until);
    SHOW(sem_timedwait(&semaphore, &until));

    SHOW(pthread_create(&thread, NULL, sleeps, NULL));
    SHOW(pthread_cancel(thread));
    void *result;
    SHOW(pthread_join(thread, &result));
    SHOW(result == PTHREAD_CANCELED);

    long sum = 0;
    for (long round = 0; round < 200; round++) {
        pthread_create(&thread, NULL, keeps_own, (void *)round);
        pthread_join(thread, &result);
        sum += (long)result;
    }
    SHOW(sum);
    SHOW(own);

    char name[32] = "";
    SHOW(pthread_setname_np(pthread_self(), "a name"));
    SHOW(pthread_getname_np(pthread_self(), name, sizeof name));
    puts(name);
    SHOW(prctl(PR_GET_NAME, name));
    SHOW(sched_getscheduler(0));
    SHOW(sched_get_priority_max(SCHED_OTHER));
    unsigned processor;
    SHOW(syscall(SYS_getcpu, &processor, NULL, NULL));
    SHOW(syscall(SYS_gettid) == getpid());
    struct rlimit limit;
    SHOW(getrlimit(RLIMIT_NOFILE, &limit));
    SHOW(setrlimit(RLIMIT_NOFILE, &limit));
    return 0;
}
