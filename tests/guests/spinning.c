// A thread that waits for another without a single call, and one that sleeps meanwhile.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

static atomic_int stage;

static void *spin(void *unused) {
    (void)unused;
    atomic_store(&stage, 1);
    while (atomic_load_explicit(&stage, memory_order_relaxed) != 2) {
    }
    return "seen";
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, spin, NULL) != 0) return 1;
    while (atomic_load_explicit(&stage, memory_order_relaxed) != 1) {
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    puts("slept");
    atomic_store(&stage, 2);
    void *result;
    pthread_join(thread, &result);
    puts(result);
    return 0;
}
