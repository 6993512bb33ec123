// Epoll sets: levels, edges, one shots, sets in sets, and descriptors that go away.

#include "report.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

static int set;

static int compare(const void *a, const void *b) {
    const struct epoll_event *left = a, *right = b;
    return (left->data.u64 > right->data.u64) - (left->data.u64 < right->data.u64);
}

// What a set reports without waiting, in the order of names.
static void events_of(int line, int from, int most) {
    struct epoll_event events[8];
    int count = epoll_wait(from, events, most, 0);
    printf("%d: %d", line, count);
    if (count > 0) qsort(events, (size_t)count, sizeof events[0], compare);
    for (int at = 0; at < count; at++)
        printf(" %c:%x", (char)events[at].data.u64, events[at].events);
    puts("");
}
#define EVENTS() events_of(__LINE__, set, 8)

static int control(int from, int operation, int fd, uint32_t events, char name) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)name};
    return epoll_ctl(from, operation, fd, &event);
}

static void add(int fd, uint64_t number) {
    if (write(fd, &number, sizeof number) != sizeof number) perror("write");
}

static void take(int fd) {
    uint64_t number;
    if (read(fd, &number, sizeof number) != sizeof number) perror("read");
}

static void levels(void) {
    int pair[2];
    SHOW(pipe2(pair, O_NONBLOCK));
    SHOW(control(set, EPOLL_CTL_ADD, pair[0], EPOLLIN, 'r'));
    SHOW(control(set, EPOLL_CTL_ADD, pair[1], EPOLLOUT, 'w'));
    SHOW(control(set, EPOLL_CTL_ADD, pair[0], EPOLLIN, 'r'));
    EVENTS();
    SHOW(write(pair[1], "ab", 2));
    EVENTS();
    EVENTS();
    char buffer[8];
    SHOW(read(pair[0], buffer, sizeof buffer));
    EVENTS();
    static char big[70000];
    SHOW(write(pair[1], big, sizeof big));
    EVENTS();
    SHOW(control(set, EPOLL_CTL_MOD, pair[0], 0, 'r'));
    EVENTS();
    SHOW(close(pair[1]));
    EVENTS();
    SHOW(control(set, EPOLL_CTL_DEL, pair[1], 0, 'w'));
    SHOW(control(set, EPOLL_CTL_DEL, pair[0], 0, 'r'));
    SHOW(control(set, EPOLL_CTL_DEL, pair[0], 0, 'r'));
    SHOW(control(set, EPOLL_CTL_MOD, pair[0], 0, 'r'));
    SHOW(close(pair[0]));
}

static void edges(void) {
    int counter = eventfd(0, EFD_NONBLOCK);
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLOUT | EPOLLET, 'e'));
    EVENTS();
    EVENTS();
    add(counter, 1);
    EVENTS();
    add(counter, 1);
    EVENTS();
    EVENTS();
    take(counter);
    EVENTS();
    SHOW(control(set, EPOLL_CTL_MOD, counter, EPOLLOUT | EPOLLET, 'e'));
    EVENTS();
    EVENTS();
    SHOW(control(set, EPOLL_CTL_MOD, counter, EPOLLOUT | EPOLLONESHOT, 'o'));
    EVENTS();
    EVENTS();
    add(counter, 1);
    EVENTS();
    SHOW(control(set, EPOLL_CTL_MOD, counter, EPOLLIN | EPOLLONESHOT | EPOLLET, 'o'));
    EVENTS();
    EVENTS();
    SHOW(close(counter));
    int ends[2];
    SHOW(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends));
    SHOW(control(set, EPOLL_CTL_ADD, ends[0], EPOLLIN | EPOLLRDHUP | EPOLLET, 's'));
    EVENTS();
    SHOW(write(ends[1], "one", 3));
    EVENTS();
    SHOW(write(ends[1], "two", 3));
    EVENTS();
    char buffer[4];
    SHOW(read(ends[0], buffer, sizeof buffer));
    EVENTS();
    SHOW(shutdown(ends[1], SHUT_WR));
    EVENTS();
    EVENTS();
    SHOW(close(ends[1]));
    EVENTS();
    SHOW(close(ends[0]));
    EVENTS();
}

