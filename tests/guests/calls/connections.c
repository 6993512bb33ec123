// Connections of a program to itself: over TCP, over both families of addresses, over Unix sockets.

#include "report.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char buffer[300000];

static int condition(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&entry, 1, 0);
    return entry.revents;
}

// Waits until there is something to read, or an end.
static int readable(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&entry, 1, 5000);
}

static void get(int fd, size_t length) {
    memset(buffer, '.', 20);
    ssize_t count = recv(fd, buffer, length, 0);
    if (count >= 0)
        printf("  %zd \"%.*s\"\n", count, (int)(count > 20 ? 20 : count), buffer);
    else
        printf("  %s\n", error_name(errno));
}

static int error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

// A listener on any port of this address, which is filled in.
static int listener(int family, struct sockaddr_storage *at, socklen_t *length) {
    int fd = socket(family, SOCK_STREAM, 0);
    memset(at, 0, sizeof *at);
    at->ss_family = family;
    if (family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)at;
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        *length = sizeof *in;
    } else {
        *length = sizeof(struct sockaddr_in6);
    }
    if (bind(fd, (struct sockaddr *)at, *length) || listen(fd, 8) ||
        getsockname(fd, (struct sockaddr *)at, length))
        perror("listener");
    return fd;
}

static void shown(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *),
                  uint16_t port) {
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    char text[INET6_ADDRSTRLEN] = "";
    if (ask(fd, (struct sockaddr *)&at, &length)) {
        printf("  %s: %s\n", what, error_name(errno));
        return;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)&at;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&at;
    const void *ip = at.ss_family == AF_INET ? (void *)&in->sin_addr : (void *)&in6->sin6_addr;
    inet_ntop(at.ss_family, ip, text, sizeof text);
    printf("  %s: %s %s, %u bytes\n", what, text, in->sin_port == port ? "same" : "other", length);
}

static void tcp(void) {
    struct sockaddr_storage at;
    socklen_t length;
    int listening = listener(AF_INET, &at, &length);
    uint16_t port = ((struct sockaddr_in *)&at)->sin_port;
    int near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(condition(listening));
    SHOW(send(near, "x", 1, MSG_NOSIGNAL));
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(readable(listening));
    SHOW(condition(listening));
    int far = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    SHOW(condition(listening));
    shown("near is", near, getsockname, port);
    shown("near to", near, getpeername, port);
    shown("far is", far, getsockname, port);
    shown("far to", far, getpeername, port);
    int on = 1;
    SHOW(setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    SHOW(setsockopt(near, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    SHOW(condition(near));
    SHOW(condition(far));
    SHOW(write(near, "there", 5));
    SHOW(readable(far));
    int left;
    SHOW(ioctl(far, FIONREAD, &left));
    SHOW(left);
    get(far, 100);
    SHOW(write(far, "back", 4));
    SHOW(readable(near));
    get(near, 100);
    SHOW(shutdown(near, SHUT_WR));
    SHOW(readable(far));
    SHOW(condition(far));
    get(far, 100);
    SHOW(send(near, "x", 1, MSG_NOSIGNAL));
    SHOW(write(far, "more", 4));
    SHOW(readable(near));
    get(near, 100);
    SHOW(close(far));
    SHOW(readable(near));
    SHOW(condition(near));
    get(near, 100);
    SHOW(error_of(near));
    SHOW(close(near));

    // Closed with something unread.
    near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    far = accept(listening, NULL, NULL);
    SHOW(write(near, "unread", 6));
    SHOW(readable(far));
    SHOW(close(far));
    SHOW(readable(near));
    SHOW(condition(near));
    get(near, 100);
    get(near, 100);
    SHOW(send(near, "x", 1, MSG_NOSIGNAL));
    SHOW(close(near));

    SHOW(close(listening));
    near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(close(near));
    near = socket(AF_INET6, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(close(near));
}

// A listener for both families of addresses.
static void both(void) {
    struct sockaddr_storage at;
    socklen_t length;
    int listening = listener(AF_INET6, &at, &length);
    uint16_t port = ((struct sockaddr_in6 *)&at)->sin6_port;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = port};
    int near = socket(AF_INET, SOCK_STREAM, 0);
    // To nowhere is to this machine.
    SHOW(connect(near, (struct sockaddr *)&v4, sizeof v4));
    int far = accept(listening, NULL, NULL);
    shown("near to", near, getpeername, port);
    shown("far is", far, getsockname, port);
    shown("far to", far, getpeername, port);
    SHOW(close(far));
    SHOW(close(near));
    SHOW(close(listening));
}

static void named(void) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path + 1, 60, "sandtide-calls-%d", getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 40;
    int listening = socket(AF_UNIX, SOCK_STREAM, 0);
    int near = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(bind(listening, (struct sockaddr *)&at, length));
    SHOW(connect(near, (struct sockaddr *)&at, length));
    SHOW(listen(listening, 4));
    SHOW(connect(near, (struct sockaddr *)&at, length));
    int far = accept(listening, NULL, NULL);
    struct sockaddr_un peer;
    socklen_t found = sizeof peer;
    SHOW(getpeername(near, (struct sockaddr *)&peer, &found));
    SHOW(found == length && !memcmp(&peer, &at, length));
    found = sizeof peer;
    SHOW(getpeername(far, (struct sockaddr *)&peer, &found));
    SHOW(found);
    SHOW(write(far, "hello", 5));
    get(near, 100);
    get(near, 100);
    SHOW(close(far));
    SHOW(condition(near));
    get(near, 100);
    SHOW(send(near, "x", 1, MSG_NOSIGNAL));
    SHOW(close(near));
    SHOW(close(listening));
    struct sockaddr_un missing = {.sun_family = AF_UNIX, .sun_path = "/tmp/sandtide-nobody"};
    near = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&missing, sizeof missing));
    SHOW(close(near));
}

