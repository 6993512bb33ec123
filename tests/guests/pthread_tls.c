/* Thread-local storage of both kinds, its destructors, joining, barriers, read-write locks. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 6 };

static __thread int counter = 100;
static __thread char zeroed[300];
static pthread_key_t key;
static pthread_barrier_t barrier;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static int destroyed, shared;

static void destroy(void *value)
{
    __atomic_add_fetch(&destroyed, *(int *)value, __ATOMIC_SEQ_CST);
    free(value);
}

static void *run(void *argument)
{
    int id = *(int *)argument;
    int *value = malloc(sizeof(*value));
    *value = id;
    pthread_setspecific(key, value);
    for (unsigned i = 0; i < sizeof(zeroed); i++)
        if (zeroed[i])
            return NULL;
    zeroed[id] = 1;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 200; i++) {
        counter += id;
        pthread_rwlock_wrlock(&lock);
        shared++;
        pthread_rwlock_unlock(&lock);
    }
    pthread_rwlock_rdlock(&lock);
    pthread_rwlock_unlock(&lock);
    return (void *)(long)(counter + *(int *)pthread_getspecific(key));
}

int main(void)
{
    pthread_t threads[THREADS];
    int ids[THREADS];
    pthread_key_create(&key, destroy);
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i + 1;
        if (pthread_create(&threads[i], NULL, run, &ids[i]))
            return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        printf("%d: %ld\n", i, (long)result);
    }
    printf("%d %d %d %d\n", counter, zeroed[1], destroyed, shared);
    return 0;
}
