// The guest of tests/tests/sockets.rs: an ordinary HTTP/1.1 server that knows nothing of sandboxes.
//
// MODE in the environment says how it waits: blocking, poll, epoll, threads; or early, which answers each
// connection before it has read anything; or hasty, which gives up on connections that say nothing
// for 100 ms, or for 100 ms of true-time. LISTEN says where: v4, v6, unix, any.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 64 << 10 };

struct connection {
    int fd;
    size_t filled;
    char buffer[ROOM];
};

static unsigned char fresh[16];
static char (*wiped)[4096];
static int counter;
static int connections;

static void die(const char *what)
{
    perror(what);
    exit(9);
}

static void wait_for(int fd, short events)
{
    struct pollfd entry = {fd, events, 0};
    if (poll(&entry, 1, -1) < 0)
        die("poll");
}

// Whether all of it was sent.
static int send_all(int fd, const void *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t sent = send(fd, (const char *)data + done, length - done, MSG_NOSIGNAL);
        if (sent >= 0)
            done += sent;
        else if (errno == EAGAIN)
            wait_for(fd, POLLOUT);
        else
            return 0;
    }
    return 1;
}

static int print(int fd, const char *format, ...)
{
    char text[ROOM + 1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return send_all(fd, text, length);
}

static void answer(int fd, const char *text)
{
    print(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n%s",
          strlen(text), text);
}

// Reads more; 0 at the end.
static int fill(struct connection *c)
{
    for (;;) {
        ssize_t got = read(c->fd, c->buffer + c->filled, ROOM - 1 - c->filled);
        if (got > 0) {
            c->filled += got;
            c->buffer[c->filled] = 0;
            return 1;
        }
        if (got == 0 || errno != EAGAIN)
            return 0;
        wait_for(c->fd, POLLIN);
    }
}

static void consume(struct connection *c, size_t length)
{
    memmove(c->buffer, c->buffer + length, c->filled - length + 1);
    c->filled -= length;
}

struct body {
    size_t length;
    unsigned sum;
    int broken;
    char text[1024];
};

static void take(struct connection *c, struct body *body, size_t length)
{
    while (length > 0) {
        if (c->filled == 0 && !fill(c)) {
            body->broken = 1;
            return;
        }
        size_t piece = length < c->filled ? length : c->filled;
        for (size_t i = 0; i < piece; i++) {
            unsigned char byte = c->buffer[i];
            if (body->length < sizeof body->text - 1)
                body->text[body->length] = byte;
            body->sum = body->sum * 31 + byte;
            body->length++;
        }
        consume(c, piece);
        length -= piece;
    }
}

// The length of the line at the front, with its end; 0 if there is none.
static size_t line(struct connection *c)
{
    char *end;
    while (!(end = strstr(c->buffer, "\r\n")))
        if (!fill(c))
            return 0;
    return end + 2 - c->buffer;
}

static void take_chunks(struct connection *c, struct body *body)
{
    for (;;) {
        size_t length = line(c);
        if (!length) {
            body->broken = 1;
            return;
        }
        size_t size = strtoul(c->buffer, NULL, 16);
        consume(c, length);
        if (!size)
            break;
        take(c, body, size);
        consume(c, line(c));
    }
    for (size_t length; (length = line(c)) > 2; consume(c, length))
        ;
    consume(c, 2);
}

static const char *header(const char *head, const char *name)
{
    for (const char *at = strstr(head, "\r\n"); at; at = strstr(at + 2, "\r\n"))
        if (!strncasecmp(at + 2, name, strlen(name)) && at[2 + strlen(name)] == ':')
            return at + 2 + strlen(name) + 2;
    return NULL;
}

static void pause_ms(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void pattern(char *data, size_t start, size_t length)
{
    for (size_t i = 0; i < length; i++)
        data[i] = (start + i) * 7 % 251;
}

static void send_pattern(int fd, size_t length, int chunked)
{
    static char data[ROOM];
    for (size_t done = 0; done < length;) {
        size_t piece = length - done < sizeof data ? length - done : sizeof data;
        pattern(data, done, piece);
        if (chunked)
            print(fd, "%zx\r\n", piece);
        if (!send_all(fd, data, piece) || (chunked && !print(fd, "\r\n")))
            return;
        done += piece;
    }
}

static void describe(int fd)
{
    char text[256], ip[64];
    struct sockaddr_storage names[2];
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        socklen_t length = sizeof names[i];
        if ((i ? getpeername : getsockname)(fd, (struct sockaddr *)&names[i], &length))
            die("name");
        struct sockaddr_in *v4 = (void *)&names[i];
        struct sockaddr_in6 *v6 = (void *)&names[i];
        if (names[i].ss_family == AF_INET)
            inet_ntop(AF_INET, &v4->sin_addr, ip, sizeof ip);
        else if (names[i].ss_family == AF_INET6)
            inet_ntop(AF_INET6, &v6->sin6_addr, ip, sizeof ip);
        else
            strcpy(ip, i ? "" : ((struct sockaddr_un *)&names[i])->sun_path);
        int port = names[i].ss_family == AF_UNIX ? 0 : ntohs(v4->sin_port);
        at += sprintf(text + at, "%s %d\n", ip, port);
    }
    answer(fd, text);
}

// Answers a request; whether the connection is to be kept.
static int serve(struct connection *c)
{
    char *end, head[ROOM], method[16], path[ROOM];
    while (!(end = strstr(c->buffer, "\r\n\r\n")))
        if (c->filled == ROOM - 1 || !fill(c))
            return 0;
    size_t length = end + 4 - c->buffer;
    memcpy(head, c->buffer, length);
    head[length] = 0;
    consume(c, length);
    if (sscanf(head, "%15s %65535s HTTP/1.1", method, path) != 2)
        return 0;
    int fd = c->fd;
    char *query = strchr(path, '?');
    long number = query ? atol(query + 1) : 0;
    if (query)
        *query = 0;
    counter++;

    if (!strcmp(path, "/unread")) {
        answer(fd, "unread");
        return 1;
    }
    struct body body = {0};
    const char *value = header(head, "content-length");
    if (value)
        take(c, &body, strtoul(value, NULL, 10));
    else if ((value = header(head, "transfer-encoding")) && !strncmp(value, "chunked", 7))
        take_chunks(c, &body);
    if (body.broken)
        return 0;

    char text[256];
    if (!strcmp(path, "/count")) {
        sprintf(text, "%d", counter);
        answer(fd, text);
    } else if (!strcmp(path, "/fresh")) {
        for (int i = 0; i < 16; i++)
            sprintf(text + 2 * i, "%02x", fresh[i]);
        sprintf(text + 32, " %s %s", wiped[0], wiped[1]);
        // The next request is to find nothing of this.
        memset(fresh, 0, sizeof fresh);
        strcpy(wiped[0], "dirty");
        answer(fd, text);
    } else if (!strcmp(path, "/connections")) {
        sprintf(text, "%d", connections);
        answer(fd, text);
    } else if (!strcmp(path, "/request")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(head), head);
    } else if (!strcmp(path, "/echo")) {
        answer(fd, body.text);
    } else if (!strcmp(path, "/sum")) {
        sprintf(text, "%zu %u", body.length, body.sum);
        answer(fd, text);
    } else if (!strcmp(path, "/length")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", number);
        if (strcmp(method, "HEAD"))
            send_pattern(fd, number, 0);
    } else if (!strcmp(path, "/once")) {
        // In one call, which waits.
        char *data = malloc(number);
        pattern(data, 0, number);
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: %ld\r\n\r\n", number);
        if (write(fd, data, number) != number)
            die("write");
    } else if (!strcmp(path, "/chunked")) {
        print(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n");
        send_pattern(fd, number, 1);
        print(fd, "0\r\nX-End: %ld\r\n\r\n", number);
    } else if (!strcmp(path, "/close")) {
        print(fd, "HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n");
        send_pattern(fd, number, 0);
        return 0;
    } else if (!strcmp(path, "/shutdown")) {
        print(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end");
        shutdown(fd, SHUT_WR);
    } else if (!strcmp(path, "/status")) {
        print(fd, "HTTP/1.1 %ld Status\r\nX-Status: %ld\r\n\r\n", number, number);
    } else if (!strcmp(path, "/interim")) {
        print(fd, "HTTP/1.1 100 Continue\r\n\r\n");
        print(fd, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n");
        answer(fd, "after");
    } else if (!strcmp(path, "/events")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n");
        for (long i = 0; i < number; i++) {
            int size = sprintf(text, "data: %ld\n\n", i);
            print(fd, "%x\r\n%s\r\n", size, text);
            pause_ms(20);
        }
        print(fd, "0\r\n\r\n");
    } else if (!strcmp(path, "/slowly")) {
        pause_ms(number);
        answer(fd, "slow");
    } else if (!strcmp(path, "/garbage")) {
        print(fd, "this is not HTTP\r\n\r\n");
    } else if (!strcmp(path, "/lengths")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab");
    } else if (!strcmp(path, "/both")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    } else if (!strcmp(path, "/upgrade")) {
        print(fd, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    } else if (!strcmp(path, "/behind")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n"
                  "Content-Length: 6\r\n\r\nsecret");
    } else if (!strcmp(path, "/early")) {
        print(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort");
        return 0;
    } else if (!strcmp(path, "/none")) {
        return 0;
    } else if (!strcmp(path, "/silent")) {
        // Waits for another request, as if this one had its answer.
    } else if (!strcmp(path, "/exit")) {
        exit(3);
    } else if (!strcmp(path, "/last")) {
        print(fd, "HTTP/1.0 200 OK\r\n\r\nthe last words");
        exit(0);
    } else if (!strcmp(path, "/abort")) {
        abort();
    } else if (!strcmp(path, "/spin")) {
        for (;;)
            __asm__ volatile("");
    } else if (!strcmp(path, "/fork")) {
        sprintf(text, "%d", fork() < 0 ? errno : 0);
        answer(fd, text);
    } else if (!strcmp(path, "/connect")) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
        inet_pton(AF_INET, query ? query + 1 : "127.0.0.1", &address.sin_addr);
        int other = socket(AF_INET, SOCK_STREAM, 0);
        sprintf(text, "%d", connect(other, (void *)&address, sizeof address) ? errno : 0);
        answer(fd, text);
    } else if (!strcmp(path, "/names")) {
        describe(fd);
    } else {
        print(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
    return 1;
}

static int listener(void)
{
    const char *where = getenv("LISTEN");
    int one = 1, fd;
    if (where && !strcmp(where, "unix")) {
        struct sockaddr_un address = {AF_UNIX, "/run/guest.sock"};
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (bind(fd, (void *)&address, sizeof address))
            die("bind");
    } else if (where && !strcmp(where, "v6")) {
        struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(8080)};
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof one);
        if (bind(fd, (void *)&address, sizeof address))
            die("bind");
    } else {
        int port = where && !strcmp(where, "any") ? 0 : 8080;
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
        fd = socket(AF_INET, SOCK_STREAM, IPPROTO_TCP);
        if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
            die("setsockopt");
        if (bind(fd, (void *)&address, sizeof address))
            die("bind");
    }
    if (listen(fd, 128))
        die("listen");
    return fd;
}

static struct connection *opened(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    connections++;
    return c;
}

static void closed(struct connection *c)
{
    close(c->fd);
    free(c);
}

static void *serve_all(void *argument)
{
    struct connection *c = argument;
    while (serve(c))
        ;
    closed(c);
    return NULL;
}

static void run_blocking(int fd)
{
    for (;;)
        serve_all(opened(accept(fd, NULL, NULL)));
}

static void run_threads(int fd)
{
    for (;;) {
        pthread_t thread;
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer;
        int client = accept(fd, (void *)&peer, &length);
        if (client < 0 || pthread_create(&thread, NULL, serve_all, opened(client)))
            die("thread");
        pthread_detach(thread);
    }
}

static void run_poll(int fd)
{
    struct connection *open[8] = {0};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (;;) {
        struct pollfd entries[9] = {{fd, POLLIN, 0}};
        for (int i = 0; i < 8; i++)
            entries[i + 1] = (struct pollfd){open[i] ? open[i]->fd : -1, POLLIN, 0};
        if (poll(entries, 9, -1) <= 0)
            die("poll");
        for (int i = 0; i < 8; i++)
            if (open[i] && entries[i + 1].revents && !serve(open[i])) {
                closed(open[i]);
                open[i] = NULL;
            }
        int client = entries[0].revents ? accept4(fd, NULL, NULL, SOCK_NONBLOCK) : -1;
        for (int i = 0; client >= 0 && i < 8; i++)
            if (!open[i]) {
                open[i] = opened(client);
                client = -1;
            }
    }
}

static void run_epoll(int fd)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event))
        die("epoll_ctl");
    for (;;) {
        struct epoll_event events[8];
        int count = epoll_wait(set, events, 8, -1);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (c) {
                // Requests that have come together are served together: edges come once.
                int keeps = serve(c);
                while (keeps && c->filled > 0)
                    keeps = serve(c);
                if (!keeps)
                    closed(c);
                continue;
            }
            for (int client; (client = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
                event = (struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | EPOLLET};
                event.data.ptr = opened(client);
                if (epoll_ctl(set, EPOLL_CTL_ADD, client, &event))
                    die("epoll_ctl");
            }
        }
    }
}