static void copies(void) {
    int counter = eventfd(1, 0);
    int copy = dup(counter);
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN, 'a'));
    SHOW(control(set, EPOLL_CTL_ADD, copy, EPOLLIN, 'b'));
    EVENTS();
    events_of(__LINE__, set, 1);
    SHOW(close(counter));
    EVENTS();
    SHOW(control(set, EPOLL_CTL_DEL, counter, 0, 'a'));
    SHOW(close(copy));
    EVENTS();
}

static void nested(void) {
    int inner = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(0, EFD_NONBLOCK);
    SHOW(control(set, EPOLL_CTL_ADD, inner, EPOLLIN, 'n'));
    SHOW(control(inner, EPOLL_CTL_ADD, counter, EPOLLIN, 'c'));
    EVENTS();
    add(counter, 3);
    EVENTS();
    events_of(__LINE__, inner, 8);
    EVENTS();
    take(counter);
    EVENTS();
    SHOW(control(inner, EPOLL_CTL_ADD, set, EPOLLIN, 'x'));
    SHOW(control(set, EPOLL_CTL_ADD, set, EPOLLIN, 'x'));
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLEXCLUSIVE, 'x'));
    SHOW(control(set, EPOLL_CTL_MOD, counter, EPOLLIN, 'x'));
    SHOW(control(set, EPOLL_CTL_DEL, counter, 0, 'x'));
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 'x'));
    int chain[8] = {inner};
    for (int at = 1; at < 8; at++) {
        chain[at] = epoll_create1(0);
        SHOW(control(chain[at], EPOLL_CTL_ADD, chain[at - 1], EPOLLIN, 'x'));
    }
    for (int at = 0; at < 8; at++) close(chain[at]);
    close(counter);
    EVENTS();
}

static void mistakes(void) {
    struct epoll_event events[2];
    int file = open("/tmp", O_RDONLY);
    SHOW(control(set, EPOLL_CTL_ADD, file, EPOLLIN, 'f'));
    SHOW(close(file));
    SHOW(control(set, EPOLL_CTL_ADD, 999, EPOLLIN, 'f'));
    SHOW(control(999, EPOLL_CTL_ADD, 0, EPOLLIN, 'f'));
    SHOW(control(0, EPOLL_CTL_DEL, set, 0, 'f'));
    SHOW(control(set, 77, set, 0, 'f'));
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, 0, (void *)16));
    SHOW(epoll_wait(set, events, 0, 0));
    SHOW(epoll_wait(set, events, -1, 0));
    SHOW(epoll_wait(0, events, 2, 0));
    SHOW(epoll_create1(1));
    SHOW(epoll_create(0));
    int counter = eventfd(1, 0);
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN, 'm'));
    SHOW(epoll_wait(set, (void *)16, 2, 0));
    SHOW(close(counter));
}

static void *later(void *counter) {
    usleep(2000);
    add(*(int *)counter, 1);
    return NULL;
}

static volatile sig_atomic_t signals;
static void on_signal(int number) { signals += number == SIGUSR1; }

static void waits(void) {
    struct epoll_event event;
    SHOW(epoll_wait(set, &event, 1, 3));
    struct timespec moment = {.tv_nsec = 1000000};
    SHOW(epoll_pwait2(set, &event, 1, &moment, NULL));
    int counter = eventfd(0, 0);
    SHOW(control(set, EPOLL_CTL_ADD, counter, EPOLLIN, 'w'));
    pthread_t thread;
    SHOW(pthread_create(&thread, NULL, later, &counter));
    SHOW(epoll_wait(set, &event, 1, -1));
    SHOW(pthread_join(thread, NULL));
    take(counter);
    struct sigaction action = {.sa_handler = on_signal};
    SHOW(sigaction(SIGUSR1, &action, NULL));
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    SHOW(sigprocmask(SIG_BLOCK, &blocked, NULL));
    SHOW(raise(SIGUSR1));
    SHOW(epoll_pwait(set, &event, 1, 1, NULL));
    SHOW(signals);
    SHOW(epoll_pwait(set, &event, 1, -1, &none));
    SHOW(signals);
    SHOW(close(counter));
}

int main(void) {
    set = epoll_create1(0);
    levels();
    edges();
    copies();
    nested();
    mistakes();
    waits();
    return 0;
}
