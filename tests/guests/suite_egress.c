// A server that connects to the outside: each target says how, and where (`/ask?127.0.0.1:5432`). It is
// answered with what came of it. With BOOT=ADDRESS it has a connection from its start.

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static char answer[4096];
static int kept = -1;

static void say(const char *format, long number) {
    size_t length = strlen(answer);
    snprintf(answer + length, sizeof answer - length, format, number);
}

static struct sockaddr_in address(const char *text) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    char ip[64] = "";
    const char *colon = strrchr(text, ':');
    if (colon && (size_t)(colon - text) < sizeof ip) {
        memcpy(ip, text, colon - text);
        at.sin_port = htons(atoi(colon + 1));
    }
    inet_pton(AF_INET, ip, &at.sin_addr);
    return at;
}

static int connected(const char *where) {
    struct sockaddr_in at = address(where);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&at, sizeof at)) {
        say("connect %ld", errno);
        close(fd);
        return -1;
    }
    return fd;
}

static int error_of(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

// Sends a word, and reads what comes.
static void talk(int fd) {
    if (send(fd, "hello", 5, MSG_NOSIGNAL) != 5) {
        say("send %ld", errno);
        return;
    }
    char word[64] = "";
    ssize_t count = read(fd, word, sizeof word - 1);
    if (count < 0)
        say("read %ld", errno);
    else
        strncat(answer, word, sizeof answer - strlen(answer) - 1);
}

static void ask(const char *where) {
    int fd = connected(where), on = 1;
    if (fd < 0)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct sockaddr_in peer, at = address(where);
    socklen_t length = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &length) || peer.sin_port != at.sin_port)
        say("another peer %ld ", ntohs(peer.sin_port));
    talk(fd);
    // And the end behind it.
    shutdown(fd, SHUT_WR);
    char rest[16];
    say(", then %ld", read(fd, rest, sizeof rest));
    close(fd);
}

// Without waiting in any call but `poll` or `epoll_wait`.
static void without_waiting(const char *where, int edges) {
    struct sockaddr_in at = address(where);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | (edges ? EPOLLET : 0)};
    if (edges)
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    if (!connect(fd, (struct sockaddr *)&at, sizeof at) || errno != EINPROGRESS) {
        say("connect %ld", errno);
    } else {
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        if (edges)
            say("events %ld, ", (epoll_wait(set, &event, 1, 5000), (long)event.events));
        else
            say("conditions %ld, ", (poll(&entry, 1, 5000), (long)entry.revents));
        say("error %ld, ", error_of(fd));
        char word[64] = "";
        ssize_t count = read(fd, word, sizeof word - 1);
        say("read %ld, ", count < 0 ? -errno : count);
        if (send(fd, "hello", 5, MSG_NOSIGNAL) == 5) {
            entry.events = POLLIN;
            if (edges)
                epoll_wait(set, &event, 1, 5000);
            else
                poll(&entry, 1, 5000);
            count = read(fd, word, sizeof word - 1);
            if (count > 0)
                strncat(answer, word, sizeof answer - strlen(answer) - 1);
        }
    }
    close(set);
    close(fd);
}

