/* An ordinary server in C: socket, bind, listen, accept. It counts the requests of its life. */
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int count;

static void answer(int client)
{
    char request[8192], body[64], response[256];
    size_t length = 0;
    /* Requests without a body: it ends with an empty line. */
    for (;;) {
        ssize_t got = read(client, request + length, sizeof(request) - 1 - length);
        if (got <= 0)
            return;
        length += (size_t)got;
        request[length] = 0;
        if (!strstr(request, "\r\n\r\n")) {
            if (length == sizeof(request) - 1)
                return;
            continue;
        }
        int size = snprintf(body, sizeof(body), "Hello from C: request %d\n", ++count);
        int all = snprintf(response, sizeof(response),
                           "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%s",
                           size, body);
        if (write(client, response, (size_t)all) != all)
            return;
        length = 0;
    }
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(3000)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 16)) {
        perror("listen");
        return 1;
    }
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0)
            return 1;
        answer(client);
        close(client);
    }
}
