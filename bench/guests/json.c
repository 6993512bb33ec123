// A JSON parser and printer, by recursive descent.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 17], out[1 << 18];
static unsigned long checksum;
static const char *at;
static char *to;

static void space(void) { while (*at == ' ' || *at == '\n') at++; }

static void string(void) {
    *to++ = *at++;
    while (*at != '"') {
        if (*at == '\\') *to++ = *at++;
        checksum = checksum * 31 + (unsigned char)*at;
        *to++ = *at++;
    }
    *to++ = *at++;
}

static void value(void) {
    space();
    switch (*at) {
    case '{':
    case '[': {
        char close = *at == '{' ? '}' : ']';
        *to++ = *at++;
        for (space(); *at != close; space()) {
            if (close == '}') { string(); space(); *to++ = *at++; }
            value();
            space();
            if (*at == ',') *to++ = *at++;
        }
        *to++ = *at++;
        break;
    }
    case '"': string(); break;
    case 't': memcpy(to, at, 4), to += 4, at += 4; break;
    case 'f': memcpy(to, at, 5), to += 5, at += 5; break;
    case 'n': memcpy(to, at, 4), to += 4, at += 4; break;
    default: {
        char *end;
        double number = strtod(at, &end);
        checksum += (unsigned long)(long)(number * 16);
        memcpy(to, at, end - at);
        to += end - at;
        at = end;
    }
    }
}

int main(void) {
    char *end = text;
    end += sprintf(end, "[");
    for (int i = 0; end < text + sizeof text - 300; i++)
        end += sprintf(end, "%s{\"id\": %d, \"name\": \"user \\\"%d\\\"\", \"tags\": [\"a%d\", \"bb\", null, true], \"score\": %d.%02d, \"on\": %s}",
                       i ? ",\n " : "", i, i * 7, i % 13, i % 100, i % 97, i % 2 ? "true" : "false");
    sprintf(end, "]");
    for (int round = 0; round < 150; round++) {
        at = text, to = out;
        value();
        *to = 0;
        checksum += strlen(out);
    }
    printf("%lu\n", checksum);
    return 0;
}