static void limited(const char *where) {
    int fd = connected(where);
    if (fd < 0)
        return;
    struct timeval limit = {0, 30000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char word[16];
    say("read %ld, ", read(fd, word, sizeof word));
    say("error %ld", errno);
    close(fd);
}

// Reads from somebody who says nothing.
static void hold(const char *where) {
    int fd = connected(where);
    char word[16];
    if (fd >= 0)
        say("read %ld", read(fd, word, sizeof word));
}

// As many as there may be.
static void many(const char *where) {
    int count = 0;
    while (count < 1000) {
        int fd = connected(where);
        if (fd < 0)
            break;
        count++;
    }
    say(" after %ld", count);
}

// Writes more than fits anywhere.
static void plenty(const char *where) {
    static char piece[100000];
    memset(piece, 'x', sizeof piece);
    int fd = connected(where);
    if (fd < 0)
        return;
    long sent = 0;
    for (int i = 0; i < 200; i++) {
        ssize_t count = write(fd, piece, sizeof piece);
        if (count < 0)
            break;
        sent += count;
    }
    say("sent %ld", sent);
    close(fd);
}

// Keeps a connection open, and leaves.
static void keep(const char *where) {
    if (kept >= 0) {
        talk(kept);
        return;
    }
    kept = connected(where);
    say("kept %ld", kept);
}

// Says something and answers without waiting for anybody.
static void tell(const char *where) {
    int fd = connected(where);
    if (fd >= 0 && send(fd, "told", 4, MSG_NOSIGNAL) == 4)
        say("told%ld", 0);
}

// Which sockets are open that a request may have left.
static void left(void) {
    int found = 0;
    for (int fd = 3; fd < 64; fd++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        if (!getpeername(fd, (struct sockaddr *)&peer, &length))
            found++;
    }
    // The request's own is one.
    say("%ld", found);
}

// An A query, as a resolver sends it.
static void resolve(const char *name) {
    unsigned char query[512] = {0x12, 0x34, 1, 0, 0, 1};
    size_t length = 12;
    for (const char *label = name; *label;) {
        size_t size = strcspn(label, ".");
        query[length++] = size;
        memcpy(query + length, label, size);
        length += size;
        label += size + (label[size] == '.');
    }
    length++;
    query[length + 1] = query[length + 3] = 1;
    length += 4;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = address("127.0.0.53:53"), from;
    socklen_t size = sizeof from;
    if (sendto(fd, query, length, 0, (struct sockaddr *)&at, sizeof at) < 0) {
        say("sendto %ld", errno);
        return;
    }
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    if (poll(&entry, 1, 5000) != 1) {
        say("no answer %ld", 0);
        return;
    }
    ssize_t count = recvfrom(fd, query, sizeof query, 0, (struct sockaddr *)&from, &size);
    if (count < 12 || from.sin_port != at.sin_port || from.sin_addr.s_addr != at.sin_addr.s_addr)
        say("wrong answer %ld ", count);
    say("code %ld, ", query[3] & 15);
    say("addresses %ld", query[7]);
    if (query[7]) {
        char text[INET_ADDRSTRLEN] = "";
        inet_ntop(AF_INET, query + count - 4, text, sizeof text);
        strcat(strcat(answer, " "), text);
    }
    at = address("192.0.2.1:53");
    if (sendto(fd, query, 20, 0, (struct sockaddr *)&at, sizeof at) != -1 || errno != EACCES)
        say(", elsewhere %ld", errno);
    close(fd);
}

static void serve(const char *target) {
    answer[0] = 0;
    const char *where = strchr(target, '?');
    where = where ? where + 1 : "";
    if (!strncmp(target, "/ask", 4))
        ask(where);
    else if (!strncmp(target, "/poll", 5))
        without_waiting(where, 0);
    else if (!strncmp(target, "/edges", 6))
        without_waiting(where, 1);
    else if (!strncmp(target, "/limited", 8))
        limited(where);
    else if (!strncmp(target, "/hold", 5))
        hold(where);
    else if (!strncmp(target, "/many", 5))
        many(where);
    else if (!strncmp(target, "/plenty", 7))
        plenty(where);
    else if (!strncmp(target, "/keep", 5))
        keep(where);
    else if (!strncmp(target, "/tell", 5))
        tell(where);
    else if (!strncmp(target, "/left", 5))
        left();
    else if (!strncmp(target, "/resolve", 8))
        resolve(where);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = address("127.0.0.1:8080");
    bind(listener, (struct sockaddr *)&at, sizeof at);
    listen(listener, 8);
    if (getenv("BOOT")) {
        kept = connected(getenv("BOOT"));
        if (kept >= 0)
            talk(kept);
        fprintf(stderr, "at the start: %s\n", answer);
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        static char head[8192];
        for (;;) {
            size_t length = 0;
            ssize_t count;
            head[0] = 0;
            while (!strstr(head, "\r\n\r\n") && length < sizeof head - 1 &&
                   (count = read(fd, head + length, sizeof head - 1 - length)) > 0)
                head[length += count] = 0;
            char target[1024];
            if (!length || sscanf(head, "%*s %1023s", target) != 1)
                break;
            serve(target);
            dprintf(fd, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\n\r\n%s", strlen(answer), answer);
        }
        close(fd);
    }
}