static void run_early(int fd)
{
    for (;;) {
        int client = accept(fd, NULL, NULL);
        answer(client, "whoever you are");
        close(client);
    }
}

static void run_hasty(int fd, clockid_t clock)
{
    for (;;) {
        struct connection *c = opened(accept(fd, NULL, NULL));
        struct timespec since, now;
        clock_gettime(clock, &since);
        wait_for(c->fd, POLLIN);
        clock_gettime(clock, &now);
        long waited = (now.tv_sec - since.tv_sec) * 1000 + (now.tv_nsec - since.tv_nsec) / 1000000;
        if (waited < 100)
            serve(c);
        closed(c);
    }
}

// What the host keeps fresh, and two pages of which it wipes one.
static void prepare(void)
{
    int file = open("/sandtide/fresh", O_RDONLY);
    if (read(file, fresh, sizeof fresh) != sizeof fresh)
        die("fresh");
    wiped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (wiped == MAP_FAILED || madvise(wiped, 4096, MADV_WIPEONFORK) != 0)
        die("wiped");
    strcpy(wiped[0], "before");
    strcpy(wiped[1], "kept");
}

int main(void)
{
    prepare();
    const char *mode = getenv("MODE");
    int fd = listener();
    printf("listening\n");
    fflush(stdout);
    if (!strcmp(mode, "blocking"))
        run_blocking(fd);
    else if (!strcmp(mode, "threads"))
        run_threads(fd);
    else if (!strcmp(mode, "poll"))
        run_poll(fd);
    else if (!strcmp(mode, "epoll"))
        run_epoll(fd);
    else if (!strcmp(mode, "early"))
        run_early(fd);
    else if (!strcmp(mode, "hasty"))
        run_hasty(fd, CLOCK_MONOTONIC);
    else if (!strcmp(mode, "true-time"))
        run_hasty(fd, CLOCK_BOOTTIME);
    return 8;
}
