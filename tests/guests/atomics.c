/* Atomic operations of every width, and a lock made of them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

static _Atomic uint8_t byte;
static _Atomic uint16_t half;
static _Atomic uint32_t word;
static _Atomic uint64_t twice;
static atomic_flag lock = ATOMIC_FLAG_INIT;
static long plain;

static void *run(void *argument)
{
    for (int i = 0; i < 3000; i++) {
        byte++;
        half += 3;
        atomic_fetch_xor(&word, (uint32_t)i * 2654435761u);
        uint64_t seen = atomic_load(&twice);
        while (!atomic_compare_exchange_weak(&twice, &seen, seen + 5))
            ;
        while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
            ;
        plain++;
        atomic_flag_clear_explicit(&lock, memory_order_release);
    }
    return argument;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, run, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    printf("%u %u %u %llu %ld\n", byte, half, word, (unsigned long long)twice, plain);

    _Atomic int32_t n = -5;
    printf("%d ", atomic_fetch_and(&n, 0xff));
    printf("%d ", atomic_fetch_or(&n, 0x100));
    printf("%d ", atomic_fetch_sub(&n, 1000));
    printf("%d ", atomic_exchange(&n, INT32_MIN));
    printf("%d\n", n);
    int expected = 3;
    int swapped = atomic_compare_exchange_strong(&n, &expected, 4);
    printf("%d %d\n", swapped, expected);
    return 0;
}