static void *echo(void *argument) {
    int far = accept(*(int *)argument, NULL, NULL);
    char room[4096];
    for (ssize_t count; (count = read(far, room, sizeof room)) > 0;)
        for (ssize_t sent = 0; sent < count;)
            sent += write(far, room + sent, count - sent);
    close(far);
    return NULL;
}

// More than fits goes through, with a thread at each end.
static void plenty(void) {
    struct sockaddr_storage at;
    socklen_t length;
    int listening = listener(AF_INET, &at, &length);
    pthread_t thread;
    pthread_create(&thread, NULL, echo, &listening);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    for (size_t i = 0; i < sizeof buffer; i++)
        buffer[i] = (char)(i * 7);
    size_t sent = 0, came = 0, wrong = 0;
    static char back[8192];
    fcntl(near, F_SETFL, O_NONBLOCK);
    while (came < sizeof buffer) {
        struct pollfd entry = {.fd = near, .events = POLLIN | (sent < sizeof buffer ? POLLOUT : 0)};
        if (poll(&entry, 1, 5000) != 1)
            break;
        if (entry.revents & POLLOUT) {
            ssize_t count = write(near, buffer + sent, sizeof buffer - sent);
            if (count > 0)
                sent += count;
        }
        ssize_t count = read(near, back, sizeof back);
        for (ssize_t i = 0; i < count; i++, came++)
            wrong += back[i] != (char)(came * 7);
    }
    SHOW(sent);
    SHOW(came);
    SHOW(wrong);
    SHOW(shutdown(near, SHUT_WR));
    SHOW(pthread_join(thread, NULL));
    SHOW(readable(near));
    get(near, 10);
    SHOW(close(near));
    SHOW(close(listening));
}

static void edges(void) {
    struct sockaddr_storage at;
    socklen_t length;
    int listening = listener(AF_INET, &at, &length);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    int far = accept(listening, NULL, NULL);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
    SHOW(epoll_ctl(set, EPOLL_CTL_ADD, far, &event));
    SHOW(epoll_wait(set, &event, 1, 0));
    SHOW(write(near, "a", 1));
    SHOW(epoll_wait(set, &event, 1, 5000));
    SHOW(event.events);
    SHOW(epoll_wait(set, &event, 1, 0));
    SHOW(write(near, "b", 1));
    SHOW(epoll_wait(set, &event, 1, 5000));
    SHOW(close(near));
    SHOW(epoll_wait(set, &event, 1, 5000));
    SHOW(event.events);
    get(far, 10);
    get(far, 10);
    SHOW(close(set));
    SHOW(close(far));
    SHOW(close(listening));
}

static int took(struct timespec *since) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long milliseconds = (now.tv_sec - since->tv_sec) * 1000 + (now.tv_nsec - since->tv_nsec) / 1000000;
    return milliseconds >= 39 && milliseconds < 4000;
}

static void timeouts(void) {
    struct sockaddr_storage at;
    socklen_t length;
    int listening = listener(AF_INET, &at, &length);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(near, (struct sockaddr *)&at, length));
    int far = accept(listening, NULL, NULL);
    struct timeval limit = {0, 40000}, bad = {0, 1000000}, told;
    SHOW(setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &bad, sizeof bad));
    SHOW(setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(int)));
    SHOW(setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    SHOW(setsockopt(far, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    SHOW(setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    length = sizeof told;
    SHOW(getsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &told, &length));
    SHOW(told.tv_sec == 0 && told.tv_usec == 40000);
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    get(far, 10);
    SHOW(took(&start));
    clock_gettime(CLOCK_MONOTONIC, &start);
    SHOW(accept(listening, NULL, NULL));
    SHOW(took(&start));
    SHOW(write(near, "abc", 3));
    clock_gettime(CLOCK_MONOTONIC, &start);
    SHOW(recv(far, buffer, 10, MSG_WAITALL));
    SHOW(took(&start));
    ssize_t count;
    int times = 0;
    do
        count = write(far, buffer, sizeof buffer);
    while (count > 0 && ++times < 1000);
    SHOW(write(far, buffer, 1000));
    limit.tv_usec = 0;
    SHOW(setsockopt(far, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
    SHOW(write(near, "in time", 7));
    get(far, 10);
    SHOW(close(near));
    SHOW(close(far));
    SHOW(close(listening));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    tcp();
    both();
    named();
    plenty();
    edges();
    timeouts();
}
