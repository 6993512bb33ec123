// eventfd: counters, semaphores, and threads that wait for them.

#include "report.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t number;
static int handed;

#define ADD(fd, value) (number = (value), write(fd, &number, sizeof number))
#define TAKE(fd) (number = 0, read(fd, &number, sizeof number))

static void *consumer(void *unused) {
    (void)unused;
    uint64_t sum = 0, got;
    while (read(handed, &got, sizeof got) == sizeof got && got != 1000) sum += got;
    return (void *)(long)sum;
}

int main(void) {
    int counter = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    SHOW(fcntl(counter, F_GETFD));
    SHOW(fcntl(counter, F_GETFL) & O_NONBLOCK);
    SHOW(TAKE(counter));
    SHOW(number);
    SHOW(TAKE(counter));
    SHOW(ADD(counter, 5));
    SHOW(ADD(counter, 6));
    SHOW(TAKE(counter));
    SHOW(number);
    SHOW(ADD(counter, UINT64_MAX));
    SHOW(ADD(counter, UINT64_MAX - 1));
    SHOW(ADD(counter, 1));
    struct pollfd entry = {.fd = counter, .events = POLLIN | POLLOUT};
    SHOW(poll(&entry, 1, 0));
    SHOW(entry.revents);
    char small[4];
    SHOW(read(counter, small, sizeof small));
    SHOW(write(counter, small, sizeof small));
    SHOW(read(counter, (void *)16, 8));
    SHOW(lseek(counter, 0, SEEK_SET));
    SHOW(pread(counter, &number, 8, 0));
    SHOW(eventfd(0, 64));
    int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    for (int round = 0; round < 3; round++) {
        SHOW(TAKE(semaphore));
        SHOW(number);
    }
    handed = eventfd(0, EFD_SEMAPHORE);
    pthread_t thread;
    int plain = eventfd(0, 0);
    handed = plain;
    SHOW(pthread_create(&thread, NULL, consumer, NULL));
    SHOW(ADD(plain, 7));
    usleep(1000);
    SHOW(ADD(plain, 8));
    usleep(1000);
    SHOW(ADD(plain, 1000));
    void *sum;
    SHOW(pthread_join(thread, &sum));
    SHOW(sum);
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(plain, &wanted);
    struct timeval moment = {.tv_usec = 1000};
    SHOW(select(plain + 1, &wanted, NULL, NULL, &moment));
    SHOW(FD_ISSET(plain, &wanted));
    SHOW(ADD(plain, 1));
    FD_SET(plain, &wanted);
    SHOW(select(plain + 1, &wanted, NULL, NULL, NULL));
    SHOW(FD_ISSET(plain, &wanted));
    return 0;
}
