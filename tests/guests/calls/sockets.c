// Pairs of sockets: streams, datagrams, sequenced packets.

#include "report.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static char buffer[100000];

static int condition(int fd) {
    struct pollfd entry = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP};
    poll(&entry, 1, 0);
    return entry.revents;
}

static void text(ssize_t length) {
    if (length >= 0)
        printf("  %zd \"%.*s\"\n", length, (int)(length > 20 ? 20 : length), buffer);
    else
        printf("  %s\n", error_name(errno));
}

static ssize_t get(int fd, size_t length, int flags) {
    memset(buffer, '.', 20);
    return recv(fd, buffer, length, flags);
}

static void streams(void) {
    int ends[2];
    SHOW(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends));
    SHOW(fcntl(ends[0], F_GETFD));
    text(get(ends[0], 10, 0));
    SHOW(write(ends[0], "hello", 5));
    struct iovec parts[] = {{", ", 2}, {"", 0}, {"world", 5}};
    SHOW(writev(ends[0], parts, 3));
    int left;
    SHOW(ioctl(ends[1], FIONREAD, &left));
    SHOW(left);
    SHOW(condition(ends[0]));
    SHOW(condition(ends[1]));
    text(get(ends[1], 4, MSG_PEEK));
    text(get(ends[1], 4, 0));
    struct iovec rooms[] = {{buffer, 3}, {buffer + 3, 17}};
    struct msghdr message = {.msg_iov = rooms, .msg_iovlen = 2, .msg_namelen = 0};
    text(recvmsg(ends[1], &message, 0));
    SHOW(message.msg_flags);
    SHOW(shutdown(ends[0], SHUT_WR));
    SHOW(condition(ends[0]));
    SHOW(condition(ends[1]));
    text(get(ends[1], 4, 0));
    SHOW(write(ends[1], "back", 4));
    SHOW(write(ends[0], "x", 1));
    SHOW(send(ends[0], "x", 1, MSG_NOSIGNAL));
    SHOW(close(ends[1]));
    SHOW(condition(ends[0]));
    text(get(ends[0], 10, 0));
    text(get(ends[0], 10, 0));
    SHOW(close(ends[0]));

    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    SHOW(write(ends[0], "lost", 4));
    SHOW(close(ends[1]));
    SHOW(condition(ends[0]));
    text(get(ends[0], 10, 0));
    text(get(ends[0], 10, 0));
    SHOW(close(ends[0]));
}

static void messages(int kind) {
    int ends[2];
    SHOW(socketpair(AF_UNIX, kind | SOCK_NONBLOCK, 0, ends));
    SHOW(send(ends[0], "first", 5, 0));
    SHOW(send(ends[0], "", 0, 0));
    SHOW(send(ends[0], "the third", 9, 0));
    text(get(ends[1], 20, 0));
    text(get(ends[1], 20, 0));
    text(get(ends[1], 3, MSG_PEEK | MSG_TRUNC));
    struct iovec room = {buffer, 3};
    struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1};
    text(recvmsg(ends[1], &message, 0));
    SHOW(message.msg_flags == MSG_TRUNC);
    text(get(ends[1], 3, 0));
    SHOW(shutdown(ends[0], SHUT_WR));
    SHOW(send(ends[0], "x", 1, MSG_NOSIGNAL));
    SHOW(close(ends[1]));
    SHOW(send(ends[0], "x", 1, MSG_NOSIGNAL));
    SHOW(close(ends[0]));
}

static void names_and_options(void) {
    int ends[2];
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    SHOW(getsockname(ends[0], (void *)&name, &length));
    SHOW(length);
    SHOW(name.sun_family);
    int number;
    length = sizeof number;
    SHOW(getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &number, &length));
    SHOW(number);
    SHOW(getsockopt(ends[0], SOL_SOCKET, SO_ERROR, &number, &length));
    SHOW(number);
    SHOW(getsockopt(ends[0], SOL_SOCKET, SO_DOMAIN, &number, &length));
    SHOW(number);
    number = 1;
    SHOW(setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &number, sizeof number));
    SHOW(setsockopt(ends[0], SOL_SOCKET, SO_KEEPALIVE, &number, 2));
    SHOW(sendto(0, "x", 1, 0, NULL, 0));
    SHOW(listen(0, 1));
    SHOW(shutdown(ends[0], 9));
    SHOW(socketpair(AF_INET, SOCK_STREAM, 0, ends));
    SHOW(socketpair(AF_UNIX, 77, 0, ends));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, (void *)16));
    close(ends[0]);
    close(ends[1]);
}

static void *echo(void *end) {
    int fd = *(int *)end;
    char piece[5000];
    ssize_t length;
    while ((length = read(fd, piece, sizeof piece)) > 0)
        for (ssize_t done = 0; done < length;) done += write(fd, piece + done, (size_t)(length - done));
    return NULL;
}

static void *reader(void *end) {
    long sum = 0, count = 0;
    unsigned char piece[7000];
    ssize_t length;
    while (count < 1000000 && (length = read(*(int *)end, piece, sizeof piece)) > 0)
        for (ssize_t at = 0; at < length; at++, count++) sum = (sum * 31 + piece[at]) % 1000003;
    return (void *)sum;
}

// A megabyte through two threads, much more than fits.
static void threads(void) {
    int ends[2];
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pthread_t echoing, reading;
    SHOW(pthread_create(&echoing, NULL, echo, &ends[1]));
    SHOW(pthread_create(&reading, NULL, reader, &ends[0]));
    for (int piece = 0; piece < 10; piece++) {
        memset(buffer, 'a' + piece, sizeof buffer);
        for (size_t done = 0; done < sizeof buffer;)
            done += (size_t)write(ends[0], buffer + done, sizeof buffer - done);
    }
    void *sum;
    SHOW(pthread_join(reading, &sum));
    SHOW(sum);
    SHOW(shutdown(ends[0], SHUT_RDWR));
    SHOW(pthread_join(echoing, NULL));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    streams();
    messages(SOCK_DGRAM);
    messages(SOCK_SEQPACKET);
    names_and_options();
    threads();
    return 0;
}
