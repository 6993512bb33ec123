// Answers every request with a few bytes, over epoll: `server PORT`.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static const char RESPONSE[] = "HTTP/1.1 200 OK\r\n"
                               "content-type: text/plain\r\n"
                               "content-length: 14\r\n"
                               "\r\n"
                               "Hello, World!\n";

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int epoll, int descriptor) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) < 0) die("epoll_ctl");
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 8080, one = 1;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) die("bind");
    if (listen(listener, 128) < 0) die("listen");
    watch(epoll, listener);
    fprintf(stderr, "listening on 127.0.0.1:%d\n", port);
    for (;;) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, -1);
        for (int index = 0; index < ready; index++) {
            int descriptor = events[index].data.fd;
            if (descriptor == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (client < 0) continue;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                watch(epoll, client);
                continue;
            }
            // The requests of this benchmark have no body and come whole.
            char request[4096];
            ssize_t length = read(descriptor, request, sizeof request - 1);
            if (length <= 0) {
                close(descriptor);
                continue;
            }
            request[length] = 0;
            for (char *next = request; (next = strstr(next, "\r\n\r\n")); next += 4)
                if (write(descriptor, RESPONSE, sizeof RESPONSE - 1) < 0) break;
        }
    }
}
